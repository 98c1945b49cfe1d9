"""Tokens a second for one user against those for a GPU, as a drawing of a report; the template draws it.

Across, places are in percent of the drawing; down, in pixels: see `launcher.sweep.report_plots`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .figures import figure, middle
from .tables import ranked, valid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .record import Judgement, Point, Sweep, Workload

#: Of the drawing down to its axis, in pixels.
HEIGHT = 300
#: Least distance of two names on an axis, in percent.
_APART, _APART_DOWN = 19, 10
#: From which range on an axis is logarithmic, and part of it that is left free at both ends.
_WIDE, _MARGIN = 10, 0.07
#: Paths around 0 0, one for each load in turn, and as many colours (``.s0`` and so on).
SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6 5.5 4.5h-11z",
    "M0-6.5 6 0 0 6.5-6 0z",
    "M0 6 5.5-4.5h-11z",
    "M-1.8-5.5h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7v-3.6h3.7z",
)
#: What is said of the axes, across and upwards.
_LOGARITHMIC = {
    (False, False): "",
    (True, True): "both axes",
    (True, False): "the axis across",
    (False, True): "the axis upwards",
}


@dataclass(frozen=True)
class Axis:
    """An axis for positive values, logarithmic where they are far apart."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def over(cls, values: Collection[float]) -> Axis:
        """Return the axis that shows all values, one at least, each above 0."""
        low, high = min(values), max(values)
        is_log = high > _WIDE * low
        if is_log:
            low, high = math.log10(low), math.log10(high)
        margin = _MARGIN * (high - low) or 0.1 * abs(high)
        return cls(low - margin, high + margin, is_log)

    def at(self, value: float) -> float:
        """Return the place of a value from 0 to 100."""
        place = math.log10(value) if self.is_log else value
        return round(100 * (place - self.low) / (self.high - self.low), 2)

    def ticks(self, apart: float) -> list[tuple[float, str]]:
        """Return places with names, round numbers that do not touch each other."""
        chosen: list[tuple[float, str]] = []
        for value in self._round():
            place = self.at(value)
            if 4 <= place <= 96 and all(abs(place - other) >= apart for other, _ in chosen):
                chosen.append((place, figure(value)))
        return sorted(chosen)

    def _round(self) -> list[float]:
        """Return round numbers on the axis, those first that are wanted most."""
        if self.is_log:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            return [times * 10.0**power for times in (1, 5, 2) for power in powers]
        rough = (self.high - self.low) / 5
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(times * base for times in (1, 2, 5, 10) if times * base >= rough)
        return [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Mark:
    """A point under one load, the medians over its valid starts."""

    point: Point
    workload: Workload
    user: float
    gpu: float
    #: Across in percent, down in pixels.
    across: float
    down: float
    is_baseline: bool
    on_front: bool
    style: str
    shape: str

    @property
    def told(self) -> tuple[str, str]:
        """Tokens a second for one user, and for a GPU."""
        return figure(self.user), figure(self.gpu)


@dataclass(frozen=True)
class Rates:
    """All marks, and what stands around them.

    Attributes:
        marks: in the order of a table: by load, then as the reader wants to meet the points.
        painted: the same in the order in which they are drawn, the baseline last.
        keys: name, style and shape of each load.
        front: places from left to right.
        across: ticks; likewise down.
        logarithmic: which axes are; empty when none is.
        is_mixed: whether loads differ in the lengths of prompts and answers.
    """

    marks: Sequence[Mark]
    painted: Sequence[Mark]
    keys: Sequence[tuple[str, str, str]]
    front: Sequence[tuple[float, float]]
    across: Sequence[tuple[float, str]]
    down: Sequence[tuple[float, str]]
    logarithmic: str
    is_mixed: bool


def front(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pairs that no other one beats in one number without losing in the other, by their first number."""
    kept: list[tuple[float, float]] = []
    for pair in sorted(set(pairs), reverse=True):
        if not kept or pair[1] > kept[-1][1]:
            kept.append(pair)
    return kept[::-1]


def rates(sweep: Sweep, judgement: Judgement) -> Rates | None:
    """Return the drawing; None where nothing was measured that could be drawn."""
    found = _found(sweep, judgement)
    if not found:
        return None
    x, y = Axis.over([user for _, _, user, _ in found]), Axis.over([gpu for _, _, _, gpu in found])
    best = front((user, gpu) for _, _, user, gpu in found)
    looks = _looks(workload.name for _, workload, _, _ in found)

    def place(user: float, gpu: float) -> tuple[float, float]:
        return x.at(user), _down(y.at(gpu))

    marks = [
        Mark(point, workload, user, gpu, *place(user, gpu), point == sweep.baseline, (user, gpu) in best,
             *looks[workload.name])
        for point, workload, user, gpu in found
    ]  # fmt: skip
    return Rates(
        marks,
        sorted(marks, key=lambda mark: mark.is_baseline),
        [(name, *look) for name, look in looks.items()],
        [place(*pair) for pair in best],
        x.ticks(_APART),
        [(_down(at), name) for at, name in y.ticks(_APART_DOWN)],
        _LOGARITHMIC[x.is_log, y.is_log],
        len({tuple(map(work.details.get, ("input_tokens", "output_tokens"))) for _, work, _, _ in found}) > 1,
    )


def _looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return style and shape of each load: no two alike, up to six times six."""
    many = len(SHAPES)
    each = enumerate(dict.fromkeys(names))
    return {name: (f"s{(n + n // many) % many}", SHAPES[n % many]) for n, name in each}


def _found(sweep: Sweep, judgement: Judgement) -> list[tuple[Point, Workload, float, float]]:
    """Return both medians of each point under each load; one token of answer has no rate."""
    readings, found = valid(sweep), []
    for workload in sweep.workloads:
        for point in ranked(sweep, judgement) if workload.details.get("output_tokens") != 1 else ():
            details = [reading.details for _, reading in readings.get((point.digest, workload.name), ())]
            user = middle(details, "output_tokens_per_s_per_user")
            gpu = middle(details, "output_tokens_per_s_per_gpu")
            if user > 0 and gpu > 0:
                found.append((point, workload, user, gpu))
    return found


def _down(percent: float) -> float:
    return round(HEIGHT * (1 - percent / 100), 1)
