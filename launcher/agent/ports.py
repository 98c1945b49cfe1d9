"""Who listens on a TCP port, from /proc/net and the descriptors of processes."""

from __future__ import annotations

import os
import pwd
from typing import Dict, Iterable, Set

from .processes import cgroup_of, read_bytes

_LISTEN = "0A"


def _sockets(port: int) -> Dict[str, int]:
    """Return the user id by socket inode of everything that listens on a port, on any address."""
    found: Dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = (read_bytes(table) or b"").decode("ascii", "replace").splitlines()[1:]
        for fields in (line.split() for line in lines):
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found[fields[9]] = int(fields[7])
    return found


def listening(port: int) -> Set[str]:
    """Return the socket inodes that listen on a port, on any address."""
    return set(_sockets(port))


def holder(port: int) -> str:
    """Say who listens on a port: the process where it may be seen, else its user."""
    sockets = _sockets(port)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    pid = owner(set(sockets), pids)
    if pid:
        return f"process {pid} ({cgroup_of(pid) or 'no control group'})"
    users = sorted({_user(uid) for uid in sockets.values()})
    return f"a process of user {', '.join(users)}" if users else "nobody any more"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


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
