"""A composition as plain data, on which single values can be set as Hydra would set them, only faster.

Hydra sets one value after the other in its own tree and then resolves interpolations. Where a value is one word or
number, and no interpolation speaks of its key, the order of these two does not matter: then the tree is resolved once
and the value is set in a copy of the result. Everything else goes Hydra's way.
"""

from __future__ import annotations

import copy
import itertools
import re
from typing import TYPE_CHECKING, Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.override_parser.types import Override

_KEY = re.compile(r"[\w-]+(\.[\w-]+)*")
_NESTED = re.compile(r"\$\{[^}]*\$\{")


class Tree:
    """What Hydra composed, closed to new keys, without Hydra's own node."""

    def __init__(self, config: DictConfig) -> None:
        self._config = config
        raw = OmegaConf.to_container(config, resolve=False)
        self._raw = cast("dict[str, Any]", raw)
        found = dict(_interpolations(raw, ""))
        self._places = set(found)
        self._words = {word for text in found.values() for word in re.findall(r"[\w-]+", text)}
        self._is_dynamic = any(_NESTED.search(text) for text in found.values())
        self._resolved: dict[str, Any] | None = None

    def takes_all(self, overrides: Sequence[Override]) -> bool:
        """Return whether values may be set after interpolations are resolved, none of them within another one."""
        keys = [f"{override.key_or_group}." for override in overrides]
        apart = not any(one.startswith(other) for one, other in itertools.permutations(keys, 2))
        return apart and all(self.takes(override) for override in overrides)

    def takes(self, override: Override) -> bool:
        """Return whether a value may be set after interpolations are resolved."""
        key, value = override.key_or_group, override.value()
        if self._is_dynamic or not override.is_force_add() or not _KEY.fullmatch(key):
            return False
        if not (value is None or isinstance(value, str | int | float)) or (
            isinstance(value, str) and ("${" in value or value == "???")
        ):
            return False
        parts = key.split(".")
        if self._words.intersection(parts):
            return False
        if any(".".join(parts[:depth]) in self._places for depth in range(1, len(parts) + 1)):
            return False
        node: Any = self._raw
        for part in parts[:-1]:
            node = node.get(part, {})
            if not isinstance(node, dict):
                return False
        return not isinstance(node.get(parts[-1]), dict | list)

    def changed(self, overrides: Sequence[Override]) -> Tree:
        """Return another tree with values set by Hydra, in their order.

        Raises:
            HydraException, OmegaConfBaseException: one cannot be set.
        """
        if not overrides:
            return self
        config = copy.deepcopy(self._config)
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)  # noqa: SLF001 - what Hydra does itself
        return Tree(config)

    def data(self, overrides: Sequence[Override]) -> dict[str, Any]:
        """Return the resolved values, with some set that the tree `takes`; the caller may alter it.

        Raises:
            OmegaConfBaseException: an interpolation cannot be resolved.
        """
        if self._resolved is None:
            config = copy.deepcopy(self._config)
            OmegaConf.set_struct(config, value=False)
            # The environment is read from the files themselves: here YAML and OmegaConf would have altered it.
            config.pop("env", None)
            self._resolved = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True))
        data = copy.deepcopy(self._resolved)
        for override in overrides:
            *parents, last = override.key_or_group.split(".")
            node = data
            for part in parents:
                node = node.setdefault(part, {})
            node[last] = override.value()
        return data


def _interpolations(node: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of every value that holds an interpolation, an escaped one too."""
    if isinstance(node, str) and "${" in node:
        yield path, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from _interpolations(value, f"{path}.{key}" if path else str(key))
