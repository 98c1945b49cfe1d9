"""A server below a task: started with the limits of its unit, ended with it, and everything that it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from typing import List, Mapping, Optional, Set

from .processes import stat_fields

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)
#: Seconds that killed processes get to go.
_DYING = 15.0


class Server:
    """The server below this task; whatever it leaves behind comes to this task too."""

    def __init__(self, argv: List[str], env: Mapping[str, str], cwd: str) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._process = subprocess.Popen(
            argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, preexec_fn=_prepare, restore_signals=True
        )
        self.pid = self._process.pid
        self.status: Optional[int] = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._send(signal.SIGTERM))

    def _send(self, number: int) -> None:
        # The signal may come when the kernel has given the server's end away and nobody has noted it yet.
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def reap(self, flags: int) -> bool:
        """Take note of who has ended; return whether the server still runs."""
        while self.status is None:
            try:
                pid, status = os.waitpid(-1, flags)
            except ChildProcessError:
                self.status = 1 << 8
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.status = self._process.returncode = status
        return self.status is None

    def tree(self) -> List[int]:
        """Return all its processes that are alive."""
        parents = {pid: int(fields[1]) for pid, fields in _all() if fields[0] not in (b"Z", b"X")}
        found: Set[int] = set()
        newest = {os.getpid()}
        while newest:
            newest = {pid for pid, parent in parents.items() if parent in newest} - found
            found |= newest
        return sorted(found)

    def kill(self) -> None:
        """End everything at once."""
        deadline = time.monotonic() + _DYING
        while time.monotonic() < deadline:
            pids = self.tree()
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.reap(os.WNOHANG)
            if not pids:
                return
            time.sleep(0.05)


def _all() -> "List[tuple[int, List[bytes]]]":
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [(pid, fields) for pid in pids for fields in [stat_fields(pid)] if len(fields) > 1]


def _prepare() -> None:
    """Give the server the limits of its unit as far as they may be raised, and let it end with this task."""
    for kind, wanted in ((resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY), (resource.RLIMIT_NOFILE, 524288)):
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (OSError, ValueError):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
