"""Processes of a unit and what they carry, read from /proc and the control group file system."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set

from . import knowledge
from .manifest import compare


class Process(NamedTuple):
    """One process; ``env`` is None when it cannot be read, ``cut`` when its block was overwritten."""

    pid: int
    start: bytes
    title: str
    env: Optional[Dict[str, str]]
    cut: bool


class Verdict(NamedTuple):
    """What a look at all processes of a unit found.

    ``proven`` carry every variable; of ``unknown`` ones the environment was overwritten; ``contradictions`` and
    ``odd`` are lines of text; ``variables`` are the names that were looked for.
    """

    proven: List[int]
    unknown: List[str]
    contradictions: List[str]
    odd: List[str]
    variables: List[str]


def read_bytes(path: str) -> Optional[bytes]:
    """Return a file's content, or None when it is gone or not ours to read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def cgroup_of(pid: "int | str") -> str:
    """Return the control group path of a process ("" when it is gone).

    The line that counts is systemd's: ``0::`` where the unified hierarchy is mounted, else ``name=systemd``. A
    container can show both.
    """
    text = (read_bytes(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace")
    wanted = "" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "name=systemd"
    paths = dict(line.split(":", 2)[1:] for line in text.splitlines() if line.count(":") >= 2)
    return paths.get(wanted, "")


def unit_cgroup(path: str) -> str:
    """Return the control group of the unit that a group belongs to.

    A unit that hands its group on (Delegate=) has groups below it: systemd's own for what it starts beside the main
    process, and those of a container.
    """
    found = re.match(r"(.*/launch-[^/]+\.service)/", path + "/")
    return found.group(1) if found else path


def cgroup_pids(path: str) -> List[int]:
    """Return all processes at and below a control group."""
    pids: Set[int] = set()
    if path in ("", "/"):
        return []  # never the whole machine
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"):
        for folder, _, files in os.walk(root + path):
            if "cgroup.procs" in files:
                content = read_bytes(os.path.join(folder, "cgroup.procs")) or b""
                pids.update(int(line) for line in content.split())
        if pids:
            break
    return sorted(pids)


def stat_fields(pid: int) -> List[bytes]:
    """Return /proc/PID/stat from the state on: state, parent, …; empty when the process is gone."""
    return (read_bytes(f"/proc/{pid}/stat") or b"").rpartition(b") ")[2].split()


def start_time(pid: int) -> Optional[bytes]:
    """Return what tells a process from a later one with its number; None when it is gone or a zombie."""
    fields = stat_fields(pid)
    return fields[19] if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None


def read_process(pid: int) -> Optional[Process]:
    """Return a process, or None when it is gone or a zombie."""
    start = start_time(pid)
    command = read_bytes(f"/proc/{pid}/cmdline")
    block = read_bytes(f"/proc/{pid}/environ")
    if start is None or command is None or start_time(pid) != start:
        return None
    title = command.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    if block is None:
        return Process(pid, start, title, None, cut=True)
    env: Dict[str, str] = {}
    for entry in block.split(b"\0"):
        name, sign, value = entry.partition(b"=")
        if sign and name:
            env[os.fsdecode(name)] = os.fsdecode(value)
    # A block that begins with NUL was overwritten by a new title (setproctitle without SPT_NOENV=1). An empty
    # block is something else: the process was started without any environment.
    return Process(pid, start, title, env, cut=block[:1] == b"\0")


def unit_processes(cgroup: str, leave_out: "Set[int] | None" = None) -> List[Process]:
    """Return the processes of a unit, without those named, whatever they started, and podman's own helper."""
    out = leave_out or set()
    found = (read_process(pid) for pid in cgroup_pids(cgroup) if pid not in out and _parent(pid) not in out)
    return [process for process in found if process is not None and not _is_helper(process.pid)]


def _is_helper(pid: int) -> bool:
    """Return whether a process is conmon, which holds a container and gets an environment of its own from podman."""
    try:
        return os.readlink(f"/proc/{pid}/exe") in ("/usr/bin/conmon", "/usr/libexec/podman/conmon")
    except OSError:
        return False


def _parent(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def contradictions(process: Process, manifest: Mapping[str, Any]) -> List[str]:
    """Return how a process contradicts the manifest, one line a variable.

    Missing and different values count in every process; of the settings that no release set, those of NCCL, unless
    the engine is known to add them: they decide how the server communicates.
    """
    if process.env is None:
        return []
    found = compare(process.env, manifest, cut=process.cut, also=knowledge.ADDITIONS.get(manifest["engine"], {}))
    secrets = manifest.get("secrets", {}).get("env", [])
    found += [f"the secret {name} is missing" for name in secrets if name not in process.env and not process.cut]
    refused, _ = knowledge.extras(process.env, manifest, own=True)
    return found + [
        f"{name} is set, but the release does not set it (accept it by setting nccl.{name[5:].lower()})"
        for name in refused
        if name.startswith("NCCL_")
    ]


def judge(processes: Iterable[Process], manifest: Mapping[str, Any], main: int) -> Verdict:
    """Compare every process with the manifest.

    Args:
        processes: of the unit.
        manifest: of the release that it should run.
        main: the main process, which must be among them.
    """
    verdict = Verdict([], [], [], [], sorted(manifest["env"]))
    pids: List[int] = []
    for process in processes:
        pids.append(process.pid)
        label = f"process {process.pid} ({process.title[:60] or 'no title'})"
        wrong = contradictions(process, manifest)
        verdict.contradictions.extend(f"{label}: {line}" for line in wrong)
        if process.cut:
            verdict.unknown.append(f"{label}: its environment was overwritten, absent names are unknown")
        elif not wrong:
            verdict.proven.append(process.pid)
        refused, strange = knowledge.extras(process.env or {}, manifest, own=True)
        # No values: an unknown name of these families may be a secret (VLLM_API_KEY).
        names = [name for name in refused + strange if not (name in refused and name.startswith("NCCL_"))]
        verdict.odd.extend(f"{label}: {name} is not from the release" for name in names)
    if main not in pids:
        verdict.contradictions.append(f"the main process {main} is gone")
    return verdict
