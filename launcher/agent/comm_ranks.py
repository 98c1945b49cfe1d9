"""The ranks of a measurement through torch: one process each, listened to, and all ended, whatever happens.

Runs on the machine with the GPUs: on a host as root, who becomes the engine's user for the ranks, or as whoever
started `launch`. Standard library only; the ranks' program comes with the request.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from .comm_process import DYING, LONGEST, Abandoned, Emit, Gone, Lines, Smi, become, differences, kill, never, user

if TYPE_CHECKING:
    import pwd

#: Seconds that the other ranks get to say what they have to when one has failed.
_GRACE = 4.0
#: What a rank says before it takes the GPU.
_READY = "wait for the word to begin"
DONE = "done"
#: Before that, and the first thing that a rank does.
FIRST, IMPORT = "start the interpreter", "import torch"


class Rank:
    """One process, and what it has said so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: "Optional[subprocess.Popen[bytes]]" = None
        self.phase = FIRST
        self.lines = Lines()
        self.said: List[Dict[str, Any]] = []
        self.rest = {"log": b"", "pipe": b""}
        self.environment: List[str] = []
        self.phases: List[Tuple[str, float]] = []
        self.gone_at = 0.0

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
        return self.ended and self.phase != DONE


class Ranks:
    """All ranks of one measurement; leaving the context ends every process."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.ranks = [Rank(number) for number in range(spec["world"])]
        self._selector = selectors.DefaultSelector()
        self._go = -1
        self._folder = ""
        self._smi = Smi()
        self._since = time.monotonic()

    def __enter__(self) -> "Ranks":  # noqa: PYI034 - Self is newer
        who = user(self.spec["user"])
        self._folder = tempfile.mkdtemp(prefix="launch-comm-")
        if who:
            os.chown(self._folder, who.pw_uid, who.pw_gid)
        go, self._go = os.pipe()
        try:
            for rank in self.ranks:
                self._start(rank, go, who)
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(go)
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            if rank.process and rank.process.poll() is None:
                kill(rank.process)
        deadline = time.monotonic() + DYING
        for rank in self.ranks:
            if rank.process:
                try:
                    rank.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    rank.phase += " (does not even end when killed: it hangs in the kernel)"
                assert rank.process.stdout is not None  # noqa: S101 - asked for in _start
                rank.process.stdout.close()
        self._smi.end()
        self._word()
        for key in list((self._selector.get_map() or {}).values()):
            if key.data[1] == "pipe":
                os.close(key.fd)
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, rank: Rank, go: int, who: "Optional[pwd.struct_passwd]") -> None:
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
                preexec_fn=lambda: become(who),
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
        rank.environment = differences(rank.process.pid, self.spec["env"])
        with contextlib.suppress(BrokenPipeError):  # it ended at once; its lines say why
            rank.process.stdin.write(text.encode())
        with contextlib.suppress(BrokenPipeError):
            rank.process.stdin.close()

    def _word(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def until(self, over: Callable[[], bool], emit: Emit, gone: Gone = never) -> bool:
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
                    if self.spec["rank"]["backend"] == "nccl":
                        self._smi.begin()
        return True

    def start(self) -> "Ranks":
        """Start the interpreters; they import and wait, so this may be done while others still measure."""
        return self.__enter__()

    def stop(self) -> None:
        """End every process."""
        self.__exit__()

    def measure(self, emit: Emit, gone: Gone = never) -> bool:
        """Let all ranks begin once every one has imported what it needs, and listen to the end."""
        if not self.until(lambda: all(rank.phase == _READY for rank in self.ranks), emit, gone):
            return False
        self._word()
        spoke = self.until(lambda: all(rank.phase == DONE for rank in self.ranks), emit, gone)
        # Everything is measured: an end that takes its time is no hang, and cut short when the context is left.
        deadline = time.monotonic() + DYING
        while all(rank.phase == DONE for rank in self.ranks) and time.monotonic() < deadline:
            if all(rank.ended for rank in self.ranks):
                break
            self._listen(0.1)
        self._drain()
        return spoke

    def gpus(self) -> List[str]:
        """Return a line of nvidia-smi for each GPU, read while they are measured; nothing without GPUs."""
        return self._smi.lines()

    def _drain(self) -> None:
        """Take what was written before the end; not for ever, since something else may go on writing."""
        deadline = time.monotonic() + 1
        while self._selector.get_map() and self._selector.select(0) and time.monotonic() < deadline:
            self._listen(0)
        for rank in self.ranks:
            rank.lines.hear([rank.rest["log"]] if rank.rest["log"] else [])
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
                rank.rest[kind] = rank.rest[kind][:LONGEST]
                rank.lines.hear(lines)
                continue
            for line in lines:
                said: Dict[str, Any] = json.loads(line)
                if "phase" in said:
                    rank.at(said["phase"], self._since)
                rank.said.append(said)
                heard.append((rank, said))
        return heard
