"""The configuration files behind a composition: where a key was set, and the environment as it was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml
from omegaconf._utils import get_yaml_loader

from launcher.errors import ConfigError
from launcher.paths import GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from launcher.layers import Layers


@dataclass(frozen=True)
class Source:
    """One file that took part.

    Attributes:
        package: the key under which its content lies ("" for the top).
        label: the file's name in messages.
        root: its YAML node; None for an empty file.
    """

    path: Path
    package: str
    label: str
    root: yaml.Node | None

    def names(self, key: str) -> list[str]:
        """Return the names that the file sets below a key, in its order."""
        inner = _within(key, self.package)
        return [name for name, _ in _entries(_child(self.root, inner))] if inner is not None else []


@dataclass(frozen=True)
class Sources:
    """Everything that took part in a composition, strongest last."""

    files: tuple[Source, ...]
    typed: Mapping[str, str]
    #: By text of `typed`: file and key of the experiment that it comes from.
    labels: Mapping[str, str] = field(default_factory=dict)

    def origins(self, key: str) -> list[str]:
        """Return everything that sets a key, strongest first: overrides, then files."""
        parts = key.split(".")
        prefixes = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
        typed = [called(self.typed[p], self.labels) for p in prefixes if p in self.typed and p not in GROUPS]
        files = [f"{s.label}" for s in reversed(self.files) if _sets(s, key)]
        return typed + files

    def origin(self, key: str) -> str:
        """Return the strongest of `origins` as the begin of a message, or ""."""
        return next((f"{origin}: " for origin in self.origins(key)), "")

    def written(self, key: str, value: object) -> str | None:
        """Return a value as its strongest setting wrote it (YAML turns ``1_000`` into 1000), if that means the same.

        An interpolation does not, for one.
        """
        texts = [self.typed[key].partition("=")[2]] if key in self.typed else []
        for source in reversed(self.files):
            inner = _within(key, source.package)
            node = _child(source.root, inner) if inner is not None else None
            if isinstance(node, yaml.ScalarNode):
                texts.append(str(node.value))
        return texts[0] if texts and _read(texts[0]) == value else None

    def environment(self) -> dict[str, str]:
        """Return the ``env:`` maps of the files, every value exactly as it was written.

        YAML's own ideas (``on``, ``1e3``, ``12:30``) and interpolations alter nothing. A bare null takes a
        variable of a weaker file away.

        Raises:
            ConfigError: a value that is a list or a map; names file and line.
        """
        result: dict[str, str] = {}
        problems: list[str] = []
        for source in self.files:
            inner = _within("env", source.package)
            env = _child(source.root, inner) if inner is not None else None
            if env is not None and not isinstance(env, yaml.MappingNode) and not env.tag.endswith(":null"):
                problems.append(f"{source.label}:{env.start_mark.line + 1}: env holds names and values")
            for name, node in _entries(env):
                if not isinstance(node, yaml.ScalarNode):
                    line = node.start_mark.line + 1
                    problems.append(f"{source.label}:{line}: env.{name} must be one value; quote it if it is text")
                elif node.tag.endswith(":null"):
                    result.pop(name, None)
                else:
                    result[name] = node.value
        if problems:
            raise ConfigError(*problems)
        return result


def shown(line: str) -> str:
    """Return an override as it may be repeated: what was typed for a secret may be the secret."""
    key, sign, _ = line.partition("=")
    return f"{key}{sign}…" if key.lstrip("+~").startswith("secrets.") else line


def called(line: str, labels: Mapping[str, str] | None = None) -> str:
    """Return how a message calls an override: by the file that it comes from, or as typed."""
    label = (labels or {}).get(line)
    return f"{label}: {shown(line)!r}" if label else f"override {shown(line)!r}"


def files_of(layers: Layers, defaults: Sequence[tuple[str, str]]) -> tuple[Source, ...]:
    """Return the files of a composition, weakest first.

    Args:
        layers: search path.
        defaults: file (``GROUP/OPTION``) and package of each, in the order in which Hydra merges them.

    Raises:
        ConfigError: a deployment file does not say that it speaks of all groups.
    """
    found: list[Source] = []
    for name, package in defaults:
        hit = layers.find(name)
        if hit is None:
            continue
        layer, path = hit
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())
        label = f"{layer.label}/{path.relative_to(layer.path)}"
        if package == "deployment":
            raise ConfigError(f"{label}: its first line must be: # @package _global_")
        found.append(Source(path, package, label, root))
    return tuple(found)


def listed_groups(path: Path) -> set[str]:
    """Return the groups that a file's own defaults list chooses (not those that it overrides)."""
    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())
    defaults = _child(root, "defaults")
    items = defaults.value if isinstance(defaults, yaml.SequenceNode) else []
    keys = [key for item in items for key, _ in _entries(item)]
    return {key.lstrip("/").split("@")[0] for key in keys if not key.startswith("override ")}


def _read(text: str) -> object:
    try:
        return yaml.load(text, Loader=get_yaml_loader())  # noqa: S506 - OmegaConf's own, a safe one
    except yaml.YAMLError:
        return None


def _sets(source: Source, key: str) -> bool:
    inner = _within(key, source.package)
    return inner is not None and _child(source.root, inner) is not None


def _within(key: str, package: str) -> str | None:
    if not package:
        return key
    if key == package:
        return ""
    return key[len(package) + 1 :] if key.startswith(f"{package}.") else None


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    for part in key.split(".") if key else ():
        node = dict(_entries(node)).get(part)
    return node


def _entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(str(k.value), v) for k, v in node.value]
