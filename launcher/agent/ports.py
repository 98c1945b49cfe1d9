"""Who listens on a TCP port, from /proc/net and the descriptors of processes."""

from __future__ import annotations

import os
from typing import Iterable, Set

from .processes import read_bytes

_LISTEN = "0A"


def listening(port: int) -> Set[str]:
    """Return the socket inodes that listen on a port, on any address."""
    inodes: Set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = (read_bytes(table) or b"").decode("ascii", "replace").splitlines()[1:]
        for fields in (line.split() for line in lines):
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def owner(inodes: Set[str], pids: Iterable[int]) -> int:
    """Return the first of the processes that holds one of the sockets, or 0."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                if os.readlink(f"{folder}/{descriptor}") in wanted:
                    return pid
            except OSError:
                continue
    return 0


def all_pids() -> Iterable[int]:
    """Return every process that can be seen."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
