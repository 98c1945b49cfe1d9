"""One sweep on several hosts at the same time, with measuring programs that only count: failures, order, interrupts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import HostError, LaunchError, UnreachableError
from launcher.sweep import closing, journal, shared, shares
from launcher.sweep.record import Reading, Settings, Trial
from launcher.sweep.shared import Host
from launcher.sweep.statistics import judge
from tests.sweep.test_shares import a_sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.sweep.record import Point, Sweep


@dataclass
class Fake:
    """A host that measures at once; what is to go wrong is a function of the number of its trial."""

    name: str
    goes_wrong: Callable[[int], None] = lambda _: None
    open_error: Exception | None = None
    #: Of this host: everything is measured that many times slower.
    level: float = 100.0
    said: list[str] = field(default_factory=list)

    def host(self) -> Host:
        def close() -> None:
            self.said.append("closed")

        return Host(self.name, self._open, self, shared.once(close))

    def _open(self) -> None:
        if self.open_error:
            raise self.open_error
        self.said.append("open")

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002
        self.said.append(point.digest)
        self.goes_wrong(len(self.said) - 1)
        value = self.level * (1 + 0.0005 * (len(self.said) % 3)) * (0.9 if point.digest == "Q" else 1)
        return Trial(point.digest, order, time.time(), 0.01, (Reading("decode-1", value, value, value),))


class Watching:
    """Keeps what it is told; by one thread at a time."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.last: Sweep | None = None
        self._alone = threading.Lock()

    def begins(self, sweep: Sweep, point: Point) -> None:  # noqa: ARG002
        assert self._alone.acquire(blocking=False)
        self.begun.append(point.label)
        self._alone.release()

    def ended(self, sweep: Sweep, trial: Trial) -> None:  # noqa: ARG002
        assert self._alone.acquire(blocking=False)
        assert not self.last or len(sweep.trials) == len(self.last.trials) + 1
        self.last = sweep
        self._alone.release()

    def closed(self, sweep: Sweep, trial: Trial) -> None:
        assert trial == sweep.closing[-1]
        self.last = sweep


def go(tmp_path: Path, *fakes: Fake, **fields: Any) -> tuple[shared.Ended, Sweep, list[str]]:
    """Run a new sweep of four points, and return how it ended, what is in its journal, and what was told."""
    sweep, told = a_sweep(4, [fake.name for fake in fakes], **fields), list[str]()
    folder = journal.create(tmp_path, sweep)
    ended = shared.run(sweep, folder, [fake.host() for fake in fakes], Watching(), told.append)
    return ended, journal.load(folder), told


def test_every_host_measures_its_points_beside_its_own_baseline(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=10)

    def together(number: int) -> None:
        if number == 1:
            meeting.wait()  # both measure at the same time, or this never ends

    one, two = Fake("h1", together), Fake("h2", together, level=200)
    ended, sweep, told = go(tmp_path, one, two)
    assert (ended.why, dict(ended.dropped), told) == ("every point is decided", {}, [])
    assert (one.said, two.said) == (["open", *"BPRBRPB", "closed"], ["open", *"BQSBSQB", "closed"])
    assert sorted(trial.order for trial in sweep.trials) == list(range(1, 15))
    assert {(t.point, t.host) for t in sweep.trials} == {("B", "h1"), ("B", "h2"), *sweep.homes.items()}
    assert judge(sweep).overall == {
        "B": "baseline", "P": "no difference", "Q": "better", "R": "no difference", "S": "no difference",
    }  # fmt: skip
    assert shares.why_over(sweep, judge(sweep), time.time()) == "every point is decided"


def test_a_host_that_fails_drops_out_and_the_others_go_on(tmp_path: Path) -> None:
    def fails(number: int) -> None:
        if number == 3:
            raise UnreachableError("h2", "no way")

    one, two = Fake("h1"), Fake("h2", fails)
    ended, sweep, told = go(tmp_path, one, two)
    assert ended.why == "h1: every point is decided; h2: dropped out"
    assert {host: error.exit_code for host, error in ended.dropped.items()} == {"h2": 5}
    assert told == ["h2: no way; this host drops out"]
    assert (one.said[-1], two.said) == ("closed", ["open", *"BQS", "closed"])
    assert [point.digest for point in shares.unfinished(shares.part(sweep, "h2"))] == ["Q", "S"]
    # It goes on where it stands: only h2 has something to do.
    assert shares.running(sweep, judge(sweep)) == ("h2",)
    again = Fake("h2")
    folder = tmp_path / sweep.id
    ended = shared.run(replace(sweep, since=time.time()), folder, [again.host()], Watching(), told.append)
    after = journal.load(folder)
    assert (ended.why, ended.dropped) == ("every point is decided", {})
    assert max(Counter(trial.order for trial in after.trials).values()) == 1
    assert again.said[1:3] == ["B", "S"]


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ((None, HostError("h2", "not ready"), None), 1, []),
        ((UnreachableError("h1", "gone"), HostError("h2", "not ready"), None), 1, ["h1: gone"]),
        ((UnreachableError("h1", "gone"), UnreachableError("h2", "gone"), None), 5, ["h2: gone"]),
    ],
)
def test_where_one_cannot_be_opened_nothing_is_started(
    errors: tuple[Exception | None, ...], code: int, said: list[str], tmp_path: Path
) -> None:
    fakes = [Fake(f"h{n}", open_error=error) for n, error in enumerate(errors, 1)]
    sweep, told = a_sweep(4, ("h1", "h2", "h3")), list[str]()
    folder = journal.create(tmp_path, sweep)
    with pytest.raises(LaunchError) as caught:
        shared.run(sweep, folder, [fake.host() for fake in fakes], Watching(), told.append)
    assert (caught.value.exit_code, told) == (code, said)
    assert [fake.said for fake in fakes] == [[] if error else ["open", "closed"] for error in errors]
    assert journal.load(folder).trials == ()


def test_a_bug_is_raised_when_every_host_is_back(tmp_path: Path) -> None:
    def breaks(number: int) -> None:
        if number == 2:
            raise ZeroDivisionError

    fakes = [Fake("h1", breaks), Fake("h2")]
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, *fakes)
    assert [fake.said[-1] for fake in fakes] == ["closed", "closed"]


def test_an_interrupt_closes_every_host_and_starts_nothing_more(tmp_path: Path) -> None:
    inside = threading.Event()

    def waits(number: int) -> None:
        if number == 2:
            inside.wait(10)  # as in a request to a host, which its closing ends

    def interrupts(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    fakes = [Fake("h1", waits), Fake("h2", interrupts)]
    hosts = [fake.host() for fake in fakes]

    def first() -> None:
        inside.set()
        hosts[0].close()

    sweep = a_sweep(4, settings=Settings(repeats=50, max_repeats=50))
    folder = journal.create(tmp_path, sweep)
    with pytest.raises(KeyboardInterrupt):
        shared.run(sweep, folder, [replace(hosts[0], close=first), hosts[1]], Watching(), lambda _: None)
    assert [fake.said.count("closed") for fake in fakes] == [1, 1]
    time.sleep(0.3)
    assert len(fakes[0].said) < 6
    assert len(fakes[1].said) < 7
    journal.load(folder)


def test_a_trial_that_ends_with_the_interrupt_is_told(tmp_path: Path) -> None:
    """It is in the journal, so it has to be in the report."""
    ends = threading.Event()

    def interrupts(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            ends.wait(10)

    def waits(number: int) -> None:
        if number == 2:
            ends.wait(10)

    fakes = [Fake("h1", waits), Fake("h2", interrupts)]
    one, two = (fake.host() for fake in fakes)

    def first() -> None:
        ends.set()
        one.close()

    sweep, watcher = a_sweep(4, settings=Settings(repeats=50, max_repeats=50)), Watching()
    folder = journal.create(tmp_path, sweep)
    with pytest.raises(KeyboardInterrupt):
        shared.run(sweep, folder, [replace(one, close=first), two], watcher, lambda _: None)
    assert watcher.last
    assert {trial.order for trial in watcher.last.trials} == {trial.order for trial in journal.load(folder).trials}


def test_what_is_done_once_is_waited_for() -> None:
    done: list[int] = []

    def work() -> None:
        time.sleep(0.1)
        done.append(1)

    once = shared.once(work)

    def call() -> None:
        once()
        done.append(2)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [1, 2, 2, 2]


def test_production_is_measured_on_every_host_that_came_to_its_end(tmp_path: Path) -> None:
    def fails(number: int) -> None:
        if number == 3:
            raise UnreachableError("h2", "no way")

    def measures(order: int) -> Trial:
        return Trial("B", order, time.time(), 0.01, (Reading("decode-1", 100.0, 100.0, 100.0),), kind=journal.CLOSING)

    sweep = a_sweep(4, ["h1", "h2"], settings=Settings(closing=True))
    folder, watcher = journal.create(tmp_path, sweep), Watching()
    hosts = [replace(fake.host(), closing=measures) for fake in (Fake("h1"), Fake("h2", fails))]
    shared.run(sweep, folder, hosts, watcher, lambda _: None)
    loaded = journal.load(folder)
    assert [(trial.host, trial.kind) for trial in loaded.closing] == [("h1", "closing")]
    assert watcher.last
    assert watcher.last.closing == loaded.closing
    first, second = closing.told(loaded)
    assert first.startswith("Production on h1 serves as the baseline did: decode-1 as before (")
    assert second.startswith("Production on h2 was not measured once more")
