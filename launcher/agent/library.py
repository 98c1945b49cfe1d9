"""What NCCL itself says of a release's settings, from the journal of the unit's current start."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping

from . import failure, knowledge, nccl_log, systemd
from .journal import say
from .manifest import ManifestError, load

#: A start has some 200 lines of NCCL among a few thousand of the engine.
_LINES, _SECONDS = 20_000, 3
_CAUSE = re.compile(r"\b\w*(Error|Exception)\b: \S|NCCL WARN|: error: |out of memory", re.IGNORECASE)


def account(unit: str, invocation: str, manifest: Dict[str, Any]) -> Dict[str, Any]:
    """Return NCCL's own account of the variables of a release.

    Args:
        unit: its name.
        invocation: systemd's id of the start that is asked about; older ones may have had other values.
        manifest: of the release.

    Returns:
        ``proved`` and ``silent`` names, ``contradicted`` lines, and ``versions`` of NCCL; all empty where the
        server's output is not in the journal, or NCCL_DEBUG keeps it quiet.
    """
    argv = ["journalctl", "--no-pager", "-q", "-o", "cat", "-u", unit, f"_SYSTEMD_INVOCATION_ID={invocation}"]
    with contextlib.suppress(systemd.SystemdError):  # what is written already will do
        systemd.command(["journalctl", "--sync"], timeout=_SECONDS)
    return judged(first_lines(argv), manifest)


def judged(lines: Iterable[str], manifest: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what lines of a start say of the variables of its release; see `account`."""
    log = nccl_log.read(lines)
    wanted = {name: value for name, value in manifest["env"].items() if name.startswith("NCCL_")}
    found = nccl_log.verdicts(log, wanted, knowledge.EVIDENCE)
    return {
        "proved": sorted(name for name, verdict in found.items() if verdict.word == "proved"),
        "contradicted": [f"{n}: {v.quote}" for n, v in sorted(found.items()) if v.word == "contradicted"],
        "silent": sorted(name for name, verdict in found.items() if verdict.word == "silent"),
        "versions": sorted(log.versions),
    }


def first_lines(argv: List[str]) -> Iterator[str]:
    """Yield the begin of a command's output: NCCL speaks at the start, requests of weeks may follow."""
    deadline = time.monotonic() + _SECONDS
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        for number, line in enumerate(process.stdout):
            if number > _LINES or time.monotonic() > deadline:
                break
            yield line.decode("utf-8", "replace")
        process.kill()


def tell(path: str) -> int:
    """Write NCCL's account of this start into the journal; runs as root after the waiter, and never fails a start."""
    try:
        manifest = load(path)
    except ManifestError as error:
        say(f"warning: {error}", level=4)
        return 0
    found = account(f"launch-{manifest['name']}.service", os.environ.get("INVOCATION_ID", ""), manifest)
    if found["proved"] or found["contradicted"]:
        counts = (
            f"{len(found['proved'])} proved, {len(found['contradicted'])} contradicted, {len(found['silent'])} silent"
        )
        say(f"NCCL {', '.join(found['versions'])} by its own log: {counts}")
    for line in found["contradicted"]:
        say(f"warning: NCCL's log contradicts {line}", level=4)
    return 0


def cause_of_death(lines: Iterable[str]) -> List[str]:
    """Return NCCL's own reason for a failed start, classed, or nothing; for dead servers only."""
    cause = nccl_log.read(lines).cause
    # A start that was cut off is no cause of its own.
    if cause is None or cause.kind in ("not completed", "other"):
        return []
    return [f"NCCL: {cause.kind}: {cause.line.strip()}"]


def _whole(log_file: str) -> List[str]:
    """Return the newest megabyte of a log file: an engine's first cause stands hundreds of lines above its end."""
    try:
        with open(log_file, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 1_000_000))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def failed_start(unit: str, since: float, log_file: str = "", lines: int = 15) -> List[str]:
    """Return the evidence of a failed start: guard, waiter, NCCL's reason, the first errors, the newest lines.

    Args:
        unit: its name.
        since: seconds of the epoch.
        log_file: where the server's own lines go, if not to the journal.
        lines: of the server, at most.
    """
    argv = ["journalctl", "--no-pager", "-q", "-o", "cat", "-u", unit, f"--since=@{int(since)}"]
    try:
        systemd.command(["journalctl", "--sync"])
        said = systemd.command(argv).splitlines()
        state = systemd.all_properties(unit)
        tail = systemd.command(["tail", "-n", str(lines), log_file]).splitlines() if log_file else []
    except systemd.SystemdError as error:
        return [str(error)]
    verdicts = [line for line in said if line.startswith("launch: ") and "guard: release" not in line]
    kind = failure.classify([*_whole(log_file), *said], state)
    told = [f"{kind.kind}: {kind.line}".rstrip(": "), f"next: {kind.advice}"] if kind.kind != failure.UNKNOWN else []
    # The first error is the cause; what stands last is often only its consequence.
    causes = [line for line in said if _CAUSE.search(line) and line not in verdicts][:3]
    shown = {*verdicts, *causes}
    return [
        *told,
        *verdicts,
        *cause_of_death(said),
        *causes,
        *(line for line in said[-lines:] if line not in shown),
        *tail,
    ]
