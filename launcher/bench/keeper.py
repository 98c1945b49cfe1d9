"""Keeps one server as systemd would: starts it, reaps and ends everything that it starts, whoever dies first.

A program of its own between `launch` and the server, for a machine without systemd. Every process that the server
starts stays below it, daemons and orphans as well (PR_SET_CHILD_SUBREAPER), so that it can end them all; it does so
when told, and when `launch` is gone, however that ended. Standard library only; started by `launcher.bench.kept`.

Standard input: a line of JSON with ``argv``, ``env``, ``cwd``, ``parent`` (of this program), and ``folder``, removed
at the end; later lines are ``stop SECONDS``. Its end is that of `launch`. Standard error is the server's log.
Standard output, a line of JSON each: ``main`` (its number) or ``error`` and ``filename``; ``status`` (of the server,
as of waitpid(2)); ``left`` (what could not be ended) and ``killed`` (how many had to be), and this one ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import time
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)
#: Seconds that a server gets to end by itself when launch is gone; that others get when the server has ended; and
#: that everything gets to go when killed.
_ALONE, _REST, _DYING = 1.5, 2.0, 15.0
#: Seconds between looks: while something ends, and else; the end of a child, and a word, are heard at once.
_BRISK, _IDLE = 0.02, 1.0


def tell(**said: Any) -> None:  # noqa: ANN401 - plain data
    """Report; nobody may be listening any more."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(said).encode() + b"\n")


def descendants(of: int) -> dict[int, bool]:
    """Return every process below one, and whether it is no zombie: those may still have children and threads."""
    parents: dict[int, int] = {}
    states: dict[int, bytes] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208 - quick to start
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123
            fields = stream.read().rpartition(b") ")[2].split()
            states[pid], parents[pid] = fields[0], int(fields[1])
    found = newest = {of}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest} - found
        found = found | newest
    return {pid: states[pid] not in (b"Z", b"X") for pid in sorted(found - {of}) if pid in states}


def prepare() -> None:
    """Give the server the limits of its unit as far as they may be raised, and let it end with this program."""
    for kind, wanted in {resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY, resource.RLIMIT_NOFILE: 524288}.items():
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (OSError, ValueError):  # not root, or a container that forbids it
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """The server, and when what has to end."""

    def __init__(self, spec: dict[str, Any], words: bytes) -> None:
        self._parent = spec["parent"]
        self._words = words
        self._ended = False  # the server itself
        self._stopping = False
        self._alone = False
        self._soft = self._hard = float("inf")
        self._killed: set[int] = set()
        self._server = subprocess.Popen(
            spec["argv"],
            env=spec["env"],
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            start_new_session=True,
            preexec_fn=prepare,
        )
        tell(main=self._server.pid)

    def run(self, wakes: int) -> None:
        """Keep it to its end."""
        while True:
            anything = self._reap()
            if not anything and (self._stopping or self._ended):
                tell(left=[], killed=len(self._killed))
                return
            now = time.monotonic()
            if now > self._soft and not self._end(now):
                return
            heard = [wakes] if self._alone else [wakes, 0]
            ready = select.select(heard, [], [], _BRISK if self._stopping else _IDLE)[0]
            if wakes in ready:
                os.read(wakes, 4096)
            if 0 in ready:
                self._hear()
            if os.getppid() != self._parent:  # something else may hold the other end of our input
                self._left_alone()

    def _reap(self) -> bool:
        """Take note of who has ended; return whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._server.pid:
                self._ended, self._server.returncode = True, status
                tell(status=status)
                if self._stopping:
                    self._soft = min(self._soft, time.monotonic() + _REST)

    def _hear(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self._left_alone()
        *lines, self._words = (self._words + data).split(b"\n")
        for line in lines:
            self._stop(float(line.removeprefix(b"stop ")))

    def _left_alone(self) -> None:
        if not self._alone:
            self._alone = True
            self._stop(_ALONE)

    def _stop(self, seconds: float) -> None:
        """Ask the server to end, once; what is not gone in time is killed."""
        self._soft = min(self._soft, time.monotonic() + (min(seconds, _REST) if self._ended else seconds))
        if not self._stopping and not self._ended:
            self._server.send_signal(signal.SIGTERM)
        self._stopping = True

    def _end(self, now: float) -> bool:
        """Kill everything; return whether there is something to wait for."""
        if self._hard == float("inf"):
            self._hard = now + _DYING
        pids = descendants(os.getpid())
        for pid, alive in pids.items():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                self._killed |= {pid} if alive else set()
        if now < self._hard:
            return True
        tell(left=list(pids), killed=len(self._killed))
        return False


def main() -> None:
    """Read what to start, and keep it."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN, which the server would inherit. Slurm and a terminal mean launch, who will say what to do.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    text = b""
    while b"\n" not in text:
        data = os.read(0, 1 << 16)
        if not data:
            return
        text += data
    line, _, rest = text.partition(b"\n")
    spec = json.loads(line)
    try:
        Keeper(spec, rest).run(read)
    except OSError as error:
        tell(error=error.strerror, filename=error.filename)
    finally:
        if spec["folder"]:
            shutil.rmtree(spec["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
