"""The server that a deployment takes over: which process it is, and what is told of it before anything is done.

A deployment file names it by a digest of its command, working folder and user (``takes_over``). Reads only.
"""

from __future__ import annotations

import os
import pwd
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set

from . import generations, own_start, ports, shown, stray_record, systemd
from .adopt_find import Home, Seen, ancestors, descendants, digest_of, home, starter, table, words_of
from .failed import ChangeError
from .findings import iso
from .observe import started
from .preflight_host import who
from .processes import cgroup_of, read_process, start_time

_LONGEST = 400


class Stray(NamedTuple):
    """A running server that is not ours: its main process, when that started, what it belongs to, and its processes."""

    pid: int
    start: str
    home: Home
    pids: List[int]


class Unfit(Exception):  # noqa: N818 - an answer, no failure
    """Why a server cannot be taken over: one line, with what to do."""


def find(wanted: Mapping[str, Any]) -> Optional[Stray]:
    """Return the server that a deployment takes over; None where there is none that has its command and its port.

    Args:
        wanted: ``digest`` ("" for none), ``port``, ``name`` and ``unit`` of the deployment, ``stop_timeout`` and
            ``start_timeout``.

    Raises:
        Unfit: it is there and cannot be taken over.
    """
    if not wanted["digest"] or _serves(wanted):
        return None
    processes = table()
    found = [_stray(pid, processes) for pid in _alike(wanted["digest"], processes)]
    found = [one for one in found if one.home.kind != "launch"]
    if len(found) > 1:
        pids = ", ".join(str(one.pid) for one in found)
        raise Unfit(f"{len(found)} processes are the server that takes_over names ({pids}): end all but one")
    for one in found:
        problem = _unfit(one, wanted)
        if problem:
            raise Unfit(problem)
    return found[0] if found else None


def _serves(wanted: Mapping[str, Any]) -> bool:
    """Return whether the port belongs to the deployment's own unit already."""
    inodes = ports.listening(wanted["port"])
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if inodes else []
    holders = [pid for pid in pids if ports.held(inodes, [pid])]
    return any(wanted["unit"] in cgroup_of(pid).split("/") for pid in holders)


def _alike(digest: str, processes: Mapping[int, Seen]) -> List[int]:
    """Return the processes with a digest, without those that one of them has forked."""
    alike: Set[int] = {pid for pid in processes if digest_of(pid) == digest}
    return sorted(pid for pid in alike if not alike & set(ancestors(pid, processes)))


def _stray(pid: int, processes: Mapping[int, Seen]) -> Stray:
    start = (start_time(pid) or b"").decode()
    return Stray(pid, start, home(pid, processes), [pid, *descendants(pid, processes)])


def running(digest: str, unit: str) -> List[int]:
    """Return the main processes that have a digest and do not belong to a unit."""
    return [pid for pid in _alike(digest, table()) if unit not in cgroup_of(pid).split("/")]


def _unfit(one: Stray, wanted: Mapping[str, Any]) -> str:
    """Return why a server cannot be taken over, "" where it can."""
    label, then = f"process {one.pid}, which takes_over names,", "end it there, and take takes_over out"
    if one.home.kind == "container":
        engine, id_ = one.home.name.split(" ", 1)
        return f"{label} runs in container {id_} ({engine}): {then} ({_end_container(engine, id_)})"
    if one.home.kind == "job":
        return f"{label} belongs to a job of Slurm ({one.home.name}): {then} (scancel)"
    if one.home.kind == "user unit":
        return f"{label} is a unit of its user's own manager: {then} (systemctl --user disable --now {one.home.name})"
    if not ports.held(ports.listening(wanted["port"]), one.pids):
        return (
            f"{label} does not listen on port {wanted['port']}: wait until it serves, or set engine.port to its port;"
            " a server is taken over on the port that it has"
        )
    state = systemd.properties(wanted["unit"])["ActiveState"]
    if state not in ("inactive", "failed"):
        return f"{label} has the port, and {wanted['unit']} is {state} as well: systemctl stop {wanted['unit']}"
    return ""


def _end_container(tool: str, id_: str) -> str:
    """Return the commands that end a container for good."""
    if tool == "crictl":
        return "scale its workload to none"
    return f"{tool} update --restart=no {id_}; {tool} stop {id_}"


def mark(one: Optional[Stray]) -> str:
    """Return what tells a server from a later one, "" for none: a plan holds for one of them only."""
    return f"{one.pid}:{one.start}" if one else ""


def look(wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what a plan tells of the server that is taken over.

    Returns:
        ``mark`` ("" for none), ``told`` (what will be done, and how long the server is down), ``notes`` and
        ``problems``, one line each.
    """
    try:
        one = find(wanted)
    except Unfit as why:
        return {"mark": "", "told": [], "notes": [], "problems": [str(why)]}
    if one is None:
        return {"mark": "", "told": [], "notes": _missing(wanted), "problems": []}
    told = [f"take over {describe(one)}", f"its command: {shown.command(words_of(one.pid), _LONGEST)}"]
    try:
        return {"mark": mark(one), "told": [*told, *_down(one, wanted)], "notes": _notes(one), "problems": []}
    except ChangeError as error:
        return {"mark": "", "told": [], "notes": [], "problems": [f"{error}: plan again"]}


def _missing(wanted: Mapping[str, Any]) -> List[str]:
    if not wanted["digest"] or generations.numbers(wanted["name"]) or _serves(wanted):
        return []
    text = "the server that takes_over names is not there any more, or its command, folder or user has changed"
    inodes = ports.listening(wanted["port"])
    pid = ports.owner(inodes, [int(name) for name in os.listdir("/proc") if name.isdigit()]) if inodes else 0
    if pid:
        return [f"{text}; port {wanted['port']} is taken by {who(pid)}: launch adopt reads it anew"]
    return [f"{text}; nobody listens on port {wanted['port']}: there is nothing to take over"]


def describe(one: Stray) -> str:
    """Return a server in words."""
    how = {"unit": f"of {one.home.name}", "again": "put back by launch before"}.get(one.home.kind, "started by hand")
    return f"process {one.pid} of user {user_of(one.pid)}, {how}, running since {iso(started(one.pid))}"


def user_of(pid: int) -> str:
    """Return the user of a process, by name where it has one here."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _down(one: Stray, wanted: Mapping[str, Any]) -> List[str]:
    """Return how long nobody serves, as far as it is known."""
    stop, start = wanted["stop_timeout"], wanted["start_timeout"]
    most = f"at most {stop} s to stop (unit.stop_timeout) and {start} s to start (unit.start_timeout)"
    since = started(one.pid)
    logs = [entry["path"] for entry in (stray_record.stream(one.pid, n) for n in (1, 2))]
    found = [own_start.of_file(path, since) for path in dict.fromkeys(logs) if path.startswith("/")]
    if one.home.kind in ("unit", "again"):
        found.append(own_start.of_unit(one.home.name, since))
    seconds = next((value for value in found if value is not None), None)
    if seconds is None:
        return [f"nobody serves meanwhile: its log does not say how long it took to start; {most}"]
    return [
        f"nobody serves meanwhile, for about {max(1, round(seconds))} s: so long its own start took by its log; {most}"
    ]


def _notes(one: Stray) -> List[str]:
    """Return what may go wrong, and what a way back would not bring back."""
    processes, found = table(), []
    above = 0 if one.home.kind == "unit" else starter(one.pid, processes)
    if above:
        words = shown.command(processes[above].words, 120)
        found.append(f"process {above} ({words}) started it and may do so again: then this change fails; end it first")
    if one.home.kind == "unit":
        state = systemd.all_properties(one.home.name)
        found += [
            f"{name} may start {one.home.name} again: disable it first" for name in state.get("TriggeredBy") or []
        ]
        if state["UnitFileState"] not in ("enabled", "disabled"):
            found.append(f"{one.home.name} is {state['UnitFileState']}: what starts it at boot is not taken away")
        return [*found, f"{one.home.name} is stopped and, where it is enabled, disabled; its files stay"]
    record = stray_record.take(one.pid)
    seen, policy = read_process(one.pid), stray_record.memory_policy(one.pid)
    lacks = [*stray_record.lost(record), *([f"its memory is bound by numactl ({policy})"] if policy else [])]
    if seen is None or seen.cut:
        lacks.append("a part of its environment is overwritten")
    return [*found, *(f"{text}: that does not come back if the change fails" for text in lacks)]
