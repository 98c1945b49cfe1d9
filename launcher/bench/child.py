"""Serve points as children of `launch`: a Slurm node, a container, a rented machine, without systemd.

The server runs below `launcher.bench.keeper`, which ends every process of it, also when `launch` is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from launcher.agent import load, preflight_host, wait
from launcher.bench import life
from launcher.bench.kept import Kept
from launcher.bench.premises import Start
from launcher.bench.served import Life
from launcher.errors import LaunchError
from launcher.host import bundle, foreground, secret_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from launcher.sweep.points import Candidate

    Events = Callable[[str], None]

#: Seconds between looks, and between what is told of them.
_LOOK, _TELL = 0.25, 5.0


class Child:
    """One server at a time; leaving the context ends it. See `launcher.bench.served.Servers`."""

    name = "this machine"

    def __init__(self, folder: Path, emit: Events) -> None:
        """Prepare; nothing is started yet.

        Args:
            folder: for the log of each start, which stays: its number, and the digest of the release.
            emit: told what goes on.
        """
        self._folder, self._emit = folder, emit
        self._point: Start | None = None
        self._kept: Kept | None = None
        self._secrets: dict[str, Mapping[str, str]] = {}
        self._before: Any = None

    def __enter__(self) -> Self:
        # SIGTERM, as Slurm sends it, unwinds like Ctrl-C; unless somebody else has said what it does.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        finally:
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)

    def start(self, candidate: Candidate) -> Life:
        """See `Servers.start`."""
        self.stop()
        deployment = candidate.deployment
        named = repr(deployment.secrets)
        if named not in self._secrets:  # a command may ask for a passphrase: once
            self._secrets[named] = secret_values.read(deployment).reveal()
        point = Start(candidate, self._secrets[named])
        point.look()
        begin = time.monotonic()
        try:
            self._point = point
            self._kept = kept = self._started(point)
            missing = self._until_ready(point, kept, begin + deployment.unit.start_timeout)
            found = _judged(point, kept, missing, begin)
            if not found.serving:
                self._stop_failed(found)
        except BaseException:
            self._drop()
            raise
        return found

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Servers.load`; the client runs as this user, and who serves is added to the request."""
        point, kept = self._point, self._kept
        if point is None or kept is None:
            raise LaunchError("nothing serves here that could be measured")
        log = {"file": str(point.log)}
        given = {"manifest": point.manifest, "main": kept.main, "key": point.key, "log": log}
        with bundle.informed():
            return load.run({**request, "user": "", "server": given}, self._emit, kept.tree)

    def stop(self) -> None:
        """See `Servers.stop`.

        Raises:
            LaunchError: something of it stays; says what.
        """
        point, kept = self._point, self._kept
        if point is None or kept is None:
            return
        try:
            left, killed = kept.stop(point.candidate.deployment.unit.stop_timeout)
        except BaseException:
            self._drop()
            raise
        self._kept = self._point = None
        if killed:
            self._emit(f"warning: {killed} processes of the server did not end by themselves and were killed")
        problems = [f"{preflight_host.who(pid)} does not even end when killed" for pid in left] + point.not_free()
        if problems:
            raise LaunchError("\n".join(("the server was stopped and something of it is still there:", *problems)))
        try:
            removed = point.remove_segments()
        except OSError as error:
            self._emit(f"warning: a segment of a dead process stays in /dev/shm: {error}")
            return
        if removed:
            self._emit(f"removed {removed} segments of dead processes from /dev/shm")

    def close(self) -> str:
        """See `Servers.close`."""
        self.stop()
        return "nothing runs; nothing was served here before"

    def _stop_failed(self, found: Life) -> None:
        try:
            self.stop()
        except LaunchError as error:
            raise LaunchError("\n".join((found.message, *found.evidence, str(error)))) from error

    def _drop(self) -> None:
        """End at once whatever runs, for ways out that nothing may hold up; its keeper needs nobody for that."""
        kept, point, self._kept, self._point = self._kept, self._point, None, None
        if kept:
            kept.drop()
        if point:
            with contextlib.suppress(OSError):
                point.remove_segments()

    def _started(self, point: Start) -> Kept:
        release = point.candidate.release
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("*.log"))) + 1
        point.log = self._folder / f"{number:03d}-{release.digest}.log"
        argv, folder = list(release.argv), ""
        log = os.open(point.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            if arguments := foreground.secret_arguments(point.secrets):
                argv[-1] = foreground.secrets_file(arguments)
                folder = str(Path(argv[-1]).parent)
            return Kept(argv, point.env, point.cwd, log, folder)
        except BaseException:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(log)

    def _until_ready(self, point: Start, kept: Kept, deadline: float) -> str:
        """Wait for health and one completion; return what is missing when the server or the time has ended."""
        begin = told = time.monotonic()
        while True:
            missing = wait.missing(point.manifest, kept.tree, point.key)
            if kept.status is not None:
                return f"the server ended during its start: {life.ended(kept.status)}"
            if not missing:
                return ""
            now = time.monotonic()
            if now > deadline:
                return f"the server did not get ready in {deadline - begin:.0f} s: {missing}"
            if now - told > _TELL:
                told = now
                self._emit(f"waiting for the server for {now - begin:.0f} s: {missing}")
            time.sleep(_LOOK)


def _interrupt(*_: object) -> NoReturn:
    """End like Ctrl-C."""
    raise KeyboardInterrupt


def _judged(point: Start, kept: Kept, missing: str, begin: float) -> Life:
    """Return what came of a start."""
    hidden = point.secrets.values()
    if missing:
        return life.failed(missing, life.read(point.log, hidden), kept.status, time.monotonic() - begin, point.log)
    proof = life.prove(point.manifest, kept.main, kept.tree, life.read(point.log, hidden))
    seconds, lines, status = time.monotonic() - begin, life.read(point.log, hidden), kept.status
    if status is not None:
        return life.failed(f"the server ended again: {life.ended(status)}", lines, status, seconds, point.log)
    wrong = life.contradictions(proof)
    versions = {"nccl": ", ".join(proof["nccl"]["versions"])} if proof["nccl"]["versions"] else {}
    return Life(
        serving=not wrong,
        message="what runs does not carry the release" if wrong else "",
        evidence=tuple(wrong),
        seconds=round(seconds, 2),
        proof=proof,
        lines=life.kept(lines),
        facts={"log": str(point.log), "versions": versions, "left_out": point.left_out},
    )
