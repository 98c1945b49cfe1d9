"""Which trials of a sweep still count: a trial is worth something only beside others of the same versions.

Its key is the digest of its point, the versions that it ran with (driver, GPU, NCCL, torch, engine) and the measuring
program; the workloads are those of the whole sweep. Versions are compared within a point only, for points may differ in
their engines: where a point runs with another version than before, every earlier trial with the old one is past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Sweep, Trial

_UNKNOWN = "versions are not known"
_GONE = "their point is not asked for any more"


def versions(trial: Trial) -> dict[str, str]:
    """Return what a trial ran with and was measured by, flat: ``nccl``, ``driver``, ``client digest`` and so on."""
    found: dict[str, str] = {}
    for name, above in (("versions", ""), ("client", "client ")):
        told = trial.facts.get(name)
        items = told.items() if isinstance(told, Mapping) else [("", told)] if told else ()
        found |= {f"{above}{key}".strip(): str(value) for key, value in items if value is not None}
    return found


def counted(sweep: Sweep) -> Sweep:
    """Return a sweep with its trials parted into those that count and those that are past."""
    every = _every(sweep)
    reasons = _reasons(sweep, every)
    if not reasons and not sweep.past:
        return sweep
    kept = tuple(trial for place, trial in enumerate(every) if place not in reasons)
    return replace(sweep, trials=kept, past=tuple(every[place] for place in sorted(reasons)))


def told(sweep: Sweep) -> list[str]:
    """Return how many trials count for nothing any more, and why, one line a reason."""
    reasons = Counter(_reasons(sweep, _every(sweep)).values())
    return [f"{n} trial{'s count' if n > 1 else ' counts'} for nothing any more: {why}" for why, n in reasons.items()]


def facts(sweep: Sweep) -> dict[str, str]:
    """Return the same as a fact of the sweep for its report; empty when every trial counts."""
    lines = told(sweep)
    return {"not counted": "; ".join(lines)} if lines else {}


def _every(sweep: Sweep) -> Sequence[Trial]:
    return sorted((*sweep.past, *sweep.trials), key=lambda trial: trial.order) if sweep.past else sweep.trials


def _reasons(sweep: Sweep, trials: Sequence[Trial]) -> dict[int, str]:
    """Return why a trial is past, by its place."""
    changes = _changes(trials)
    latest = max((place for place, _ in changes.values()), default=0)
    digests = {point.digest for point in sweep.points}
    found: dict[int, str] = {}
    for place, trial in enumerate(trials):
        ran = versions(trial)
        why = [f"{key} {value} -> {new}" for key, value in ran.items() for new in _later(changes, key, value, place)]
        if trial.point not in digests:
            found[place] = _GONE
        elif why:
            found[place] = ", ".join(why)
        elif not ran and place < latest:
            found[place] = _UNKNOWN
    return found


def _later(changes: Mapping[tuple[str, str], tuple[int, str]], key: str, value: str, place: int) -> list[str]:
    at, new = changes.get((key, value), (0, ""))
    return [new] if place < at else []


def _changes(trials: Sequence[Trial]) -> dict[tuple[str, str], tuple[int, str]]:
    """Return every version that a point has left: the place of the trial that shows it, and what came instead."""
    seen: dict[tuple[str, str], str] = {}
    left: dict[tuple[str, str], tuple[int, str]] = {}
    for place, trial in enumerate(trials):
        for key, value in versions(trial).items():
            before = seen.get((trial.point, key), value)
            if before != value:
                left[key, before] = (place, value)
            seen[trial.point, key] = value
    return left
