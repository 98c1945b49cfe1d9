"""Whole sweeps as files: ``conf/experiment/NAME.yaml``.

Such a file holds ``axes`` (a list, or text as on the command line, by key), ``pairs`` (sets of values that belong
together), ``filters`` (what is left out), ``baseline`` (values of the baseline alone), and beside them configuration
that is the same for every point: options of groups and keys, nested or dotted. The command line wins over all of it.
The file is read here and not by Hydra: its values become overrides, exactly as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml
from omegaconf._utils import get_yaml_loader

from launcher.compose import overrides as ov
from launcher.compose.values import values_of
from launcher.errors import ConfigError, nearest
from launcher.paths import EXPERIMENT, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from launcher.layers import Layers

_OWN = ("axes", "pairs", "filters", "baseline")
#: What needs no quotes to be one value in an override.
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class Experiment:
    """A whole sweep; every value as one types it.

    Attributes:
        label: the file, for messages.
        values: of every point, by key.
        axes: values to try, by key.
        pairs: lists of sets; one of each list is in a point.
        filters: points with one of the values of every key are left out.
        baseline: of the baseline alone, by key.
    """

    label: str = ""
    values: dict[str, str] = field(default_factory=dict)
    axes: dict[str, list[str]] = field(default_factory=dict)
    pairs: list[list[dict[str, str]]] = field(default_factory=list)
    filters: list[dict[str, list[str]]] = field(default_factory=list)
    baseline: dict[str, str] = field(default_factory=dict)


def load(name: str, layers: Layers, top_level: Sequence[str]) -> Experiment:
    """Read an experiment.

    Raises:
        ConfigError: there is none of that name, or something in it is wrong; names file, line and key.
    """
    hit = layers.find(f"{EXPERIMENT}/{name}")
    if hit is None:
        known = layers.options(EXPERIMENT)
        raise ConfigError(
            f"there is no experiment {name!r}{nearest(name, known)}; known: {', '.join(known) or 'none'}"
            f" (files in {EXPERIMENT}/)"
        )
    layer, path = hit
    label = f"{layer.label}/{path.relative_to(layer.path)}"
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{label}{f':{mark.line + 1}' if mark else ''}: no valid YAML: {error.problem}") from error
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{label}: {' '.join(str(error).split())}") from error
    reader = _Reader(label, layers, top_level)
    experiment = reader.read(root)
    if reader.problems:
        raise ConfigError(*reader.problems)
    return experiment


class _Reader:
    """Turns the nodes of one file into an experiment; what is wrong is collected."""

    def __init__(self, label: str, layers: Layers, top_level: Sequence[str]) -> None:
        self._label = label
        self._layers = layers
        self._known = (*_OWN, *GROUPS, *top_level)
        self.problems: list[str] = []

    def read(self, root: yaml.Node | None) -> Experiment:
        found = Experiment(self._label)
        own: dict[str, Callable[[yaml.Node], None]] = {
            "axes": lambda node: self._axes(node, found.axes),
            "pairs": lambda node: found.pairs.extend(self._pairs(node)),
            "filters": lambda node: found.filters.extend(self._filters(node)),
            "baseline": lambda node: self._values(node, "", found.baseline),
        }
        for key, node in self._entries(root, "the file"):
            if key in own:
                own[key](node)
            elif key.split(".", maxsplit=1)[0] not in self._known:
                self._wrong(node, f"there is no key {key!r}{nearest(key, self._known)}")
            else:
                self._values(node, key, found.values)
        self._check(root, found)
        return found

    def _check(self, root: yaml.Node | None, found: Experiment) -> None:
        """Look for what contradicts: keys that are set twice, filters that can never match."""
        swept = [*found.axes, *dict.fromkeys(key for sets in found.pairs for one in sets for key in one)]
        for key in sorted({key for key in swept if swept.count(key) > 1}):
            self._wrong(root, f"{key} is in 'axes' and in 'pairs'")
        for key in (key for key in dict.fromkeys(swept) if key in found.values):
            self._wrong(root, f"{key} is an axis and has a value: keep one")
        for number, one in enumerate(found.filters, 1):
            for key, values in one.items():
                tried = {bare(v) for v in found.axes.get(key, [])}
                tried |= {bare(s[key]) for sets in found.pairs for s in sets if key in s}
                if key not in swept:
                    self._wrong(root, f"filter {number}: {key!r} is no axis of this file{nearest(key, swept)}")
                for value in values if key in swept else ():
                    if bare(value) not in tried:
                        hint = nearest(bare(value), tried)
                        self._wrong(root, f"filter {number}: {key}={value} is no value of its axis{hint}")

    def _axes(self, node: yaml.Node, axes: dict[str, list[str]]) -> None:
        for key, value in self._entries(node, "axes"):
            if isinstance(value, yaml.SequenceNode):
                axes[key] = [self._text(key, item) for item in value.value]
                if not axes[key]:
                    self._wrong(value, f"axes.{key} names no values to try")
            elif isinstance(value, yaml.ScalarNode):
                axes[key] = self._swept(key, value)
            else:
                self._wrong(value, f"axes.{key} holds a list of values, or text as nccl.max_nchannels: range(2,18,2)")

    def _swept(self, key: str, node: yaml.ScalarNode) -> list[str]:
        line = f"{key}={node.value}"
        labels = {line: self._at(node)}
        try:
            (override,) = ov.parse([line], labels)
            if override.is_sweep_override():
                return values_of(override, self._layers, labels)
            self._wrong(node, f"axes.{key} is one value: write it outside of 'axes', or a list of several")
        except ConfigError as error:
            self.problems += error.problems
        return []

    def _pairs(self, node: yaml.Node) -> list[list[dict[str, str]]]:
        """Read one list of sets, or a list of such lists."""
        items = self._items(node, "pairs")
        if items and all(isinstance(item, yaml.SequenceNode) for item in items):
            return [self._sets(item) for item in items]
        return [self._sets(node)] if items else []

    def _sets(self, node: yaml.Node) -> list[dict[str, str]]:
        sets: list[dict[str, str]] = []
        for item in self._items(node, "pairs"):
            sets.append({})
            self._values(item, "", sets[-1])
        return sets

    def _filters(self, node: yaml.Node) -> list[dict[str, list[str]]]:
        return [
            {
                key: [self._text(key, v) for v in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
                for key, value in self._entries(item, "a filter")
            }
            for item in self._items(node, "filters")
        ]

    def _values(self, node: yaml.Node, prefix: str, values: dict[str, str]) -> None:
        """Flatten a map of values; a key may be nested or dotted."""
        if prefix and not isinstance(node, yaml.MappingNode):
            if prefix in values:
                self._wrong(node, f"{prefix} is set twice")
            values[prefix] = self._text(prefix, node)
            return
        for key, value in self._entries(node, "a set"):
            self._values(value, f"{prefix}.{key}" if prefix else key, values)

    def _text(self, key: str, node: yaml.Node) -> str:
        """Return a value as one types it; text that the grammar would take apart is quoted."""
        if isinstance(node, yaml.SequenceNode):
            return f"[{','.join(self._text(key, item) for item in node.value)}]"
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(node, f"{key} holds a group of keys, where one value is needed")
            return ""
        text = str(node.value)
        if node.tag.endswith(":null"):
            return "null"
        if node.tag.endswith(":bool") and not key.startswith("env.") and key not in GROUPS:
            return "true" if text.lower() in {"true", "yes", "on"} else "false"
        plain = node.style is None and _PLAIN.fullmatch(text)
        return text if plain else ov.quoted_value(text)

    def _items(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self._wrong(node, f"{name!r} holds a list")
        return []

    def _entries(self, node: yaml.Node | None, name: str) -> list[tuple[str, yaml.Node]]:
        if node is None:
            return []
        if isinstance(node, yaml.MappingNode):
            return [(str(key.value), value) for key, value in node.value]
        self._wrong(node, f"{name} holds names and values")
        return []

    def _at(self, node: yaml.Node | None) -> str:
        return f"{self._label}:{node.start_mark.line + 1}" if node else self._label

    def _wrong(self, node: yaml.Node | None, problem: str) -> None:
        self.problems.append(f"{self._at(node)}: {problem}")


def bare(value: str) -> str:
    """Return a value without the quotes that it was typed in, for comparing."""
    try:
        found = ov.parse([f"x={value}"])[0].value()
    except ConfigError:
        return value
    return found if isinstance(found, str) else value
