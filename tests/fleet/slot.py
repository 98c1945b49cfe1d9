"""A number for each fleet on this machine; all names that it leaves anywhere follow from the number.

The number is held by a lock that dies with its process. Whoever gets a number whose file still names a
state folder has found what a crashed run left behind, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import disk, network
from tests.fleet.cgroup import Cgroup
from tests.fleet.shell import FleetError

if TYPE_CHECKING:
    from typing import TextIO

SLOTS = Path("/run/launch-fleet")
PROPAGATE = Path("/run/systemd/nspawn/propagate")
LAST = 250
#: How many numbers are for each worker of pytest-xdist, of which LAST // 30 may work at once.
PART = 30


class Slot:
    """One held number."""

    def __init__(self, number: int, file: TextIO) -> None:
        self.number = number
        self._file = file

    @classmethod
    def take(cls) -> Slot:
        """Remove what crashed runs left, then hold the lowest free number."""
        cls.sweep()
        for number in numbers():
            if slot := cls._try(number):
                slot.clean()
                return slot
        raise FleetError("all numbers for fleets are taken")

    @classmethod
    def sweep(cls) -> None:
        """Remove what crashed runs left."""
        SLOTS.mkdir(mode=0o700, exist_ok=True)
        for number in sorted({int(path.name) for path in SLOTS.iterdir()} & set(numbers())):
            if crashed := cls._try(number):
                crashed.release()

    @classmethod
    def _try(cls, number: int) -> Slot | None:
        file = (SLOTS / str(number)).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return cls(number, file)

    def claim(self, state: Path) -> None:
        """Write down where this fleet keeps its files, before it makes any."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(str(state))
        self._file.flush()
        os.fsync(self._file.fileno())

    def clean(self) -> None:
        """Kill, unplug, unmount and delete everything under this number; nothing there is fine too."""
        cgroup = Cgroup(group(self.number))
        cgroup.kill()
        cgroup.remove()
        network.remove(self.number)
        for folder in PROPAGATE.glob(f"lf{self.number}-h*"):
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._file.seek(0)
        if state := self._file.read():
            disk.remove(Path(state))
        self._file.seek(0)
        self._file.truncate()

    def release(self) -> None:
        """Clean, and give the number back."""
        try:
            self.clean()
        finally:
            self._file.close()


def numbers() -> range:
    """Return what may be taken here: every number, or the worker's part where pytest shares the tests out.

    So no worker sweeps away the crashed fleet that a test of another has just made.
    """
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if not worker:
        return range(1, LAST + 1)
    first = 1 + PART * (int(worker[1]) % (LAST // PART))
    return range(first, first + PART)


def group(number: int) -> str:
    """Return the name of a fleet's cgroup."""
    return f"launch-fleet-{number}"


def is_held(number: int, state: Path) -> bool:
    """Tell whether the process that booted the fleet with this number and folder still lives."""
    try:
        with (SLOTS / str(number)).open() as file:
            if file.read() != str(state):
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
