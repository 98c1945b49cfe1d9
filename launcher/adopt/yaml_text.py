"""YAML with every scalar as it is written, and with lines: what compose files need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from launcher.errors import ConfigError


@dataclass(frozen=True)
class At:
    """A value and the line in which it begins."""

    value: Any
    line: int


class _Loader(yaml.SafeLoader):
    """Scalars are text, but for null; each mapping keeps the lines of its values."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.endswith((":merge", ":null"))]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, At]:
    loader.flatten_mapping(node)
    return {
        str(loader.construct_object(key, deep=True)): At(loader.construct_object(value, deep=True), _line(value))
        for key, value in node.value
    }


def _sequence(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[At]:
    return [At(loader.construct_object(item, deep=True), _line(item)) for item in node.value]


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)
_Loader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)  # compose's !reset and !override


def load(text: str, name: str) -> object:
    """Return what a text holds.

    Raises:
        ConfigError: it is no YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a loader of plain text
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise ConfigError(f"{name}:{line}: not valid YAML: {problem}") from error
    except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
        raise ConfigError(f"{name}:1: not valid YAML: {error}") from error  # a number or character that there is not
