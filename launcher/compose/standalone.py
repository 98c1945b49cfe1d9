"""A composed deployment as one file of its own: the options of its groups, and every value that differs from them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf._utils import get_yaml_loader

from launcher.compose.sources import listed_groups
from launcher.paths import GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.compose.composer import Composition
    from launcher.layers import Layers
    from launcher.schema import Deployment

#: Words that are safe without quotes, if YAML reads them as text.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
_WHOLE = re.compile(r"0|[1-9][0-9]*")
#: Where values stand exactly as written, so that nothing is escaped.
_VERBATIM = ("env",)
#: What differs only in how a point is measured.
MEASURING = ("bench", "sweep")


def choices(composition: Composition) -> dict[str, str]:
    """Return the option of every group, in the order in which they are composed; a deployment is no such option."""
    found = {source.path.parent.name: source.path.stem for source in composition.sources.files}
    typed = {key: line.partition("=")[2].strip("'\" ") for key, line in composition.sources.typed.items()}
    found |= {group: option for group, option in typed.items() if group in GROUPS}
    return {group: found[group] for group in GROUPS if group in found and group != "deployment"}


def text(
    head: Sequence[str], options: Mapping[str, str | None], plain: Deployment, wanted: Deployment, layers: Layers
) -> str:
    """Return the file.

    Args:
        head: lines for people.
        options: by group; None takes away the one that the first configuration chooses.
        plain: what these options alone compose to.
        wanted: what the file composes to.
        layers: search path.
    """
    config = layers.find("config")
    listed = listed_groups(config[1]) if config else set()
    defaults: list[Any] = [{f"/{group}": option} for group, option in options.items() if group not in listed]
    defaults += [{f"override /{group}": option} for group, option in options.items() if group in listed]
    data = {"defaults": [*defaults, "_self_"], "name": wanted.name}
    data |= {key: value for key, value in _record(plain, wanted, "").items() if key != "name"}
    dumped = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return "\n".join(["# @package _global_", *(f"# {_line(line)}".rstrip() for line in head), dumped])


def _line(line: str) -> str:
    """Return a line of a comment: nothing in it may end it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in line)


def _record(plain: Any, wanted: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - any two of a class
    found: dict[str, Any] = {}
    for field in dataclasses.fields(wanted):
        before, value, where = getattr(plain, field.name), getattr(wanted, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            inner = _record(before, value, f"{where}.")
        elif isinstance(value, Mapping):
            inner = _mapping(before, value, where)
        elif value != before:
            found[field.name] = _value(value, where)
            continue
        else:
            continue
        if inner:
            found[field.name] = inner
    return found


def _mapping(before: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what is new or other, in the order of the whole, and nothing for what is taken away."""
    changed = {key: _value(value, where) for key, value in wanted.items() if key not in before or before[key] != value}
    return changed | dict.fromkeys(key for key in before if key not in wanted)


def _value(value: Any, where: str) -> Any:  # noqa: ANN401 - any value of the schema
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _value(getattr(value, field.name), where) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_value(inner, where) for inner in value]
    if not isinstance(value, str) or where in _VERBATIM:
        return value
    if where == "engine.args" and _WHOLE.fullmatch(value):
        return int(value)  # it reaches the engine as it is written
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", value)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that could be read as something else."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    read = yaml.load(value, Loader=get_yaml_loader()) if _PLAIN.fullmatch(value) else None  # noqa: S506 - a safe one
    plain = read == value or value.startswith("override /")
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


_Dumper.add_representer(str, _text)
