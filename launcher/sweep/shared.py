"""Run one sweep on several hosts at the same time: a loop of its own for each (`launcher.sweep.session`), one journal.

Nothing is started before every host is open. A host that fails drops out and is put back, the others go on. Whatever
ends this, no host is left as the sweep had it. All threads are daemons: one that waits for a host that is gone must not
keep this program.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from launcher.errors import HostError, LaunchError
from launcher.fleet.rollout import worst

from . import closing, current, session, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .record import Point, Sweep, Trial
    from .session import Measure

#: Seconds in which the loops end once their hosts are put back: what they still write is told then.
_PATIENCE = 5


class Watcher(session.Watcher, closing.Watcher, Protocol):
    """Is told what goes on on all hosts."""


@dataclass(frozen=True)
class Host:
    """One of the hosts that share a sweep.

    Attributes:
        name: of it.
        open: takes it; nothing is replaced there yet. Raises LaunchError.
        measure: measures a start on it.
        close: puts back what was there, and tells of it; more calls than one do nothing more, and return when it is
            done.
        closing: puts it back and measures it, by the number of that measurement (`launcher.sweep.closing`); None where
            nothing serves.
        lost: why what was there is not known to be back, once it is closed; empty when it is.
    """

    name: str
    open: Callable[[], None]
    measure: Measure
    close: Callable[[], None]
    closing: Callable[[int], Trial | None] | None = None
    lost: list[LaunchError] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """How a shared sweep ended.

    Attributes:
        why: it ended, for people.
        dropped: hosts that failed, with the error.
        lost: why what was there before is not known to be back, of every host of which that is so.
    """

    why: str
    dropped: Mapping[str, LaunchError] = field(default_factory=dict)
    lost: Sequence[LaunchError] = ()


def run(
    sweep: Sweep,
    folder: Path,
    hosts: Sequence[Host],
    watcher: Watcher,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.time,
) -> Ended:
    """Run a sweep to its end on its hosts, from wherever it stands.

    Args:
        sweep: with a host for every point.
        folder: of it.
        hosts: those that have something to measure.
        watcher: told what goes on; never by two threads at once.
        tell: told of a host that fails, in one line.
        clock: seconds since 1970.

    Raises:
        LaunchError: a host cannot be opened: no point was started on any, and all are closed.
        KeyboardInterrupt: all are closed.
    """
    book = _Book(sweep, watcher)
    _open(hosts, tell)
    loops = [_Loop(book, host, sweep, folder, tell, clock) for host in hosts]
    threads = [threading.Thread(target=loop.run, daemon=True) for loop in loops]
    try:
        for thread in threads:
            thread.start()
        # Not by join: once Ctrl-C has interrupted it, Python 3.11 takes the thread for ended (threading.py, bpo-45274).
        for loop in loops:
            loop.over.wait()
    except BaseException:
        book.stopped = True
        together([host.close for host in hosts])
        for loop in loops:
            loop.over.wait(_PATIENCE / len(loops))
        book.over = True
        raise
    for loop in loops:
        if loop.bug:
            raise loop.bug
    return Ended(
        shares.told({loop.host.name: loop.why for loop in loops}),
        {loop.host.name: loop.error for loop in loops if loop.error},
        [error for loop in loops for error in loop.host.lost],
    )


def together(works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
    """Do everything at the same time, and return what each of them raised."""
    raised: list[BaseException | None] = [None] * len(works)

    def one(number: int) -> None:
        try:
            works[number]()
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            raised[number] = error

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def once(work: Callable[[], None]) -> Callable[[], None]:
    """Return what does something the first time only; who calls meanwhile waits until that is done."""
    lock, done = threading.Lock(), threading.Event()

    def first() -> None:
        with lock:
            if not done.is_set():
                done.set()
                work()

    return first


def told(name: str, error: LaunchError) -> str:
    """Return an error with the host that it belongs to."""
    return str(error) if isinstance(error, HostError) else f"{name}: {error}"


def _open(hosts: Sequence[Host], tell: Callable[[str], None]) -> None:
    """Open all hosts, or none.

    Raises:
        LaunchError: of a host that cannot be opened, the one whose exit code wins; the others are told.
    """
    try:
        raised = together([host.open for host in hosts])
    except BaseException:
        together([host.close for host in hosts])
        raise
    failed = [(host, error) for host, error in zip(hosts, raised, strict=True) if error]
    if not failed:
        return
    together([host.close for host, error in zip(hosts, raised, strict=True) if not error])
    bug = next((error for _, error in failed if not isinstance(error, LaunchError)), None)
    if bug:
        raise bug
    raise gravest({host.name: error for host, error in failed if isinstance(error, LaunchError)}, tell)


def gravest(errors: Mapping[str, LaunchError], tell: Callable[[str], None]) -> LaunchError:
    """Return the error whose exit code wins, and tell the others; by host, one at least."""
    code = worst(error.exit_code for error in errors.values())
    wins = next((name for name, error in errors.items() if error.exit_code == code), next(iter(errors)))
    for name, error in errors.items():
        if name != wins:
            tell(told(name, error))
    return errors[wins]


class _Stopped(Exception):  # noqa: N818 - no error: somebody ended the sweep
    """No further trial begins."""


class _Book:
    """The whole sweep as all loops together have made it."""

    def __init__(self, sweep: Sweep, watcher: Watcher) -> None:
        self._sweep, self._watcher, self._lock = sweep, watcher, threading.Lock()
        self._order = max((trial.order for trial in (*sweep.trials, *sweep.past)), default=0)
        #: Whether no further trial begins, and whether nothing is told any more.
        self.stopped = self.over = False

    def number(self) -> int:
        """Return the order of a trial that begins now."""
        with self._lock:
            if self.stopped:
                raise _Stopped
            self._order += 1
            return self._order

    def begins(self, host: str, point: Point) -> None:
        """Tell that a trial begins on a host."""
        with self._lock:
            if not self.stopped:
                self._watcher.begins(self._sweep, dataclasses.replace(point, label=shares.on(point.label, host)))

    def ended(self, trial: Trial) -> None:
        """Take a trial that is in the journal, and tell of it."""
        with self._lock:
            self._sweep = current.counted(dataclasses.replace(self._sweep, trials=(*self._sweep.trials, trial)))
            if not self.over:
                self._watcher.ended(self._sweep, trial)

    def closed(self, trial: Trial) -> None:
        """Take what production gave, and tell of it."""
        with self._lock:
            self._sweep = dataclasses.replace(self._sweep, closing=(*self._sweep.closing, trial))
            if not self.over:
                self._watcher.closed(self._sweep, trial)


class _Loop:
    """The loop of one host: what it measures, and the watcher that brings its trials into the book."""

    def __init__(
        self,
        book: _Book,
        host: Host,
        sweep: Sweep,
        folder: Path,
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._book, self._sweep, self._folder, self._tell, self._clock = book, sweep, folder, tell, clock
        self.host = host
        self.why = ""
        self.error: LaunchError | None = None
        self.bug: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Measure the part of this host to its end, and put the host back."""
        try:
            self._run()
        finally:
            self.over.set()

    def _run(self) -> None:
        part = shares.part(self._sweep, self.host.name)
        try:
            part, self.why = session.run(part, self._folder, self, self, self._clock, self._sweep)
            if not self._book.stopped:
                closing.take(part, self._folder, self.host.closing, self, self._tell, self.host.name)
        except _Stopped:
            pass
        except LaunchError as error:
            self.why, self.error = "dropped out", error
            if not self._book.stopped:
                self._tell(f"{told(self.host.name, error)}; this host drops out")
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.bug = error
        try:
            self.host.close()
        except BaseException as error:  # noqa: BLE001 - likewise
            self.bug = self.bug or error

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002
        """Measure a start; its order is that in the whole sweep."""
        trial = self.host.measure(point, self._book.number(), upcoming)
        return dataclasses.replace(trial, host=self.host.name)

    def begins(self, _: Sweep, point: Point) -> None:
        """See `launcher.sweep.session.Watcher`."""
        self._book.begins(self.host.name, point)

    def ended(self, _: Sweep, trial: Trial) -> None:
        """See `launcher.sweep.session.Watcher`."""
        self._book.ended(trial)

    def closed(self, _: Sweep, trial: Trial) -> None:
        """See `launcher.sweep.closing`."""
        self._book.closed(trial)
