"""One command of a measuring program: started, listened to, and ended with all that it has started.

Standard library only; runs on a host as root, who becomes the engine's user for it, or as whoever started `launch`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import comm_process
from .preflight import environment
from .processes import read_bytes, start_time, stat_fields

if TYPE_CHECKING:
    import pwd

    from .readings import Gpus

#: Characters that are kept of what a command prints: its first and its last; and of one that prints its result.
HEAD, TAIL, WHOLE = 2_000, 14_000, 8_000_000
#: Seconds: between looks, for what is written when a command has ended, for what it left to go, and for a server that
#: has died, whose client may still say so by itself.
_LOOK, _REST, _DYING, _BEREFT = 0.2, 1.0, 5.0, 5.0
#: A name in the environment of a command and all that it starts.
_MARK = "LAUNCH_LOAD"


class Command(NamedTuple):
    """What is started; ``env`` is all of its environment, ``user`` None is this one."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    user: "Optional[pwd.struct_passwd]"


class Done(NamedTuple):
    """How it went: ``outcome`` is ended, timeout, bereft (its server died), lacking (not started) or abandoned."""

    outcome: str
    message: str
    exit: str
    seconds: float
    out: str
    err: str
    left: int


class Kept:
    """The begin and the end of a stream that may be a flood."""

    def __init__(self, head: int, tail: int) -> None:
        self._head, self._tail, self._lost = b"", b"", 0
        self._first, self._last = head, tail

    def take(self, data: bytes) -> None:
        """Keep what there is room for."""
        room = self._first - len(self._head)
        self._head, data = self._head + data[:room], data[room:]
        self._tail += data
        over = len(self._tail) - self._last
        if over > 0:
            self._lost, self._tail = self._lost + over, self._tail[over:]

    def text(self) -> str:
        """Return it, with a line that tells what is missing."""
        gap = f"\n… {self._lost} bytes left out …\n".encode() if self._lost else b""
        return (self._head + gap + self._tail).decode("utf-8", "replace")


def command(argv: List[str], own: Mapping[str, str], cwd: str, name: str) -> Command:
    """Return a command as a user, whose usual variables it gets; as this one where that is not root, or is not named.

    Raises:
        KeyError: there is no such user.
    """
    user = comm_process.user(name)
    base = environment({}, user) if user else dict(os.environ)
    # Clients heed a proxy; the server is on this machine.
    direct = {"no_proxy": "*", "NO_PROXY": "*"}
    return Command(argv, {**base, **direct, **own}, cwd, user)


def run(
    wanted: Command,
    limit: float,
    *,
    whole: bool = False,
    dead: Callable[[], bool],
    gone: Callable[[], bool],
    gpus: Gpus,
) -> Done:
    """Run a command to its end, or to the end of the time that it has.

    Args:
        wanted: what to start, in a session of its own; when this program is killed it is as well.
        limit: seconds.
        whole: its standard output is its result, and is kept.
        dead: whether the server that it measures is gone.
        gone: whether nobody waits for the answer any more.
        gpus: looked at meanwhile.
    """
    begin, mark = time.monotonic(), secrets.token_hex(8)
    streams = (Kept(WHOLE, TAIL) if whole else Kept(HEAD, TAIL), Kept(HEAD, TAIL))
    try:
        process = subprocess.Popen(
            wanted.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**wanted.env, _MARK: mark},
            cwd=wanted.cwd,
            start_new_session=True,
            preexec_fn=lambda: comm_process.become(wanted.user),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Done("lacking", _not_started(wanted, error), "", 0.0, "", "", 0)
    outcome, left = "abandoned", 0
    try:
        outcome = _listen(process, streams, begin + limit, dead, gone, gpus)
    finally:
        left = _end(process, mark)
        for stream in (process.stdout, process.stderr):
            assert stream is not None  # noqa: S101 - asked for above
            stream.close()
    seconds = time.monotonic() - begin
    return Done(outcome, "", _exit(process.returncode), seconds, streams[0].text(), streams[1].text(), left)


def _listen(
    process: "subprocess.Popen[bytes]",
    streams: Tuple[Kept, Kept],
    deadline: float,
    dead: Callable[[], bool],
    gone: Callable[[], bool],
    gpus: Gpus,
) -> str:
    """Take what it prints until it ends, and say how that came about."""
    ended = bereft = 0.0
    with selectors.DefaultSelector() as selector:
        for pipe, kept in zip((process.stdout, process.stderr), streams):
            assert pipe is not None  # noqa: S101 - asked for by the caller
            selector.register(pipe, selectors.EVENT_READ, kept)
        while True:
            open_ = _take(selector, 0 if ended else _LOOK)
            now = time.monotonic()
            if process.poll() is not None:
                ended = ended or now
                # What it left behind may hold its output open, and may go on writing.
                if not open_ or now - ended > _REST:
                    return "ended"
                continue
            gpus.look()
            bereft = (bereft or now) if dead() else 0.0
            if gone():
                return "abandoned"
            if bereft and now - bereft > _BEREFT:
                return "bereft"
            if now > deadline:
                return "timeout"
            if not open_:
                time.sleep(_LOOK)


def _take(selector: selectors.BaseSelector, seconds: float) -> bool:
    """Keep what has come; return whether anything may still come."""
    for key, _ in selector.select(seconds) if selector.get_map() else ():
        pipe: "IO[bytes]" = key.fileobj  # type: ignore[assignment]
        data = os.read(pipe.fileno(), 1 << 16)
        if data:
            key.data.take(data)
        else:
            selector.unregister(pipe)
    return bool(selector.get_map())


def _end(process: "subprocess.Popen[bytes]", mark: str) -> int:
    """Kill it and everything that it has started; return how many were left when it had ended by itself."""
    by_itself = process.poll() is not None
    killed = set()
    deadline = time.monotonic() + _DYING
    if not by_itself:
        process.kill()
    while True:
        pids = _started_by(process.pid, mark.encode())
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed.update(pids)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
        if (not pids and process.returncode is not None) or time.monotonic() > deadline:
            return len(killed) if by_itself else 0


def _started_by(leader: int, mark: bytes) -> List[int]:
    """Return the live processes of a session, and those that carry a mark, whatever session they made themselves."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        fields = stat_fields(pid)
        if pid in (leader, os.getpid()) or len(fields) < 4 or start_time(pid) is None:
            continue
        if int(fields[3]) == leader or _MARK.encode() + b"=" + mark in (read_bytes(f"/proc/{pid}/environ") or b""):
            found.append(pid)
    return found


def _not_started(wanted: Command, error: Exception) -> str:
    program = wanted.argv[0]
    if not isinstance(error, OSError):
        name = wanted.user.pw_name if wanted.user else "this one"
        return f"a process cannot become the user {name!r}: {error}"
    if wanted.cwd and error.filename == wanted.cwd:
        return f"{wanted.cwd} cannot be entered: {error.strerror}"
    return f"{program} cannot be started: {error.strerror or error}"


def _exit(code: "Optional[int]") -> str:
    if code is None:
        return "does not even end when killed"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def text_of(path: str) -> str:
    """Return a result file, as far as a result goes; "" when there is none, or something that is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(WHOLE).decode("utf-8", "replace")
    except OSError:
        return ""


def without(text: str, keys: List[str]) -> str:
    """Return a result without some keys of the JSON object in each line."""
    lines = text.splitlines() if keys else []
    for number, line in enumerate(lines):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and any(key in found for key in keys):
                lines[number] = json.dumps({key: value for key, value in found.items() if key not in keys})
    return "\n".join(lines) if keys else text
