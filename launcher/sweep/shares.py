"""Several equal hosts share the points of one sweep: which host has which point, and what each of them measures. Pure.

Every host has the baseline and some of the points, and its part is a sweep of its own: a point is never compared with
the baseline of another host. Only the confidence of the intervals is that of all points together
(`launcher.sweep.statistics.judge`). A sweep without ``homes`` is one part, the sweep itself.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from launcher.search import order

from .record import Judgement
from .schedule import expected as _expected
from .schedule import outcome
from .schedule import why_over as _why_over

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .record import Point, Reading, Sweep, Trial


#: Target of a sweep whose hosts are jobs of Slurm, whatever nodes they get.
SLURM = "Slurm"


def assign(
    points: Iterable[Point], hosts: Sequence[str], kept: Mapping[str, str], done: Collection[str] = ()
) -> dict[str, str]:
    """Return the host of every point, by digest: in the order of the points, one host after the other.

    Args:
        points: without the baseline.
        hosts: that measure from now on.
        kept: hosts of points that stay where they are; their host gets fewer of the others.
        done: digests of those that cost their host no further time.
    """
    points = list(points)
    load = Counter(kept[point.digest] for point in points if point.digest in kept and point.digest not in done)
    homes: dict[str, str] = {}
    for point in points:
        host = kept.get(point.digest)
        if host is None:
            host = min(hosts, key=lambda name: load[name])
            load[host] += 1
        homes[point.digest] = host
    return homes


def again(old: Sweep, new: Sweep) -> Sweep:
    """Return a sweep that is resumed, with a host for every point; one that no host shared stays as it is.

    A point stays where it was. Only where its host is not named any more, and has not measured it to the end, it goes
    to another one, and begins there from nothing.
    """
    if not old.homes:
        return new
    hosts = new.hosts or (new.target,)
    if new.target == SLURM:  # jobs are made as they are needed, so that no point has to leave its own
        hosts = tuple(dict.fromkeys((*old.hosts, *new.hosts)))
    done = {point.digest for point in old.points[1:] if _has_enough(old, point, max(1, new.settings.repeats))}
    kept = {
        point.digest: home
        for point in new.points[1:]
        if (home := old.homes.get(point.digest)) and (home in hosts or point.digest in done)
    }
    shared = dataclasses.replace(new, hosts=hosts, homes=assign(new.points[1:], hosts, kept, done))
    if new.target == SLURM:
        return shared
    return dataclasses.replace(shared, target=", ".join(hosts_of(shared)))


def _has_enough(sweep: Sweep, point: Point, repeats: int) -> bool:
    """Return whether a point can be judged by what its host has measured."""
    home = sweep.homes.get(point.digest)
    valid = Counter(trial.point for trial in sweep.trials if trial.host == home and not outcome(trial))
    return min(valid[point.digest], valid[sweep.baseline.digest]) >= repeats


def hosts_of(sweep: Sweep) -> tuple[str, ...]:
    """Return the hosts that have points, those named now first; none where one machine has them all."""
    having = set(sweep.homes.values())
    return tuple(host for host in dict.fromkeys((*sweep.hosts, *sweep.homes.values())) if host in having)


def where(sweep: Sweep, point: Point) -> tuple[str, ...]:
    """Return the hosts of a point: all for the baseline; an empty name where one machine has every point."""
    if not sweep.homes:
        return ("",)
    return hosts_of(sweep) if point == sweep.baseline else (sweep.homes[point.digest],)


def places(sweep: Sweep, points: Iterable[Point]) -> list[tuple[Point, str]]:
    """Return points with the hosts they are on, in their order; the baseline once for each host."""
    return [(point, host) for point in points for host in where(sweep, point)]


def on_host(found: Iterable[tuple[Trial, Reading]], host: str) -> list[tuple[Trial, Reading]]:
    """Return the readings of one host, all where it has no name."""
    return [pair for pair in found if not host or pair[0].host == host]


def on(name: str, host: str) -> str:
    """Return the name of something as it is on one host: "decode-1 on gpu1"."""
    return f"{name} on {host}" if host else name


def parts(sweep: Sweep) -> tuple[Sweep, ...]:
    """Return what each host measures, as sweeps of their own; their target is the host."""
    return tuple(part(sweep, host) for host in hosts_of(sweep)) or (sweep,)


def part(sweep: Sweep, host: str) -> Sweep:
    """Return what one host measures: the baseline, its points, and their trials there."""
    own = [point for point in sweep.points[1:] if sweep.homes[point.digest] == host]
    return dataclasses.replace(
        sweep,
        target=host,
        points=(sweep.baseline, *own),
        trials=tuple(trial for trial in sweep.trials if trial.host == host),
        past=tuple(trial for trial in sweep.past if trial.host == host),
        closing=tuple(trial for trial in sweep.closing if trial.host == host),
        hosts=(),
        homes={},
    )


def running(sweep: Sweep, judgement: Judgement) -> tuple[str, ...]:
    """Return the hosts that have something to measure; what a resumed sweep would look at first is no reason to."""
    since = dataclasses.replace(sweep, since=0.0, settings=dataclasses.replace(sweep.settings, minutes=0))
    return tuple(h for h in hosts_of(sweep) if h in sweep.hosts and not _why_over(part(since, h), judgement, 0.0))


def expected(sweep: Sweep) -> int:
    """Return how many trials a sweep takes on all hosts, see `launcher.sweep.schedule.expected`."""
    return sum(map(_expected, parts(sweep)))


def left(sweep: Sweep) -> int:
    """Return how many trials the host with the most of them still expects: the others are done by then."""
    return max(max(0, _expected(one) - len(one.trials)) for one in parts(sweep))


def unfinished(sweep: Sweep) -> list[Point]:
    """Return the points without enough valid starts for a verdict."""
    valid = Counter(trial.point for trial in sweep.trials if not outcome(trial))
    return [point for point in sweep.points[1:] if valid[point.digest] < max(1, sweep.settings.repeats)]


def why_over(sweep: Sweep, judgement: Judgement, now: float) -> str:
    """Return why no host has anything to measure any more, empty when one has."""
    if not sweep.homes:
        return (order.why_over if sweep.search else _why_over)(sweep, judgement, now)
    hosts = [host for host in hosts_of(sweep) if host in sweep.hosts] or hosts_of(sweep)
    reasons = {host: _why_over(part(sweep, host), judgement, now) for host in hosts}
    return told(reasons) if all(reasons.values()) else ""


def told(reasons: Mapping[str, str]) -> str:
    """Return what is true of each host in one text, once where it is the same of all."""
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{host}: {reason}" for host, reason in reasons.items())


def joined(sweep: Sweep, judgements: Sequence[Judgement]) -> Judgement:
    """Return one judgement from those of the parts, in their order; verdicts in the order of the points."""
    order = {point.digest: place for place, point in enumerate(sweep.points)}
    hosts = hosts_of(sweep)
    verdicts = sorted((v for one in judgements for v in one.verdicts), key=lambda verdict: order[verdict.point])
    words = {digest: word for one in judgements for digest, word in one.overall.items()}
    return Judgement(
        tuple(verdicts),
        {point.digest: words[point.digest] for point in sweep.points},
        {on(name, h): m for h, one in zip(hosts, judgements, strict=True) for name, m in one.drift.items()},
        tuple(f"{host}: {note}" for host, one in zip(hosts, judgements, strict=True) for note in one.notes),
    )
