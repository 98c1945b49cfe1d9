"""A verdict over a whole unit that helpers of the engine, which come and go, cannot upset."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Set

from .processes import Process, Verdict, contradictions, judge, read_bytes, unit_processes

#: A contradiction must still be there after this long, in the same process.
SETTLE_SECONDS = 2.0
#: Written by the guard, in the unit's runtime folder, before it becomes the server.
GUARD_FILE = "guard"


def settled(manifest: Dict[str, Any], main: int, cgroup: str, skip: "Set[int] | None" = None) -> Verdict:
    """Judge all processes of a unit; see `steady`."""
    return steady(manifest, main, lambda: unit_processes(cgroup, skip))


def steady(manifest: Mapping[str, Any], main: int, look: Callable[[], List[Process]]) -> Verdict:
    """Judge all processes of a server; a contradiction counts only in a process that is there in both looks.

    Compilers and the like, started by the engine with an environment of their own, live shorter than that.
    """
    first = look()
    verdict = judge(first, manifest, main)
    if not verdict.contradictions:
        return verdict
    suspects = {(p.pid, p.start) for p in first if contradictions(p, manifest)}
    time.sleep(SETTLE_SECONDS)
    second = [p for p in look() if (p.pid, p.start) in suspects or not contradictions(p, manifest)]
    return judge(second, manifest, main)


def leave_mark(folder: str, digest: str) -> None:
    """Record that the guard let this very process become the server.

    Raises:
        OSError: the folder is not there or cannot be written.
    """
    mark = {"digest": digest, "pid": os.getpid(), "invocation": os.environ.get("INVOCATION_ID", "")}
    with open(os.path.join(folder, GUARD_FILE), "w", encoding="utf-8") as stream:
        json.dump(mark, stream)


def unguarded(folder: str, manifest: Mapping[str, Any], main: int, invocation: str) -> List[str]:
    """Return why the main process did not come through the guard, or nothing; one line.

    A drop-in that replaces ``ExecStart=`` passes by the guard, so that its command is not the release's.
    """
    try:
        mark = json.loads(read_bytes(os.path.join(folder, GUARD_FILE)) or b"")
    except ValueError:
        mark = {}
    if mark == {"digest": manifest["digest"], "pid": main, "invocation": invocation}:
        return []
    return [f"the main process {main} was not started by the guard: ExecStart= is overridden (systemctl cat)"]
