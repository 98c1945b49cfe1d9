"""Two points, or two sweeps, side by side: what they are made of, what they ran with, and their figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from . import current, shares
from .figures import level
from .statistics import judge
from .tables import valid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .record import Point, Sweep, Trial, Verdict, Workload

#: Of a workload, what is told to be known and not measured.
_TOLD = ("step_ms", "yields")
#: Of a sweep: what its figures hang on, beside what every trial knows itself.
MATTERS = ("model", "hardware", "engine", "ranks", "backend", "program", "client")
_NAMES = ("LAUNCH_DIGEST",)

Kind = Literal["override", "variable", "argument", "version"]


@dataclass(frozen=True)
class Change:
    """One thing that differs; None: it is not there."""

    kind: Kind
    name: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class Side:
    """A point of a sweep."""

    sweep: Sweep
    point: Point

    @property
    def trials(self) -> list[Trial]:
        """Those of the point that count."""
        return [trial for trial in self.sweep.trials if trial.point == self.point.digest]


@dataclass(frozen=True)
class Figure:
    """One workload of two points.

    Attributes:
        workload: both have it.
        left: geometric mean of the valid starts; NaN without any.
        right: likewise.
        verdict: of the right one against the left one; None where one of them never gave a valid start, or two hosts
            measured them.
    """

    workload: Workload
    left: float
    right: float
    verdict: Verdict | None


def definition(workload: Workload) -> dict[str, Any]:
    """Return what makes a workload the same one as another."""
    details = {f"details.{key}": value for key, value in workload.details.items() if key not in _TOLD}
    return {"kind": workload.kind, "unit": workload.unit, "lower_is_better": workload.lower_is_better, **details}


def makes(a: Point, b: Point) -> list[Change]:
    """Return how two points differ: in what was typed, in their environment, in their arguments."""
    kinds: tuple[tuple[Kind, Mapping[str, str], Mapping[str, str]], ...] = (
        ("override", _overrides(a), _overrides(b)),
        ("variable", _variables(a), _variables(b)),
        ("argument", _arguments(a.argv), _arguments(b.argv)),
    )
    return [change for kind, left, right in kinds for change in _changes(kind, left, right)]


def ran(a: Sequence[Trial], b: Sequence[Trial]) -> list[Change]:
    """Return the versions that differ, as the last trial of each shows them."""
    return _changes("version", _versions(a), _versions(b), only_common=True)


def surroundings(a: Sweep, b: Sweep) -> list[Change]:
    """Return how two sweeps differ in what their figures hang on: target, hardware, model, engine, client."""
    sides = [
        {"target": one.target, **{key: str(one.facts[key]) for key in MATTERS if key in one.facts}} for one in (a, b)
    ]
    return _changes("version", *sides)


def figures(a: Side, b: Side) -> list[Figure]:
    """Return both values of every workload that both have, with the interval of their difference.

    Points of one sweep that two hosts measured have none: each has its own baseline.
    """
    ours = {workload.name: workload for workload in b.sweep.workloads}
    common = [w for w in a.sweep.workloads if w.name in ours and definition(w) == definition(ours[w.name])]
    together, left, right = _together(a, b)
    judgement = judge(replace(together, workloads=tuple(common)), a.sweep if a.sweep.id == b.sweep.id else None)
    verdicts = {v.workload: v for v in judgement.verdicts if v.point == right}
    values, is_apart = valid(together), apart(a, b)
    found = []
    for workload in common:
        levels = [level([r.value for _, r in values.get((digest, workload.name), ())]) for digest in (left, right)]
        known = not is_apart and not any(map(math.isnan, levels))
        found.append(Figure(workload, levels[0], levels[1], verdicts.get(workload.name) if known else None))
    return found


def apart(a: Side, b: Side) -> bool:
    """Return whether two hosts that share a sweep measured the points, each beside a baseline of its own."""
    return a.sweep.id == b.sweep.id and not {*shares.where(a.sweep, a.point)} & {*shares.where(a.sweep, b.point)}


def _together(a: Side, b: Side) -> tuple[Sweep, str, str]:
    """Return one sweep in which the left point is the baseline, and the digests of both."""
    if a.sweep.id == b.sweep.id:
        sweep = a.sweep if apart(a, b) else _part(a.sweep, a.point, b.point)
        others = [point for point in sweep.points if point.digest not in (a.point.digest, b.point.digest)]
        together = replace(sweep, points=(a.point, b.point, *others), hosts=(), homes={})
        return together, a.point.digest, b.point.digest
    names = (f"1 {a.point.digest}", f"2 {b.point.digest}")
    points = tuple(replace(side.point, digest=name) for side, name in zip((a, b), names, strict=True))
    trials = [replace(t, point=name) for side, name in zip((a, b), names, strict=True) for t in side.trials]
    return replace(a.sweep, points=points, trials=tuple(trials), past=(), hosts=(), homes={}), *names


def _part(sweep: Sweep, a: Point, b: Point) -> Sweep:
    """Return what the one host has that measured both; the whole sweep where it is not shared."""
    homes = [sweep.homes[point.digest] for point in (a, b) if point.digest in sweep.homes]
    return shares.part(sweep, homes[0]) if homes else sweep


def _overrides(point: Point) -> dict[str, str]:
    if not point.words:  # an older launch kept no more
        return dict(point.choices)
    found: dict[str, str] = {}
    words = iter(point.words)
    for word in words:
        flag = f"{word} " if word in ("-e", "--allow") else ""
        key, _, value = (next(words, "") if flag else word).lstrip("+").partition("=")
        told = "…" if key.lstrip("~").startswith("secrets.") else value
        found[f"{flag}{key}"] = told or ("removed" if key.startswith("~") else "")
    return found


def _variables(point: Point) -> dict[str, str]:
    return {name: value for name, value in point.env.items() if name not in _NAMES}


def _arguments(argv: Sequence[str]) -> dict[str, str]:
    """Return the values of flags by name; what stands before the first flag is the command."""
    found: dict[str, list[str]] = {}
    name = "command"
    for word in argv:
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            found.setdefault(name, []).extend([value] if sign else [])
        else:
            found.setdefault(name, []).append(word)
    return {key: " ".join(values) for key, values in found.items()}


def _versions(trials: Sequence[Trial]) -> dict[str, str]:
    return next((ran for trial in reversed(trials) if (ran := current.versions(trial))), {})


def _changes(
    kind: Kind, left: Mapping[str, str], right: Mapping[str, str], *, only_common: bool = False
) -> list[Change]:
    names = [name for name in dict.fromkeys((*left, *right)) if left.get(name) != right.get(name)]
    return [
        Change(kind, name, left.get(name), right.get(name))
        for name in names
        if not only_common or (name in left and name in right)
    ]
