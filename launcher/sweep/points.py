"""From composed points to those that are measured: refused ones are left out, equal ones are one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.catalogue import rules
from launcher.errors import ConfigError, RenderError
from launcher.render import Release, render
from launcher.sweep.record import LeftOut, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from launcher.compose import Composed, ComposedSweep
    from launcher.schema import Deployment

BASELINE = "baseline"


@dataclass(frozen=True)
class Candidate:
    """A point with what it is made of."""

    point: Point
    words: tuple[str, ...]
    deployment: Deployment
    release: Release


@dataclass(frozen=True)
class Points:
    """What a sweep is made of; the first candidate is the baseline."""

    axes: Mapping[str, tuple[str, ...]]
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]


def build(composed: ComposedSweep, allow: Sequence[str], identity: Callable[[Deployment, Release], str]) -> Points:
    """Judge, render and join the points of a sweep.

    Args:
        composed: of the overrides.
        allow: rules that may not refuse.
        identity: what tells two points apart, as far as their measurement goes.

    Raises:
        ConfigError: the baseline is refused, or every point is.
    """
    try:
        baseline = _candidate(composed.baseline, BASELINE, allow, identity, ())
    except ConfigError as error:
        if not composed.axes:
            raise
        raise ConfigError(
            *(f"the baseline, without the swept keys: {problem}" for problem in error.problems)
        ) from error
    usual = baseline.point.notes
    found = {baseline.point.digest: dataclasses.replace(baseline, point=dataclasses.replace(baseline.point, notes=()))}
    left_out: list[LeftOut] = []
    for item in composed.points:
        label = " ".join(f"{key}={value}" for key, value in item.choices.items()) or BASELINE
        try:
            candidate = _candidate(item, label, allow, identity, usual)
        except ConfigError as error:
            left_out.append(LeftOut(label, error.problems))
            continue
        digest = candidate.point.digest
        found[digest] = _joined(found[digest], candidate.point) if digest in found else candidate
    if composed.points and len(left_out) == len(composed.points):
        raise ConfigError(*(f"point '{out.label}': {reason}" for out in left_out for reason in out.reasons))
    return Points(composed.axes, tuple(found.values()), tuple(left_out))


def _joined(there: Candidate, same: Point) -> Candidate:
    """Return a candidate that also stands for an equal point; the baseline takes over what was chosen for it."""
    point = there.point
    if same.label in (point.label, *point.aliases):
        return there
    choices = point.choices or same.choices
    return dataclasses.replace(
        there, point=dataclasses.replace(point, aliases=(*point.aliases, same.label), choices=choices)
    )


def _candidate(
    item: Composed,
    label: str,
    allow: Sequence[str],
    identity: Callable[[Deployment, Release], str],
    usual: Sequence[str],
) -> Candidate:
    deployment = item.composition.deployment
    deployment = dataclasses.replace(deployment, allow=tuple(dict.fromkeys([*deployment.allow, *allow])))
    findings = rules.check(deployment)
    refused = rules.refusals(findings)
    if refused:
        raise ConfigError(*refused)
    try:
        release = render(deployment)
    except RenderError as error:
        raise ConfigError(*error.problems) from error
    notes = tuple(f"{f.text} [{f.rule}]" for f in findings if f.severity == "warn" or f.allowed)
    point = Point(
        identity(deployment, release), label, item.choices, notes=tuple(note for note in notes if note not in usual)
    )
    return Candidate(point, item.words, deployment, release)
