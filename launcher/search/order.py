"""In which order a search measures: chosen points once each, then those that may be best until they are decided. Pure.

Nothing is kept but the journal: the same trials give the same next point, so a search that is resumed goes on as it
would have gone on. All that a grid does stays: the baseline first, between and last, ``repeats`` starts before a point
is judged, ``max_repeats`` while it is undecided. But a point that another one plainly beats keeps its one start, and
stays undecided.

Intervals hold over all points that could have been chosen, not only over those that were measured: which ones are
measured hangs on what the others gave, so that a correction for the measured ones alone would be one for winners.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from launcher.search.front import contenders
from launcher.sweep import schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.sweep.record import Judgement, Point, Sweep


class Ask(Protocol):
    """Chooses a point; `launcher.search.study.ask` does it with Optuna."""

    def __call__(self, sweep: Sweep, points: Sequence[Point]) -> Point:
        """Return one of the points, none of which was started; the same for the same trials."""


def step(sweep: Sweep, judgement: Judgement, now: float, ask: Ask) -> Point | str:
    """Return what is started next, or why nothing is; as `launcher.sweep.schedule.step`."""
    if not sweep.trials:
        return sweep.baseline
    tried = chosen(sweep)
    rest = [point for point in sweep.points[1:] if point not in tried]
    if rest and len(tried) < sweep.search:
        return schedule.step(_of(sweep, [ask(sweep, _in_time(sweep, rest))]), judgement, now)
    found = schedule.step(_of(sweep, contenders(sweep)), judgement, now)
    return found if not isinstance(found, str) else f"{told(sweep)}; of those that may be best: {found}"


def why_over(sweep: Sweep, judgement: Judgement, now: float) -> str:
    """Return why a search is over, empty when it is not; which point would be next does not matter."""
    found = step(sweep, judgement, now, lambda _, points: points[0])
    return found if isinstance(found, str) else ""


def chosen(sweep: Sweep) -> list[Point]:
    """Return the points, without the baseline, that were started; what is forgiven can be chosen again."""
    return [point for point in sweep.points[1:] if schedule.starts_of(sweep, point)]


def told(sweep: Sweep) -> str:
    """Return how many of the points were chosen, in words."""
    many = len(sweep.points) - 1
    return f"{len(chosen(sweep))} of {many} point{'s'[: many != 1]} were chosen"


def _in_time(sweep: Sweep, points: list[Point]) -> list[Point]:
    """Return the points that are not left to the last, those that are when only they are left."""
    return [point for point in points if point.digest not in sweep.late] or points


def _of(sweep: Sweep, points: Sequence[Point]) -> Sweep:
    """Return a sweep of these points alone, with all of its trials."""
    return replace(sweep, points=(sweep.baseline, *points))
