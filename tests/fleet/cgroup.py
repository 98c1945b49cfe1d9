"""A cgroup per host: what makes 'everything of this host' one thing that can be listed and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet.shell import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator


def unified() -> Path | None:
    """Return where the cgroup2 tree is mounted, also beside a version 1 tree; None where it is not."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, target, kind, *_ = line.split()
            if kind == "cgroup2":
                return Path(target)
    return None


class Cgroup:
    """All processes of one host, or of one fleet."""

    def __init__(self, *names: str) -> None:
        root = unified()
        if root is None:
            raise FleetError("no cgroup2 tree is mounted here")
        self.path = root.joinpath(*names)

    def create(self) -> None:
        """Make the folder, and the two below it: for the loop that boots again, and for the host."""
        for name in ("loop", "box"):
            (self.path / name).mkdir(parents=True, exist_ok=True)

    def pids(self) -> list[int]:
        """Return every living process below, oldest number first."""
        found: set[int] = set()
        for folder in self._folders():
            with contextlib.suppress(OSError):
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
        return sorted(found - {0})

    def kill(self, timeout: float = 20) -> None:
        """Kill all at once and return when they are gone.

        The lowest number is the loop, then nspawn, then the host's PID 1; the kernel ends everything in
        a host together with its PID 1, so nothing inside gets the time to tidy up.
        """
        deadline = time.monotonic() + timeout
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise FleetError(f"processes {pids} survive SIGKILL for {timeout} s")
            time.sleep(0.005)

    def remove(self) -> None:
        """Remove the empty folders."""
        for folder in reversed(list(self._folders())):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> Iterator[Path]:
        for folder, _, _ in os.walk(self.path):
            yield Path(folder)
