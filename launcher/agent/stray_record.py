"""Everything that it takes to run a process again as it was: read from /proc before it is stopped, as plain data."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping

from .adopt_find import link
from .failed import ChangeError
from .observe import limits
from .processes import read_bytes, stat_fields

#: Limits as /proc names them, and as a program sets them. To ask for them by call takes a capability.
_LIMITS = {
    "Max cpu time": "CPU",
    "Max file size": "FSIZE",
    "Max data size": "DATA",
    "Max stack size": "STACK",
    "Max core file size": "CORE",
    "Max resident set": "RSS",
    "Max processes": "NPROC",
    "Max open files": "NOFILE",
    "Max locked memory": "MEMLOCK",
    "Max address space": "AS",
    "Max pending signals": "SIGPENDING",
    "Max msgqueue size": "MSGQUEUE",
    "Max nice priority": "NICE",
    "Max realtime priority": "RTPRIO",
}
_NICE = 16


def take(pid: int) -> Dict[str, Any]:
    """Return the command, environment, folder, user, outputs and limits of a process.

    Raises:
        ChangeError: a part of it cannot be read.
    """
    status = status_of(pid)
    command, block = read_bytes(f"/proc/{pid}/cmdline"), read_bytes(f"/proc/{pid}/environ")
    if not status or not command or block is None:
        raise ChangeError(f"process {pid} cannot be read: it is gone, or not ours to see")
    try:
        return {
            "argv": _words(command),
            "env": _words(block),
            "cwd": os.readlink(f"/proc/{pid}/cwd"),
            # A program that was updated since is run as it is now.
            "exe": os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", ""),
            "uids": [int(word) for word in status["Uid"].split()[:3]],
            "gids": [int(word) for word in status["Gid"].split()[:3]],
            "groups": [int(word) for word in status["Groups"].split()],
            "umask": int(status.get("Umask", "0022"), 8),
            "ignored": int(status["SigIgn"], 16),
            "nice": int(stat_fields(pid)[_NICE]),
            "oom_score_adj": int(read_bytes(f"/proc/{pid}/oom_score_adj") or b"0"),
            "cpus": sorted(os.sched_getaffinity(pid)),
            "limits": _limits(pid),
            "streams": [stream(pid, number) for number in range(3)],
        }
    except (OSError, LookupError, ValueError) as error:
        raise ChangeError(f"process {pid} cannot be read: {error}") from error


def _limits(pid: int) -> Dict[str, List[int]]:
    found = {_LIMITS[name]: words.split() for name, words in limits(pid).items() if name in _LIMITS}
    return {name: [-1 if word == "unlimited" else int(word) for word in words] for name, words in found.items()}


def status_of(pid: int) -> Dict[str, str]:
    """Return the fields of /proc/PID/status; empty when the process is gone."""
    lines = (read_bytes(f"/proc/{pid}/status") or b"").decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def stream(pid: int, number: int) -> Dict[str, Any]:
    """Return where a standard stream of a process leads: ``path`` ("" for none), and which file that is."""
    path = link(f"/proc/{pid}/fd/{number}")
    try:
        status = os.stat(f"/proc/{pid}/fd/{number}")
    except OSError:
        return {"path": "", "file": []}
    return {"path": path, "file": [status.st_dev, status.st_ino]}


def is_file(entry: Mapping[str, Any]) -> bool:
    """Return whether a stream leads to a file with a name, and not to a terminal, a device, a pipe or a socket."""
    path = str(entry["path"])
    return path.startswith("/") and not path.startswith(("/dev/", "/proc/")) and not path.endswith(" (deleted)")


def lost(record: Mapping[str, Any]) -> List[str]:
    """Return what of a process would not come back, one line each."""
    found = []
    for number, entry in list(enumerate(record["streams"]))[1:]:
        path = str(entry["path"])
        if path.startswith(("pipe:", "socket:")) or path.endswith(" (deleted)"):
            word = "a pipe" if path.startswith("pipe:") else "a socket" if path.startswith("socket:") else path
            found.append(f"its {('output', 'errors')[number - 1]} go to {word}")
    return found


def memory_policy(pid: int) -> str:
    """Return how numactl bound the memory of a process, "" where it did not."""
    first = (read_bytes(f"/proc/{pid}/numa_maps") or b"").split(b"\n")[0].split()
    policy = first[1].decode("ascii", "replace") if len(first) > 1 else "default"
    return "" if policy == "default" else policy


def _words(block: bytes) -> List[str]:
    block = block[:-1] if block.endswith(b"\0") else block
    return [os.fsdecode(word) for word in block.split(b"\0")] if block else []
