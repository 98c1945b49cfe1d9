"""The search path of configuration: folders of one's own before the packaged one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ConfigError
from launcher.paths import EXPERIMENT, GROUPS, data_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Folders of one's own, separated by ``:``.
VARIABLE = "LAUNCH_CONF"


@dataclass(frozen=True)
class Layer:
    """One folder of configuration; ``label`` is how messages call it."""

    path: Path
    label: str
    own: bool


@dataclass(frozen=True)
class Layers:
    """All folders, strongest first; the packaged one is the last."""

    folders: tuple[Layer, ...]

    def find(self, name: str) -> tuple[Layer, Path] | None:
        """Return the strongest layer that holds ``GROUP/OPTION`` (or ``config``), and the file."""
        for layer in self.folders:
            for path in (layer.path / f"{name}.yaml", layer.path / f"{name}.yml"):
                if path.is_file():
                    return layer, path
        return None

    def options(self, group: str, *, own: bool = False) -> list[str]:
        """Return the options of a group, in all layers or in one's own only."""
        return sorted(
            {p.stem for layer in self.folders if layer.own or not own for p in (layer.path / group).glob("*.y*ml")}
        )

    def shadowed(self, name: str) -> list[str]:
        """Return the weaker layers that hold the same file."""
        holders = [layer for layer in self.folders if Layers((layer,)).find(name)]
        return [layer.label for layer in holders[1:]]


def find_layers(config_dirs: Sequence[str], environ: Mapping[str, str], folder: Path) -> Layers:
    """Return the search path: ``--config-dir``, then ``LAUNCH_CONF``, then ``./conf``, then what is packaged.

    Raises:
        ConfigError: a folder that was named is not there, or holds nothing of ours.
    """
    packaged = data_dir("conf")
    own: list[Layer] = []
    named = [("--config-dir", text) for text in config_dirs]
    named += [(VARIABLE, text) for text in environ.get(VARIABLE, "").split(os.pathsep) if text]
    for origin, text in named:
        try:
            path = (folder / Path(text).expanduser()).resolve()
        except RuntimeError as error:
            raise ConfigError(f"{origin}={text}: {error}") from error
        if not path.is_dir():
            raise ConfigError(f"{origin}={text}: there is no such folder")
        if not _is_ours(path):
            raise ConfigError(f"{origin}={text}: holds none of {', '.join(f'{g}/' for g in GROUPS)} and no config.yaml")
        own.append(Layer(path, text.rstrip("/"), own=True))
    here = (folder / "conf").resolve()
    if here.is_dir() and _is_ours(here):
        own.append(Layer(here, "conf", own=True))
    unique = {layer.path: layer for layer in reversed(own) if layer.path != packaged}
    return Layers((*reversed(unique.values()), Layer(packaged, "packaged conf", own=False)))


def _is_ours(path: Path) -> bool:
    return (path / "config.yaml").is_file() or any((path / group).is_dir() for group in (*GROUPS, EXPERIMENT))
