"""Production measured once more when it is back: what one start can tell, what is kept, and what is said of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from launcher.bench.closing import Closing, as_served
from launcher.bench.loads import loads
from launcher.bench.serve import Serve
from launcher.bench.served import Life, Production
from launcher.errors import HostError, LaunchError
from launcher.sweep import closing, journal, report, resume
from launcher.sweep.journal import CLOSING
from launcher.sweep.record import Settings, Sweep, Trial
from launcher.sweep.statistics import again, judge
from tests.bench.test_serve import Fake, Kept, candidate
from tests.sweep.test_shares import a_sweep as a_shared_sweep
from tests.sweep.test_statistics import a_sweep, a_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

ASKED = Settings(closing=True)


def with_starts(values: Mapping[int, Sequence[float]], **settings: Any) -> Sweep:
    """Return a sweep of one workload with starts by point, one after the other; the baseline is point 0."""
    starts = [(point, value) for point, series in values.items() for value in series]
    trials = tuple(a_trial(number, point, [value]) for number, (point, value) in enumerate(starts))
    return replace(a_sweep(closing=True, **settings), trials=trials)


def back(value: float, number: int = 90, **fields: Any) -> Trial:
    return a_trial(number, 0, [value], kind=CLOSING, **fields)


#: The baseline's starts, those of another point, what production gave, and what is said of it.
SAID: dict[str, tuple[dict[int, list[float]], float, str]] = {
    "equal": ({0: [99.9, 100, 100.1, 100]}, 100.1, "Production serves as the baseline did: decode-0 as before (+0.1 %"),
    "slower": (
        {0: [99.9, 100, 100.1, 100]}, 110, "Production does not serve as the baseline did: decode-0 differs by +10.0 %",
    ),
    "noise": (
        {0: [97, 103, 100]}, 104,
        "Production: whether it serves as the baseline did is not known in all: decode-0 cannot be told from one start",
    ),
    "one start": (
        {0: [100]}, 120,
        ("Production: whether it serves as the baseline did is not known in all: decode-0 cannot be told from one start"
        " (+20.0 %)"),
    ),
    "no baseline": ({}, 100, "cannot be told from one start (no valid start of the baseline)"),
    "others lend": ({0: [100, 100.1], 1: [50, 50.05, 50.1]}, 103, "differs by +2.9 %"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "value", "said"), SAID.values(), ids=SAID.keys())
def test_what_one_start_tells(values: Mapping[int, Sequence[float]], value: float, said: str) -> None:
    sweep = replace(with_starts(values), closing=(back(value),))
    (text,) = closing.told(sweep)
    assert said in text


def test_the_interval_is_that_of_one_more_start() -> None:
    """By hand: four starts, t of 3 degrees of freedom at 97.5 % is 3.182."""
    values = [99.0, 100.0, 101.0, 100.0]
    (verdict,) = again(with_starts({0: values}), back(100.0))
    logs = np.log(values)
    margin = 3.1824463 * logs.std(ddof=1) * math.sqrt(1 + 1 / 4)
    assert verdict.low == pytest.approx(math.expm1(math.log(100) - logs.mean() - margin), rel=1e-5)
    assert verdict.high == pytest.approx(math.expm1(math.log(100) - logs.mean() + margin), rel=1e-5)


def test_it_is_seldom_wrong() -> None:
    """Of 400 sweeps of equal starts at most 5 % say that production differs, also where points vary differently."""
    wrong = {False: 0, True: 0}
    for uneven in wrong:
        for seed in range(400):
            rng = np.random.default_rng(seed)
            spread = rng.uniform(1 / 3, 3, 4) if uneven else np.ones(4)
            starts = {p: 100 * np.exp(0.005 * spread[p] * rng.standard_normal(2 + (p == 0))) for p in range(4)}
            sweep = replace(with_starts(starts), points=a_sweep(4).points)
            (verdict,) = again(sweep, back(float(100 * np.exp(0.005 * spread[0] * rng.standard_normal()))))
            wrong[uneven] += verdict.low > 0 or verdict.high < 0
    assert wrong[False] <= 20
    assert wrong[True] <= 40  # a spread borrowed from others is theirs


OTHERS: dict[str, tuple[Callable[[Sweep], Sweep], list[str]]] = {
    "not asked for": (lambda s: replace(s, settings=Settings()), []),
    "not taken": (
        lambda s: s,
        [("Production was not measured once more (sweep.closing): the sweep did not come to its end, or had replaced"
         " nothing.")],
    ),
    "replaced since": (
        lambda s: replace(s, closing=(back(100, 0),)),
        [("Production was not measured once more (sweep.closing): the sweep did not come to its end, or had replaced"
         " nothing.")],
    ),
    "failed": (
        lambda s: replace(s, closing=(back(1, failure="not measured", message="production drifts"),)),
        ["Production was not measured once more (sweep.closing): production drifts."],
    ),
    "another release": (
        lambda s: replace(s, closing=(replace(back(123.4), point="f" * 16),)),
        [(f"Production is another release than the baseline of the sweep ({'f' * 16}, not p0), so the two are not"
         " compared: decode-0 123.4 µs.")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "said"), OTHERS.values(), ids=OTHERS.keys())
def test_what_else_is_said(make: Callable[[Sweep], Sweep], said: list[str]) -> None:
    sweep = make(with_starts({0: [99.9, 100, 100.1], 1: [100]}))
    assert closing.told(sweep) == said


def test_an_invalid_reading_is_no_answer() -> None:
    trial = back(100)
    trial = replace(trial, readings=tuple(replace(r, invalid=("3 of 4 requests",)) for r in trial.readings))
    (text,) = closing.told(replace(with_starts({0: [99.9, 100, 100.1]}), closing=(trial,)))
    assert text.endswith("is not known in all: decode-0 invalid (3 of 4 requests).")


def test_every_host_has_its_own() -> None:
    sweep = a_shared_sweep(settings=ASKED)
    first, second = closing.told(
        replace(sweep, closing=(Trial("B", 1, 9.0, 1.0, failure="x", host="h2", kind=CLOSING),))
    )
    assert first.startswith("Production on h1 was not measured once more")
    assert second == "Production on h2 was not measured once more (sweep.closing): x."


def test_the_report_has_it() -> None:
    sweep = replace(with_starts({0: [99.9, 100, 100.1, 100], 1: [100, 100.1]}), closing=(back(110),))
    page = report.page(sweep, judge(sweep))
    assert "Production does not serve as the baseline did" in page
    assert "differs: +10.0 %" in page
    assert 'id="production"' not in report.page(replace(sweep, closing=()), judge(sweep))


# --- kept


class Watching:
    def __init__(self) -> None:
        self.told: list[Trial] = []

    def closed(self, sweep: Sweep, trial: Trial) -> None:
        assert sweep.closing[-1] == trial
        self.told.append(trial)


def test_it_is_kept_apart_from_the_starts_of_the_baseline(tmp_path: Path) -> None:
    sweep = with_starts({0: [100, 101], 1: [50, 51]})
    folder, watcher = journal.create(tmp_path, sweep), Watching()
    closing.take(sweep, folder, lambda order: replace(back(100), order=order, point="of another"), watcher, print)
    loaded = journal.load(folder)
    assert loaded.trials == sweep.trials
    assert loaded.closing == tuple(watcher.told)
    assert json.loads((folder / journal.PLAN).read_text())["version"] == 4
    assert judge(loaded) == judge(sweep)
    # Resumed without it, the plan still says that there is one.
    merged = resume.merge(loaded, replace(sweep, trials=(), settings=Settings()), 1e9)
    journal.replan(folder, merged)
    assert journal.load(folder).closing == loaded.closing
    assert json.loads((folder / journal.PLAN).read_text())["version"] == 4


def test_a_failure_of_it_is_told_and_no_more(tmp_path: Path) -> None:
    sweep = with_starts({0: [100, 101]})
    folder, watcher, told = journal.create(tmp_path, sweep), Watching(), list[str]()

    def fails(_: int) -> Trial:
        raise HostError("h1", "the session ended")

    closing.take(sweep, folder, fails, watcher, told.append)
    (trial,) = watcher.told
    assert (trial.failure, trial.message, trial.kind) == ("not measured", "h1: the session ended", CLOSING)
    (folder / journal.JOURNAL).unlink()
    closing.take(sweep, folder, lambda _: back(100), watcher, told.append)
    assert "the closing measurement is not recorded: " in told[0]
    assert len(watcher.told) == 2


@pytest.mark.parametrize("measure", [None, lambda _: None], ids=["nothing serves", "nothing was replaced"])
def test_nothing_is_kept_of_nothing(tmp_path: Path, measure: Callable[[int], None] | None) -> None:
    sweep, watcher = with_starts({0: [100]}), Watching()
    folder = journal.create(tmp_path, sweep)
    closing.take(sweep, folder, measure, watcher, print)
    unasked = replace(sweep, settings=Settings())
    closing.take(unasked, folder, lambda _: back(1), watcher, print)
    assert watcher.told == []


# --- measured


class Restoring(Fake):
    def __init__(self, found: Production | LaunchError | None) -> None:
        super().__init__()
        self._found = found

    def back(self) -> Production | None:
        self.did.append("back")
        if isinstance(self._found, LaunchError):
            raise self._found
        return self._found


def closed(found: Production | None, *words: str) -> tuple[Trial | None, Restoring, Kept]:
    point, servers, kept = candidate(*words), Restoring(found), Kept()
    serve = Serve({}, servers, loads(point.deployment), kept, lambda _: None)
    return Closing(point, servers, serve)(1), servers, kept


def production(**fields: Any) -> Production:
    life = Life(serving=True, seconds=20.0, proof={"main": 7})
    return Production(life, **{"digest": "e" * 16, "host": "127.0.0.1", "port": 8123, **fields})


def test_it_is_measured_like_a_point_without_a_start() -> None:
    digest = candidate().release.digest
    trial, servers, kept = closed(production(digest=digest))
    assert trial
    assert servers.did == ["back", "version", "load", "load"]
    assert (trial.point, trial.kind, trial.failure) == (digest, CLOSING, "")
    assert [(reading.workload, reading.invalid) for reading in trial.readings] == [("one", ()), ("two", ())]
    assert all(name.startswith("closing001-") for name in kept)


def test_what_is_not_to_be_measured_says_why() -> None:
    trial, servers, _ = closed(Production(Life(serving=False, message="nothing was served here before the sweep")))
    assert trial
    assert servers.did == ["back"]
    assert (trial.failure, trial.message) == ("not measured", "nothing was served here before the sweep")
    assert closed(None)[0] is None


def test_another_release_is_asked_where_it_answers() -> None:
    baseline = candidate("bench.acceptance_low=2")
    other = production(argv=("vllm", "--speculative-config", "{}"), env={"NCCL_ALGO": "Tree"})
    found = as_served(baseline, other)
    assert (found.point.digest, found.deployment.engine.port) == ("e" * 16, 8123)
    assert (found.deployment.spec.method, found.deployment.bench.acceptance_low) == ("ngram", 0)
    assert dict(found.release.env) == {"NCCL_ALGO": "Tree"}
    same = production(digest=baseline.release.digest)
    assert as_served(baseline, same) is baseline
