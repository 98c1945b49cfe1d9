"""`bench=serve`: measure points of a sweep by loads against the served model; see `launcher.sweep.session.Measure`."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from launcher.agent import comm_process, failure, nccl_log
from launcher.bench import asking, rows
from launcher.bench.clients.known import CLIENTS
from launcher.bench.gates import Wanted
from launcher.catalogue import nccl
from launcher.errors import HostError
from launcher.sweep.record import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from launcher.bench.served import Life, Servers
    from launcher.schema import Load
    from launcher.sweep.points import Candidate
    from launcher.sweep.record import Point

#: Lines of a failure that are kept.
_EVIDENCE = 12


class Serve:
    """Measures one fresh start of a point with all loads."""

    def __init__(
        self,
        candidates: Mapping[str, Candidate],
        servers: Servers,
        loads: Mapping[str, Load],
        keep: Callable[[str, str], None],
        emit: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            candidates: by digest of the point.
            servers: where they are served.
            loads: the same for every point: those of the baseline (`launcher.bench.loads.loads`).
            keep: keeps a raw result of a client: the plain name of a file, and the text.
            emit: told what goes on.
        """
        self._candidates, self._servers, self._loads = candidates, servers, loads
        self._keep, self._emit = keep, emit
        self._evidence = {v.name: v.log_evidence for v in nccl.variables().values() if v.is_setting}
        #: Of clients, by the command that asks for it.
        self._versions: dict[tuple[str, ...], str] = {}

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002 - one at a time
        """Start a point, run the loads, stop it.

        Raises:
            LaunchError: nothing can be served or measured here at all, now.
        """
        candidate = self._candidates[point.digest]
        at, begin = time.time(), time.monotonic()
        stopping = begin
        try:
            life = self._servers.start(candidate)
            trial = self.measured(candidate, life, Trial(point.digest, order, at, 0.0))
            stopping = time.monotonic()
        finally:
            self._servers.stop()
        return timed(trial, time.monotonic() - begin, time.monotonic() - stopping)

    def measured(self, candidate: Candidate, life: Life, base: Trial) -> Trial:
        """Return the trial of a start, without its end.

        Raises:
            LaunchError: the machine cannot be asked, or there is no client.
        """
        base = dataclasses.replace(base, proof=self._proof(candidate, life), facts=_facts(life))
        if not life.serving:
            usual = "not measured" if base.kind else "no start"
            return _failed(base, life.message, (*life.lines, *life.evidence), life.evidence, usual)
        version = self._version(candidate)
        client = {"name": candidate.deployment.bench.client, **({"version": version} if version else {})}
        base = dataclasses.replace(base, facts={**base.facts, "client": client})
        against = [f"{n} is contradicted by NCCL: {p['quote']}" for n, p in base.proof.items() if _against(p)]
        for number, (name, load) in enumerate(self._loads.items()):
            self._emit(f"load {name}: {load.requests} requests, {load.concurrency} in flight")
            found: list[rows.Row] = []
            for run in range(candidate.deployment.bench.runs):
                asked = asking.ask(candidate.deployment, load, number, run, version)
                answer = self._servers.load(asking.request(candidate.deployment, asked, warm=run == 0))
                base = _noted(base, answer)
                self._keep_raw(f"{base.kind}{base.order:03d}-{base.point}-{name}-{run + 1}", answer)
                if answer["outcome"] == "lacking":
                    raise self._lacking(candidate, answer)
                if answer["outcome"] == "dead":
                    lines = answer["death"] or answer["log"]["last"]
                    return _failed(base, f"{answer['message']} (load {name})", lines, lines, "server died")
                wanted = self._wanted(candidate, load)
                found.append(rows.row(CLIENTS[client["name"]], asked, wanted, load, answer))
            reading = rows.reading(name, load, found, _gpus(candidate), against)
            base = dataclasses.replace(base, readings=(*base.readings, reading))
        return base

    def _wanted(self, candidate: Candidate, load: Load) -> Wanted:
        bench, spec = candidate.deployment.bench, candidate.deployment.spec
        return Wanted(
            requests=load.requests,
            input_tokens=load.input_tokens,
            output_tokens=load.output_tokens,
            cache_hits=bench.cache_hits,
            acceptance_low=bench.acceptance_low,
            acceptance_high=bench.acceptance_high,
            speculation=spec.method != "off",
            nccl={name: value for name, value in candidate.release.env.items() if name.startswith("NCCL_")},
            evidence=self._evidence,
        )

    def _proof(self, candidate: Candidate, life: Life) -> dict[str, dict[str, str]]:
        """Return NCCL's own account of the variables of a release."""
        env = {name: value for name, value in candidate.release.env.items() if name.startswith("NCCL_")}
        verdicts = nccl_log.verdicts(nccl_log.read(life.lines), env, self._evidence)
        return {name: {"word": verdict.word, "quote": verdict.quote} for name, verdict in verdicts.items()}

    def _version(self, candidate: Candidate) -> str:
        """Return the version of the client, asked once for each of them.

        Raises:
            HostError: the client cannot be run where the server is.
        """
        request = asking.version_request(candidate.deployment)
        words = tuple(request["version"])
        if words and words not in self._versions:
            answer = self._servers.load(request)
            if answer["outcome"] == "lacking":
                raise self._lacking(candidate, answer)
            self._versions[words] = answer["version"]
        return self._versions.get(words, "")

    def _lacking(self, candidate: Candidate, answer: Mapping[str, Any]) -> HostError:
        """Return the error that there is no client: no other point would have one either."""
        what = f"bench.client={candidate.deployment.bench.client} cannot be run: {answer['message']}"
        return HostError(self._servers.name, f"{what}; set bench.client_python=PATH to an interpreter that has it")

    def _keep_raw(self, name: str, answer: Mapping[str, Any]) -> None:
        """Keep what the client said, or how it failed."""
        if answer["result"]:
            self._keep(f"{name}.json", answer["result"])
        if answer["outcome"] != "measured":
            self._keep(f"{name}.txt", f"{answer['message']}\n\n{answer['stdout']}\n{answer['stderr']}\n")


def _against(proof: Mapping[str, str]) -> bool:
    return proof["word"] == nccl_log.CONTRADICTED


def _gpus(candidate: Candidate) -> int:
    engine = candidate.deployment.engine
    return len(engine.gpus) or engine.tensor_parallel


def _facts(life: Life) -> dict[str, Any]:
    return {
        **life.facts,
        "versions": dict(life.facts.get("versions", {})),
        "gpus": list(life.facts.get("gpus", [])),
        "seconds": {"start": round(life.seconds, 2)},
    }


def _noted(base: Trial, answer: Mapping[str, Any]) -> Trial:
    """Return a trial with what an answer says beside its figures: seconds by part, GPUs under load, the driver."""
    facts = {**base.facts, "seconds": dict(base.facts["seconds"]), "versions": dict(base.facts["versions"])}
    for part in ("warm-up", "client", "all"):
        seconds = answer["seconds"].get(part, 0.0)
        facts["seconds"][part] = round(facts["seconds"].get(part, 0.0) + seconds, 2)
    if answer["gpus"]:
        facts["gpus"] = answer["gpus"]
        fields = [line.split(",") for line in answer["gpus"]]
        drivers = sorted({one[-1].strip() for one in fields if len(one) == len(comm_process.GPU_FIELDS.split(","))})
        facts["versions"] |= {"driver": " or ".join(drivers)} if drivers else {}
    return dataclasses.replace(base, facts=facts)


def timed(trial: Trial, seconds: float, stop: float) -> Trial:
    """Return a trial with its length; ``other`` is what neither start, client, warm-up nor stop took."""
    parts = {name: value for name, value in trial.facts["seconds"].items() if name != "all"}
    parts["stop"] = round(stop, 2)
    parts["other"] = round(max(0.0, seconds - sum(parts.values())), 2)
    return dataclasses.replace(trial, seconds=round(seconds, 2), facts={**trial.facts, "seconds": parts})


def _failed(base: Trial, message: str, lines: Sequence[str], shown: Sequence[str], usual: str) -> Trial:
    """Return a trial that failed, in the class that the lines tell."""
    kind = failure.classify(lines, {})
    word = kind.kind if kind.kind != failure.UNKNOWN else usual
    quoted = [line.strip() for line in shown[-_EVIDENCE:] if line.strip()]
    first = [kind.line.strip()] if kind.line.strip() and kind.line.strip() not in quoted else []
    return dataclasses.replace(
        base, readings=(), failure=word, message=message, evidence=(*first, *quoted)[: _EVIDENCE + 1]
    )
