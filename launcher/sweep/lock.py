"""One run at a time in the folder of a sweep: a lock that the kernel takes back however its holder ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from launcher.errors import LaunchError

from . import disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = ".lock"
#: Whoever only looks whether a sweep runs holds the lock for less.
_TRIES, _PAUSE = 5, 0.05


class RunningError(LaunchError):
    """The sweep is being run by another launch."""

    exit_code = 6


@contextmanager
def held(folder: Path, by: str) -> Iterator[None]:
    """Hold the folder of a sweep while it is run.

    Args:
        folder: of the sweep.
        by: who runs it, for whoever is refused.

    Raises:
        RunningError: another launch holds it.
        LaunchError: the folder is gone or cannot be written.
    """
    path = folder / LOCK
    with disk.told(path, "the sweep is not run"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with disk.told(path, "the sweep is not run"):
            if not _taken(descriptor):
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
                raise RunningError(f"sweep {folder.name} is being run by {holder or 'another launch'}")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{by}, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def running(folder: Path) -> bool:
    """Return whether some launch holds the folder now; false where that cannot be seen."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(descriptor)
    return False


def _taken(descriptor: int) -> bool:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE if left else 0)
        else:
            return True
    return False
