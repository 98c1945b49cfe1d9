"""The loop of a sweep: which point next, measure it, write it down, judge; the same for every measuring program."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Protocol

from launcher.sweep import current, journal, schedule
from launcher.sweep.statistics import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.sweep.record import Judgement, Point, Sweep, Trial


class Measure(Protocol):
    """Measures one fresh start of a point."""

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:
        """Return the trial; a point that does not work is a trial with a failure.

        Args:
            point: to start.
            order: of the trial in the sweep.
            upcoming: what will most likely be started after it.

        Raises:
            LaunchError: nothing can be measured here at all, now.
        """


class Step(Protocol):
    """Chooses what is started next; `launcher.sweep.schedule.step` is the usual one."""

    def __call__(self, sweep: Sweep, judgement: Judgement, now: float) -> Point | str:
        """Return the point, or why there is none; the same for the same trials."""


class Watcher(Protocol):
    """Is told what goes on."""

    def begins(self, sweep: Sweep, point: Point) -> None:
        """Tell that a trial begins."""

    def ended(self, sweep: Sweep, trial: Trial) -> None:
        """Tell what a trial gave; the sweep has it already."""


def run(
    sweep: Sweep,
    folder: Path,
    measure: Measure,
    watcher: Watcher,
    clock: Callable[[], float] = time.time,
    whole: Sweep | None = None,
    step: Step = schedule.step,
) -> tuple[Sweep, str]:
    """Run a sweep to its end, from wherever it stands, and return it with all trials, and why it ended.

    Every trial is in the journal before the next one begins, so whatever ends this loop loses at most the running one.
    For a part of a sweep (`launcher.sweep.shares`) ``whole`` is all of it. ``step`` chooses the points.

    Raises:
        LaunchError: nothing can be measured, or the journal cannot be written.
    """
    judgement = judge(sweep, whole)
    while not isinstance(point := step(sweep, judgement, clock()), str):
        watcher.begins(sweep, point)
        order = len(sweep.trials) + len(sweep.past) + 1
        trial = measure(point, order, _upcoming(sweep, judgement, point, clock(), step))
        journal.append(folder, trial)
        sweep = current.counted(dataclasses.replace(sweep, trials=(*sweep.trials, trial)))
        judgement = judge(sweep, whole)
        watcher.ended(sweep, trial)
    return sweep, point


def _upcoming(sweep: Sweep, judgement: Judgement, point: Point, now: float, step: Step) -> Point | None:
    """Return what follows if this trial goes as one before it went; nothing before there was one."""
    before = next((trial for trial in reversed(sweep.trials) if trial.readings), None)
    if before is None:
        return None
    order = len(sweep.trials) + len(sweep.past) + 1
    likely = dataclasses.replace(before, point=point.digest, order=order, at=now)
    follows = step(dataclasses.replace(sweep, trials=(*sweep.trials, likely)), judgement, now)
    return None if isinstance(follows, str) else follows
