"""Begin a sweep, or go on with one: its folder is held meanwhile, and only trials of equal keys count.

The plan of a resumed sweep is the new one: points may come and go, the settings of schedule and verdicts may change.
What its figures hang on may not: deployment, target, baseline, workloads, measuring program. Versions are compared
trial by trial (`launcher.sweep.current`); to see today's, the baseline is started first. Where several hosts share a
sweep, they may come and go as well (`launcher.sweep.shares.again`).
"""

from __future__ import annotations

import calendar
import dataclasses
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from launcher.agent.findings import iso
from launcher.errors import ConfigError

from . import compare, current, journal, lock, shares, shelf
from .schedule import given_up, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .record import Point, Settings, Sweep, Workload

_SHOWN = 3
#: Characters of the moment that an id begins with, such as 20261130-021500.
_MOMENT = 15
#: Sweeps that may begin in one folder at the same time.
_TRIES = 60


@dataclass(frozen=True)
class Wanted:
    """Which sweep to go on with.

    Attributes:
        id: of it, or the begin; ``newest``: of the same deployment and kind; empty: a new one is begun.
        failed: whether points that failed are measured again.
    """

    id: str = ""
    failed: bool = False


@contextmanager
def opened(
    out: Path, sweep: Sweep, wanted: Wanted, by: str, tell: Callable[[str], None]
) -> Iterator[tuple[Sweep, Path]]:
    """Hold the folder of a sweep, made or found, and give what is to be run in it.

    Args:
        out: folder of all sweeps.
        sweep: as composed now, without trials.
        wanted: which one to go on with.
        by: who runs it.
        tell: called with what is reused and what is not, a line each.

    Raises:
        ConfigError: it cannot be resumed, with what differs.
        RunningError: another launch runs it.
        LaunchError: it cannot be made, read or written.
    """
    if not wanted.id:
        folder, sweep = _new(out, sweep)
        with lock.held(folder, by):
            yield sweep, folder
        return
    folder = _found(out, sweep, wanted.id)
    with lock.held(folder, by):
        old = journal.load(folder, tell)
        merged = merge(old, sweep, time.time())
        if wanted.failed:
            merged = forgive(merged)
        for line in _told(old, merged, failed=wanted.failed):
            tell(line)
        journal.replan(folder, merged)
        yield merged, folder


def _new(out: Path, sweep: Sweep) -> tuple[Path, Sweep]:
    """Make the folder of a new sweep; where another one began in the same second, it gets the id of the next."""
    for left in reversed(range(_TRIES)):
        try:
            return journal.create(out, sweep), sweep
        except journal.TakenError:
            if not left:
                raise
            sweep = replace(sweep, id=_a_second_later(sweep.id))
    raise AssertionError  # not reached


def _a_second_later(id_: str) -> str:
    begun = calendar.timegm(time.strptime(id_[:_MOMENT], "%Y%m%d-%H%M%S"))
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(begun + 1)) + id_[_MOMENT:]


def merge(old: Sweep, new: Sweep, now: float) -> Sweep:
    """Return a sweep as it goes on: the new plan with the trials of the old one.

    Raises:
        ConfigError: the two measure something else; names every key with both values.
    """
    problems = _differences(old, new)
    problems += ["several hosts share it: leave --search out"] if old.homes and new.search else []
    if problems:
        raise ConfigError(*(f"sweep {old.id} cannot be resumed: {problem}" for problem in problems))
    digests = {point.digest for point in new.points}
    gone = tuple(point for point in (*old.points, *old.gone) if point.digest not in digests)
    before = old.facts.get("resumed") or []
    return current.counted(
        replace(
            shares.again(old, new),
            id=old.id,
            facts={**new.facts, "resumed": [*before, iso(now)]},
            trials=old.trials,
            past=old.past,
            closing=old.closing,
            gone=gone,
            since=now,
            forgiven=old.forgiven,
            late=old.late if old.search and new.search else new.late,
        )
    )


def forgive(sweep: Sweep) -> Sweep:
    """Return a sweep that starts points again which were left alone because they failed."""
    orders = set(sweep.forgiven)
    for point in sweep.points:
        starts = [t for t in sweep.trials if t.point == point.digest and t.order not in sweep.forgiven]
        if given_up(starts) or (starts and all(map(outcome, starts))):
            orders |= {trial.order for trial in starts if outcome(trial)}
    return replace(sweep, forgiven=tuple(sorted(orders)))


def _found(out: Path, sweep: Sweep, id_: str) -> Path:
    if id_ != shelf.NEWEST:
        return shelf.folder(out, id_)
    end = f"-{sweep.name}-{shelf.kind(sweep.id)}"
    found = [folder for folder in shelf.folders(out) if folder.name.endswith(end)]
    if not found:
        what = f"{sweep.name} with bench={shelf.kind(sweep.id)}"
        raise ConfigError(f"--resume: there is no sweep of {what} in {out}; leave --resume out to begin one")
    return found[-1]


def _foreign(old: Sweep, new: Sweep) -> list[str]:
    """Return a line where no point of the old sweep is one of the new one: that is another experiment."""
    asked = {point.digest for point in new.points[1:]}
    if not asked or len(old.points) < 2 or asked & {point.digest for point in (*old.points[1:], *old.gone)}:
        return []
    return [f"none of its points is asked for: it swept {_axes(old)}, and this is {_axes(new)}"]


def _axes(sweep: Sweep) -> str:
    return ", ".join(f"{key}={','.join(values)}" for key, values in sweep.axes.items())


def _differences(old: Sweep, new: Sweep) -> list[str]:
    """Return what must not differ and does, a line each."""
    found = [("deployment", old.name, new.name), ("bench", shelf.kind(old.id), shelf.kind(new.id))]
    around = [c for c in compare.surroundings(old, new) if c.name != "target" or not _may_change_hosts(old, new)]
    found += [(c.name, c.left or "none", c.right or "none") for c in around]
    if old.homes and "GPUs" in new.facts:
        found.append(("GPUs", str(old.facts.get("GPUs", "none")), str(new.facts["GPUs"])))
    found += _workloads(old.workloads, new.workloads)
    lines = [f"{key} was {was} and is {now}" for key, was, now in found if was != now]
    if lines:
        return lines
    if old.baseline.digest == new.baseline.digest:
        return _foreign(old, new)
    made = [c for c in compare.makes(old.baseline, new.baseline) if c.kind != "override"]
    lines = [f"{c.kind} {c.name} of the baseline was {c.left or 'none'} and is {c.right or 'none'}" for c in made]
    return lines or [f"the baseline was {old.baseline.digest} and is {new.baseline.digest}"]


def _may_change_hosts(old: Sweep, new: Sweep) -> bool:
    """Return whether several hosts shared a sweep, and some go on with it, or one of them; jobs of Slurm are none."""
    if shares.SLURM in (old.target, new.target):
        return old.target == new.target
    return bool(old.homes) and (bool(new.hosts) or new.target in (*old.hosts, *shares.hosts_of(old)))


def _workloads(old: Sequence[Workload], new: Sequence[Workload]) -> list[tuple[str, str, str]]:
    was, now = ({one.name: compare.definition(one) for one in many} for many in (old, new))
    found = [("workloads", ", ".join(was), ", ".join(now))] if was.keys() != now.keys() else []
    for name in [name for name in was if name in now]:
        keys = dict.fromkeys((*was[name], *now[name]))
        found += [(f"workload {name} {key}", str(was[name].get(key)), str(now[name].get(key))) for key in keys]
    return found


def _told(old: Sweep, merged: Sweep, *, failed: bool) -> list[str]:
    """Return what becomes of what was measured."""
    n = len(merged.trials)
    lines = [f"going on with sweep {merged.id}: {n} trial{'s'[: n != 1]} of it count{'s'[: n == 1]}"]
    lines += current.told(merged)
    known = {point.digest for point in old.points}
    lines += _points("new", [point for point in merged.points if point.digest not in known])
    lines += _points(
        f"measured by another {'job' if merged.target == shares.SLURM else 'host'} now",
        [p for p in merged.points if p.digest in old.homes and old.homes[p.digest] != merged.homes.get(p.digest)],
    )
    lines += _points("not asked for any more", [point for point in merged.gone if point.digest in known])
    lines += _settings(old.settings, merged.settings)
    lines += _search(old.search, merged.search)
    dead = [
        point
        for point in merged.points
        if given_up([t for t in merged.trials if t.point == point.digest and t.order not in merged.forgiven])
    ]
    if dead and not failed:
        lines += [f"{line}; --resume-failed measures them again" for line in _points("left alone, for it failed", dead)]
    return lines


def _points(what: str, points: Sequence[Point]) -> list[str]:
    if not points:
        return []
    labels = ", ".join(f"'{point.label}'" for point in points[:_SHOWN])
    more = f" and {len(points) - _SHOWN} more" if len(points) > _SHOWN else ""
    return [f"{what}: {labels}{more}"]


def _settings(old: Settings, new: Settings) -> list[str]:
    pairs = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in dataclasses.fields(new)]
    return [f"sweep.{name} was {_told_as(was)} and is {_told_as(now)}" for name, was, now in pairs if was != now]


def _told_as(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _search(was: int, now: int) -> list[str]:
    """Return how many points are chosen from now on, where that is another number."""
    if was == now:
        return []
    before, after = (f"at most {most} points chosen" if most else "every point measured" for most in (was, now))
    return [f"it was {before}, and is {after} from now on"]
