"""The configuration files behind a composition: where a key was set, and values that YAML would change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from omegaconf._utils import get_yaml_loader

from launcher.errors import ConfigError
from launcher.paths import GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_GLOBAL = re.compile(r"^#\s*@package\s+_global_\s*$", re.MULTILINE)
_CANONICAL_INT = re.compile(r"-?(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Source:
    """One file that took part, and the key under which its content lies ("" for the top)."""

    path: Path
    package: str
    label: str


@dataclass(frozen=True)
class Sources:
    """Everything that took part in a composition, strongest last."""

    files: tuple[Source, ...]
    typed: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Return ``override 'a=b': `` or ``conf/hw/x.yaml: `` for the strongest setting of a key, or ""."""
        parts = key.split(".")
        for depth in range(len(parts), 0, -1):
            if typed := self.typed.get(".".join(parts[:depth])):
                return f"override {typed!r}: "
        for source in reversed(self.files):
            inner = _within(key, source.package)
            if inner is not None and _holds(source.path, inner):
                return f"{source.label}: "
        return ""


def chosen_files(folders: Sequence[Path], choices: Mapping[str, str]) -> tuple[Source, ...]:
    """Return the files of a composition, weakest first.

    Args:
        folders: search path, first match wins.
        choices: option by group, as Hydra reports them.
    """
    names = [("config", "")] + [(f"{g}/{choices[g]}", g) for g in GROUPS if choices.get(g)]
    found: list[Source] = []
    for name, group in names:
        for folder in folders:
            path = folder / f"{name}.yaml"
            if path.is_file():
                package = "" if _GLOBAL.search(path.read_text(encoding="utf-8")) else group
                found.append(Source(path=path, package=package, label=f"{folder.name}/{name}.yaml"))
                break
    return tuple(found)


def check_environment(files: Sequence[Source]) -> None:
    """Refuse unquoted values under ``env:`` that YAML reads as something else than their text.

    `on` would become "True", `1e3` "1000.0", `12:30` "750", `007` "7" (OmegaConf 2.3, tried).

    Raises:
        ConfigError: names file, line and key of each.
    """
    problems: list[str] = []
    for source in files:
        inner = _within("env", source.package)
        if inner is None:
            continue
        with source.path.open(encoding="utf-8") as stream:
            root = yaml.compose(stream, Loader=get_yaml_loader())
        for key, node in _entries(_child(root, inner)):
            if not isinstance(node, yaml.ScalarNode) or node.style is not None:
                continue
            is_int = node.tag.endswith(":int") and _CANONICAL_INT.fullmatch(node.value)
            if not (node.tag.endswith((":str", ":null")) or is_int):
                line = node.start_mark.line + 1
                kind = node.tag.rsplit(":", maxsplit=1)[-1]
                problems.append(
                    f"{source.label}:{line}: env.{key}: YAML reads {node.value} as {kind}; quote it: '{node.value}'"
                )
    if problems:
        raise ConfigError(*problems)


def _within(key: str, package: str) -> str | None:
    if not package:
        return key
    return key[len(package) + 1 :] if key.startswith(f"{package}.") else None


def _holds(path: Path, key: str) -> bool:
    with path.open(encoding="utf-8") as stream:
        node = yaml.compose(stream, Loader=get_yaml_loader())
    return _child(node, key) is not None


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    for part in key.split("."):
        node = dict(_entries(node)).get(part)
    return node


def _entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(str(k.value), v) for k, v in node.value]
