"""Where things lie in the drawings of a report; the template draws them.

Across, places are in percent of the drawing, so that it fits every width with its text unscaled; down, in pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import shares
from .figures import interval, level, relative
from .tables import judged, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .record import Judgement, Point, Reading, Sweep, Trial, Verdict, Workload

#: Differences that an axis may name, besides 0 and the smallest effect that matters.
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1, 2, 4, 9, 29, 99)
#: Least distance of two names on an axis, in percent.
_APART = 17
HEIGHT = 92


@dataclass(frozen=True)
class Scale:
    """An axis of relative differences: even near 0, by factors far from it, and a factor up is as far as one down."""

    effect: float
    low: float
    high: float

    @classmethod
    def over(cls, differences: Iterable[float], effect: float) -> Scale:
        """Return the scale that shows all differences, and three times the smallest effect on both sides of 0."""
        places = [_bent(one, effect) for one in (3 * effect, 1 / (1 + 3 * effect) - 1, *differences)]
        places = [place for place in places if math.isfinite(place)]
        margin = 0.07 * (max(places) - min(places))
        return cls(effect, min(places) - margin, max(places) + margin)

    def at(self, difference: float) -> float:
        """Return the place of a difference from 0 to 100; what lies outside is at the end."""
        place = _bent(difference, self.effect)
        return round(min(100.0, max(0.0, 100 * (place - self.low) / (self.high - self.low))), 2)

    def ticks(self, apart: float = _APART) -> list[tuple[float, str]]:
        """Return places with names, as many as do not touch each other."""
        wanted = [
            0.0,
            *(side for tick in reversed(_TICKS) for side in (tick, -tick if tick < 0.4 else 1 / (1 + tick) - 1)),
        ]
        chosen: list[tuple[float, str]] = []
        for tick in wanted:
            place = self.at(tick)
            if 7 <= place <= 93 and all(abs(place - other) >= apart for other, _ in chosen):
                chosen.append((place, _name(tick)))
        return sorted(chosen)


def _bent(difference: float, effect: float) -> float:
    if math.isnan(difference):
        return math.nan
    if difference <= -1:
        return -math.inf
    return math.asinh(math.log1p(difference) / effect) if math.isfinite(difference) else math.inf


def _name(tick: float) -> str:
    if abs(tick) < 0.4:
        return f"{tick * 100:+.2g} %" if tick else "0"
    return f"{1 + tick:.2g} x" if tick < 9 else f"{1 + tick:.0f} x"


@dataclass(frozen=True)
class Bar:
    """One point in a panel."""

    point: Point
    verdict: Verdict
    at: float
    low: float
    high: float
    told: str
    #: Whether there is no interval: it may lie anywhere.
    open: bool


@dataclass(frozen=True)
class Panel:
    """The differences of all points for one workload."""

    workload: Workload
    bars: Sequence[Bar]
    missing: int
    band: tuple[float, float]
    zero: float
    ticks: Sequence[tuple[float, str]]
    is_open: bool


def forest(sweep: Sweep, judgement: Judgement, points: Sequence[Point]) -> list[Panel]:
    """Return a panel for each workload, all with one scale; points without a difference are counted only.

    Args:
        sweep: with its workloads.
        judgement: of it.
        points: in the order wanted.
    """
    verdicts, effect = judged(judgement), sweep.settings.effect
    shown = [verdict for verdict in judgement.verdicts if _is_shown(verdict)]
    if not shown:
        return []
    scale = Scale.over([end for v in shown for end in (v.low, v.difference, v.high)], effect)
    band, few, kinds = (scale.at(-effect), scale.at(effect)), len(shown) <= 80, set()
    panels = []
    for workload in sweep.workloads:
        found = [(point, verdicts.get((point.digest, workload.name))) for point in points]
        bars = [_bar(scale, point, verdict) for point, verdict in found if verdict and _is_shown(verdict)]
        missing = sum(verdict is not None for _, verdict in found) - len(bars)
        is_open = few or workload.kind not in kinds
        kinds.add(workload.kind)
        panels.append(Panel(workload, bars, missing, band, scale.at(0), scale.ticks(), is_open))
    return panels


def _is_shown(verdict: Verdict) -> bool:
    return math.isfinite(verdict.difference) and verdict.word != "invalid"


def _bar(scale: Scale, point: Point, verdict: Verdict) -> Bar:
    is_open = not (math.isfinite(verdict.low) and math.isfinite(verdict.high))
    told = f"{relative(verdict.difference)} {interval(verdict)}".rstrip()
    low, high = (0.0, 100.0) if is_open else (scale.at(verdict.low), scale.at(verdict.high))
    return Bar(point, verdict, scale.at(verdict.difference), low, high, told, is_open)


@dataclass(frozen=True)
class Track:
    """How the readings of one workload moved while the sweep ran, each relative to the mean of its own point."""

    workload: Workload
    #: Across in percent, down in pixels, what it is.
    baseline: Sequence[tuple[float, float, str]]
    others: Sequence[tuple[float, float, str]]
    band: tuple[float, float]
    ticks: Sequence[tuple[float, str]]
    drift: str
    #: Of a sweep that several hosts share.
    host: str = ""


def timeline(sweep: Sweep, judgement: Judgement) -> list[Track]:
    """Return a track for each workload, on each host, that has two readings of one point."""
    if not sweep.trials:
        return []
    begin = min(trial.at for trial in sweep.trials)
    length = max(trial.at for trial in sweep.trials) - begin
    return [
        track
        for part, host in zip(shares.parts(sweep), shares.hosts_of(sweep) or ("",), strict=True)
        for track in _tracks(part, host, judgement, (begin, length))
    ]


def _tracks(sweep: Sweep, host: str, judgement: Judgement, span: tuple[float, float]) -> list[Track]:
    """Return the tracks of one host.

    Args:
        sweep: its part.
        host: its name; empty where nobody shares.
        judgement: of the whole sweep.
        span: begin and length of the whole sweep, in seconds.
    """
    begin, length = span
    readings, tracks = valid(sweep), []
    for workload in sweep.workloads:
        moved = {point.digest: _moved(readings.get((point.digest, workload.name), ())) for point in sweep.points}
        if not (every := [change for found in moved.values() for _, change in found]):
            continue
        scale = Scale.over(every, sweep.settings.effect)

        def place(point: Point, trial: Trial, change: float, scale: Scale = scale) -> tuple[float, float, str]:
            across = round(4 + 92 * (trial.at - begin) / length, 2) if length else 50.0
            return across, _down(scale.at(change)), f"trial {trial.order}, {point.label}: {relative(change)}"

        dots = [(point, place(point, *one)) for point in sweep.points for one in moved[point.digest]]
        effect, drift = sweep.settings.effect, judgement.drift.get(shares.on(workload.name, host))
        tracks.append(
            Track(
                workload,
                sorted(dot for point, dot in dots if point == sweep.baseline),
                sorted(dot for point, dot in dots if point != sweep.baseline),
                (_down(scale.at(effect)), _down(scale.at(-effect))),
                [(_down(at), name) for at, name in scale.ticks(20)],
                "" if drift is None else relative(drift),
                host,
            )
        )
    return tracks


def _down(percent: float) -> float:
    return round(HEIGHT * (1 - percent / 100), 1)


def _moved(found: Iterable[tuple[Trial, Reading]]) -> list[tuple[Trial, float]]:
    """Return each reading relative to their mean; nothing for one alone, which is its own mean."""
    pairs = list(found)
    mean = level([reading.value for _, reading in pairs])
    if len(pairs) < 2 or not math.isfinite(mean):
        return []
    return [(trial, reading.value / mean - 1) for trial, reading in pairs]
