"""Which point of a sweep is started next, and when a sweep is over; only its trials are looked at, so it can resume."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from .figures import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.sweep.record import Judgement, Point, Sweep, Trial

#: What a start counts as that did not fail and yet gave no reading that counts.
NO_READING = "no valid reading"
#: Starts of the same point that fail alike, with no valid one between them, before it is left alone.
FAILURES = 2
#: After the rounds, a baseline for every single start would cost more than it tells.
FEWEST_BETWEEN = 2


def next_point(sweep: Sweep, judgement: Judgement, now: float) -> Point | None:
    """Return the point to start next, None when the sweep is over (`why_over` says why).

    Rounds come first: the baseline, every point once with the baseline again after every ``baseline_every`` of them,
    the baseline; the next round goes through the points backwards, so that slow drift does not always hit the same
    ones. When every point has its valid starts, those with an undecided verdict are repeated. The baseline is last.

    Args:
        sweep: with its trials so far.
        judgement: of these trials.
        now: seconds since 1970.
    """
    found = step(sweep, judgement, now)
    return None if isinstance(found, str) else found


def why_over(sweep: Sweep, judgement: Judgement, now: float) -> str:
    """Return why no further trial begins, empty when one does."""
    found = step(sweep, judgement, now)
    return found if isinstance(found, str) else ""


def expected(sweep: Sweep) -> int:
    """Return how many trials a sweep takes when nothing fails and nothing stays undecided after the rounds.

    Of a search it is the most: as many as if every point that it chooses needed all of its starts.
    """
    points = min(sweep.search or len(sweep.points), len(sweep.points) - 1)
    return 1 + sweep.settings.repeats * (points + math.ceil(points / max(1, sweep.settings.baseline_every)))


def outcome(trial: Trial) -> str:
    """Return in which way a start counts for nothing; empty when at least one of its readings counts."""
    if trial.failure:
        return trial.failure
    return "" if any(not reading.invalid for reading in trial.readings) else NO_READING


def given_up(trials: Iterable[Trial]) -> str:
    """Return the failure for which a point is left alone, empty when it is not; a valid start makes all good again."""
    seen: Counter[str] = Counter()
    for trial in trials:
        failure = outcome(trial)
        if not failure:
            seen.clear()
        seen[failure] += 1
    return next((failure for failure, count in seen.items() if failure and count >= FAILURES), "")


def step(sweep: Sweep, judgement: Judgement, now: float) -> Point | str:
    """Return the next point, see `next_point`, or why there is none."""
    trials, baseline = sweep.trials, sweep.baseline
    if not trials:
        return baseline
    left = _starts_left(sweep, now)
    if left < 1:
        return f"the {sweep.settings.minutes:g} minutes are over"
    failures = [outcome(trial) for trial in starts_of(sweep, baseline)]
    if len(failures) >= FAILURES and all(failures[-FAILURES:]):
        return f"the baseline failed twice in a row: {failures[-1]}"
    if not failures or failures[-1]:
        return baseline
    if not _seen_since(sweep):
        # Whether anything is left to be compared with it does not depend on when the sweep was resumed.
        timeless = replace(sweep, since=0.0, settings=replace(sweep.settings, minutes=0.0))
        rest = step(timeless, judgement, now)
        return rest if isinstance(rest, str) else baseline
    since = _since_baseline(sweep)
    if since and left < 2:  # the closing baseline is the last that fits
        return baseline
    rounds = _rounds(sweep)
    candidate = _in_round(sweep, rounds) or _most_useful(sweep, judgement)
    if candidate is None:
        return baseline if since else _reason(sweep, judgement)
    return baseline if _baseline_due(sweep, candidate, since, in_round=bool(rounds)) else candidate


def _starts_left(sweep: Sweep, now: float) -> float:
    """Return for how many starts of the mean length so far there is time."""
    if not sweep.settings.minutes:
        return math.inf
    mean = sum(trial.seconds for trial in sweep.trials) / len(sweep.trials)
    rest = sweep.settings.minutes * 60 - (now - max(sweep.since, sweep.trials[0].at))
    return rest / mean if mean > 0 else math.inf if rest >= 0 else 0


def _since_baseline(sweep: Sweep) -> int:
    """Return how many trials there were after the last one of the baseline."""
    places = [place for place, trial in enumerate(sweep.trials, 1) if trial.point == sweep.baseline.digest]
    return len(sweep.trials) - (places[-1] if places else 0)


def _seen_since(sweep: Sweep) -> bool:
    """Return whether the baseline ran since the sweep was resumed: it shows what has changed in between."""
    return not sweep.since or any(t.at >= sweep.since for t in sweep.trials if t.point == sweep.baseline.digest)


def starts_of(sweep: Sweep, point: Point) -> list[Trial]:
    """Return the trials of a point that its schedule goes by."""
    return [trial for trial in sweep.trials if trial.point == point.digest and trial.order not in sweep.forgiven]


def _open(sweep: Sweep) -> list[Point]:
    """Return the points that may be started once more."""
    most = max(sweep.settings.max_repeats, sweep.settings.repeats)
    found = []
    for point in sweep.points[1:]:
        starts = starts_of(sweep, point)
        if len(starts) < most and not given_up(starts):
            found.append(point)
    return found


def _rounds(sweep: Sweep) -> list[Point]:
    """Return the points that still lack valid starts."""
    return [
        point
        for point in _open(sweep)
        if sum(not outcome(trial) for trial in starts_of(sweep, point)) < sweep.settings.repeats
    ]


def _in_round(sweep: Sweep, points: list[Point]) -> Point | None:
    return min(points, key=lambda point: _turn(sweep, point), default=None)


def _turn(sweep: Sweep, point: Point) -> tuple[int, int]:
    """Return what points are sorted by: round, then place, every other round backwards."""
    starts, place = len(starts_of(sweep, point)), sweep.points.index(point)
    return starts, -place if starts % 2 else place


def _most_useful(sweep: Sweep, judgement: Judgement) -> Point | None:
    """Return the point to repeat: one that may still win before one that is worse somewhere, then in rounds."""
    undecided, worse = _undecided(sweep, judgement), _with(judgement, "worse")
    points = [point for point in _open(sweep) if point.digest in undecided]
    return min(points, key=lambda point: (point.digest in worse, *_turn(sweep, point)), default=None)


def _with(judgement: Judgement, word: str) -> set[str]:
    return {verdict.point for verdict in judgement.verdicts if verdict.word == word}


def _undecided(sweep: Sweep, judgement: Judgement) -> set[str]:
    """Return the digests that further starts may decide; a workload that the baseline cannot do decides nothing."""
    done = {
        reading.workload
        for trial in starts_of(sweep, sweep.baseline)
        if not trial.failure
        for reading in trial.readings
        if not reading.invalid
    }
    return {verdict.point for verdict in judgement.verdicts if verdict.word == "undecided" and verdict.workload in done}


def _baseline_due(sweep: Sweep, candidate: Point, since: int, *, in_round: bool) -> bool:
    """Return whether the baseline comes before the candidate."""
    every = max(1, sweep.settings.baseline_every)
    if since == 0:
        return False
    if since >= every:
        return True
    last = sum(trial.point == sweep.trials[-1].point for trial in sweep.trials)
    new_round = len(starts_of(sweep, candidate)) + 1 != last
    return new_round and (in_round or since >= FEWEST_BETWEEN)


def _reason(sweep: Sweep, judgement: Judgement) -> str:
    """Return why a sweep that could run on ends here."""
    undecided, still = _with(judgement, "undecided"), _open(sweep)
    dead = [point for point in sweep.points[1:] if given_up(starts_of(sweep, point))]
    rest = [point for point in sweep.points[1:] if point.digest in undecided and point not in dead]
    spent, alone = [point for point in rest if point not in still], [point for point in rest if point in still]
    parts = ["every point is decided"] if not rest and not dead else []
    parts += (
        [f"{counted(len(spent), 'point')} undecided after {counted(sweep.settings.max_repeats, 'start')}"]
        if spent
        else []
    )
    parts += [f"{counted(len(alone), 'point')} undecided where the baseline has no valid reading"] if alone else []
    parts += [f"{counted(len(dead), 'point')} given up after failing the same way twice"] if dead else []
    return ", ".join(parts)
