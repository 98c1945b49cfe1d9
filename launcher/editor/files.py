"""The schema of each kind of file: an option of a group, a deployment, an experiment."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING

from launcher.editor.types import Schema, nccl_variables, of_class, of_hint
from launcher.paths import EXPERIMENT, GROUPS
from launcher.schema import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from launcher.layers import Layers

KINDS = (*GROUPS, EXPERIMENT)
_DRAFT = "http://json-schema.org/draft-07/schema#"
#: Stands for a map of any names, such as ``env``.
FREE: Schema = {"type": "object"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_ONE: Schema = {"type": ["string", "number", "boolean", "null"]}
_VALUES: Schema = {"type": "array", "items": {"anyOf": [_ONE, {"type": "array", "items": _ONE}]}, "minItems": 1}


def schema_of(kind: str, layers: Layers) -> Schema:
    """Return the schema of the files in a folder of the configuration.

    Args:
        kind: one of `KINDS`; ``deployment`` also fits ``config.yaml``.
        layers: whose options are offered.
    """
    if kind == EXPERIMENT:
        found = _experiment(layers)
    elif kind == "deployment":
        found = _whole(layers)
    else:
        found = _either(_option(kind, layers), _whole(layers))
    title = "launch: an experiment" if kind == EXPERIMENT else f"launch: {kind}"
    return {"$schema": _DRAFT, "title": title} | found


def _either(option: Schema, whole: Schema) -> Schema:
    """Return the schema of a group's file: a section of the whole tells that it speaks of all groups."""
    own, every = option["properties"], whole["properties"]
    sections = [name for name in every if every[name].get("type") == "object" and name not in own]
    return {"if": {"anyOf": [{"required": [name]} for name in sections]}, "then": whole, "else": option}


def _option(group: str, layers: Layers) -> Schema:
    """Return the schema of an option without ``# @package _global_``: the group's own keys at the top."""
    own = nccl_variables() if group == "nccl" else of_hint(typing.get_type_hints(Deployment)[group])
    return own | {"properties": {"defaults": _defaults(layers)} | own["properties"]}


def _whole(layers: Layers) -> Schema:
    """Return the schema of a file that speaks of all groups: ``# @package _global_`` in its first line."""
    whole = of_class(Deployment)
    return whole | {"properties": {"defaults": _defaults(layers)} | whole["properties"]}


def _defaults(layers: Layers) -> Schema:
    """Return the schema of the list that chooses options; those of one's own count when the schema is written."""
    choices: dict[str, Schema] = {}
    for group in GROUPS:
        for words in (f"/{group}", f"override /{group}", group, f"override {group}"):
            choices[words] = {"anyOf": [{"enum": layers.options(group)}, _TEXT_OR_NULL]}
    one = {
        "type": "object",
        "properties": choices,
        "patternProperties": {rf"^(optional |override )?/?({'|'.join(GROUPS)})(@.+)?$": {}},
        "additionalProperties": False,
        "maxProperties": 1,
    }
    text = "Files that this one builds on, weaker first; _self_ is this file's own place."
    return {"type": "array", "items": {"anyOf": [{"enum": ["_self_"]}, one, {"type": "string"}]}, "description": text}


def _experiment(layers: Layers) -> Schema:
    """Return the schema of a whole sweep; its keys may be nested or dotted, an option of a group stands as its name."""
    whole = of_class(Deployment)
    dotted = dict(_below("", "#/definitions/whole", whole))
    free: dict[str, Schema] = {rf"^{re.escape(name)}\..": {} for name, schema in dotted.items() if schema is FREE}
    keys: dict[str, Schema] = {name: {"$ref": f"#/definitions/whole/properties/{name}"} for name in whole["properties"]}
    keys |= dotted
    for group in GROUPS:
        choice: list[Schema] = [{"enum": layers.options(group)}, _TEXT_OR_NULL]
        keys[group] = {"anyOf": [*choice, *([keys[group]] if group in keys else [])]}
    definitions = {
        "whole": whole,
        "set": _keyed(keys, free),
        "swept": {"anyOf": [_VALUES, {"type": ["string", "number", "boolean"]}]},
        "some": {"anyOf": [_VALUES, _ONE]},
    }
    return _keyed(_own(list(keys), free) | keys, free) | {"definitions": definitions}


def _own(keys: Sequence[str], free: dict[str, Schema]) -> dict[str, Schema]:
    """Return the schemas of what an experiment alone has."""
    one_set = {"$ref": "#/definitions/set"}
    sets: Schema = {"type": "array", "items": one_set}
    swept, some = (_keyed({key: {"$ref": f"#/definitions/{name}"} for key in keys}, free) for name in ("swept", "some"))
    return {
        "axes": swept | {"description": "Values to try, by key: a list, or text such as range(2,18,2)."},
        "pairs": {
            "anyOf": [sets, {"type": "array", "items": sets}],
            "description": "Sets of values that belong together; one of each list is in a point.",
        },
        "filters": {
            "type": "array",
            "items": some,
            "description": "Points that have one of the values of every key are left out.",
        },
        "baseline": {"allOf": [one_set], "description": "Values of the baseline alone, by key."},
    }


def _keyed(properties: dict[str, Schema], free: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "patternProperties": free, "additionalProperties": False}


def _below(prefix: str, place: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield every key below those of the top by its dotted name, as a reference; `FREE` for maps of any names."""
    for name, inner in schema["properties"].items():
        here = f"{place}/properties/{name}"
        if prefix:
            yield f"{prefix}{name}", {"$ref": here}
        if isinstance(inner.get("additionalProperties"), dict):
            yield f"{prefix}{name}", FREE
        if "properties" in inner:
            yield from _below(f"{prefix}{name}.", here, inner)
