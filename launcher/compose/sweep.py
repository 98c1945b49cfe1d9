"""Compose the baseline and every point of a sweep."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.compose import client
from launcher.compose.composer import TOP_LEVEL, Composer, Composition
from launcher.compose.expand import expand, named
from launcher.compose.search_path import hydra
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.compose.expand import Axis, Expansion
    from launcher.layers import Layers
    from launcher.schema import Load


@dataclass(frozen=True)
class Composed:
    """One point of a sweep: its override texts, its value by axis, and what they compose to."""

    words: tuple[str, ...]
    choices: Mapping[str, str]
    composition: Composition

    @property
    def label(self) -> str:
        """The choices as overrides."""
        return " ".join(f"{key}={value}" for key, value in self.choices.items())


@dataclass(frozen=True)
class ComposedSweep:
    """A sweep: ``baseline`` is what is composed without the swept keys.

    Attributes:
        axes: swept keys with their values.
        client_axes: those of the measuring client alone: they are further loads of every point, and no points.
        filtered: label and reason of every point that an experiment leaves out.
    """

    axes: Mapping[str, tuple[str, ...]]
    baseline: Composed
    points: tuple[Composed, ...]
    client_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filtered: tuple[tuple[str, str], ...] = ()


def compose_sweep(texts: Sequence[str], layers: Layers, environment: Mapping[str, str] | None = None) -> ComposedSweep:
    """Compose the baseline and every point of a sweep, in the order of the comma lists.

    Raises:
        ConfigError: as `compose`; names the point.
    """
    expansion = expand(texts, layers, TOP_LEVEL, environment)
    with hydra(layers):
        composer = Composer(layers, environment or {}, expansion.labels)
        baseline = _named("the baseline, without the swept keys", composer, expansion.baseline)
        axes, loads = client.split(expansion, baseline.deployment.bench.kind)
        served = _Served(composer, expansion, loads)
        points: list[Composed] = []
        filtered: list[tuple[str, str]] = []
        for chosen in expansion.product(axes) if axes or not loads else ():
            if chosen.reason:
                filtered.append((chosen.label, chosen.reason))
                continue
            words = (*expansion.fixed, *chosen.words)
            composition = _named(f"point '{chosen.label}'", composer, words)
            points.append(Composed(words, chosen.choices, served(words, composition)))
        first = Composed(expansion.baseline, {}, served(expansion.baseline, baseline))
    return ComposedSweep(named(axes), first, tuple(points), named(loads), tuple(filtered))


def _named(name: str, composer: Composer, words: Sequence[str]) -> Composition:
    try:
        return composer.compose(words)
    except ConfigError as error:
        raise ConfigError(*(f"{name}: {problem}" for problem in error.problems)) from error


class _Served:
    """Gives a point the loads that the axes of the client make of its own."""

    def __init__(self, composer: Composer, expansion: Expansion, axes: Sequence[Axis]) -> None:
        self._composer = composer
        self._expansion = expansion
        self._axes = axes
        self._known: dict[tuple[tuple[str, Load], ...], dict[str, Load]] = {}

    def __call__(self, words: tuple[str, ...], composition: Composition) -> Composition:
        if not self._axes:
            return composition
        deployment = composition.deployment
        own = tuple(deployment.bench.loads.items())
        if own not in self._known:
            self._known[own] = self._combined(words, dict(own))
        bench = dataclasses.replace(deployment.bench, loads=self._known[own])
        return dataclasses.replace(composition, deployment=dataclasses.replace(deployment, bench=bench))

    def _combined(self, words: tuple[str, ...], own: Mapping[str, Load]) -> dict[str, Load]:
        variants: list[tuple[str, str, Load]] = []
        for name in client.loads_of(self._axes):
            for choices, more in client.variants(self._expansion, self._axes, name):
                found = _named(f"load '{' '.join(more)}'", self._composer, (*words, *more))
                variants.append((name, client.title(name, choices), found.deployment.bench.loads[name]))
        return client.combined(own, variants)
