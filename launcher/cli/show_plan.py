"""The plan of a sweep, before anything is touched: its points, what is left out, what it will take."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli.tell import paint
from launcher.sweep.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.sweep.points import Points
    from launcher.sweep.record import LeftOut, Point, Sweep

#: Points that are listed one by one; of more only the first ones.
_MOST, _FIRST = 60, 12
#: Points that are left out by one rule, listed one by one; of more only the first one.
_ALIKE = 3


def record(points: Points, missing: str, sweep: Sweep | None) -> dict[str, Any]:
    """Return a plan for machines."""
    cost = _cost(points, sweep) if sweep else {}
    return {
        "axes": {key: list(values) for key, values in points.axes.items()},
        "client_axes": {key: list(values) for key, values in points.client_axes.items()},
        "points": [
            {
                "digest": c.point.digest,
                "label": c.point.label,
                "aliases": list(c.point.aliases),
                "notes": list(c.point.notes),
                "env": dict(c.release.env),
                "argv": list(c.release.argv),
            }
            for c in points.candidates
        ],
        "left_out": [dataclasses.asdict(item) for item in points.left_out],
        "workloads": [dataclasses.asdict(w) for w in sweep.workloads] if sweep else [],
        **cost,
        **({"hosts": _hosts(sweep)} if sweep and sweep.homes else {}),
        **_asks(points, sweep),
        **({"search": {"most": sweep.search, "late": dict(sweep.late)}} if sweep and sweep.search else {}),
        "missing": missing,
        "exit_code": 0,
    }


def lines(points: Points, sweep: Sweep | None) -> list[str]:
    """Return the text of a plan."""
    if sweep and not points.axes and not points.client_axes:
        return _work(sweep)
    told = [
        paint(f"sweep of {counted(len(points.candidates), 'point')}", "bold"),
        *_points([c.point for c in points.candidates]),
    ]
    if len(points.candidates) > _MOST:
        told += _axes("axes", points.axes)
    told += [*_axes("loads", points.client_axes), *_notes([c.point for c in points.candidates])]
    told += _left_out(points.left_out)
    return told + ([*_work(sweep), *_order(points, sweep)] if sweep else [])


def _points(points: Sequence[Point]) -> list[str]:
    shown = points if len(points) <= _MOST else points[:_FIRST]
    told = [f"  {point.digest}  {point.label}{_also(point.aliases)}" for point in shown]
    rest = len(points) - len(shown)
    return told + ([f"  … and {rest:,} more, the last axis fastest; --json lists all"] if rest else [])


def _also(aliases: Sequence[str]) -> str:
    more = f"; {len(aliases) - _ALIKE} more" if len(aliases) > _ALIKE else ""
    return f"  (also: {'; '.join(aliases[:_ALIKE])}{more})" if aliases else ""


def _axes(title: str, axes: Mapping[str, Sequence[str]]) -> list[str]:
    told: list[str] = []
    for key, tried in axes.items():
        values = list(dict.fromkeys(tried))
        text = (
            ", ".join(values) if len(values) <= _FIRST else f"{', '.join(values[:3])}, … {values[-1]} ({len(values)})"
        )
        told.append(f"  {title}: {key} = {text}")
    return told


def _notes(points: Sequence[Point]) -> list[str]:
    """Return every note once; of those that differ only in values the first one, with the number of points."""
    alike: dict[str, dict[str, list[str]]] = {}
    for point in points:
        for note in point.notes:
            alike.setdefault(_rule(note), {}).setdefault(note, []).append(point.label)
    told: list[str] = []
    for texts in alike.values():
        shown = list(texts.items()) if len(texts) <= _ALIKE else list(texts.items())[:1]
        for note, labels in shown:
            where = labels[0] if len(labels) == 1 else counted(len(labels), "point")
            told.append(f"  {paint('!', '!')} {where}: {note}")
        if len(texts) > len(shown):
            others = len({label for labels in texts.values() for label in labels} - set(shown[0][1]))
            told.append(f"    and alike of {others} more point{'s'[: others != 1]}")
    return told


def _left_out(items: Sequence[LeftOut]) -> list[str]:
    """Return what is left out; of many for the same rule the first one, with their number."""
    alike: dict[tuple[str, ...], list[LeftOut]] = {}
    for item in items:
        alike.setdefault(tuple(_rule(reason) for reason in item.reasons), []).append(item)
    told: list[str] = []
    for same in alike.values():
        shown = same if len(same) <= _ALIKE else same[:1]
        for item in shown:
            rest = len(same) - len(shown)
            told.append(f"  {paint('left out', '!')}  {item.label}{f'  and {rest} more for the same' if rest else ''}")
            told += [f"      {reason}" for reason in item.reasons]
    return told


def _rule(text: str) -> str:
    """Return the rule that a text names, else the text."""
    found = re.search(r"\[([a-z0-9-]+)\]", text)
    return found[1] if found else text


def _work(sweep: Sweep) -> list[str]:
    told = [f"  measured: {', '.join(workload.name for workload in sweep.workloads)}"]
    for workload in sweep.workloads:
        details = workload.details
        messages = ""
        if "allreduces" in details:
            messages = f": {details['allreduces']} all-reduces of {_bytes(details['bytes'])}"
        told.append(f"    {workload.name:<14} {workload.text}{messages}")
    return told


def _order(points: Points, sweep: Sweep) -> list[str]:
    """Return in which order is measured, and what that takes."""
    from launcher.sweep import shares

    cost = _cost(points, sweep)
    settings = sweep.settings
    again = f", the baseline again after every {settings.baseline_every}" if settings.baseline_every else ""
    told = [f"  order: the baseline, the points as listed{again}; the next round backwards"]
    told = _search(points, sweep, again) if sweep.search else told
    if sweep.target == shares.SLURM:
        told += _jobs(points, sweep)
    elif sweep.homes:
        told += _shared(sweep)
    time = f"about {_duration(cost['seconds'])} ({cost['seconds_each']:.3g} s each, {cost['origin']})"
    least = "at most where nothing is undecided" if sweep.search else "at least"
    limit = f"; ended after {settings.minutes:g} min" if settings.minutes else ""
    if points.candidates[0].deployment.bench.kind != "serve":
        return [*told, f"  {counted(cost['starts'], 'fresh start')} {least}: {time}{limit}; no server is touched"]
    told.append(f"  {counted(cost['starts'], 'start')} of the server {least}, each with all loads: {time}{limit}")
    if points.candidates[0].deployment.target.kind in ("local", "ssh"):
        serve = "serve" if "," in sweep.target else "serves"
        told.append(f"  {sweep.target} {serve} nobody else for that time; afterwards what is there now is put back")
        told += ["  closing: what is put back is measured once more, if it is served now"] if settings.closing else []
    return told


def _search(points: Points, sweep: Sweep, again: str) -> list[str]:
    """Return how many points a search starts, and which ones it leaves to the last."""
    told = [
        f"  search: Optuna chooses at most {sweep.search} of the {len(sweep.points) - 1} points, each started once",
        f"  order: the baseline, the point that is chosen{again}; then again those that may be best",
    ]
    labels = {candidate.point.digest: candidate.point.label for candidate in points.candidates}
    for digest, why in list(sweep.late.items())[:_ALIKE]:
        told.append(f"  left to the last: {labels[digest]}: {why}")
    rest = len(sweep.late) - _ALIKE
    return told + ([f"  left to the last: {rest} more, measured slower likewise"] if rest > 0 else [])


def _shared(sweep: Sweep) -> list[str]:
    """Return which hosts share the points."""
    starts = {host: one["starts"] for host, one in _hosts(sweep).items()}
    named = ", ".join(f"{host} {count}" for host, count in starts.items())
    told = [
        f"  {len(starts)} hosts share the points, at the same time, each beside a baseline of its own: {named} starts"
    ]
    idle = [host for host in sweep.hosts if host not in starts]
    told = told if len(starts) > 1 else [f"  all on {sweep.target}"]
    return [*told, *([f"  left alone, for there are fewer points than hosts: {', '.join(idle)}"] if idle else [])]


def _jobs(points: Points, sweep: Sweep) -> list[str]:
    """Return how many jobs share the points, and what each of them asks for."""
    from launcher.cli import jobs

    starts = [one["starts"] for one in _hosts(sweep).values()]
    each = f"{min(starts)}" if min(starts) == max(starts) else f"{min(starts)} to {max(starts)}"
    return [
        f"  {len(starts)} jobs of Slurm, each on one node with a baseline of its own: {each} starts in a job",
        f"  each asks for: {jobs.asked(points.candidates[0].deployment)}; waiting in the queue is not counted below",
    ]


def _asks(points: Points, sweep: Sweep | None) -> dict[str, str]:
    from launcher.cli import jobs
    from launcher.sweep import shares

    slurm = sweep is not None and sweep.target == shares.SLURM
    return {"each_job": jobs.asked(points.candidates[0].deployment)} if slurm else {}


def _hosts(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Return the points of each host that shares a sweep, and how often it starts one at least."""
    from launcher.sweep import shares

    return {
        part.target: {"points": [point.digest for point in part.points[1:]], "starts": shares.expected(part)}
        for part in shares.parts(sweep)
    }


def _cost(points: Points, sweep: Sweep) -> dict[str, Any]:
    from launcher.sweep import expect, shares

    deployment = points.candidates[0].deployment
    each = expect.trials(Path(deployment.sweep.out).expanduser(), sweep)
    starts = shares.expected(sweep)
    seconds = shares.left(sweep) * each.seconds
    if sweep.settings.minutes:
        seconds = min(seconds, sweep.settings.minutes * 60)
    return {
        "starts": starts,
        "seconds": round(seconds, 1),
        "seconds_each": round(each.seconds, 1),
        "origin": each.origin,
    }


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _bytes(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
