"""Stop a server that is not ours so that ours can take its place.

What it takes to start it again is in the marker before anything is stopped, so that whoever finds the marker can.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from . import keep, ports, record, shown, stray, stray_record, systemd
from .adopt_find import descendants, starter, table
from .failed import ChangeError
from .findings import iso
from .journal import say_of
from .observe import started
from .processes import start_time

Emit = Callable[[str], None]
#: Seconds that what is left of a server may take to go, that its starter gets to show itself, and between two looks.
_GONE, _WATCH, _LOOK = 20, 3, 0.1
_SLACK = 30


def capture(wanted: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Return everything to put the server back that a deployment takes over, None where it takes over none.

    Raises:
        ChangeError: it cannot be read, or cannot be taken over.
    """
    try:
        one = stray.find(wanted)
    except stray.Unfit as why:
        raise ChangeError(str(why)) from why
    if one is None:
        return None
    found: Dict[str, Any] = {
        **wanted,
        "pid": one.pid,
        "start": one.start,
        "kind": "unit" if one.home.kind == "unit" else "process",
        "what": stray.describe(one),
        "stopping": False,
    }
    process = stray_record.take(one.pid)
    cwd, user = process["cwd"], stray.user_of(one.pid)
    found["how"] = {"command": shown.command(process["argv"]), "folder": cwd, "user": user}
    if found["kind"] == "unit":
        return {**found, **_unit(one.home.name)}
    # Whoever started it is still there, perhaps in a loop.
    watched = table()[one.pid].parent > 1 if one.pid in table() else False
    return {**found, "process": process, "watched": watched}


def _unit(unit: str) -> Dict[str, Any]:
    state = systemd.properties(unit)
    links = keep.take(_links(unit))
    return {"foreign": unit, "enabled": state["UnitFileState"] == "enabled", "links": links, "watched": False}


def _links(unit: str) -> List[str]:
    """Return the links in /etc that start a unit, or are it: disabling takes them away."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(record.UNITS) for name in names]
    links = [path for path in paths if os.path.islink(path)]
    return sorted(path for path in links if unit in (os.path.basename(path), os.path.basename(os.readlink(path))))


def pids(wanted: Mapping[str, Any]) -> Set[int]:
    """Return the processes of the server that will be gone; they are in nobody's way."""
    try:
        one = stray.find(wanted)
    except stray.Unfit:
        return set()
    return set(one.pids) if one else set()


def stop(taken: Mapping[str, Any], emit: Emit) -> None:
    """Stop a server, and see that it stays away.

    Raises:
        ChangeError: something of it stays, or something starts it again.
        SystemdError: systemctl refuses.
    """
    _tell(taken, f"stopping {taken['what']}", emit)
    # Its number may belong to another process by now.
    lives = (start_time(taken["pid"]) or b"").decode() == taken["start"]
    tree = [taken["pid"], *descendants(taken["pid"], table())] if lives else []
    there = {pid: start for pid in tree for start in [start_time(pid)] if start}
    if taken["kind"] == "unit":
        if taken["enabled"]:
            systemd.systemctl("disable", taken["foreign"])
        limit = systemd.properties(taken["foreign"])["TimeoutStopUSec"] / 1e6 + _SLACK
        systemd.command(["systemctl", "--no-ask-password", "stop", taken["foreign"]], timeout=limit)
    elif there:
        end(taken["pid"], there, taken["stop_timeout"], emit)
    end_rest(there)
    deadline = time.monotonic() + _GONE
    while ports.held(ports.listening(taken["port"]), there) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    left = [f"process {pid} is still there" for pid in there if _lives(pid, there)]
    if left:
        raise ChangeError("the server that is taken over does not end", left)
    gone = time.monotonic()
    while taken["watched"] and time.monotonic() < gone + _WATCH:
        stays_away(taken)
        time.sleep(_LOOK)
    stays_away(taken)


def _tell(taken: Mapping[str, Any], text: str, emit: Emit) -> None:
    emit(text)
    say_of(taken["unit"], f"takes the place of another server: {text}", level=5)


def end(main: int, there: Dict[int, bytes], patience: float, emit: Emit) -> None:
    """Ask a main process to end, and wait until all that it started has ended as well."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(main, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while _lives(main, there) and time.monotonic() < deadline:
        processes = table()
        for pid in descendants(main, processes):
            there.setdefault(pid, start_time(pid) or b"")
        time.sleep(_LOOK)
    if _lives(main, there):
        emit(f"process {main} did not end within {patience:g} s after SIGTERM: SIGKILL")
    rest = min(deadline, time.monotonic() + _GONE)
    while any(_lives(pid, there) for pid in there if pid != main) and time.monotonic() < rest:
        time.sleep(_LOOK)


def end_rest(there: Mapping[int, bytes]) -> None:
    """Kill what is left of a server: by number and start time, never by name."""
    deadline = time.monotonic() + _GONE
    left = [pid for pid in there if _lives(pid, there)]
    while left and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK)
        left = [pid for pid in there if _lives(pid, there)]


def _lives(pid: int, there: Mapping[int, bytes]) -> bool:
    start = there.get(pid)
    return bool(start) and start_time(pid) == start


def stays_away(taken: Mapping[str, Any]) -> None:
    """See that nothing has started a server again that is taken over.

    Raises:
        ChangeError: something has.
    """
    for pid in stray.running(taken["digest"], taken["unit"]):
        above = starter(pid, table())
        words = shown.command(table()[above].words, 200) if above in table() else ""
        by = f"process {above} ({words})" if above else "something"
        raise ChangeError(f"{by} starts the server again that is taken over (process {pid}): end that first")


def summary(taken: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what generation 0 keeps of a server that was taken over; no environment, no secrets."""
    kept = {key: taken[key] for key in ("kind", "name", "digest", "port", "unit", "what", "how")}
    more = ("foreign", "enabled", "links") if taken["kind"] == "unit" else ()
    return {**kept, **{key: taken[key] for key in more}, "since": iso(started(taken["pid"]))}
