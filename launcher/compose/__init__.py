"""Overrides in, `Deployment` out. The only package that imports Hydra and OmegaConf."""

from launcher.compose.composer import compose, compose_points

__all__ = ["compose", "compose_points"]
