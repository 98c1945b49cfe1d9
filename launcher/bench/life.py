"""What a start showed: the proof in every process, NCCL's own account, or why it failed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from launcher.agent import evidence, failure, library, processes
from launcher.bench.served import Life
from launcher.host import bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

#: Of a log that are read: NCCL speaks at the begin, requests of hours may follow; the end says what it died of.
_HEAD_BYTES, _TAIL_BYTES = 8_000_000, 1_000_000
#: Lines that are kept: NCCL's, of which a start has some 200 a rank, and the last ones.
_NCCL, _LAST = 4000, 15
#: Shorter values would be found everywhere.
_SHORTEST_SECRET = 4
#: Given by a scheduler where the configuration names no GPUs, and passed on.
_SCHEDULERS = "CUDA_VISIBLE_DEVICES is not from the release"


def read(log: Path, secrets: Iterable[str]) -> list[str]:
    """Return the lines of a log without secrets that the server may have printed."""
    with log.open("rb") as stream:
        data = stream.read(_HEAD_BYTES)
        size = os.fstat(stream.fileno()).st_size
        if size > _HEAD_BYTES:
            stream.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            data += b"\n" + stream.read(_TAIL_BYTES)
    text = data.decode("utf-8", "replace")
    for value in secrets:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text.splitlines()


def kept(lines: Sequence[str]) -> tuple[str, ...]:
    """Return those lines that stay with a life."""
    early = [line for line in lines[:-_LAST] if "NCCL" in line or "nccl" in line]
    return (*early[:_NCCL], *lines[-_LAST:])


def prove(
    manifest: dict[str, Any], main: int, tree: Callable[[], Sequence[int]], lines: Sequence[str]
) -> dict[str, Any]:
    """Compare every process of a server with its release; the form is that of `launcher.agent.serving.prove`."""

    def look() -> list[processes.Process]:
        return [process for pid in tree() if (process := processes.read_process(pid))]

    with bundle.informed():
        verdict = evidence.steady(manifest, main, look)
        nccl = library.judged(lines, manifest)
    odd = [line for line in verdict.odd if not line.endswith(_SCHEDULERS)]
    return {"digest": manifest["digest"], "main": main, "nccl": nccl, **verdict._asdict(), "odd": odd}


def contradictions(proof: Mapping[str, Any]) -> list[str]:
    """Return what speaks against a release: of the processes, and of NCCL's own log."""
    return [*proof["contradictions"], *(f"NCCL's log contradicts {line}" for line in proof["nccl"]["contradicted"])]


def ended(status: int) -> str:
    """Say how a process ended, by its status of waitpid(2)."""
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def failed(message: str, lines: Sequence[str], status: int | None, seconds: float, log: Path) -> Life:
    """Return the life of a server that did not come up.

    Args:
        message: what went wrong.
        lines: of its log.
        status: how it ended, of waitpid(2); None if it did not.
        seconds: that it took.
        log: that the lines are of.
    """
    result: dict[str, Any] = {"Result": "timeout"}
    if status is not None:
        code = os.waitstatus_to_exitcode(status)
        result = {"ExecMainCode": 1 if code >= 0 else 2, "ExecMainStatus": abs(code)}
    kind = failure.classify(lines, result)
    told: list[str] = []
    if kind.kind != failure.UNKNOWN:
        quote = "" if kind.line.startswith("systemd: ") else kind.line.strip()
        told = [f"{kind.kind}: {quote}".rstrip(": "), f"next: {kind.advice}"]
    told += [line for line in library.cause_of_death(lines) if line not in told]
    last = [line.rstrip() for line in lines[-_LAST:] if line.strip()]
    facts = {"failure": kind.kind, "log": str(log)}
    return Life(
        serving=False,
        message=message,
        evidence=(*told, *(line for line in last if line not in told)),
        seconds=round(seconds, 2),
        lines=kept(lines),
        facts=facts,
    )
