"""From composed points to those that are measured: refused ones are left out, equal ones are one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.catalogue import inert, rules
from launcher.compose.experiment import bare
from launcher.errors import ConfigError
from launcher.render import Release, render
from launcher.sweep.record import LeftOut, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    #: Rule by key of what does nothing in it.
    inert: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Points:
    """What a sweep is made of; the first candidate is the baseline.

    Attributes:
        axes: swept keys with their values.
        candidates: what is measured, in the order of the first round.
        left_out: what is not, with the reasons.
        client_axes: those that became further loads of every point.
    """

    axes: Mapping[str, tuple[str, ...]]
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    client_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def build(
    composed: ComposedSweep,
    allow: Sequence[str],
    identity: Callable[[Deployment, Release], str],
    environment: Mapping[str, str] | None = None,
) -> Points:
    """Judge, render and join the points of a sweep.

    Args:
        composed: of the overrides.
        allow: rules that may not refuse, nor keep out what does nothing.
        identity: what tells two points apart, as far as their measurement goes.
        environment: of the command line (``-e``), which the points were composed with.

    Raises:
        ConfigError: the baseline is refused, or every point is.
    """
    builder = _Builder(allow, identity, environment or {})
    try:
        baseline = builder.candidate(composed.baseline, BASELINE)
    except ConfigError as error:
        if not composed.axes:
            raise
        raise ConfigError(
            *(f"the baseline, without the swept keys: {problem}" for problem in error.problems)
        ) from error
    builder.begin(baseline)
    for item in composed.points:
        builder.add(item)
    left_out = (*builder.left_out, *(LeftOut(label, (reason,)) for label, reason in composed.filtered))
    if left_out and len(builder.left_out) == len(composed.points):
        raise ConfigError(*(f"point '{out.label}': {reason}" for out in left_out for reason in out.reasons))
    return Points(composed.axes, tuple(builder.found.values()), left_out, composed.client_axes)


class _Builder:
    """Collects the candidates of a sweep, by digest, and what is left out."""

    def __init__(
        self, allow: Sequence[str], identity: Callable[[Deployment, Release], str], environment: Mapping[str, str]
    ) -> None:
        self._allow = allow
        flags = [("-e", f"{name}={value}") for name, value in environment.items()]
        self._typed = tuple(word for pair in (*flags, *(("--allow", rule) for rule in allow)) for word in pair)
        self._identity = identity
        self._usual: tuple[str, ...] = ()
        self._does: dict[str, Candidate] = {}
        self.found: dict[str, Candidate] = {}
        self.left_out: list[LeftOut] = []

    def begin(self, baseline: Candidate) -> None:
        """Take the baseline; what it is warned of already is no news of a point."""
        self._usual = baseline.point.notes
        bare = dataclasses.replace(baseline, point=dataclasses.replace(baseline.point, notes=()))
        self.found[bare.point.digest] = bare

    def add(self, item: Composed) -> None:
        """Take a point, join it with an equal one, or leave it out."""
        label = item.label or BASELINE
        try:
            candidate = self.candidate(item, label)
        except ConfigError as error:
            self.left_out.append(LeftOut(label, error.problems))
            return
        digest = candidate.point.digest
        if digest in self.found:
            self.found[digest] = _joined(self.found[digest], candidate.point)
            return
        same = self._same(candidate)
        if same is candidate:
            self.found[digest] = candidate
        else:
            self.left_out.append(LeftOut(label, (_inert_reason(same, candidate),)))

    def _same(self, candidate: Candidate) -> Candidate:
        """Return the first candidate that differs from this one only in what does nothing, or this one."""
        if not self._does:
            if _void(candidate) == _void(next(iter(self.found.values()))):
                return candidate  # it differs in something else, so that nothing needs to be rendered once more
            self._does = {self._effective(known): known for known in self.found.values()}
        return self._does.setdefault(self._effective(candidate), candidate)

    def _effective(self, candidate: Candidate) -> str:
        """Return what tells a point apart once everything that does nothing is taken out of it."""
        if not candidate.inert:
            return candidate.point.digest
        deployment = inert.without(candidate.deployment, candidate.inert)
        return self._identity(deployment, render(deployment))

    def candidate(self, item: Composed, label: str) -> Candidate:
        """Judge and render a point.

        Raises:
            ConfigError: a rule refuses it, or it cannot be rendered.
        """
        deployment = item.composition.deployment
        deployment = dataclasses.replace(deployment, allow=tuple(dict.fromkeys([*deployment.allow, *self._allow])))
        findings = rules.check(deployment)
        refused = rules.refusals(findings)
        if refused:
            raise ConfigError(*refused)
        release = render(deployment)
        notes = tuple(f"{f.text} [{f.rule}]" for f in findings if f.severity == "warn" or f.allowed)
        point = Point(
            self._identity(deployment, release),
            label,
            item.choices,
            notes=tuple(note for note in notes if note not in self._usual),
            words=(*item.words, *self._typed),
            env=dict(release.env),
            argv=release.argv,
            values=_in_force(deployment, item.choices),
        )
        return Candidate(point, item.words, deployment, release, inert.settings(deployment, findings))


def _in_force(deployment: Deployment, choices: Mapping[str, str]) -> dict[str, str]:
    """Return what choices came to, where that is spelled otherwise than they are."""
    found = {}
    for key, typed in choices.items():
        value: object = deployment
        for name in key.split(".") if "." in key else ():
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        known = isinstance(value, (str, int, float))
        text = str(value).lower() if isinstance(value, bool) else str(value) if known else bare(typed)
        if text != typed:
            found[key] = text
    return found


def _void(candidate: Candidate) -> dict[str, object]:
    return {key: inert.value(candidate.deployment, key) for key in candidate.inert}


def _inert_reason(same: Candidate, other: Candidate) -> str:
    settings = {**same.inert, **other.inert}
    keys = [key for key in settings if inert.value(same.deployment, key) != inert.value(other.deployment, key)]
    names = dict.fromkeys(settings[key] for key in keys)
    does = "which does nothing" if len(keys) == 1 else "which do nothing"
    forced = " ".join(f"--allow {name}" for name in names)
    return (
        f"differs from '{same.point.label}' only in {', '.join(keys)}, {does} here [{', '.join(names)}]."
        f" To measure it: {forced}"
    )


def _joined(there: Candidate, same: Point) -> Candidate:
    """Return a candidate that also stands for an equal point; the baseline takes over what was chosen for it."""
    point = there.point
    if same.label in (point.label, *point.aliases):
        return there
    choices = point.choices or same.choices
    return dataclasses.replace(
        there, point=dataclasses.replace(point, aliases=(*point.aliases, same.label), choices=choices)
    )
