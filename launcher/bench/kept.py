"""A server below its keeper, seen from `launch`: its processes, its end, and how it is ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.agent.processes import read_process, start_time, stat_fields
from launcher.bench import keeper
from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PROGRAM = str(Path(keeper.__file__))
#: Seconds beyond what the keeper takes by itself at most: to kill, and to say so.
_SLACK = 20.0
#: Seconds that orphans get to go, should the keeper have been killed.
_DYING = 10.0
#: Names that a release gives to every process of it.
_MARKS = ("LAUNCH_DEPLOYMENT", "LAUNCH_DIGEST")


class Kept:
    """One server from its start to the end of all its processes."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: int, folder: str = "") -> None:
        """Start it.

        Args:
            argv: its command.
            env: all of its environment.
            cwd: where it runs.
            log: a descriptor that it writes to; the keeper's own troubles go there too.
            folder: removed when it has ended.

        Raises:
            LaunchError: it cannot be started.
        """
        self._env = env
        self._said: dict[str, Any] = {}
        self._rest = b""
        self._seen: set[tuple[int, bytes]] = set()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            spec = {"argv": list(argv), "env": dict(env), "cwd": cwd, "folder": folder, "parent": os.getpid()}
            with contextlib.suppress(OSError):  # it ended at once
                self._word(json.dumps(spec))
            while "main" not in self._said and self._listen(_SLACK):
                pass
            self.main = self._main(argv[0], cwd)
        except BaseException:
            self.drop()
            raise
        self._started = start_time(self.main) or b"0"

    @property
    def status(self) -> int | None:
        """How the server ended, as of waitpid(2); None while it runs."""
        while "status" not in self._said and self._listen(0):
            pass
        if "status" not in self._said and self._keeper.poll() is not None:
            return signal.SIGKILL  # with its keeper
        found: int | None = self._said.get("status")
        return found

    def tree(self) -> list[int]:
        """Return all its processes that are alive."""
        pids = [pid for pid, alive in keeper.descendants(self._keeper.pid).items() if alive]
        self._seen |= {(pid, start) for pid in pids if (start := start_time(pid))}
        return pids

    def stop(self, seconds: float) -> tuple[list[int], int]:
        """End it: by SIGTERM to the server, and after a time by SIGKILL to all that is left.

        Returns:
            The processes that cannot be ended, and how many had to be killed.
        """
        self.tree()
        try:
            with contextlib.suppress(OSError):
                self._word(f"stop {seconds}")
            deadline = time.monotonic() + seconds + _SLACK
            while "left" not in self._said and self._listen(deadline - time.monotonic()):
                pass
        finally:
            self.drop()
        if "left" in self._said:
            return self._said["left"], self._said["killed"]
        return self._end_orphans()

    def drop(self) -> None:
        """Let the keeper end everything at once; it needs nobody for that."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_SLACK)

    def _main(self, program: str, cwd: str) -> int:
        if "main" in self._said:
            return int(self._said["main"])
        reason = self._said.get("error", "its keeper ended; see the log")
        if self._said.get("filename") == cwd:
            raise LaunchError(f"engine.working_directory={cwd} cannot be entered: {reason}")
        raise LaunchError(f"engine.python={program} cannot be started: {reason}")

    def _word(self, text: str) -> None:
        assert self._keeper.stdin is not None  # noqa: S101 - asked for
        self._keeper.stdin.write(text.encode() + b"\n")
        self._keeper.stdin.flush()

    def _listen(self, seconds: float) -> bool:
        """Hear what the keeper says within a time; return whether it said something."""
        assert self._keeper.stdout is not None  # noqa: S101 - asked for
        if self._keeper.stdout.closed or not select.select([self._keeper.stdout], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(self._keeper.stdout.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._said.update(json.loads(line))
        return bool(data)

    def _end_orphans(self) -> tuple[list[int], int]:
        """Kill what a killed keeper could not: the server's session, what was seen of it, what bears its marks."""
        killed: set[int] = set()
        deadline = time.monotonic() + _DYING
        while (pids := self._orphans()) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            time.sleep(0.02)
        return pids, len(killed)

    def _orphans(self) -> list[int]:
        # No other session gets the number of one that has members.
        found = []
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            start, fields = start_time(pid), stat_fields(pid)
            if start is None or not fields or pid == os.getpid():
                continue
            own = int(fields[3]) == self.main or (pid, start) in self._seen
            if own or (int(start) >= int(self._started) and self._marked(pid)):
                found.append(pid)
        return found

    def _marked(self, pid: int) -> bool:
        process = read_process(pid)
        env = (process.env if process else None) or {}
        return all(name in env and env[name] == self._env.get(name) for name in _MARKS)
