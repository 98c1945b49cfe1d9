"""One look at everything that decides what a deployment's processes carry. Reads only; its result is plain data."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from typing import Any, Dict, List, Mapping, Optional, Set

from . import knowledge, nccl_conf, ports, systemd, unit_files
from .facts import facts
from .library import account
from .processes import Process, cgroup_of, cgroup_pids, read_bytes, read_process, stat_fields, unit_processes

#: Libraries whose file decides how a server communicates, or what it takes for the time.
_LIBRARY = re.compile(r"/lib(?:nccl|faketime)[^/\s]*\.so[.0-9]*(?: \(deleted\))?$")
#: A deployment's unit; one that runs again what was there before a deployment is none.
_OURS = re.compile(r"/launch-(?!again-)")
_SYSTEM_CONF = ("/etc/systemd/system.conf", *(f"{f}/systemd/system.conf.d" for f in ("/etc", "/run", "/usr/lib")))
_PRELOAD = "/etc/ld.so.preload"


def observe(record: Mapping[str, Any]) -> Dict[str, Any]:
    """Observe a deployment on this host.

    Args:
        record: of what was applied, see `record.load`.

    Returns:
        ``files``, ``namesakes`` and ``drop_ins`` by path; ``loaded`` properties; the ``manager``'s environment;
        ``processes``; ``listeners`` and ``gpu_jobs`` outside the unit; ``inputs``; ``nccl``; ``facts``. It holds whole
        environments and is not for the way to the client.

    Raises:
        SystemdError: the manager does not answer.
    """
    manifest, needs = record["manifest"], record["needs"]
    unit = f"launch-{manifest['name']}.service"
    loaded = systemd.all_properties(unit)
    main, cgroup = int(loaded.get("MainPID", 0)), loaded.get("ControlGroup", "")
    secret_files = record["secrets"]
    about = facts(needs["programs"]["engine.python"], needs["user"])
    own = set(cgroup_pids(cgroup)) | ({main} if main else set())
    return {
        "now": time.time(),
        "files": {path: unit_files.state(path) for path in (*(e["path"] for e in record["files"]), *secret_files)},
        "namesakes": unit_files.namesakes(unit),
        "drop_ins": unit_files.drop_ins(unit),
        "wanted": os.path.lexists(f"/etc/systemd/system/launch.target.wants/{unit}"),
        "loaded": loaded,
        "manager": {**systemd.manager(), "defaults": _defaults()},
        "processes": [look(process) for process in unit_processes(cgroup)] if main else [],
        "mark": read_bytes(f"/run/launch/{manifest['name']}/guard"),
        "listeners": _listeners(manifest, own),
        "gpu_jobs": _gpu_jobs(manifest, about, own),
        "inputs": inputs(manifest, needs["user"]),
        "interpreter": interpreter(needs["programs"]["engine.python"], record["baseline"].get("interpreter")),
        "nccl": account(unit, loaded["InvocationID"], dict(manifest)) if main else None,
        "facts": about,
    }


def baseline(unit: str, needs: Mapping[str, Any], manifest: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what a host looks like right after a proven deploy, as far as a later look is compared with it."""
    loaded = systemd.all_properties(unit)
    main = int(loaded["MainPID"])
    about = facts(needs["programs"]["engine.python"], needs["user"])
    processes = [look(process) for process in unit_processes(loaded["ControlGroup"])]
    return {
        "loaded": {name: systemd.plain(name, loaded[name]) for name in systemd.SETTINGS if name in loaded},
        "limits": limits(main),
        "libraries": sorted({library["path"] for seen in processes for library in seen["libraries"]}),
        "drop_ins": {path: seen.get("sha256", "") for path, seen in unit_files.drop_ins(unit).items()},
        "preload": _digest(_PRELOAD),
        "interpreter": interpreter(needs["programs"]["engine.python"], None),
        "nccl": account(unit, loaded["InvocationID"], dict(manifest)),
        "facts": {name: about[name] for name in ("gpus", "kernel", "engine")},
    }


def look(process: Process) -> Dict[str, Any]:
    """Return a process with what /proc tells of it beside its environment."""
    argv = (read_bytes(f"/proc/{process.pid}/cmdline") or b"").split(b"\0")[:-1]
    try:
        exe = os.readlink(f"/proc/{process.pid}/exe")
    except OSError:
        exe = ""
    return {
        **process._asdict(),
        "argv": [os.fsdecode(word) for word in argv],
        "since": started(process.pid),
        "exe": exe,
        "limits": limits(process.pid),
        "libraries": _libraries(process.pid),
    }


def started(pid: int) -> float:
    """Return when a process started, in seconds of the epoch as the clock stands now; 0 when it is gone."""
    fields = stat_fields(pid)
    booted = re.search(rb"^btime (\d+)$", read_bytes("/proc/stat") or b"", re.MULTILINE)
    if len(fields) < 20 or not booted:
        return 0.0
    return int(booted.group(1)) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def limits(pid: int) -> Dict[str, str]:
    """Return the limits of a process by name, soft and hard, as ``1024 524288``."""
    lines = (read_bytes(f"/proc/{pid}/limits") or b"").decode("ascii", "replace").splitlines()[1:]
    rows = (re.match(r"(.+?) {2,}(\S+) +(\S+)", line) for line in lines)
    return {row.group(1): f"{row.group(2)} {row.group(3)}" for row in rows if row}


def _libraries(pid: int) -> List[Dict[str, Any]]:
    found: Dict[str, Dict[str, Any]] = {}
    for line in (read_bytes(f"/proc/{pid}/maps") or b"").decode("utf-8", "replace").splitlines():
        if _LIBRARY.search(line):
            path = line.split(None, 5)[5]
            gone = path.endswith(" (deleted)")
            path = path[: -len(" (deleted)")] if gone else path
            found[line] = {"path": path, "gone": gone}
    return [dict(entry) for entry in {tuple(sorted(e.items())): e for e in found.values()}.values()]


def interpreter(path: str, known: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return which file an interpreter's path leads to and the digest of its content.

    Args:
        path: as the command names it.
        known: of an earlier look; where nothing but the time of change moved, its content is read again.
    """
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except OSError as error:
        return {"real": real, "mark": "", "sha256": "", "reason": str(error.strerror), "ctime": 0.0}
    mark = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_ctime_ns}"
    same = known is not None and known["real"] == real and known["mark"] == mark
    digest = known["sha256"] if same and known is not None else _digest(real)
    return {"real": real, "mark": mark, "sha256": digest, "ctime": status.st_ctime}


def _digest(path: str) -> str:
    content = read_bytes(path) if stat.S_ISREG(_mode(path)) else None
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def _defaults() -> Dict[str, List[str]]:
    """Return the names that DefaultEnvironment= sets, by file."""
    found: Dict[str, List[str]] = {}
    for place in _SYSTEM_CONF:
        entries = sorted(os.listdir(place)) if os.path.isdir(place) else []
        for path in [f"{place}/{e}" for e in entries if e.endswith(".conf")] if entries else [place]:
            text = (read_bytes(path) or b"").decode("utf-8", "replace")
            values = [value for key, value in unit_files.settings(text) if key == "DefaultEnvironment"]
            names = re.findall(r"([A-Za-z_][A-Za-z0-9_]*)=", " ".join(values))
            if names:
                found[path] = names
    return found


def inputs(manifest: Mapping[str, Any], user: str) -> Dict[str, Dict[str, Any]]:
    """Return what reaches a server past its unit, by file: variables of NCCL's own files, preloaded libraries."""
    found: Dict[str, Dict[str, Any]] = {}
    for path in nccl_conf.paths(manifest["env"], user):
        seen = unit_files.state(os.path.realpath(path))
        if seen["kind"] == "absent":
            continue
        content = seen.pop("content", b"").decode("utf-8", "surrogateescape")
        found[path] = {**seen, "text": content}
    preload = unit_files.state(_PRELOAD)
    if preload.get("content", b"").strip():
        found[_PRELOAD] = {**preload, "content": None, "text": ""}
    return found


def _listeners(manifest: Mapping[str, Any], own: Set[int]) -> List[Dict[str, Any]]:
    """Return who else listens where the server does, whether the server runs or not."""
    inodes = ports.listening(manifest["port"], manifest["host"])
    inodes -= ports.held(inodes, own)
    if not inodes:
        return []
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [_stranger(pid) for pid in others if pid not in own and ports.held(inodes, [pid])]


def _gpu_jobs(manifest: Mapping[str, Any], about: Mapping[str, Any], own: Set[int]) -> List[Dict[str, Any]]:
    """Return the processes outside units of ours that compute on this deployment's GPUs."""
    wanted = set(manifest.get("gpus", []))
    found: List[Dict[str, Any]] = []
    for gpu in about["gpus"] or []:
        if not wanted or str(gpu["index"]) in wanted:
            pids = [pid for pid in gpu["pids"] if pid not in own and not _OURS.search(cgroup_of(pid))]
            found += [{**_stranger(pid), "gpu": gpu["index"]} for pid in pids]
    return found


def _stranger(pid: int) -> Dict[str, Any]:
    process = read_process(pid)
    env = {k: v for k, v in ((process.env if process else None) or {}).items() if knowledge.watched(k)}
    seen: Dict[str, Any] = {"pid": pid, "cgroup": cgroup_of(pid), "since": started(pid), "env": env}
    return {**seen, "title": process.title if process else "", "cut": process.cut if process else True}
