"""What the readings of a sweep say: every point against the baseline, with intervals that hold all together.

The unit is the trial, and all is done on the logarithm, so that a difference is a ratio of geometric means. An
interval is a t-interval with Bonferroni's correction over points times workloads (`scipy.stats.dunnett` takes seconds
for 36 points, and this runs after every trial).

Two to six starts say little about how much a point varies, so its variance is a mean of its own and of the pooled one
of all others, which counts as much as `BORROWED` starts of its own (what limma does for genes). Simulated with two
starts of points that vary differently (sd between a third and three times the usual): to trust the pool alone calls
an equal point better in a quarter of the sweeps, this in 7 of 100 (1 of 100 where all vary alike). To trust a point's
own spread alone could not tell three times as slow from equal. A point that varies plainly more than the others
(F-test, over one workload or over all) lends nothing and borrows nothing: it is judged by Welch's interval. Levene's
test is no use here: with two starts both are equally far from their median.

Where several hosts share a sweep, each is judged on its own (its points, its baseline, its spread), with the correction
for the points of all.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from launcher.sweep import disturbed, shares
from launcher.sweep.record import Judgement, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from launcher.sweep.record import Overall, Point, Reading, Sweep, Trial, Word, Workload

#: Degrees of freedom that the others' variance stands for.
BORROWED = 3
#: Below this chance a point that varies more than the others is on its own.
PLAIN = 0.001
#: Workloads of one start share its luck: only this part of their degrees of freedom counts when they are summed.
SHARED = 0.5
#: Relative differences below 1e-9 are rounding, not noise; without this, equal values would divide by zero.
ROUNDING = 1e-18
#: Chance of one false alarm of drift in a sweep, and the baseline's trials that it takes at least.
DRIFT_CHANCE, DRIFT_TRIALS = 0.05, 4
#: An interval that reaches further than this is no information.
FAR = 10.0


@dataclass(frozen=True)
class _Table:
    """Sums over the valid readings: a row for a workload, a column for a point, the baseline first."""

    count: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    at: NDArray[np.float64]


@dataclass(frozen=True)
class _Spread:
    """Variance of one start and its degrees of freedom, and which points stand on their own; as `_Table`."""

    variance: NDArray[np.float64]
    freedom: NDArray[np.float64]
    own: NDArray[np.bool_]


@dataclass(frozen=True)
class _Interval:
    """Difference from the baseline on the logarithm, and half the width of its interval; as `_Table`."""

    difference: NDArray[np.float64]
    margin: NDArray[np.float64]


def judge(sweep: Sweep, whole: Sweep | None = None) -> Judgement:
    """Judge every point against the baseline, by the trials so far.

    Args:
        sweep: whose points are judged.
        whole: what it is a part of (`launcher.sweep.shares`): all intervals of that hold together.
    """
    if sweep.homes:
        return shares.joined(sweep, [judge(part, sweep) for part in shares.parts(sweep)])
    whole = whole or sweep
    values = _values(sweep)
    table = _table(sweep, values)
    spread = _spread(table)
    slopes = _slopes(sweep, values, len(shares.parts(whole)) * len(sweep.workloads))
    tests = max(1, (len(whole.points) - 1) * len(sweep.workloads))
    intervals = _intervals(sweep, table, spread, slopes, tests)
    verdicts = tuple(
        _verdict(sweep, table, intervals, row, column)
        for column in range(1, len(sweep.points))
        for row in range(len(sweep.workloads))
    )
    drift = {name: moved for name, (_, moved) in slopes.items()}
    overall = {point.digest: _overall(sweep, point, verdicts) for point in sweep.points}
    return Judgement(verdicts, overall, drift, tuple(_notes(sweep, spread, overall, drift)))


def again(sweep: Sweep, trial: Trial, hosts: int = 1) -> tuple[Verdict, ...]:
    """Return how one more start of the baseline's release differs from the baseline, by workload.

    The interval is that in which one more start like the baseline's would fall (a prediction interval): its spread is
    the baseline's, with what the other points lend, and all intervals hold together. Where the baseline drifts it is
    wider by what that may have moved the start.

    Args:
        sweep: on one host.
        trial: that start; its verdicts tell its own ``point``.
        hosts: that have such a start each: the intervals of all hold together.
    """
    values, tests = _values(sweep), hosts * len(sweep.workloads)
    table = _table(sweep, values)
    spread, slopes = _spread(table), _slopes(sweep, values, tests)
    readings = {reading.workload: reading for reading in _counted(trial)}
    found = []
    for row, workload in enumerate(sweep.workloads):
        reading, count = readings.get(workload.name), table.count[row, 0]
        wrong = trial.failure if reading is None else "; ".join(_invalid(reading)[:1])
        if reading is None or wrong:
            found.append(Verdict(trial.point, workload.name, "invalid", math.nan, -math.inf, math.inf, 0, wrong))
            continue
        if not count:
            why = "no valid start of the baseline"
            found.append(Verdict(trial.point, workload.name, "undecided", math.nan, -math.inf, math.inf, 1, why))
            continue
        free = min(spread.freedom[row, 0], np.maximum(table.count[row] - 1, 0).sum())
        difference, low, high = math.log(reading.value) - float(table.mean[row, 0]), -math.inf, math.inf
        if free > 0:
            quantile = stats.t.isf((1 - sweep.settings.confidence) / 2 / tests, free)
            moved = abs(slopes.get(workload.name, (0.0, 0.0))[0] * (trial.at - table.at[row, 0]))
            margin = float(quantile * math.sqrt(spread.variance[row, 0] * (1 + 1 / count)) + moved)
            low, high = _relative(difference - margin), _relative(difference + margin)
        word, why = _word(sweep, workload, low, high)
        found.append(Verdict(trial.point, workload.name, word, _relative(difference), low, high, 1, why))
    return tuple(found)


def _values(sweep: Sweep) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return begin and logarithm of what counts, by workload and point."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for trial in sweep.trials:
        for reading in _counted(trial):
            if not _invalid(reading):
                found.setdefault((reading.workload, trial.point), []).append((trial.at, math.log(reading.value)))
    return found


def _invalid(reading: Reading) -> tuple[str, ...]:
    """Return why a reading counts for nothing; a value without a logarithm has no ratio to any other."""
    if reading.invalid or (reading.value > 0 and math.isfinite(reading.value)):
        return reading.invalid
    return (f"{reading.value:g} is not a positive number",)


def _table(sweep: Sweep, values: Mapping[tuple[str, str], list[tuple[float, float]]]) -> _Table:
    sums = np.zeros((4, len(sweep.workloads), len(sweep.points)))
    for row, workload in enumerate(sweep.workloads):
        for column, point in enumerate(sweep.points):
            pairs = values.get((workload.name, point.digest))
            if pairs:
                logs = [value for _, value in pairs]
                mean = math.fsum(logs) / len(logs)
                squares = math.fsum((value - mean) ** 2 for value in logs)
                sums[:, row, column] = len(logs), mean, squares, math.fsum(at for at, _ in pairs) / len(pairs)
    return _Table(*sums)


def _spread(table: _Table) -> _Spread:
    free = np.maximum(table.count - 1, 0)
    own = np.zeros(free.shape, dtype=bool)
    for _ in range(3):  # who stands on its own no longer hides the next one
        lent, lent_squares = np.where(own, 0, free), np.where(own, 0, table.squares)
        others = lent.sum(1, keepdims=True) - lent
        pooled = (lent_squares.sum(1, keepdims=True) - lent_squares) / np.maximum(others, 1)
        pooled = np.maximum(pooled, ROUNDING)
        own = own | (_chance(table.squares / pooled, free, others) < PLAIN)
    borrowed = np.where(own, 0, np.minimum(BORROWED, others))
    freedom = borrowed + free
    variance = (borrowed * pooled + table.squares) / np.maximum(freedom, 1)
    return _Spread(np.maximum(variance, ROUNDING), freedom, own)


def _chance(excess: NDArray[np.float64], free: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the chance of a spread as large as a point's if it varies like the others.

    Args:
        excess: squares over the others' variance.
        free: their degrees of freedom.
        others: those of the others' variance.
    """
    one = _f_tail(excess, free, others)
    known = np.where(others > 0, free, 0)
    every = _f_tail(
        np.where(known > 0, excess, 0).sum(0) * SHARED,
        known.sum(0) * SHARED,
        np.where(known > 0, others, 0).sum(0) * SHARED,
    )
    return np.minimum(one, every)


def _f_tail(excess: NDArray[np.float64], free: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    chance = stats.f.sf(excess / np.maximum(free, SHARED), np.maximum(free, SHARED), np.maximum(others, SHARED))
    return np.where((free > 0) & (others > 0), chance, 1.0)


def _slopes(
    sweep: Sweep, values: Mapping[tuple[str, str], list[tuple[float, float]]], tests: int
) -> dict[str, tuple[float, float]]:
    """Return where the baseline moved with time: change of the logarithm in a second, and of the value in all."""
    found: dict[str, tuple[float, float]] = {}
    for workload in sweep.workloads:
        pairs = values.get((workload.name, sweep.baseline.digest), [])
        if len(pairs) < DRIFT_TRIALS or len({at for at, _ in pairs}) < DRIFT_TRIALS:
            continue
        begin, logs = pairs[0][0], [value for _, value in pairs]
        if max(logs) - min(logs) < math.sqrt(ROUNDING):
            continue
        line = stats.linregress([at - begin for at, _ in pairs], logs)
        moved = _relative(float(line.slope) * (pairs[-1][0] - begin))
        if line.pvalue < DRIFT_CHANCE / tests and abs(moved) > sweep.settings.effect / 2:
            found[workload.name] = (float(line.slope), moved)
    return found


def _intervals(
    sweep: Sweep, table: _Table, spread: _Spread, slopes: Mapping[str, tuple[float, float]], tests: int
) -> _Interval:
    """Return the simultaneous intervals; where the baseline drifts, wider by what that may have moved a point."""
    parts = spread.variance / np.maximum(table.count, 1)
    square = parts + parts[:, :1]
    weights = parts**2 / np.maximum(spread.freedom, 1)
    # Both borrow from the same pool: together they know no more than all the trials do.
    freedom = np.minimum(square**2 / (weights + weights[:, :1]), np.maximum(table.count - 1, 0).sum(1, keepdims=True))
    quantile = stats.t.isf((1 - sweep.settings.confidence) / 2 / tests, np.maximum(freedom, 1))
    slope = np.array([[slopes.get(workload.name, (0.0, 0.0))[0]] for workload in sweep.workloads]).reshape(-1, 1)
    margin = quantile * np.sqrt(square) + np.abs(slope * (table.at - table.at[:, :1]))
    known = (table.count > 0) & (table.count[:, :1] > 0) & (spread.freedom > 0) & (spread.freedom[:, :1] > 0)
    return _Interval(table.mean - table.mean[:, :1], np.where(known, margin, math.inf))


def _relative(logarithm: float) -> float:
    """Return a ratio minus 1; the bound keeps a hopeless interval from an overflow."""
    return math.expm1(min(logarithm, 700.0))


def _verdict(sweep: Sweep, table: _Table, intervals: _Interval, row: int, column: int) -> Verdict:
    point, workload = sweep.points[column], sweep.workloads[row]
    count, reference = int(table.count[row, column]), int(table.count[row, 0])
    difference, low, high = math.nan, -math.inf, math.inf
    if count and reference:
        middle, margin = float(intervals.difference[row, column]), float(intervals.margin[row, column])
        difference = _relative(middle)
        if math.isfinite(margin):
            low, high = _relative(middle - margin), _relative(middle + margin)
    word, reason = _too_few(sweep, point, workload, (count, reference)) or _word(sweep, workload, low, high)
    return Verdict(point.digest, workload.name, word, difference, low, high, count, reason)


def _too_few(sweep: Sweep, point: Point, workload: Workload, counts: tuple[int, int]) -> tuple[Word, str] | None:
    """Return what is said of a point without enough valid starts of its own and of the baseline."""
    (count, reference), repeats = counts, max(1, sweep.settings.repeats)
    if not count:
        trials = [trial for trial in sweep.trials if trial.point == point.digest]
        failures = Counter(trial.failure for trial in trials if trial.failure)
        read = [reading for trial in trials for reading in _counted(trial) if reading.workload == workload.name]
        if read:
            return "invalid", _most_common(Counter(_invalid(reading)[0] for reading in read))
        if trials and failures.total() == len(trials):
            return "undecided", f"no start came through: {_most_common(failures)}"
    if count < repeats:
        return "undecided", f"{count} of {repeats} starts"
    if not reference:
        return "undecided", "no valid start of the baseline"
    return ("undecided", f"{reference} of {repeats} starts of the baseline") if reference < repeats else None


def _word(sweep: Sweep, workload: Workload, low: float, high: float) -> tuple[Word, str]:
    effect = sweep.settings.effect
    if 1 / (1 + effect) - 1 <= low and high <= effect:
        return "no difference", ""
    if low > 0 or high < 0:
        return "better" if (high < 0) == workload.lower_is_better else "worse", ""
    if high == math.inf:
        return "undecided", "too few starts to know the noise"
    if high > FAR:
        return "undecided", "too few starts: it varies more than the others"
    return "undecided", f"interval {_percent(low)} to {_percent(high)} goes beyond ±{100 * effect:g} %"


def _percent(relative: float) -> str:
    return f"{100 * relative:+.1f} %"


def _overall(sweep: Sweep, point: Point, verdicts: Sequence[Verdict]) -> Overall:
    """Return one word for a point.

    To take a point one has to know all of it, so it is better only when no workload is undecided or invalid. To leave
    it one loss is enough: it is worse when it is so anywhere and better nowhere, and can only become a trade yet.
    """
    if point == sweep.baseline:
        return "baseline"
    trials = [trial for trial in sweep.trials if trial.point == point.digest]
    if trials and all(trial.failure for trial in trials):
        return "failed"
    words = {verdict.word for verdict in verdicts if verdict.point == point.digest}
    if words >= {"better", "worse"}:
        return "trade"
    if "worse" in words:
        return "worse"
    if words == {"invalid"}:
        return "invalid"
    if not words or words & {"undecided", "invalid"}:
        return "undecided"
    return "better" if "better" in words else "no difference"


def _notes(sweep: Sweep, spread: _Spread, overall: Mapping[str, Overall], drift: Mapping[str, float]) -> Iterator[str]:
    for name, moved in drift.items():
        yield (
            f"the baseline drifted by {_percent(moved)} in {name}: differences of that size there mean nothing, "
            "and the intervals are wider by what it may have moved a point"
        )
    yield from disturbed.notes(sweep)
    reasons = Counter(why for trial in sweep.trials for reading in _counted(trial) for why in _invalid(reading)[:1])
    if reasons:
        count = reasons.total()
        what = "reading is invalid and counts" if count == 1 else "readings are invalid and count"
        yield f"{count} {what} for nothing; most often: {_most_common(reasons)}"
    for column, point in enumerate(sweep.points):
        trials = [trial for trial in sweep.trials if trial.point == point.digest]
        failures = Counter(trial.failure for trial in trials if trial.failure)
        if failures and overall[point.digest] != "failed":
            yield f"{point.label} failed in {failures.total()} of {len(trials)} starts: {_most_common(failures)}"
        own = [workload.name for row, workload in enumerate(sweep.workloads) if spread.own[row, column]]
        if own:
            yield (
                f"{point.label} varies plainly more from start to start than the others in {', '.join(own)}: "
                "its own spread alone is used there"
            )


def _counted(trial: Trial) -> tuple[Reading, ...]:
    """Return the readings of a start; one that failed has none, whatever it read before."""
    return () if trial.failure else trial.readings


def _most_common(words: Counter[str]) -> str:
    return words.most_common(1)[0][0]
