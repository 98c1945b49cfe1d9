"""What speculation gave in a sweep, and from where on it pays: as the report tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import shares
from .figures import figure, middle
from .speculation import break_even
from .tables import ranked, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .record import Judgement, Point, Sweep, Workload

_LENGTH = "acceptance_length"


@dataclass(frozen=True)
class Line:
    """A point that speculates, under one load.

    Attributes:
        point: that speculates.
        cycle: milliseconds of a whole one; empty when nobody told.
        told: the acceptance length measured, and from which on it pays, in a sentence.
        against: the point without speculation, None where there is none.
        plain: milliseconds of a token there.
    """

    point: Point
    cycle: str
    told: str
    against: Point | None = None
    plain: str = ""


def speculation(sweep: Sweep, judgement: Judgement) -> list[tuple[Workload, list[Line]]]:
    """Return the points that speculate by load; nothing where none does. What they are held against ran beside them."""
    readings, speculating, found = valid(sweep), _speculating(sweep), []
    places = shares.places(sweep, ranked(sweep, judgement))
    for workload in sweep.workloads:
        details = {
            (point.digest, host): [
                reading.details for _, reading in shares.on_host(readings.get((point.digest, workload.name), ()), host)
            ]
            for point, host in places
        }
        plain = {
            host: [
                (point, ms)
                for point in sweep.points
                if point.digest not in speculating and (ms := _token_ms(details.get((point.digest, host), ()))) > 0
            ]
            for _, host in places
        }
        lines = [
            _line(point, details[point.digest, host], nearest(point, plain[host]))
            for point, host in places
            if middle(details[point.digest, host], _LENGTH) > 0
        ]
        if lines:
            found.append((workload, lines))
    return found


def _speculating(sweep: Sweep) -> set[str]:
    """Return the digests of points that speculate: what shows it once holds under every load."""
    return {
        trial.point
        for trial in sweep.trials
        if any(middle([reading.details], _LENGTH) > 0 for reading in trial.readings)
    }


def _token_ms(details: Iterable[Mapping[str, Any]]) -> float:
    return middle(details, "tpot_ms_median", "tpot_ms_mean")


def nearest(point: Point, others: Sequence[tuple[Point, float]]) -> tuple[Point | None, float]:
    """Return the one of other points that differs in the fewest choices, of equal ones the first."""

    def apart(other: tuple[Point, float]) -> int:
        there = other[0].choices
        return sum(point.choices.get(axis) != there.get(axis) for axis in {*point.choices, *there})

    return min(others, key=apart, default=(None, math.nan))


def _line(point: Point, details: Sequence[Mapping[str, Any]], without: tuple[Point | None, float]) -> Line:
    length, cycle, (against, plain) = middle(details, _LENGTH), middle(details, "cycle_ms"), without
    measured, needed = f"{length:.2f}", break_even(cycle, plain)
    shown = figure(cycle) if cycle > 0 else ""
    if against is None:
        return Line(point, shown, f"measured {measured}; nothing without speculation ran under this load")
    if not math.isfinite(needed):
        return Line(point, shown, f"measured {measured}; nobody told the time of a token")
    told = f"pays from {needed:.2f} tokens a verify step on; measured {measured}"
    return Line(point, shown, told, against, figure(plain))
