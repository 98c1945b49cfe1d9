"""One command of nccl-tests: started as the server would be, listened to, and ended, whatever happens.

Its table comes over standard output. NCCL's log, which would tear rows there, is sent to standard error by
``NCCL_DEBUG_FILE``. Its JSON file holds the whole environment: it is opened and deleted as soon as the program says
that it has begun it, and read when the program is through.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import stat
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping

from . import nccl_tests
from .comm_process import DYING, LONGEST, Abandoned, Gone, Lines, become, differences, kill, user

#: Where a program finds its standard error by a name.
_STDERR = "/proc/self/fd/2"
#: Bytes of a table, or of a JSON file.
_MOST = 1 << 24
#: How many times as long as a silence may last a whole command.
_ALTOGETHER = 5
#: What the program prints when it has its GPUs, and when its ranks have joined.
_DEVICES, _TABLE = re.compile(rb"^#\s+Rank\s+\d+ "), re.compile(rb"^#\s+size\s+count\s+type\b")

#: Phases, as far as a command tells them.
JOIN, MEASURE = "join the communicator for", "measure"


class Command:
    """One command, and what it has said so far; leaving the context ends its processes, begun by `start`.

    Args:
        spec: see `launcher.agent.comm.run`.
        argv: the command.
        folder: that it may write its JSON into, and nobody else.
        begins: told what begins: `JOIN`, then `MEASURE`.
        gone: whether nobody waits for it any more.
    """

    def __init__(
        self, spec: Mapping[str, Any], argv: List[str], folder: str, begins: Callable[[str], None], gone: Gone
    ) -> None:
        self._spec, self._argv, self._folder = spec, argv, folder
        self._begins, self._gone = begins, gone
        #: Of both streams, in the order in which they came, as far as that can be known.
        self.lines = Lines()
        #: What it printed, what it wrote as JSON (empty: nothing), and why it counts as hung (empty: it does not).
        self.stdout, self.stderr, self.json, self.hung = "", "", "", ""
        self.environment: List[str] = []
        self.process: "subprocess.Popen[bytes]"
        self._parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        self._rest, self._kept = {"stdout": b"", "stderr": b""}, 0
        self._path, self._file = "", -1
        self._selector = selectors.DefaultSelector()

    def start(self) -> "Command":
        """Start it.

        Raises:
            OSError: it cannot be started.
            SubprocessError: it cannot become the user.
        """
        who = user(self._spec["user"])
        env = {"NCCL_DEBUG_FILE": _STDERR, **self._spec["env"]}
        mine, theirs = os.pipe()
        try:
            if who:  # opening it by its name asks for a permission, which writing to it does not
                os.fchown(theirs, who.pw_uid, who.pw_gid)
            self.process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=theirs,
                env=env,
                cwd=self._spec["cwd"] or "/",
                start_new_session=True,
                preexec_fn=lambda: become(who),
            )
        except BaseException:
            os.close(mine)
            self._selector.close()
            raise
        finally:
            os.close(theirs)
        self._selector.register(mine, selectors.EVENT_READ, "stderr")
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        self._selector.register(self.process.stdout.fileno(), selectors.EVENT_READ, "stdout")
        self.environment = differences(self.process.pid, env)
        return self

    def __enter__(self) -> "Command":  # noqa: PYI034 - Self is newer
        return self

    def __exit__(self, *_: object) -> None:
        kill(self.process)
        try:
            self.process.wait(DYING)
        except subprocess.TimeoutExpired:
            self.hung += " (does not even end when killed: it hangs in the kernel)"
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        for key in list((self._selector.get_map() or {}).values()):
            if key.data == "stderr":
                os.close(key.fd)
        self.process.stdout.close()
        self._selector.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def listen(self) -> None:
        """Listen to the end, or until it hangs, which ``hung`` then says.

        Raises:
            Abandoned: nobody waits for it any more.
        """
        begin = heard = time.monotonic()
        limit = self._spec["deadline"]
        while self.process.poll() is None:
            if self._gone():
                raise Abandoned
            now = time.monotonic()
            if now - heard > limit:
                self.hung = f"no sign of life for {limit:g} s"
            elif now - begin > _ALTOGETHER * limit:
                self.hung = f"not at its end after {_ALTOGETHER * limit:g} s"
            if self.hung:
                break
            if self._hear(0.1):
                heard = time.monotonic()
        # What was written before the end; not for ever, since something else may go on writing.
        deadline = time.monotonic() + 1
        while self._hear(0) and time.monotonic() < deadline:
            pass
        for name, rest in self._rest.items():
            self._take(name, [rest] if rest else [])
        self.stdout, self.stderr = (
            b"\n".join(self._parts[name]).decode("utf-8", "replace") for name in ("stdout", "stderr")
        )
        if self._file >= 0 and stat.S_ISREG(os.fstat(self._file).st_mode):
            self.json = os.pread(self._file, _MOST, 0).decode("utf-8", "replace")

    def _hear(self, seconds: float) -> bool:
        """Take what there is to be read; return whether there was something."""
        if not self._selector.get_map():  # it has closed both, and is not at its end
            time.sleep(min(seconds, 0.02))
            return False
        found = False
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                if key.data == "stderr":
                    os.close(key.fd)
                continue
            found = True
            *lines, rest = (self._rest[key.data] + data).split(b"\n")
            self._rest[key.data] = rest[:LONGEST]
            self._take(key.data, lines)
        return found

    def _take(self, name: str, lines: List[bytes]) -> None:
        self.lines.hear(lines)
        for line in lines:
            self._kept += len(line)
            if self._kept < _MOST:
                self._parts[name].append(line[:LONGEST])
            if name == "stdout" and line.startswith(b"#"):
                self._hold(nccl_tests.json_file(line.decode("utf-8", "replace")))
                if _DEVICES.match(line):
                    self._begins(JOIN)
                elif _TABLE.match(line):
                    self._begins(MEASURE)

    def _hold(self, path: str) -> None:
        """Open the file that the program writes, and delete it: from now on nobody finds it."""
        if os.path.dirname(path) == self._folder:
            self._path = path
        if not self._path or self._file >= 0:
            return
        with contextlib.suppress(OSError):  # not there yet, then: tried again with the next line
            self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            os.unlink(self._path)
