"""Measure collectives: start one process a rank, listen to them, and end them all, whatever happens.

Runs on the machine with the GPUs: on a host as root, who becomes the engine's user for the ranks, or as whoever
started `launch`. Standard library only; the ranks' program comes with the request.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from .processes import read_process

#: Seconds that the other ranks get to say what they have to when one has failed, and all of them to go when killed.
_GRACE, _DYING = 4.0, 10.0
#: Lines of one rank that are kept, its first and its last; a start of NCCL has some 200, each size a few more.
_LINES = 4000
#: What NCCL took for a size, with TUNING.
_TUNING = re.compile(r"NCCL INFO .*\d Bytes -> Algo .*")
#: Characters of one line.
_LONGEST = 1 << 16
#: What a rank says before it takes the GPU.
_READY = "wait for the word to begin"
_DONE = "done"
#: Before that, and the first thing that a rank does.
_FIRST, _IMPORT = "start the interpreter", "import torch"
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


class Abandoned(Exception):  # noqa: N818 - a state, and no failure of ours
    """Whoever wanted the measurement is gone."""


def _never() -> bool:
    return False


class Rank:
    """One process, and what it has said so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: "Optional[subprocess.Popen[bytes]]" = None
        self.phase = _FIRST
        self.lines: List[str] = []
        self.said: List[Dict[str, Any]] = []
        self.rest = {"log": b"", "pipe": b""}
        self.environment: List[str] = []
        self.phases: List[Tuple[str, float]] = []
        self.gone_at = 0.0
        self._chosen: Set[str] = set()

    def hear(self, lines: List[bytes]) -> None:
        """Keep what it printed; of a flood the end too, since that is where it says what it died of.

        What NCCL took for a size is kept once: it is printed for each collective of a graph.
        """
        for data in lines:
            line = data[:_LONGEST].decode("utf-8", "replace")
            chosen = _TUNING.search(line)
            if chosen and chosen.group() in self._chosen:
                continue
            if chosen:
                self._chosen.add(chosen.group())
            self.lines.append(line)
        if len(self.lines) > _LINES:
            del self.lines[_LINES // 2 : -(_LINES // 2)]

    def at(self, phase: str, since: float) -> None:
        """Note that a phase begins."""
        self.phase = phase
        self.phases.append((phase, round(time.monotonic() - since, 2)))

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self.process is None or self.process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether it went without having measured everything."""
        return self.ended and self.phase != _DONE


class Ranks:
    """All ranks of one measurement; leaving the context ends every process."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.ranks = [Rank(number) for number in range(spec["world"])]
        self._selector = selectors.DefaultSelector()
        self._go = -1
        self._folder = ""
        self._smi: "Optional[subprocess.Popen[bytes]]" = None
        self._since = time.monotonic()

    def __enter__(self) -> "Ranks":  # noqa: PYI034 - Self is newer
        user = _user(self.spec["user"])
        self._folder = tempfile.mkdtemp(prefix="launch-comm-")
        if user:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        go, self._go = os.pipe()
        try:
            for rank in self.ranks:
                self._start(rank, go, user)
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(go)
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            if rank.process and rank.process.poll() is None:
                _kill(rank.process)
        deadline = time.monotonic() + _DYING
        for rank in self.ranks:
            if rank.process:
                try:
                    rank.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    rank.phase += " (does not even end when killed: it hangs in the kernel)"
                assert rank.process.stdout is not None  # noqa: S101 - asked for in _start
                rank.process.stdout.close()
        if self._smi and self._smi.poll() is None:
            self._smi.kill()
            self._smi.communicate()
        self._word()
        for key in list((self._selector.get_map() or {}).values()):
            if key.data[1] == "pipe":
                os.close(key.fd)
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, rank: Rank, go: int, user: "Optional[pwd.struct_passwd]") -> None:
        mine, theirs = os.pipe()
        spec = {**self.spec["rank"], "world": self.spec["world"], "pipe": theirs, "go": go}
        spec["meeting"] = os.path.join(self._folder, "meeting")
        text = "SPEC = {!r}\n{}".format(spec, self.spec["program"]).replace("from __future__ import annotations\n", "")
        try:
            rank.process = subprocess.Popen(
                [self.spec["python"], "-u", "-", str(rank.number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(self.spec["env"]),
                cwd=self.spec["cwd"] or "/",
                pass_fds=(theirs, go),
                start_new_session=True,
                preexec_fn=lambda: _become(user),
            )
        except BaseException:
            os.close(mine)
            raise
        finally:
            os.close(theirs)
        self._selector.register(mine, selectors.EVENT_READ, (rank, "pipe"))
        assert rank.process.stdin is not None  # noqa: S101 - asked for above
        assert rank.process.stdout is not None  # noqa: S101 - likewise
        self._selector.register(rank.process.stdout.fileno(), selectors.EVENT_READ, (rank, "log"))
        rank.environment = _differences(rank.process.pid, self.spec["env"])
        with contextlib.suppress(BrokenPipeError):  # it ended at once; its lines say why
            rank.process.stdin.write(text.encode())
        with contextlib.suppress(BrokenPipeError):
            rank.process.stdin.close()

    def _word(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def until(self, over: Callable[[], bool], emit: Emit, gone: Gone = _never) -> bool:
        """Listen until ``over``, a failure, or a silence of ``deadline`` seconds; return whether it was no silence.

        Raises:
            Abandoned: nobody waits for the answer any more.
        """
        heard, failed, told = time.monotonic(), 0.0, ""
        while not over():
            if gone():
                raise Abandoned
            now = time.monotonic()
            for rank in self.ranks:
                if rank.failed:
                    failed = failed or now
                    rank.gone_at = rank.gone_at or now
            if failed and (now - failed > _GRACE or all(rank.ended for rank in self.ranks)):
                self._drain()
                return True
            if now - heard > self.spec["deadline"]:
                return False
            for rank, said in self._listen(0.2):
                heard = time.monotonic()
                text = said.get("phase", "")
                if rank.number == 0 and text.startswith("measure") and text != told:
                    told = text
                    emit(text)
                    self._smi = self._smi or _smi(self.spec)
        return True

    def start(self) -> "Ranks":
        """Start the interpreters; they import and wait, so this may be done while others still measure."""
        return self.__enter__()

    def stop(self) -> None:
        """End every process."""
        self.__exit__()

    def measure(self, emit: Emit, gone: Gone = _never) -> bool:
        """Let all ranks begin once every one has imported what it needs, and listen to the end."""
        if not self.until(lambda: all(rank.phase == _READY for rank in self.ranks), emit, gone):
            return False
        self._word()
        spoke = self.until(lambda: all(rank.phase == _DONE for rank in self.ranks), emit, gone)
        # Everything is measured: an end that takes its time is no hang, and cut short when the context is left.
        deadline = time.monotonic() + _DYING
        while all(rank.phase == _DONE for rank in self.ranks) and time.monotonic() < deadline:
            if all(rank.ended for rank in self.ranks):
                break
            self._listen(0.1)
        self._drain()
        return spoke

    def gpus(self) -> List[str]:
        """Return a line of nvidia-smi for each GPU, read while they are measured; nothing without GPUs."""
        if self._smi is None:
            return []
        try:
            text = self._smi.communicate(timeout=10)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            self._smi.kill()
            self._smi.communicate()
            return []
        return text.splitlines() if self._smi.returncode == 0 else []

    def _drain(self) -> None:
        """Take what was written before the end; not for ever, since something else may go on writing."""
        deadline = time.monotonic() + 1
        while self._selector.get_map() and self._selector.select(0) and time.monotonic() < deadline:
            self._listen(0)
        for rank in self.ranks:
            rank.hear([rank.rest["log"]] if rank.rest["log"] else [])
            rank.rest["log"] = b""

    def _listen(self, seconds: float) -> List[Tuple[Rank, Dict[str, Any]]]:
        heard = []
        for key, _ in self._selector.select(seconds):
            rank, kind = key.data
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                if kind == "pipe":
                    os.close(key.fd)
                continue
            *lines, rank.rest[kind] = (rank.rest[kind] + data).split(b"\n")
            if kind == "log":
                rank.rest[kind] = rank.rest[kind][:_LONGEST]
                rank.hear(lines)
                continue
            for line in lines:
                said: Dict[str, Any] = json.loads(line)
                if "phase" in said:
                    rank.at(said["phase"], self._since)
                rank.said.append(said)
                heard.append((rank, said))
        return heard


def run(spec: Mapping[str, Any], emit: Emit, ahead: "Optional[Ranks]" = None, gone: Gone = _never) -> Dict[str, Any]:
    """Measure once.

    Args:
        spec: ``python`` (the engine's), ``program`` (text of `comm_rank`), ``env`` (whole), ``cwd``, ``user`` (empty:
            this one), ``world`` (ranks), ``deadline`` (seconds without a sign of life), and ``rank``, what the ranks
            get: ``backend`` ("nccl" or "gloo"), ``dtype`` (torch's name), ``sizes`` (each ``collective``, ``count``
            in a step, ``elements`` a rank, ``bytes``), ``seconds`` for each size, ``fewest_replays``,
            ``most_replays``, ``deadline``.
        emit: told what is being measured.
        ahead: ranks of this specification that were started before.
        gone: whether nobody waits for the answer any more; asked several times a second.

    Returns:
        ``outcome`` ("measured", "failed", "hung" or "lacking"), ``message``, ``rows`` (``us`` per collective, one
        number a replay; ``wrong`` numbers, ``wrong_ranks`` that have some; ``graph``: collectives
        in a replay), ``versions``,
        ``ranks`` (exit code and last phase), ``lines`` by rank, ``environment`` (how that of a rank differs),
        ``phases`` (of the first rank, with the seconds after which each began), and ``gpus`` (a line of nvidia-smi for
        each, read meanwhile).

    Raises:
        Abandoned: nobody waits for the answer any more; the ranks are gone too.
    """
    try:
        with _started(spec, ahead) as ranks:
            spoke = ranks.measure(emit, gone)
            gpus = ranks.gpus()
    except (OSError, subprocess.SubprocessError) as error:
        return _answer("lacking", _not_started(spec, error), {})
    found: Dict[str, Any] = {
        "ranks": [{"rank": r.number, "exit": _code(r), "phase": r.phase} for r in ranks.ranks],
        "lines": [r.lines for r in ranks.ranks],
        "environment": [f"rank {r.number}: {text}" for r in ranks.ranks for text in r.environment],
        "gpus": gpus,
        "phases": ranks.ranks[0].phases,
        "versions": next((s["versions"] for r in ranks.ranks for s in r.said if "versions" in s), {}),
    }
    lacking = next((s for r in ranks.ranks for s in r.said if "lacking" in s), None)
    if lacking:
        return _answer("lacking", _lacking(spec, lacking), found)
    if not spoke:
        return _answer("hung", _hung(spec, ranks.ranks), found)
    failed = [r for r in ranks.ranks if r.failed]
    if failed:
        # Of those that went together the one that a signal ended took the others with it.
        first = min(failed, key=lambda rank: (rank.gone_at or time.monotonic(), _status(rank) >= 0))
        if first.phase in (_FIRST, _IMPORT):
            said = next((line.strip() for line in reversed(first.lines) if line.strip()), _code(first))
            return _answer("lacking", f"{spec['python']} cannot import torch: {said}; set engine.python=PATH", found)
        return _answer("failed", f"rank {first.number} ended with {_code(first)} in: {first.phase}", found)
    return {**_answer("measured", "", found), "rows": _rows(spec["rank"]["sizes"], ranks.ranks)}


@contextlib.contextmanager
def _started(spec: Mapping[str, Any], ahead: "Optional[Ranks]") -> Iterator[Ranks]:
    if ahead is None:
        with Ranks(spec) as ranks:
            yield ranks
        return
    try:
        yield ahead
    finally:
        ahead.stop()


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


def _answer(outcome: str, message: str, found: Dict[str, Any]) -> Dict[str, Any]:
    return {**EMPTY, "outcome": outcome, "message": message, **found}


def _not_started(spec: Mapping[str, Any], error: Exception) -> str:
    if not isinstance(error, OSError):
        return f"a process cannot become the user {spec['user']!r}: start as root or as that user"
    if spec["cwd"] and error.filename == spec["cwd"]:
        return f"engine.working_directory={spec['cwd']} cannot be entered: {error.strerror}"
    there = os.path.exists(spec["python"])
    if there and error.filename != spec["python"]:
        return f"the ranks cannot be started: {error}"
    problem = error.strerror if there else "it is not there"
    return f"{spec['python']} cannot be started: {problem}; set engine.python=PATH"


def _lacking(spec: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    return (
        f"{spec['world']} GPUs are needed (engine.tensor_parallel), torch in {spec['python']} sees {said['seen']}:"
        " measure where they are (target=ssh, or target=process there), look at nvidia-smi and CUDA_VISIBLE_DEVICES,"
        " or try the way without GPUs: bench.backend=gloo"
    )


def _hung(spec: Mapping[str, Any], ranks: List[Rank]) -> str:
    """Say which rank is where: one that lags behind the others is the one to look at."""
    phases: Dict[str, List[str]] = {}
    for rank in ranks:
        if rank.phase != _DONE:
            phases.setdefault(rank.phase, []).append(str(rank.number))
    told = "; ".join(f"rank {', '.join(numbers)} in: {phase}" for phase, numbers in phases.items())
    return f"no sign of life for {spec['deadline']:g} s: {told}"


def _rows(sizes: List[Dict[str, Any]], ranks: List[Rank]) -> List[Dict[str, Any]]:
    """Join what the ranks measured: a replay took as long as the rank says that began it last.

    The others count their waiting for it as well, some ten microseconds a graph.
    """
    rows = []
    for index, size in enumerate(sizes):
        by_rank = {r.number: s for r in ranks for s in r.said if s.get("measured") == index}
        said = list(by_rank.values())
        us = [min(values) for values in zip(*(s["us"] for s in said))]
        wrong = {number: s["wrong"] for number, s in by_rank.items() if s["wrong"]}
        counted = {"wrong": sum(wrong.values()), "wrong_ranks": list(wrong)}
        rows.append({**size, "us": us, **counted, "graph": said[0]["graph"]})
    return rows


def _status(rank: Rank) -> int:
    code = rank.process.returncode if rank.process else None
    return 0 if code is None else code


def _code(rank: Rank) -> str:
    if rank.process is None or rank.process.returncode is None:
        return "still there"
    code = rank.process.returncode
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _user(name: str) -> "Optional[pwd.struct_passwd]":
    return pwd.getpwnam(name) if name and os.geteuid() == 0 else None


def _become(user: "Optional[pwd.struct_passwd]") -> None:
    """Become the engine's user with the limits that the unit has (LimitMEMLOCK=, LimitNOFILE=)."""
    if os.geteuid() == 0:
        for kind, wanted in _LIMITS.items():
            try:
                resource.setrlimit(kind, (wanted, wanted))
            except (OSError, ValueError):  # a container may forbid it: what it allows then, as systemd does
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (hard, hard))
    if user:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    # Whatever ends this program takes the ranks with it; after the change of user, which would take it back.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _differences(pid: int, env: Mapping[str, str]) -> List[str]:
    """Return how the environment of a process differs from what it was given, by name."""
    process = read_process(pid)
    if process is None or process.env is None:
        return ["its environment cannot be read"]
    names = sorted(name for name in {*process.env, *env} if process.env.get(name) != env.get(name))
    return [f"{name} differs" for name in names]


def _smi(spec: Mapping[str, Any]) -> "Optional[subprocess.Popen[bytes]]":
    if spec["rank"]["backend"] != "nccl":
        return None
    try:
        return subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
