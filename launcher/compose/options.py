"""What the options of a group say, each file by itself: for choosing among them, before one is composed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf._utils import get_yaml_loader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from launcher.layers import Layers


def read(layers: Layers, group: str) -> dict[str, Mapping[str, Any]]:
    """Return the content of the strongest file of each option; one that cannot be read is left out.

    Whoever chooses such a file is told by `compose`. Interpolations and defaults lists stand as they are written.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name in layers.options(group):
        hit = layers.find(f"{group}/{name}")
        try:
            data = _content(hit[1], hit[1].stat().st_mtime_ns) if hit else None
        except (OSError, ValueError, yaml.YAMLError):
            continue
        if data is None or isinstance(data, dict):
            found[name] = data or {}
    return found


@functools.lru_cache(maxsize=256)
def _content(path: Path, changed: int) -> object:
    """Return what a file says; ``changed`` is when it was written."""
    del changed
    return yaml.load(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())  # noqa: S506 - OmegaConf's own, a safe one
