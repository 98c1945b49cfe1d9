"""Take the overrides of a sweep apart: what every point has, the axes, and the product of these."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.compose import experiment as ex
from launcher.compose import overrides as ov
from launcher.compose.sources import called
from launcher.compose.values import MOST, values_of
from launcher.errors import ConfigError
from launcher.paths import EXPERIMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hydra.core.override_parser.types import Override

    from launcher.layers import Layers


@dataclass(frozen=True)
class Axis:
    """What is tried: one key with its values, or sets of keys that belong together; each by key, as typed."""

    settings: tuple[Mapping[str, str], ...]
    #: Signs that were typed before the key: ``+`` or ``++``.
    prefix: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the axis."""
        return tuple(dict.fromkeys(key for setting in self.settings for key in setting))

    def values(self, key: str) -> tuple[str, ...]:
        """Return what is tried of a key; the same one twice in a list stays twice."""
        found = [setting[key] for setting in self.settings if key in setting]
        return tuple(found) if len(self.keys) == 1 else tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Filter:
    """Points with one of the values of every key are left out."""

    values: Mapping[str, Sequence[str]]
    reason: str

    def hits(self, choices: Mapping[str, str]) -> bool:
        """Return whether a point is left out."""
        return all(key in choices and ex.bare(choices[key]) in values for key, values in self.values.items())


@dataclass(frozen=True)
class Chosen:
    """One combination: the overrides of its axes, its value by key, and why it is left out, if it is."""

    words: tuple[str, ...]
    choices: Mapping[str, str]
    reason: str = ""

    @property
    def label(self) -> str:
        """The choices as overrides."""
        return " ".join(f"{key}={value}" for key, value in self.choices.items())


@dataclass(frozen=True)
class Expansion:
    """A sweep, taken apart.

    Attributes:
        fixed: override texts that every point has.
        baseline: override texts of the baseline.
        axes: in the order in which they were given; the last one varies fastest.
        filters: of the experiment.
        values: value by key of `fixed`, for the filters.
        labels: by override text, the file that it comes from; all others were typed.
    """

    fixed: tuple[str, ...]
    baseline: tuple[str, ...]
    axes: tuple[Axis, ...]
    filters: tuple[Filter, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def product(self, axes: Sequence[Axis]) -> Iterator[Chosen]:
        """Yield every combination of some axes, those that a filter leaves out with the reason."""
        for settings in itertools.product(*(axis.settings for axis in axes)):
            choices = {key: value for setting in settings for key, value in setting.items()}
            words = tuple(
                f"{axis.prefix}{key}={value}"
                for axis, setting in zip(axes, settings, strict=True)
                for key, value in setting.items()
            )
            known = {**self.values, **choices}
            yield Chosen(words, choices, next((f.reason for f in self.filters if f.hits(known)), ""))


def named(axes: Iterable[Axis]) -> dict[str, tuple[str, ...]]:
    """Return the values of every swept key."""
    return {key: axis.values(key) for axis in axes for key in axis.keys}


def expand(
    texts: Sequence[str], layers: Layers, top_level: Sequence[str], environment: Mapping[str, str] | None = None
) -> Expansion:
    """Take the overrides of a sweep apart, with the experiment that they name.

    Args:
        texts: overrides, as typed; they win over the experiment.
        layers: search path.
        top_level: keys of a configuration.
        environment: variables of the command line; they win as well.

    Raises:
        ConfigError: bad grammar, a key that is swept twice, no values, too many points, a broken experiment.
    """
    fixed: dict[str, str] = {}
    axes: dict[str, Axis] = {}
    experiment = ex.Experiment()
    for override in ov.parse(texts):
        key, line = override.key_or_group, override.input_line or ""
        if key == EXPERIMENT:
            if experiment.label or override.is_sweep_override() or not isinstance(override.value(), str):
                raise ConfigError(f"{called(line)}: choose one experiment by name, as {EXPERIMENT}=NAME")
            experiment = ex.load(str(override.value()), layers, top_level)
        elif not override.is_sweep_override():
            fixed[f"{key} {line}" if key in fixed else key] = line
        else:
            axes[key] = _axis(override, axes, layers)
    variables = {f"env.{name}": "" for name in environment or {}}
    expansion = _merged(fixed, axes, experiment, variables)
    _check(expansion)
    return expansion


def _axis(override: Override, axes: Mapping[str, Axis], layers: Layers) -> Axis:
    key, prefix = override.key_or_group, override.get_key_element().removesuffix(override.key_or_group)
    if key in axes:
        raise ConfigError(f"{key} is swept twice: give one list")
    _check_axis(key)
    if override.package is not None:
        raise ConfigError(f"{called(override.input_line or '')}: '@' is not used here; every group has its own place")
    return Axis(tuple({key: value} for value in values_of(override, layers, {})), prefix)


def _check_axis(key: str, label: str = "") -> None:
    where = f"{label}: " if label else ""
    if key.startswith("secrets"):
        raise ConfigError(f"{where}{key}: a secret is no axis of a sweep: it changes no measurement")
    if key == "sweep" or key.startswith("sweep."):
        raise ConfigError(f"{where}{key} says how a sweep is run, so it has one value, and no list")
    if key in ("target", "name") or key.startswith("target."):
        several = "; several equal hosts share the points: 'target.hosts=[a,b]'" if key == "target.hosts" else ""
        raise ConfigError(f"{where}{key} says where is measured, so it has one value, and no list{several}")


def _merged(
    fixed: dict[str, str], axes: dict[str, Axis], experiment: ex.Experiment, variables: Mapping[str, str]
) -> Expansion:
    """Put an experiment below what was typed."""
    taken = {*fixed, *axes, *variables}
    values = {key: value for key, value in experiment.values.items() if key not in taken}
    own = [Axis(tuple({key: v} for v in tried)) for key, tried in experiment.axes.items() if key not in taken]
    for sets in experiment.pairs:
        rest = [{key: value for key, value in one.items() if key not in taken} for one in sets]
        own += [Axis(tuple(one for one in rest if one))] if any(rest) else []
    for axis in own:
        for key in axis.keys:
            _check_axis(key, experiment.label)
    baseline = {key: value for key, value in experiment.baseline.items() if key not in {*fixed, *variables}}
    lines = [f"{key}={value}" for key, value in values.items()]
    kept = [f"{key}={value}" for key, value in {**values, **baseline}.items()]
    swept = [f"{key}={value}" for axis in own for setting in axis.settings for key, value in setting.items()]
    return Expansion(
        fixed=(*lines, *fixed.values()),
        baseline=(*kept, *fixed.values()),
        axes=(*own, *axes.values()),
        filters=tuple(
            Filter(one, f"{experiment.label}: filter {number} leaves out {_said(one)}")
            for number, one in enumerate(({k: [ex.bare(v) for v in f[k]] for k in f} for f in experiment.filters), 1)
        ),
        values={**values, **{key: line.partition("=")[2] for key, line in fixed.items()}},
        labels=dict.fromkeys([*lines, *kept, *swept], experiment.label),
    )


def _said(values: Mapping[str, Sequence[str]]) -> str:
    return " with ".join(f"{key}={' or '.join(tried)}" for key, tried in values.items())


def _check(expansion: Expansion) -> None:
    count = math.prod(len(axis.settings) for axis in expansion.axes)
    if count > MOST:
        sizes = " x ".join(str(len(axis.settings)) for axis in expansion.axes)
        raise ConfigError(f"a sweep of {count:,} points ({sizes}): {MOST:,} at most; shorten the lists")
