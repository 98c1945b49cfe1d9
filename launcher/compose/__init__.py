"""Overrides in, `Deployment` out. The only package that imports Hydra and OmegaConf."""

from launcher.compose.composer import Composed, ComposedSweep, Composition, compose, compose_sweep
from launcher.compose.layers import Layers, find_layers

__all__ = ["Composed", "ComposedSweep", "Composition", "Layers", "compose", "compose_sweep", "find_layers"]
