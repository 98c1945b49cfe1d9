"""Hydra's compose API over the folders of configuration, one's own before what is packaged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from launcher.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hydra.core.config_search_path import ConfigSearchPath

    from launcher.layers import Layers


class _OwnLayers(SearchPathPlugin):
    """Puts one's own folders before the packaged one; Hydra's own options only add behind it."""

    folders: ClassVar[list[str]] = []

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:  # each stands right before what is packaged, so the first stays the first
            search_path.prepend(provider="launch", path=f"file://{folder}", anchor="main")


@contextmanager
def hydra(layers: Layers) -> Iterator[None]:
    """Make Hydra's compose API ready for these folders."""
    _OwnLayers.folders = [str(layer.path) for layer in layers.folders if layer.own]
    Plugins.instance().register(_OwnLayers)
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf"))):
        yield
