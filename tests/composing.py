"""Compose as the command line does, from the packaged configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launcher import compose as composing
from launcher.compose import Layers, find_layers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.schema import Deployment


def packaged() -> Layers:
    """Return the search path of somebody without configuration of their own."""
    return find_layers([], {}, Path("/nonexistent"))


def compose(texts: Sequence[str], environment: Mapping[str, str] | None = None) -> Deployment:
    """Return the deployment that the overrides compose."""
    return composing.compose(texts, packaged(), environment).deployment


def compose_points(texts: Sequence[str]) -> list[tuple[tuple[str, ...], Deployment]]:
    """Return the points of a sweep."""
    return [(p.words, p.composition.deployment) for p in composing.compose_sweep(texts, packaged()).points]
