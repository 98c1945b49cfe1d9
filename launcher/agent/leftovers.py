"""Segments in /dev/shm that dead servers left behind: a crash loop fills it with them (llm-d/llm-d#352)."""

from __future__ import annotations

import os
import pwd
import re
import stat
from typing import Container, Set, Tuple

_SHM = "/dev/shm"  # noqa: S108 - where NCCL and Python put them
#: NCCL's segments, Python's shared memory and semaphores, torch's files, and those of the two engines.
_NAME = re.compile(r"(nccl-|psm_|sem\.mp-|torch_|__KMP_|vllm|sglang|sgl_|mp-)")


def remove(user: str) -> int:
    """Remove a user's segments that no living process has open or mapped; return how many went.

    Raises:
        OSError: one cannot be removed.
    """
    try:
        return remove_of(pwd.getpwnam(user).pw_uid, ())
    except KeyError:
        return 0


def segments() -> Set[str]:
    """Return the names of all segments of servers."""
    try:
        return {name for name in os.listdir(_SHM) if _NAME.match(name)}
    except OSError:
        return set()


def remove_of(uid: int, keep: Container[str]) -> int:
    """Remove those of a user but some; see `remove`.

    Raises:
        OSError: one cannot be removed.
    """
    names = sorted(name for name in segments() if name not in keep)
    mine = [name for name in names if _belongs(name, uid)]
    if not mine:
        return 0
    used = _used()
    dead = [name for name in mine if _key(os.path.join(_SHM, name)) not in used]
    for name in dead:
        os.unlink(os.path.join(_SHM, name))
    return len(dead)


def _belongs(name: str, uid: int) -> bool:
    try:
        status = os.lstat(os.path.join(_SHM, name))
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == uid


def _key(path: str) -> Tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _used() -> Set[Tuple[int, int]]:
    """Return device and inode of every file that a process has open or mapped below /dev/shm."""
    found: Set[Tuple[int, int]] = set()
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        for kind in ("fd", "map_files"):
            folder = f"/proc/{pid}/{kind}"
            try:
                entries = os.listdir(folder)
            except OSError:
                continue
            for entry in entries:
                try:
                    if os.readlink(f"{folder}/{entry}").startswith(_SHM):
                        found.add(_key(f"{folder}/{entry}"))
                except OSError:
                    continue
    return found
