"""Stop a server that is not ours so that ours can take its place, and start it again as it was when that fails.

What it takes to start it again is in the marker before anything is stopped, so that whoever finds the marker can.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from . import again, files, keep, ports, record, shown, stray, stray_record, systemd
from .adopt_find import descendants, starter, table
from .failed import ChangeError
from .findings import iso
from .observe import started
from .processes import cgroup_pids, start_time

Emit = Callable[[str], None]
#: Seconds that what is left of a server may take to go, that its starter gets to show itself, between two looks, and
#: between two lines of progress.
_GONE, _WATCH, _LOOK, _TELL = 20, 3, 0.1, 5
_SLACK = 30
#: At boot it needs what a server started by hand has found: network, mounts, GPUs.
_AFTER = "network-online.target remote-fs.target nvidia-persistenced.service nvidia-fabricmanager.service"


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
    emit(f"stopping {taken['what']}")
    tree = [taken["pid"], *descendants(taken["pid"], table())]
    there = {pid: start for pid in tree for start in [start_time(pid)] if start}
    if taken["kind"] == "unit":
        if taken["enabled"]:
            systemd.systemctl("disable", taken["foreign"])
        limit = systemd.properties(taken["foreign"])["TimeoutStopUSec"] / 1e6 + _SLACK
        systemd.command(["systemctl", "--no-ask-password", "stop", taken["foreign"]], timeout=limit)
    elif there.get(taken["pid"], b"").decode() == taken["start"]:
        _end(taken["pid"], there, taken["stop_timeout"], emit)
    _end_rest(there)
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


def _end(main: int, there: Dict[int, bytes], patience: float, emit: Emit) -> None:
    """Ask a main process to end, and wait until all that it started has ended as well."""
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


def _end_rest(there: Mapping[int, bytes]) -> None:
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
    return bool(there[pid]) and start_time(pid) == there[pid]


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


def put_back(taken: Mapping[str, Any], emit: Emit, *, booting: bool = False) -> str:
    """Run a server again that was stopped, unless it runs; return what serves.

    Args:
        taken: see `capture`.
        emit: called with lines of progress.
        booting: it is started without waiting until it serves.

    Raises:
        ChangeError: it does not come up.
        SystemdError: systemd refuses.
    """
    if not booting:
        if (start_time(taken["pid"]) or b"").decode() == taken["start"]:
            if not taken["stopping"]:
                return f"{taken['what']}, which was not touched"
            _finish(taken, emit)
        others = stray.running(taken["digest"], taken["unit"])
        if others and taken["kind"] == "process":
            return f"the server that was there before, as process {others[0]}: something else has started it again"
    emit(f"starting the server again that was there before: {taken['how']['command'][:120]}")
    unit = _start_unit(taken, booting=booting) if taken["kind"] == "unit" else _run_again(taken, booting=booting)
    if booting:
        return f"The server that was taken over is started again as {unit}."
    main = _wait(taken, unit, emit)
    if taken["kind"] == "process":
        files.remove(again.path_of(taken["name"]))
    return f"the server that was there before, started again as it was: process {main} in {unit}, port {taken['port']}"


def _finish(taken: Mapping[str, Any], emit: Emit) -> None:
    """End what a change that was cut short had begun to stop."""
    there = {pid: start_time(pid) or b"" for pid in (taken["pid"], *descendants(taken["pid"], table()))}
    if taken["kind"] == "process":
        _end(taken["pid"], there, taken["stop_timeout"], emit)
        _end_rest(there)


def _start_unit(taken: Mapping[str, Any], *, booting: bool) -> str:
    for entry in taken["links"]:
        keep.put(entry)
    systemd.systemctl("daemon-reload")
    if not booting:
        systemd.systemctl("reset-failed", taken["foreign"])
    systemd.systemctl("start", "--no-block", taken["foreign"])
    return str(taken["foreign"])


def _run_again(taken: Mapping[str, Any], *, booting: bool) -> str:
    name, unit = taken["name"], again.unit_of(taken["name"])
    files.folder(again.FOLDER, 0o700, "root")
    text = json.dumps(taken["process"])
    files.write({"path": again.path_of(name), "text": text, "mode": 0o600, "group": "root"})
    with contextlib.suppress(systemd.SystemdError):  # of an earlier change
        systemd.systemctl("stop", unit)
    with contextlib.suppress(systemd.SystemdError):
        systemd.systemctl("reset-failed", unit)
    settings = ["Type=exec", "TasksMax=infinity", "OOMPolicy=continue", "KillMode=control-group"]
    settings += ["SuccessExitStatus=SIGKILL", f"TimeoutStopSec={taken['stop_timeout']}"]
    settings += [f"After={_AFTER}", "Wants=network-online.target"] if booting else []
    words = [word for setting in settings for word in ("-p", setting)]
    argv = ["systemd-run", "--quiet", "--collect", *(["--no-block"] if booting else []), f"--unit={unit}"]
    about = f"--description=launch: the server that was there before {name}"
    program = [sys.executable, "-I", "-X", "utf8", os.path.abspath(sys.argv[0]), "again", name]
    systemd.command([*argv, about, *words, *program])
    return unit


def _wait(taken: Mapping[str, Any], unit: str, emit: Emit) -> int:
    """Wait until a server listens on its port again.

    Raises:
        ChangeError: it ended, or takes longer than a start may.
    """
    begin = told = time.monotonic()
    while time.monotonic() < begin + taken["start_timeout"]:
        state = systemd.properties(unit)
        inodes, there = ports.listening(taken["port"]), cgroup_pids(state["ControlGroup"])
        if inodes and ports.held(inodes, there):
            return int(state["MainPID"])
        if state["ActiveState"] in ("inactive", "failed") and not state["Job"][0]:
            raise ChangeError(f"{unit} ended again; {by_hand(taken)}", _said(taken, unit))
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            emit(f"waiting for port {taken['port']} of {unit} for {told - begin:.0f} s")
        time.sleep(_LOOK)
    raise ChangeError(f"{unit} does not listen on port {taken['port']} yet; it is left to go on", _said(taken, unit))


def _said(taken: Mapping[str, Any], unit: str) -> List[str]:
    log = next((e["path"] for e in taken.get("process", {}).get("streams", [])[1:] if stray_record.is_file(e)), "")
    argv = ["tail", "-n", "5", log] if log else ["journalctl", "--no-pager", "-q", "-o", "cat", "-n", "5", "-u", unit]
    try:
        return systemd.command(argv).splitlines()
    except systemd.SystemdError as error:
        return [str(error)]


def by_hand(taken: Mapping[str, Any]) -> str:
    """Return how a server was started, for somebody who has to do it; without secrets."""
    how = taken["how"]
    if taken["kind"] == "unit":
        return f"start it by hand: systemctl enable --now {taken['foreign']}"
    kept = again.path_of(taken["name"])
    more = f" (all of it, with the environment, is in {kept})" if os.path.exists(kept) else ""
    return f"start it by hand, as user {how['user']} in {how['folder']}: {how['command']}{more}"


def after_uninstall(taken: Mapping[str, Any]) -> str:
    """Return what becomes of a server that was taken over when the deployment goes; a unit is started again.

    Raises:
        SystemdError: systemctl refuses.
    """
    there = stray.running(taken["digest"], taken["unit"])
    if there:
        return f"{taken['what']}: it runs, as process {there[0]}"
    if taken["kind"] == "unit":
        return f"started {_start_unit(taken, booting=False)} as it was before"
    return f"NOT started again: {taken['what']}; {by_hand(taken)}"


def summary(taken: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what generation 0 keeps of a server that was taken over; no environment, no secrets."""
    kept = {key: taken[key] for key in ("kind", "name", "digest", "port", "unit", "what", "how")}
    more = ("foreign", "enabled", "links") if taken["kind"] == "unit" else ()
    return {**kept, **{key: taken[key] for key in more}, "since": iso(started(taken["pid"]))}
