"""What an answer of the ranks means for a point: a reading, an invalid one, a failure; and which points are equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import comm_process
from launcher.bench.allreduce import identity, link_test, specification, trial
from launcher.bench.steps import Step, sizes, steps
from launcher.errors import ConfigError
from tests.composing import compose

LOGS = Path(__file__).parent.parent / "nccl_log"
CASES: dict[str, dict[str, Any]] = json.loads((LOGS / "cases.json").read_text())
TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce")
WANTED = steps(compose([*TINY, "bench.batches=[1,8]", "bench.prefill_tokens=[256]"]))
DECODE = "decode-1"


def answer(
    wanted: tuple[Step, ...] = WANTED, us: tuple[float, ...] = (9.0, 12.0, 10.0), **fields: Any
) -> dict[str, Any]:
    """Return an answer of the agent in which everything went well, but for what is given."""
    rows = [
        {"collective": size.collective, "elements": size.elements, "bytes": size.bytes, "count": count}
        | {"us": list(us), "wrong": 0, "wrong_ranks": [], "graph": 8}
        for size, count in sizes(wanted)
    ]
    ranks = [{"rank": number, "exit": "exit code 0", "phase": "done"} for number in range(2)]
    return {**comm_process.EMPTY, "outcome": "measured", "message": "", "rows": rows, "ranks": ranks, **fields}


def recorded(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the lines of a recorded start, and the environment that it had."""
    return (LOGS / "logs" / f"{name}.txt").read_text().splitlines(), CASES[name]["env"]


def judged(given: dict[str, Any], env: dict[str, str] | None = None) -> Any:
    return trial("d" * 16, 3, 100.0, 7.125, given, WANTED, env or {})


# --- measured


def test_a_reading_is_what_all_collectives_of_a_step_take() -> None:
    found = judged(answer(versions={"nccl": "2.28.9"}, gpus=["0, NVIDIA H200"]))
    assert (found.point, found.order, found.at, found.seconds) == ("d" * 16, 3, 100.0, 7.12)
    assert (found.failure, found.message, found.evidence) == ("", "", ())
    assert [reading.workload for reading in found.readings] == ["decode-1", "decode-8", "prefill-256"]
    reading = found.readings[0]
    # 2 layers x 2 all-reduces, and the logits once.
    assert (reading.value, reading.low, reading.high, reading.invalid) == (5 * 10, 5 * 9, 5 * 12, ())
    assert reading.details["us_per_allreduce"] == 10
    assert (reading.details["graph"], reading.details["replays"]) == (8, 3)
    assert found.facts["versions"] == {"nccl": "2.28.9"}
    assert found.facts["gpus"] == ["0, NVIDIA H200"]


def test_what_nccl_took_for_a_size_is_told() -> None:
    head = "host:7:7 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..1}}"
    lines = [head.format(256, "RING", "LL"), head.format(8 * 256, "TREE", "LL128"), head.format(4, "RING", "SIMPLE")]
    found = judged(answer(lines=[lines, lines]))
    took = [(r.details.get("algorithm"), r.details.get("protocol")) for r in found.readings]
    assert took == [("RING", "LL"), ("TREE", "LL128"), (None, None)]


def test_an_all_gather_of_the_same_size_is_not_taken_for_it() -> None:
    line = "host:7:7 [0] NCCL INFO AllGather: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}"
    assert "algorithm" not in judged(answer(lines=[[line]])).readings[0].details


# --- invalid


def test_wrong_sums_invalidate_what_uses_them_and_nothing_else() -> None:
    given = answer()
    (bad,) = [row for row in given["rows"] if row["collective"] == "all_reduce" and row["bytes"] == 8 * 256]
    bad["wrong"] = 17
    found = judged(given)
    assert [bool(reading.invalid) for reading in found.readings] == [False, True, False]
    (text,) = found.readings[1].invalid
    assert text.startswith("17 numbers of the all_reduce of 2048 bytes are wrong")
    assert found.readings[1].details["wrong"] == 17
    assert found.failure == ""


def test_wrong_logits_count_too() -> None:
    given = answer()
    for row in given["rows"]:
        row["wrong"] = 2 if row["collective"] == "all_gather" and row["bytes"] == 1024 else 0
    found = judged(given)
    # Of a prefill chunk only the last token is gathered: the same message as that of decode-1.
    assert [bool(reading.invalid) for reading in found.readings] == [True, False, True]
    assert "2 numbers of the all_gather of 1024 bytes" in found.readings[0].invalid[0]


CONTRADICTED = {
    "log_bad_nthreads": ("NCCL_NTHREADS", "Invalid NCCL_NTHREADS 100 (must be a multiple of 32)"),
    "log_bad_buff": ("NCCL_BUFFSIZE", "NCCL_BUFFSIZE set by environment to 0."),
    "log_min_gt_max": ("NCCL_MAX_NCHANNELS", "16 coll channels"),
}


@pytest.mark.parametrize(("name", "expected"), CONTRADICTED.items())
def test_a_contradicted_variable_invalidates_everything(name: str, expected: tuple[str, str]) -> None:
    lines, env = recorded(name)
    found = judged(answer(lines=[lines, []]), env)
    variable, quote = expected
    assert len(found.readings) == 3
    for reading in found.readings:
        (text,) = reading.invalid
        assert text.startswith(f"{variable} is contradicted by NCCL: ")
        assert quote in text
    assert found.proof[variable]["word"] == "contradicted"
    assert quote in found.proof[variable]["quote"]


@pytest.mark.parametrize("name", ["info_shm_tuned", "log_seed", "log_default", "log_unknown"])
def test_a_proved_or_silent_variable_invalidates_nothing(name: str) -> None:
    lines, env = recorded(name)
    found = judged(answer(lines=[lines]), env)
    assert [reading.invalid for reading in found.readings] == [(), (), ()]
    assert {n for n, proof in found.proof.items() if proof["word"] == "proved"} == set(CASES[name]["proved"])


def test_another_environment_invalidates_everything() -> None:
    found = judged(answer(environment=["rank 1: NCCL_ALGO differs"]))
    assert [reading.invalid for reading in found.readings] == 3 * [
        ("the environment of a process: rank 1: NCCL_ALGO differs",)
    ]


# --- failed

NO_ALGORITHM = "NCCL WARN Error : no algorithm/protocol available for function AllGather"
FAILED = {
    "unknown algorithm": (
        "log_bad_algo",
        "NCCL: invalid usage",
        'NCCL WARN Unrecognized element token "Rng" when parsing "Rng"',
    ),
    "unknown protocol": (
        "log_bad_proto",
        "NCCL: invalid usage",
        'NCCL WARN Unrecognized element token "LL12" when parsing "LL12"',
    ),
    "bare tree": ("warn_shm_tree_bare", "NCCL: no algorithm", NO_ALGORITHM),
}


@pytest.mark.parametrize(("name", "word", "quote"), FAILED.values(), ids=FAILED.keys())
def test_a_failure_is_classed_and_quoted(name: str, word: str, quote: str) -> None:
    lines, env = recorded(name)
    message = "rank 0 ended with exit code 1 in: join the communicator"
    found = judged(answer(outcome="failed", message=message, lines=[lines, []], rows=[]), env)
    assert found.readings == ()
    assert found.failure == word
    assert found.message == message
    assert quote in found.evidence[0]
    assert len(found.evidence) <= 12


def test_what_nccl_explained_is_told_once_and_without_hints_at_links() -> None:
    line = 'vm:933:933 [0] graph/tuning.cc:104 NCCL WARN Unrecognized element token "Rng" when parsing "Rng"'
    lines = [f"[2026-11-30 06:44:04] {line}", "vm:933:933 [0] NCCL INFO init.cc:1 -> 5", f"{line}", "ncclInvalidUsage"]
    given = answer(outcome="failed", message="rank 0 ended with exit code 1", lines=[lines, []], rows=[])
    found = judged({**given, "hints": ["try nccl.p2p_disable=1"]}, {"NCCL_ALGO": "Rng"})
    assert [text for text in found.evidence if "Rng" in text][1:] == []
    assert not any("hint" in text for text in found.evidence)


def test_a_failure_that_says_nothing_known_shows_the_last_lines() -> None:
    given = answer(outcome="failed", message="rank 1 ended with SIGKILL in: measure", rows=[], lines=[["a"], ["b"]])
    found = judged({**given, "last": ["rank 0: a", "rank 1: b"], "hints": ["try this"]})
    assert found.failure == "failed"
    assert found.evidence == ("rank 0: a", "rank 1: b", "hint: try this")


def test_a_hang_is_a_hang_whatever_was_printed() -> None:
    lines, env = recorded("log_bad_nthreads")
    message = "no sign of life for 60 s: rank 0 in: measure all_reduce of 256 bytes; rank 1 in: import torch"
    ranks = [
        {"rank": 0, "exit": "SIGKILL", "phase": "measure"},
        {"rank": 1, "exit": "SIGKILL", "phase": "import torch"},
    ]
    given = answer(outcome="hung", message=message, lines=[lines], rows=[], ranks=ranks)
    found = judged({**given, "last": ["rank 0: the last"], "hints": ["try nccl.p2p_disable=1"]}, env)
    assert (found.failure, found.readings) == ("hang", ())
    assert "rank 1 in: import torch" in found.message
    assert found.facts["ranks"] == ranks
    assert "rank 0: the last" in found.evidence
    assert found.evidence[-1] == "hint: try nccl.p2p_disable=1"


# --- equal points

BASE = identity(compose(TINY))
SAME = {
    "nothing": (),
    "a flag of the server": ("engine.args.seed=1",),
    "memory": ("engine.memory_fraction=0.5",),
    "another port": ("engine.port=9000",),
    "a default of NCCL written out": ("nccl.debug=INFO",),
}
OTHER = {
    "a variable": ("nccl.algo=Ring",),
    "a plain one": ("env.FOO=a",),
    "interpreter": ("engine.python=/opt/other/bin/python",),
    "GPUs": ("engine.gpus=[0,1]",),
    "user": ("engine.user=nobody",),
    "sizes": ("bench.batches=[1,2]",),
    "type": ("bench.dtype=float32",),
    "what the engine adds": ("engine.args.enable_nccl_nvls=true",),
    "program": ("bench.nccl_tests=/opt/nccl-tests/build",),
}


@pytest.mark.parametrize("words", SAME.values(), ids=SAME.keys())
def test_points_with_the_same_measurement_are_equal(words: tuple[str, ...]) -> None:
    assert identity(compose([*TINY, *words])) == BASE


@pytest.mark.parametrize("words", OTHER.values(), ids=OTHER.keys())
def test_points_with_another_measurement_are_others(words: tuple[str, ...]) -> None:
    assert identity(compose([*TINY, *words])) != BASE


def test_the_same_environment_by_another_way_is_equal() -> None:
    assert identity(compose([*TINY, "nccl.algo=Ring"])) == identity(compose([*TINY, "env.NCCL_ALGO=Ring"]))


# --- what is asked of the ranks


def test_the_request_is_plain_data() -> None:
    deployment = compose([*TINY, "bench.deadline=7", "engine.gpus=[1,0]", "engine.working_directory=/srv"])
    spec = specification(deployment, sizes(steps(deployment)))
    assert json.loads(json.dumps(spec)) == spec
    assert (spec["world"], spec["deadline"], spec["gpus"], spec["cwd"]) == (2, 7, ["1", "0"], "/srv")
    compile(spec["program"], "comm_rank", "exec")


NCCL_TESTS = "bench.nccl_tests=/opt/nccl-tests/build"


def test_nccl_tests_are_asked_for_by_their_path() -> None:
    deployment = compose([*TINY, NCCL_TESTS])
    asked = specification(deployment, sizes(steps(deployment)))
    assert asked.pop("nccl_tests") == "/opt/nccl-tests/build"
    assert asked == specification(compose(TINY), sizes(steps(compose(TINY))))
    other = compose([*TINY, "bench.nccl_tests=/opt/other"])
    assert identity(other) != identity(deployment)


def test_what_they_measure_is_never_compared_with_what_torch_measures() -> None:
    of_torch, of_theirs = (steps(compose([*TINY, *words]))[0].workload for words in ((), (NCCL_TESTS,)))
    assert of_torch != of_theirs
    assert "nccl-tests: ranks are threads" in of_theirs.text
    versions = {"nccl-tests": "2.19.1", "nccl": "2.28.9"}
    torch, theirs = judged(answer(versions={"torch": "2.11", "nccl": "2.28.9"})), judged(answer(versions=versions))
    assert torch.facts["client"] != theirs.facts["client"]
    assert "note" not in torch.facts
    assert "threads of one process" in theirs.facts["note"]


def test_phases_of_all_sizes_are_told_together() -> None:
    phases = [("start all_reduce of 4 bytes", 0.0), ("join the communicator for all_reduce of 4 bytes", 1.0)]
    phases += [("measure all_reduce of 4 bytes", 3.0), ("start all_gather of 4 bytes", 3.5), ("done", 4.5)]
    seconds = judged(answer(phases=phases)).facts["seconds"]
    assert seconds == {"start": 2.0, "join the communicator": 2.0, "measure": 0.5}


REFUSED = {
    "gloo": ((NCCL_TESTS, "bench.backend=gloo"), "measures with NCCL: leave out bench.backend=gloo"),
    "relative": (("bench.nccl_tests=build",), "bench.nccl_tests=build is no absolute path"),
    "the other program": (("bench.nccl_tests=/opt/all_gather_perf",), "/opt/all_gather_perf is not all_reduce_perf"),
    "a part that they would cut": ((NCCL_TESTS, "model.vocab_size=1001"), "has to be 32 x n"),
}


@pytest.mark.parametrize(("words", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_what_they_cannot_measure_is_refused(words: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigError) as refused:
        identity(compose([*TINY, *words]))
    assert part in str(refused.value)


def test_link_tests_need_nothing_but_the_engine() -> None:
    found = link_test(compose([*TINY, NCCL_TESTS, "target.link_test=stopped"]))
    assert found
    assert "nccl_tests" not in found["spec"]


def test_link_tests() -> None:
    assert link_test(compose([*TINY, "target.link_test=off"])) is None
    assert link_test(compose(["model=tiny", "target.link_test=stopped"])) is None  # one GPU
    found = link_test(compose(["+hw=rtx6000x8", "+spec=eagle3_2step", "target.link_test=beside"]))
    assert found
    assert found["beside"] is True
    told = [(size["collective"], size["bytes"]) for size in found["spec"]["rank"]["sizes"]]
    assert told == [
        ("all_reduce", 14336), ("all_reduce", 8192 * 14336),
        ("all_gather", 327680), ("all_gather", 64 * 3 * 327680),
    ]  # fmt: skip
    assert {size["count"] for size in found["spec"]["rank"]["sizes"]} == {1}
    full = specification(compose(["+hw=rtx6000x8"]), [])["rank"]
    assert found["spec"]["rank"]["seconds"] < full["seconds"]
    assert found["spec"]["rank"]["most_replays"] < full["most_replays"]


def test_a_link_test_of_an_unknown_model_takes_usual_sizes() -> None:
    found = link_test(compose([*TINY, "model.hidden_size=0", "target.link_test=stopped"]))
    assert found
    assert found["beside"] is False
    assert [size["bytes"] for size in found["spec"]["rank"]["sizes"]] == [1 << 14, 1 << 24]
