"""What every measurement of collectives does with its processes, whichever program measures.

They get what a unit of the server gives: its user, its limits, its environment and nothing else; they go with whoever
started them, and as a whole group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import resource
import signal
import subprocess
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from .processes import read_process

#: Seconds that processes get to go when killed.
DYING = 10.0
#: Characters of one line.
LONGEST = 1 << 16
#: Lines of one process that are kept, its first and its last; a start of NCCL has some 200, each size a few more.
_LINES = 4000
#: What NCCL took for a size, with TUNING.
_TUNING = re.compile(r"NCCL INFO .*\d Bytes -> Algo .*")
#: What is read of a GPU while it is measured.
GPU_FIELDS = (
    "index,name,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active,"
    "pcie.link.gen.current,pcie.link.width.current,driver_version"
)
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
#: As the unit's; an SSH session has 1024 open files, which a server with many GPUs and channels needs more of.
_LIMITS = {resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY, resource.RLIMIT_NOFILE: 524288}
Emit = Callable[[str], None]
Gone = Callable[[], bool]
#: An answer that says nothing.
EMPTY: Dict[str, Any] = {
    "rows": [],
    "ranks": [],
    "lines": [],
    "environment": [],
    "gpus": [],
    "phases": [],
    "versions": {},
}


class Abandoned(Exception):  # noqa: N818 - a state, and no failure of ours
    """Whoever wanted the measurement is gone."""


def never() -> bool:
    """Return False: somebody waits."""
    return False


def answer(outcome: str, message: str, found: Mapping[str, Any]) -> Dict[str, Any]:
    """Return an answer; see `launcher.agent.comm.run`."""
    return {**EMPTY, "outcome": outcome, "message": message, **found}


class Lines:
    """What a process printed."""

    def __init__(self) -> None:
        self.kept: List[str] = []
        self._chosen: Set[str] = set()

    def hear(self, lines: List[bytes]) -> None:
        """Keep what it printed; of a flood the end too, since that is where it says what it died of.

        What NCCL took for a size is kept once: it is printed for each collective of a graph.
        """
        for data in lines:
            line = data[:LONGEST].decode("utf-8", "replace")
            chosen = _TUNING.search(line)
            if chosen and chosen.group() in self._chosen:
                continue
            if chosen:
                self._chosen.add(chosen.group())
            self.kept.append(line)
        if len(self.kept) > _LINES:
            del self.kept[_LINES // 2 : -(_LINES // 2)]


class Smi:
    """One reading of nvidia-smi while something else is waited for."""

    def __init__(self) -> None:
        self._running: "Optional[subprocess.Popen[bytes]]" = None

    def begin(self) -> None:
        """Begin it; once, and nothing happens where there is no nvidia-smi."""
        if self._running is None:
            argv = ["nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader"]
            null = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                self._running = subprocess.Popen(argv, stdin=null, stdout=subprocess.PIPE, stderr=null)

    def lines(self) -> List[str]:
        """Return a line for each GPU; nothing where there are none."""
        running, self._running = self._running, None
        if running is None:
            return []
        try:
            text = running.communicate(timeout=10)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            _end(running)
            return []
        return text.splitlines() if running.returncode == 0 else []

    def end(self) -> None:
        """End it, if nobody has asked for its lines."""
        if self._running:
            _end(self._running)
            self._running = None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def user(name: str) -> "Optional[pwd.struct_passwd]":
    """Return whom a process has to become; None: it stays who this one is."""
    return pwd.getpwnam(name) if name and os.geteuid() == 0 else None


def become(who: "Optional[pwd.struct_passwd]") -> None:
    """Become the engine's user with the limits that the unit has (LimitMEMLOCK=, LimitNOFILE=); in the child."""
    if os.geteuid() == 0:
        for kind, wanted in _LIMITS.items():
            try:
                resource.setrlimit(kind, (wanted, wanted))
            except (OSError, ValueError):  # a container may forbid it: what it allows then, as systemd does
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (hard, hard))
    if who:
        os.initgroups(who.pw_name, who.pw_gid)
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)
    # Whatever ends this program takes the process with it; after the change of user, which would take it back.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def not_started(spec: Mapping[str, Any], program: str, key: str, error: Exception) -> str:
    """Return why a process could not be started.

    Args:
        spec: what it was started by: ``user`` and ``cwd``.
        program: path of what was started.
        key: that names it in the configuration.
        error: what was raised.
    """
    if not isinstance(error, OSError):
        return f"a process cannot become the user {spec['user']!r}: start as root or as that user"
    if spec["cwd"] and error.filename == spec["cwd"]:
        return f"engine.working_directory={spec['cwd']} cannot be entered: {error.strerror}"
    there = os.path.exists(program)
    if there and error.filename != program:
        return f"the ranks cannot be started: {error}"
    problem = error.strerror if there else "it is not there"
    return f"{program} cannot be started: {problem}; set {key}=PATH"


def code(process: "Optional[subprocess.Popen[bytes]]") -> str:
    """Return how a process ended, for people."""
    if process is None or process.returncode is None:
        return "still there"
    status = process.returncode
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def differences(pid: int, env: Mapping[str, str]) -> List[str]:
    """Return how the environment of a process differs from what it was given, by name."""
    process = read_process(pid)
    if process is None or process.env is None:
        return ["its environment cannot be read"]
    names = sorted(name for name in {*process.env, *env} if process.env.get(name) != env.get(name))
    return [f"{name} differs" for name in names]
