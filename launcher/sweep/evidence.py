"""Why a point may be taken: what was measured of it, and what speaks against it, in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launcher.errors import ConfigError

from . import current, shares, shelf, tables
from .figures import counted, figure, interval, level, relative

if TYPE_CHECKING:
    from .record import Judgement, Point, Sweep


def refuse(sweep: Sweep, judgement: Judgement, point: Point) -> None:
    """Refuse a point of which nothing valid is known.

    Raises:
        ConfigError: it failed, is invalid, or was not measured.
    """
    word = tables.overall(sweep, judgement, point)
    why = tables.failure(sweep, point) if word == "failed" else ""
    if word == "invalid" or not any(digest == point.digest for digest, _ in tables.valid(sweep)):
        why = why or ("its readings are invalid" if word == "invalid" else "no valid start of it counts")
    if why:
        raise ConfigError(f"point '{point.label}' of sweep {sweep.id} is not promoted: {why}")


def warnings(sweep: Sweep, judgement: Judgement, point: Point) -> list[str]:
    """Return what speaks against a point, one line each."""
    word = tables.overall(sweep, judgement, point)
    found = []
    if word == "baseline":
        found.append("this is the baseline: nothing is gained over it")
    elif word != "better":
        where = zip(("better", "worse", "undecided"), tables.standing(sweep, judgement, point), strict=True)
        parts = [f"{verdict} in {tables.listed(names)}" for verdict, names in where if names]
        found.append(f"{word}: {', '.join(parts)}" if parts else f"against the baseline: {word}")
    if shelf.kind(sweep.id) == "allreduce":
        found.append("measured by bench=allreduce alone: communication, not a server")
    return found


def lines(sweep: Sweep, judgement: Judgement, point: Point) -> list[str]:
    """Return what was measured of a point with at least one trial: where, when, with what, and every verdict."""
    trials = [trial for trial in sweep.trials if trial.point == point.digest]
    begin, end = _moment(trials[0].at), _moment(trials[-1].at + trials[-1].seconds)
    word = tables.overall(sweep, judgement, point)
    ran = next((ran for trial in reversed(trials) if (ran := current.versions(trial))), {})
    hosts = ", ".join(shares.where(sweep, point)) or sweep.target
    return [
        f"Promoted from sweep {sweep.id}: '{point.label}', release {point.env['LAUNCH_DIGEST']}.",
        f"Measured {begin} to {end} on {hosts}, {counted(len(trials), 'start')}; baseline {sweep.baseline.digest}.",
        f"Overall: {word}.",
        *_figures(sweep, judgement, point),
        *([f"Versions: {', '.join(f'{key} {value}' for key, value in ran.items())}."] if ran else []),
    ]


def _figures(sweep: Sweep, judgement: Judgement, point: Point) -> list[str]:
    values, verdicts = tables.valid(sweep), tables.judged(judgement)
    found = []
    for workload in sweep.workloads:
        host = sweep.homes.get(point.digest, "")
        levels = [
            level([reading.value for _, reading in shares.on_host(values.get((digest, workload.name), ()), host)])
            for digest in (point.digest, sweep.baseline.digest)
        ]
        value, base = (f"{figure(one)} {workload.unit}" for one in levels)
        verdict = verdicts.get((point.digest, workload.name))
        if verdict is None:
            found.append(f"  {workload.name}: {value}")
            continue
        why = f" ({verdict.reason})" if verdict.reason else ""
        difference = f"{relative(verdict.difference)} {interval(verdict)}".strip()
        starts = counted(verdict.trials, "start")
        found.append(f"  {workload.name}: {verdict.word}{why}, {difference}, {value} against {base}, {starts}")
    return found


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
