"""What a host lacks: room on its disks, memory, a free port, GPUs that nobody else computes on.

Not looked at, since nothing was found that a start fails of it: vm.max_map_count, kernel.numa_balancing.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from . import ports
from .obstacle import Obstacle, refuse, warn
from .processes import cgroup_of, read_bytes, read_process

#: What every release writes to, in MiB.
_WRITTEN = tuple((path, 4) for path in ("/etc/launch", "/etc/systemd/system", "/usr/local/lib/launch", "/run/launch"))
_LOG_MIB, _CACHE_MIB = 100, 1024
_INODES = 64
#: Of a model that is no toy.
_MEMORY_MIB, _TOY_BYTES = 10 * 1024, 1 << 30
#: As in `expect`.
_SHM_MIB_PER_GPU = 256
_LAUNCHS = re.compile(r"launch-(?!again-).+\.service")
#: Computes for others.
_MPS = "nvidia-cuda-mps"


def own_pids(unit: str) -> Set[int]:
    """Return the processes of a unit; they will be gone before the new server starts."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and unit in cgroup_of(name).split("/")}


def disks(log_file: str) -> List[Obstacle]:
    """Look at the file systems that a release is written to."""
    wanted = [*_WRITTEN, *([(log_file, _LOG_MIB)] if log_file else [])]
    return [refuse(*row) for row in _disks(wanted)]


def cache_disk(cache: str) -> List[Obstacle]:
    """Look at the file system where the engine keeps what it compiles, as its user; that disk may hang."""
    return [warn(*row) for row in _disks([(cache, _CACHE_MIB)])]


def _disks(wanted: Sequence[Tuple[str, int]]) -> Iterator[Tuple[str, str]]:
    told: Set[Tuple[int, str]] = set()
    for path, mib in wanted:
        at = _existing(path)
        for id_, text in _disk(at, mib):
            if (os.stat(at).st_dev, id_) not in told:
                told.add((os.stat(at).st_dev, id_))
                yield id_, f"{text} (for {path})"


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _disk(at: str, mib: int) -> Iterator[Tuple[str, str]]:
    try:
        status = os.statvfs(at)
    except OSError:
        return
    free = status.f_frsize * status.f_bavail >> 20
    if status.f_flag & os.ST_RDONLY:
        yield "disk-read-only", f"the file system at {at} is read-only: look at dmesg, then mount -o remount,rw"
    elif free < mib:
        yield "disk-full", f"{free} MiB are free at {at}, {mib} are needed: make room"
    elif status.f_files and status.f_favail < _INODES:  # none are counted on btrfs and the like
        yield "disk-inodes", f"{status.f_favail} inodes are free at {at}: remove files"


def memory(weights: Mapping[str, int], own: Set[int]) -> List[Obstacle]:
    """Compare the memory that is available, or will be when the own server is gone, with what loading takes.

    Weights are mapped and go to the GPUs file by file, so their sum says little; a host that runs out kills a worker
    with SIGKILL (sgl-project/sglang#21898).

    Args:
        weights: ``bytes`` of all and of the ``largest`` file.
        own: processes of the own server.
    """
    available = _kib("/proc/meminfo", "MemAvailable")
    if available is None:
        return []
    freed = sum(_kib(f"/proc/{pid}/status", "RssAnon") or 0 for pid in own)
    there = (available + freed) >> 10
    wanted = max(_MEMORY_MIB if weights["bytes"] >= _TOY_BYTES else 0, 2 * weights["largest"] >> 20)
    if there >= wanted:
        return []
    text = f"{there} MiB of memory are available, loading may take {wanted}: the kernel may kill a worker (SIGKILL)"
    return [warn("memory", f"{text}; end other programs, or add memory")]


def _kib(path: str, name: str) -> "int | None":
    found = re.search(rf"^{name}:\s*(\d+) kB$", (read_bytes(path) or b"").decode("ascii", "replace"), re.MULTILINE)
    return int(found.group(1)) if found else None


def shared_memory(shm: "Mapping[str, int] | None", count: int, own: Set[int]) -> List[Obstacle]:
    """Compare /dev/shm with what NCCL may take; what the own server has there goes with it."""
    wanted = count * _SHM_MIB_PER_GPU
    if shm is None or count < 2:
        return []
    if shm["size_mib"] < wanted:
        remedy = f"mount -o remount,size={max(wanted, 1024)}M /dev/shm, and in /etc/fstab"
        text = f"{shm['size_mib']} MiB in /dev/shm, NCCL may want {wanted} for {count} GPUs without P2P"
        return [warn("shm", f"{text}; {remedy}")]
    if shm["free_mib"] < wanted and not own:
        text = f"{shm['free_mib']} of {shm['size_mib']} MiB are free in /dev/shm, NCCL may want {wanted}"
        return [warn("shm", f"{text}; remove what dead processes left there (nccl-*, psm_*)")]
    return []


def port(number: int, host: str, own: Set[int]) -> List[Obstacle]:
    """Find who else listens on the server's port."""
    sockets = ports.listening(number, host)
    foreign = sockets - ports.held(sockets, own)
    if not foreign:
        return []
    pid = ports.owner(foreign, [int(name) for name in os.listdir("/proc") if name.isdigit()])
    by = who(pid) if pid else ports.holder(number)
    return [refuse("port", f"port {number} is taken by {by}; end it, or set engine.port")]


def gpus(facts: "Sequence[Mapping[str, Any]] | None", indices: Sequence[str], own: Set[int]) -> List[Obstacle]:
    """Find who else computes on the server's GPUs; other deployments are compared by their releases."""
    busy: Dict[int, List[str]] = {}
    for gpu in _chosen(facts, indices):
        for pid in gpu["pids"]:
            if pid not in own and not any(_LAUNCHS.fullmatch(part) for part in cgroup_of(pid).split("/")):
                busy.setdefault(pid, []).append(str(gpu["index"]))
    seen = {pid: read_process(pid) for pid in busy}
    # A process that is not there belongs to another container, or is gone; what it holds shows in the memory.
    return [
        refuse("gpu-busy", f"GPU {', '.join(on)}: {who(pid)} computes there; end it, or set engine.gpus")
        for pid, on in busy.items()
        if (process := seen[pid]) and _MPS not in process.title
    ]


def gpu_memory(
    facts: "Sequence[Mapping[str, Any]] | None", indices: Sequence[str], own: Set[int], fraction: float, engine: str
) -> List[Obstacle]:
    """Compare free GPU memory, counting what the own server holds, with the fraction that the server will claim.

    vLLM refuses to start with less ("Free memory on device … is less than desired GPU memory utilization",
    vllm-project/vllm#20305); SGLang takes what the rest leaves for its cache, or fails ("Not enough memory").
    """
    rows: List[Obstacle] = []
    for gpu in _chosen(facts, indices):
        total, free, held = gpu.get("memory_mib"), gpu.get("memory_free_mib"), gpu.get("process_mib") or {}
        mine: List[Any] = [held.get(pid, held.get(str(pid))) for pid in gpu["pids"] if pid in own]
        if not fraction or total is None or free is None or None in mine:
            continue
        free += sum(mine)
        if free < fraction * total:
            then = "vLLM will not start" if engine == "vllm" else "SGLang will have a smaller cache, or fail"
            text = f"GPU {gpu['index']}: {free} of {total} MiB are free, engine.memory_fraction={fraction:g} asks for"
            rows.append(warn("gpu-memory", f"{text} {fraction * total:.0f}: {then}; nvidia-smi shows who holds it"))
    return rows


def _chosen(facts: "Sequence[Mapping[str, Any]] | None", indices: Sequence[str]) -> List[Mapping[str, Any]]:
    """Return the GPUs of these numbers, all where none is named, none where they are named otherwise."""
    return [gpu for gpu in facts or () if not indices or str(gpu["index"]) in indices]


def who(pid: int) -> str:
    """Name a process: number, command, user, and how it was started. No flags: they may hold a secret."""
    process = read_process(pid)
    command = re.split(r"\s--?(?!m\s)", process.title)[0][:80] if process else ""
    try:
        user = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
    except (OSError, KeyError):
        user = "unknown"
    return f"process {pid} ({command or 'no title'}) of user {user}, {_started(cgroup_of(pid))}"


def _started(cgroup: str) -> str:
    parts = cgroup.split("/")
    session = re.search(r"/session-(\w+)\.scope", cgroup)
    container = re.search(r"(docker|libpod|cri-containerd|crio)-?[:/]?([0-9a-f]{12})", cgroup)
    unit = next((part for part in reversed(parts) if part.endswith((".service", ".scope"))), "")
    if container:
        return f"started in container {container.group(2)} ({container.group(1)})"
    if session:
        return f"started by hand in login session {session.group(1)}"
    if any(part.startswith("user@") for part in parts):
        return f"started by its user's own manager ({unit})"
    return f"started by {unit}" if unit else f"in control group {cgroup or 'unknown'}"
