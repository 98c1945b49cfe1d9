"""Run a server again that was stopped to make room for ours: as it was, from the marker, by whoever finds that."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Callable, List, Mapping

from . import again, files, keep, ports, stray, stray_record, systemd, takeover
from .adopt_find import descendants, table
from .failed import ChangeError
from .journal import say_of
from .processes import cgroup_pids, start_time

Emit = Callable[[str], None]
#: Seconds between two looks, and between two lines of progress.
_LOOK, _TELL = 0.1, 5
#: At boot it needs what a server started by hand has found: network, mounts, GPUs.
_AFTER = "network-online.target remote-fs.target nvidia-persistenced.service nvidia-fabricmanager.service"


def put_back(taken: Mapping[str, Any], emit: Emit, *, booting: bool = False) -> str:
    """Run a server again that was stopped, unless it runs; return what serves.

    Args:
        taken: see `takeover.capture`.
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
    say_of(taken["unit"], f"the server that was taken over runs again: process {main} in {unit}", level=4)
    if taken["kind"] == "process":
        files.remove(again.path_of(taken["name"]))
    return f"the server that was there before, started again as it was: process {main} in {unit}, port {taken['port']}"


def _finish(taken: Mapping[str, Any], emit: Emit) -> None:
    """End what a change that was cut short had begun to stop."""
    there = {pid: start_time(pid) or b"" for pid in (taken["pid"], *descendants(taken["pid"], table()))}
    if taken["kind"] == "process":
        takeover.end(taken["pid"], there, taken["stop_timeout"], emit)
        takeover.end_rest(there)


def _start_unit(taken: Mapping[str, Any], *, booting: bool) -> str:
    for entry in taken["links"]:
        keep.put(entry)
    systemd.systemctl("daemon-reload")
    if not booting:
        with contextlib.suppress(systemd.SystemdError):  # nobody refers to it, so that it is not even loaded
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
            raise ChangeError(f"{unit} ended again; {by_hand(taken)}", _log(taken, unit))
        if time.monotonic() - told > _TELL:
            told = time.monotonic()
            emit(f"waiting for port {taken['port']} of {unit} for {told - begin:.0f} s")
        time.sleep(_LOOK)
    raise ChangeError(f"{unit} does not listen on port {taken['port']} yet; it is left to go on", _log(taken, unit))


def _log(taken: Mapping[str, Any], unit: str) -> List[str]:
    """Return where a server's own lines are; they are not quoted, since engines print their keys there."""
    log = next((e["path"] for e in taken.get("process", {}).get("streams", [])[1:] if stray_record.is_file(e)), "")
    return [f"its own lines: {f'tail {log}' if log else f'journalctl -u {unit}'}"]


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
