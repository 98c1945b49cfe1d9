"""Overrides in, `Deployment` out. The only package that imports Hydra and OmegaConf."""

from launcher.compose.composer import Composition, compose, compose_points
from launcher.compose.layers import Layers, find_layers

__all__ = ["Composition", "Layers", "compose", "compose_points", "find_layers"]
