"""What points gave so far, and which of them nothing else beats: for one workload the best, for several a front. Pure.

Values are differences of logarithms from the baseline, and smaller is better whatever the workload's unit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from launcher.sweep.schedule import outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.sweep.record import Judgement, Point, Sweep, Verdict, Workload

#: By digest, then by name of the workload.
Values = dict[str, dict[str, float]]


def values(sweep: Sweep) -> Values:
    """Return the means over the starts of every point that gave a valid reading of all that the baseline gave."""
    found = {point.digest: _means(sweep, point) for point in sweep.points}
    base = found[sweep.baseline.digest]
    workloads = [workload for workload in sweep.workloads if workload.name in base]
    return {
        digest: {w.name: (means[w.name] - base[w.name]) * (1 if w.lower_is_better else -1) for w in workloads}
        for digest, means in found.items()
        if workloads and all(workload.name in means for workload in workloads)
    }


def contenders(sweep: Sweep) -> list[Point]:
    """Return the points, without the baseline, that may be best yet: none is as good everywhere and better somewhere.

    Better is what differs by more than the smallest effect that matters, so the baseline beats what gains nothing.
    """
    found = values(sweep)
    return [
        point
        for point in sweep.points[1:]
        if point.digest in found
        and not any(_beats(one, found[point.digest], sweep.settings.effect) for one in found.values())
    ]


def front(sweep: Sweep, judgement: Judgement) -> list[Point]:
    """Return the points with enough starts, the baseline too, that none is shown to beat, the first gaining most.

    Shown is it where the other is as good everywhere by the means, and somewhere their intervals are apart. These are
    intervals from the baseline, which hold together; so a point is kept rather than dropped.
    """
    found, verdicts = values(sweep), {(v.point, v.workload): v for v in judgement.verdicts}
    enough = [point for point in sweep.points if point.digest in found and _is_enough(sweep, point)]

    def spans(point: Point) -> list[tuple[float, float]]:
        names = found[point.digest]
        return [_span(w, verdicts.get((point.digest, w.name))) for w in sweep.workloads if w.name in names]

    def shown(a: Point, b: Point) -> bool:
        pairs = zip(found[a.digest].values(), found[b.digest].values(), strict=True)
        return all(one <= other for one, other in pairs) and any(
            high < low for (_, high), (low, _) in zip(spans(a), spans(b), strict=True)
        )

    kept = [point for point in enough if not any(shown(other, point) for other in enough)]
    return sorted(kept, key=lambda point: sum(found[point.digest].values()))


def _means(sweep: Sweep, point: Point) -> Mapping[str, float]:
    logs: dict[str, list[float]] = {}
    for trial in sweep.trials:
        for reading in trial.readings if trial.point == point.digest and not trial.failure else ():
            if not reading.invalid and reading.value > 0 and math.isfinite(reading.value):
                logs.setdefault(reading.workload, []).append(math.log(reading.value))
    return {name: math.fsum(some) / len(some) for name, some in logs.items()}


def _beats(one: Mapping[str, float], other: Mapping[str, float], effect: float) -> bool:
    least = math.log1p(effect)
    return all(one[name] <= value for name, value in other.items()) and any(
        one[name] < value - least for name, value in other.items()
    )


def _is_enough(sweep: Sweep, point: Point) -> bool:
    valid = sum(not outcome(trial) for trial in sweep.trials if trial.point == point.digest)
    return valid >= max(1, sweep.settings.repeats)


def _span(workload: Workload, verdict: Verdict | None) -> tuple[float, float]:
    """Return the interval of a difference, smaller is better; the baseline differs from itself by nothing."""
    if verdict is None:
        return 0.0, 0.0
    low, high = (math.log1p(end) if end > -1 else -math.inf for end in (verdict.low, verdict.high))
    return (low, high) if workload.lower_is_better else (-high, -low)
