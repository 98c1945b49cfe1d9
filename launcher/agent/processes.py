"""Processes of a unit and what they carry, read from /proc and the control group file system."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set

from . import knowledge
from .manifest import compare


class Process(NamedTuple):
    """One process; ``env`` is None when it cannot be read, ``cut`` when its block was overwritten."""

    pid: int
    title: str
    env: Optional[Dict[str, str]]
    cut: bool


class Verdict(NamedTuple):
    """What one look at all processes of a unit found."""

    pids: List[int]
    contradictions: List[str]
    unknown: List[str]
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


def read_process(pid: int) -> Optional[Process]:
    """Return a process, or None when it is gone or a zombie."""
    command = read_bytes(f"/proc/{pid}/cmdline")
    state = read_bytes(f"/proc/{pid}/stat")
    if command is None or state is None or state.rpartition(b") ")[2][:1] in (b"Z", b"X", b""):
        return None
    title = command.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    block = read_bytes(f"/proc/{pid}/environ")
    if block is None:
        return Process(pid, title, None, cut=True) if os.path.exists(f"/proc/{pid}") else None
    env: Dict[str, str] = {}
    for entry in block.split(b"\0"):
        name, sign, value = entry.partition(b"=")
        if sign and name:
            env[os.fsdecode(name)] = os.fsdecode(value)
    # A block that begins with NUL was overwritten by a new title (setproctitle without SPT_NOENV=1).
    return Process(pid, title, env, cut=block[:1] in (b"\0", b""))


def unit_processes(cgroup: str, leave_out: "Set[int] | None" = None) -> Iterator[Process]:
    """Yield the processes of a unit, without those named and whatever they started."""
    out = leave_out or set()
    for pid in cgroup_pids(cgroup):
        if pid in out or _parent(pid) in out:
            continue
        process = read_process(pid)
        if process is not None and process.title:
            yield process


def _parent(pid: int) -> int:
    status = (read_bytes(f"/proc/{pid}/stat") or b"").rpartition(b") ")[2].split()
    return int(status[1]) if len(status) > 1 else 0


def judge(processes: "Iterator[Process] | List[Process]", manifest: Mapping[str, Any], main: int) -> Verdict:
    """Compare every process with the manifest.

    Args:
        processes: of the unit.
        manifest: of the release that it should run.
        main: the main process, which must carry every variable readably.
    """
    pids: List[int] = []
    contradictions: List[str] = []
    unknown: List[str] = []
    odd: List[str] = []
    secrets = manifest.get("secrets", {}).get("env", [])
    for process in processes:
        pids.append(process.pid)
        label = f"process {process.pid} ({process.title[:60]})"
        if process.env is None or process.cut:
            unknown.append(f"{label}: its environment was overwritten, absent names are unknown")
        if process.env is None:
            continue
        contradictions += [f"{label}: {line}" for line in compare(process.env, manifest, cut=process.cut)]
        if not process.cut:
            contradictions += [f"{label}: the secret {name} is missing" for name in secrets if name not in process.env]
        refused, strange = knowledge.extras(process.env, manifest, own=True)
        if process.pid == main:
            contradictions += [f"{label}: {name} is set, but the release does not set it" for name in refused]
        else:
            # The guard saw that the main process began without them, so the engine itself set them.
            strange = refused + strange
        # No values: an unknown name of these families may be a secret (VLLM_API_KEY).
        odd += [f"{label}: {name} is not from the release" for name in strange]
    if main not in pids:
        contradictions.append(f"the main process {main} is gone")
    return Verdict(pids, contradictions, unknown, odd, sorted(manifest["env"]))
