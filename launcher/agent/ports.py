"""Who listens on a TCP port, from /proc/net and the descriptors of processes."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from typing import Dict, Iterable, Iterator, Set

from .processes import cgroup_of, read_bytes

_LISTEN, _ESTABLISHED = "0A", "01"
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104


def _sockets(port: int, host: str = "") -> Dict[str, int]:
    """Return the user id by socket inode of everything that listens on a port and would be in the way on a host."""
    found: Dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = (read_bytes(table) or b"").decode("ascii", "replace").splitlines()[1:]
        for fields in (line.split() for line in lines):
            if len(fields) <= 9 or fields[3] != _LISTEN:
                continue
            address, _, number = fields[1].rpartition(":")
            if int(number, 16) == port and _in_the_way(address, host):
                found[fields[9]] = int(fields[7])
    return found


def clients(port: int) -> int:
    """Return how many connections from elsewhere are open on a port of this host."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = (read_bytes(table) or b"").decode("ascii", "replace").splitlines()[1:]
        fields = (line.split() for line in lines)
        count += sum(f[3] == _ESTABLISHED and int(f[1].rpartition(":")[2], 16) == port for f in fields if len(f) > 3)
    return count


def _in_the_way(address: str, host: str) -> bool:
    """Return whether a listener on one address (as /proc/net shows it) excludes another on a host."""
    if host in _WILDCARDS or set(address) == {"0"}:
        return True
    family = socket.AF_INET if len(address) == 8 else socket.AF_INET6
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    shown = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    # A name, as localhost, is not resolved here: any loopback listener counts.
    return shown == host or (not host[:1].isdigit() and ":" not in host and shown in ("127.0.0.1", "::1"))


def listening(port: int, host: str = "") -> Set[str]:
    """Return the socket inodes that listen on a port, on any address that is in the way of a host's."""
    return set(_sockets(port, host))


def of(pid: int, pids: Iterable[int]) -> Set[int]:
    """Return the ports that some processes listen on, in the network of one of them, which may be a container's."""
    found: Dict[str, int] = {}
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        lines = (read_bytes(table) or b"").decode("ascii", "replace").splitlines()[1:]
        for fields in (line.split() for line in lines):
            if len(fields) > 9 and fields[3] == _LISTEN:
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return {found[inode] for inode in held(set(found), pids)}


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


def held(inodes: Set[str], pids: Iterable[int]) -> Set[str]:
    """Return those of the sockets that one of the processes holds."""
    return {inode for pid in pids for inode in _open_sockets(pid) if inode in inodes}


def owner(inodes: Set[str], pids: Iterable[int]) -> int:
    """Return the first of the processes that holds one of the sockets, or 0."""
    return next((pid for pid in pids if not inodes.isdisjoint(_open_sockets(pid))), 0)


def _open_sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's sockets; none where they may not be seen."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = os.readlink(f"{folder}/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]
