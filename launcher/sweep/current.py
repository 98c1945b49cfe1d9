"""Which trials of a sweep still count: a trial is worth something only beside others of the same versions.

Its key is the digest of its point, the versions that it ran with (driver, GPU, NCCL, torch, engine) and the measuring
program; the workloads are those of the whole sweep. Versions are compared within a point only, for points may differ in
their engines: where a point runs with another version than before, every earlier trial with the old one is past. Of
hosts that share a sweep each is looked at on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Sweep, Trial

#: By host, what it is a version of, and the old one.
_Changes = dict[tuple[str, str, str], tuple[int, str]]
_UNKNOWN = "versions are not known"
_GONE = "their point is not asked for any more"
_MOVED = "another host measures their point now"
_LEFT = "their host measures no point any more"


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
    """Return facts of a sweep for its report: which trials do not count, and what a start of the server spent."""
    lines, spent = told(sweep), _spent(sweep)
    return {
        **({"not counted": "; ".join(lines)} if lines else {}),
        **({"seconds a start": spent} if spent else {}),
    }


def _spent(sweep: Sweep) -> str:
    """Return the mean seconds by part; ``other`` is what launch itself adds."""
    found = [told for trial in sweep.trials if (told := trial.facts.get("seconds")) and "other" in told]
    parts = dict.fromkeys(name for told in found for name in told)
    means = {name: sum(told.get(name, 0.0) for told in found) / len(found) for name in parts}
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in means.items())


def _every(sweep: Sweep) -> Sequence[Trial]:
    return sorted((*sweep.past, *sweep.trials), key=lambda trial: trial.order) if sweep.past else sweep.trials


def _reasons(sweep: Sweep, trials: Sequence[Trial]) -> dict[int, str]:
    """Return why a trial is past, by its place."""
    changes = _changes(trials)
    latest: dict[str, int] = {}
    for (host, _, _), (place, _) in changes.items():
        latest[host] = max(place, latest.get(host, 0))
    digests = {point.digest for point in sweep.points}
    found: dict[int, str] = {}
    for place, trial in enumerate(trials):
        ran = versions(trial)
        keys = [(trial.host, key, value) for key, value in ran.items()]
        why = [f"{key[1]} {key[2]} -> {new}" for key in keys for new in _later(changes, key, place)]
        if trial.point not in digests:
            found[place] = _GONE
        elif elsewhere := _elsewhere(sweep, trial):
            found[place] = elsewhere
        elif why:
            found[place] = ", ".join(why)
        elif not ran and place < latest.get(trial.host, 0):
            found[place] = _UNKNOWN
    return found


def _elsewhere(sweep: Sweep, trial: Trial) -> str:
    """Return why a trial ran on a host that has nothing to do with its point any more, empty when it has."""
    if not sweep.homes:
        return ""
    if trial.point == sweep.baseline.digest:
        return "" if trial.host in sweep.homes.values() else _LEFT
    return "" if trial.host == sweep.homes.get(trial.point) else _MOVED


def _later(changes: _Changes, key: tuple[str, str, str], place: int) -> list[str]:
    at, new = changes.get(key, (0, ""))
    return [new] if place < at else []


def _changes(trials: Sequence[Trial]) -> _Changes:
    """Return every version that a point has left: the place of the trial that shows it, and what came instead."""
    seen: dict[tuple[str, str, str], str] = {}
    left: _Changes = {}
    for place, trial in enumerate(trials):
        for key, value in versions(trial).items():
            before = seen.get((trial.host, trial.point, key), value)
            if before != value:
                left[trial.host, key, before] = (place, value)
            seen[trial.host, trial.point, key] = value
    return left
