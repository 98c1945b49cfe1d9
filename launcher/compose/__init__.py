"""Overrides in, `Deployment` out. The only package that imports Hydra and OmegaConf."""

from launcher.compose.composer import Composition, compose
from launcher.compose.sweep import Composed, ComposedSweep, compose_sweep
from launcher.layers import Layers, find_layers

__all__ = ["Composed", "ComposedSweep", "Composition", "Layers", "compose", "compose_sweep", "find_layers"]
