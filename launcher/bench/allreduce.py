"""`bench=allreduce`: what is asked of the machine with the GPUs for one trial, and what its answer means. Pure."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import signal
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import launcher.agent
from launcher.agent import comm_process, failure, nccl_log, nccl_tests_size
from launcher.bench.carried import carried
from launcher.bench.steps import Size, Step, sizes, steps
from launcher.catalogue import nccl
from launcher.errors import ConfigError
from launcher.sweep.record import Reading, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.schema import Deployment

#: Replays of one size, whatever their length.
_FEWEST, _MOST = 5, 60
#: Rounds over all sizes that the replays are spread over.
_PARTS = 4
#: Of a link test: seconds for each size.
_SHORT = 0.05
#: Lines of a failure that are kept.
_EVIDENCE = 12
#: What measures, by how its ranks run.
_PROCESSES, _THREADS = ("comm_rank.py",), ("nccl_tests.py", "nccl_tests_size.py", "nccl_tests_run.py")
_NOTE = (
    "measured by nccl-tests: its ranks are threads of one process, an engine's are processes; comparable only with"
    " what nccl-tests measured"
)
#: Phases that are told together, whatever the size.
_PHASES = ("check", "capture", "measure", "join the communicator", "start")
_FUNCTIONS = {"all_reduce": "AllReduce", "all_gather": "AllGather"}


def specification(
    deployment: Deployment, measured: Sequence[tuple[Size, int]], *, short: bool = False
) -> dict[str, Any]:
    """Return what `launcher.agent.comm.run` measures, or with ``nccl_tests`` `launcher.agent.nccl_tests_run.run`.

    The environment lacks what its surroundings give.

    Args:
        deployment: the point.
        measured: sizes with how often a step does each.
        short: a link test: each size just long enough to see that it works.
    """
    bench, engine = deployment.bench, deployment.engine
    rank = {
        "backend": bench.backend,
        "dtype": bench.dtype,
        "seconds": _SHORT if short else bench.seconds,
        "fewest_replays": _FEWEST,
        "most_replays": _FEWEST if short else _MOST,
        "parts": 1 if short else _PARTS,
        "deadline": bench.deadline,
        "sizes": [
            {"collective": s.collective, "elements": s.elements, "bytes": s.bytes, "count": n} for s, n in measured
        ],
    }
    spec = {
        "python": engine.python,
        "program": (Path(launcher.agent.__file__).parent / "comm_rank.py").read_text(encoding="utf-8"),
        "env": carried(deployment),
        "cwd": engine.working_directory,
        "user": engine.user,
        "world": engine.tensor_parallel,
        "gpus": list(engine.gpus),
        "deadline": bench.deadline,
        "rank": rank,
    }
    # A link test is part of a deploy: it needs nothing but the engine.
    return {**spec, "nccl_tests": bench.nccl_tests} if bench.nccl_tests and not short else spec


def link_test(deployment: Deployment) -> dict[str, Any] | None:
    """Return what a host tries before it starts a new server, None where nothing is wanted or nobody communicates.

    The smallest and the largest message of the model; where its shape is not known, 16 KiB and 16 MiB.
    """
    if deployment.target.link_test == "off" or deployment.engine.tensor_parallel < 2:
        return None
    try:
        found = [size for size, _ in sizes(steps(deployment))]
    except ConfigError:
        found = [Size("all_reduce", number // 2, number) for number in (1 << 14, 1 << 24)]
    chosen = []
    for collective in _FUNCTIONS:
        group = sorted((size for size in found if size.collective == collective), key=lambda size: size.bytes)
        chosen += [group[0], group[-1]] if len(group) > 1 else group
    spec = specification(deployment, [(size, 1) for size in chosen], short=True)
    return {"spec": spec, "beside": deployment.target.link_test == "beside"}


def identity(deployment: Deployment) -> str:
    """Return what tells two measurements apart, as a digest: environment, program, ranks and sizes.

    Raises:
        ConfigError: the program cannot measure that.
    """
    spec = specification(deployment, sizes(steps(deployment)))
    if "nccl_tests" in spec:
        try:
            nccl_tests_size.plan(spec)
        except ValueError as error:
            raise ConfigError(f"bench.nccl_tests={spec['nccl_tests']}: {error}") from error
    told = ("python", "env", "cwd", "user", "world", "gpus", "rank", "nccl_tests")
    text = json.dumps({name: spec[name] for name in told if name in spec}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def trial(
    point: str,
    order: int,
    at: float,
    seconds: float,
    answer: Mapping[str, Any],
    wanted: tuple[Step, ...],
    env: Mapping[str, str],
) -> Trial:
    """Return what an answer of the agent says of a point."""
    lines = [line for rank in answer["lines"] for line in rank]
    log = nccl_log.read(lines)
    evidence = {v.name: v.log_evidence for v in nccl.variables().values() if v.is_setting}
    verdicts = nccl_log.verdicts(log, env, evidence)
    facts = {
        "versions": _versions(answer),
        "client": {"digest": _client(*(_THREADS if "nccl-tests" in answer["versions"] else _PROCESSES))},
        "gpus": answer["gpus"],
        "seconds": _durations(answer["phases"]),
        "transports": dict(log.transports),
        "ranks": answer["ranks"],
    }
    if "nccl-tests" in answer["versions"]:
        facts["note"] = _NOTE
    proof = {name: {"word": v.word, "quote": v.quote} for name, v in verdicts.items()}
    base = Trial(point, order, at, round(seconds, 2), proof=proof, facts=facts)
    if answer["outcome"] != "measured":
        return _failed(base, answer, lines, log)
    against = [f"{name} is contradicted by NCCL: {v.quote}" for name, v in verdicts.items() if v.word == "contradicted"]
    against += [f"the environment of a process: {text}" for text in answer["environment"]]
    rows = {(row["collective"], row["bytes"]): row for row in answer["rows"]}
    readings = tuple(_reading(step, rows, log, tuple(against)) for step in wanted)
    return _with(base, readings=readings)


def _versions(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured with; the driver is the last field of a GPU's line."""
    fields = [line.split(",") for line in answer["gpus"]]
    drivers = sorted({one[-1].strip() for one in fields if len(one) == len(comm_process.GPU_FIELDS.split(","))})
    return {**answer["versions"], **({"driver": " or ".join(drivers)} if drivers else {})}


@functools.cache
def _client(*modules: str) -> str:
    """Return what names the measuring program: another one measures anew."""
    folder = Path(launcher.agent.__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in modules)).hexdigest()[:16]


def _with(base: Trial, **changes: Any) -> Trial:  # noqa: ANN401 - fields of Trial
    import dataclasses

    return dataclasses.replace(base, **changes)


def _failed(base: Trial, answer: Mapping[str, Any], lines: Sequence[str], log: nccl_log.Log) -> Trial:
    """Class what went wrong by what NCCL and the processes said; a hang is one whatever was said."""
    kind = failure.classify(lines, _ended(answer["ranks"]))
    word = "hang" if answer["outcome"] == "hung" else kind.kind if kind.kind != failure.UNKNOWN else answer["outcome"]
    cause = log.cause
    quoted = [cause.line.strip()] if cause and cause.kind not in {"not completed", "other"} else []
    # The same line with the time before it says nothing new.
    quoted += [kind.line.strip()] if kind.line and not kind.line.strip().endswith(tuple(quoted) or "\n") else []
    plain = not quoted or word == "hang"
    if plain:
        quoted += [line.strip() for line in answer.get("last", lines[-_EVIDENCE:]) if line.strip()]
    # Of what NCCL itself has explained, links are not the cause.
    hints = [f"hint: {text}" for text in answer.get("hints", ())] if plain else []
    return _with(base, failure=word, message=answer["message"], evidence=(*quoted[:_EVIDENCE], *hints))


def _ended(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how a rank ended by itself, in systemd's words: the others were killed for its sake."""
    words = [str(rank["exit"]) for rank in ranks]
    word = next((word for word in words if word.startswith("SIG") and word != "SIGKILL"), "")
    return {"Result": "signal", "ExecMainCode": 2, "ExecMainStatus": int(signal.Signals[word])} if word else {}


def _durations(phases: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds of each kind of phase of the first rank."""
    found: dict[str, float] = {}
    for (phase, begin), (_, end) in itertools.pairwise(phases):
        kind = next((word for word in _PHASES if phase.startswith(word)), phase)
        found[kind] = round(found.get(kind, 0.0) + end - begin, 2)
    return found


def _reading(
    step: Step, rows: Mapping[tuple[str, int], Mapping[str, Any]], log: nccl_log.Log, against: tuple[str, ...]
) -> Reading:
    """Return the microseconds that all collectives of a step take together."""
    value, low, high = 0.0, 0.0, 0.0
    details: dict[str, Any] = {}
    invalid = list(against)
    for size, count in step.sizes:
        row = rows[(size.collective, size.bytes)]
        us = sorted(row["us"])
        middle = statistics.median(us)
        value, low, high = value + count * middle, low + count * us[0], high + count * us[-1]
        details[f"us_per_{size.collective.replace('_', '')}"] = round(middle, 3)
        if size.collective == "all_reduce":
            details |= {"us_low": round(us[0], 3), "us_high": round(us[-1], 3)}
        if row["wrong"]:
            details["wrong"] = details.get("wrong", 0) + row["wrong"]
            invalid.append(f"{row['wrong']} numbers of the {size.collective} of {size.bytes} bytes are wrong")
        if size.collective == "all_reduce":
            details |= _chosen(log, size) | {"graph": row["graph"], "replays": len(us)}
    return Reading(step.workload.name, round(value, 3), round(low, 3), round(high, 3), tuple(invalid), details)


def _chosen(log: nccl_log.Log, size: Size) -> dict[str, str]:
    """Return what NCCL took for a size, by its TUNING lines."""
    for choice in log.choices:
        if choice.size == size.bytes and choice.function == _FUNCTIONS[size.collective]:
            return {"algorithm": choice.algorithm, "protocol": choice.protocol}
    return {}
