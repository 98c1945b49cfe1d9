"""One JSON Schema for each type of the configuration; an interpolation, ``${…}``, may stand for any value."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from launcher.catalogue import engines, nccl, values
from launcher.editor.comments import comments
from launcher.schema import Deployment, Engine

Schema = dict[str, Any]
#: An interpolation, or the mark of a value that somebody else has to give.
OPEN: Schema = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}
_ONE_OR_NULL: Schema = {"type": ["string", "number", "boolean", "null"]}
_ARG: Schema = {"type": ["string", "number", "boolean", "null", "array"], "items": {"type": ["string", "number"]}}


def of_class(cls: type) -> Schema:
    """Return the schema of a class: its own keys only, none required, since files add up."""
    hints, told = typing.get_type_hints(cls), comments()
    fields = {
        field.name: _described(_of_field(cls, field.name, hints[field.name]), told.get((cls.__name__, field.name)))
        | _default(field)
        for field in dataclasses.fields(cls)
    }
    return {"type": "object", "properties": fields, "additionalProperties": False} | _class_told(cls)


def of_hint(hint: object) -> Schema:
    """Return the schema of a type as the schema's fields have them."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return of_class(hint)
    if get_origin(hint) is Mapping:
        inner = get_args(hint)[1]
        nested = isinstance(inner, type) and dataclasses.is_dataclass(inner)
        return {"type": "object", "additionalProperties": of_class(inner) if nested else _ARG}
    if get_origin(hint) is Literal:
        return {"anyOf": [{"enum": list(get_args(hint))}, OPEN]}
    if get_origin(hint) is tuple:
        number = get_args(hint)[0] is int
        item = {"type": "integer", "minimum": 1} if number else {"type": ["string", "integer"]}
        single = {"type": "integer", "minimum": 1} if number else {"type": "string", "minLength": 1}
        return {"anyOf": [{"type": "array", "items": {"anyOf": [item, OPEN]}}, single, OPEN]}
    if hint is str:
        return {"type": "string"}
    plain = {bool: {"type": "boolean"}, int: {"type": "integer", "minimum": 0}, float: {"type": "number", "minimum": 0}}
    return {"anyOf": [plain[typing.cast("type", hint)], OPEN]}


def nccl_variables() -> Schema:
    """Return the schema of the map ``nccl``: every variable that is read, with the values that are known of it.

    The values only help to complete; what a variable takes is checked by `nccl.canonical`, by release.
    """
    fields = {v.key: _described(_hinted(values.allowed(v.allowed).words, _ONE_OR_NULL), _of_variable(v))
              for v in nccl.variables().values() if v.is_setting}  # fmt: skip
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _of_variable(variable: nccl.Variable) -> str:
    default = f" Default: {variable.default}." if variable.default else ""
    return f"{variable.name}. {variable.note}{default}"


def _engine_args() -> Schema:
    fields: dict[str, Schema] = {}
    for engine, title in engines.TITLES.items():
        for flag in engines.flags(engine).values():
            name = flag.name.lstrip("-").replace("-", "_")
            text = f"{title} {flag.since} to {flag.until}: {flag.name}"
            text += f" ({flag.deprecated})" if flag.deprecated else ""
            if name in fields:
                fields[name]["description"] += f"\n{text}"
            else:
                fields[name] = _described(_hinted(flag.choices, _ARG), text)
    return {"type": "object", "properties": fields, "additionalProperties": _ARG}


def _of_field(cls: type, name: str, hint: object) -> Schema:
    if (cls, name) == (Deployment, "nccl"):
        return nccl_variables()
    if (cls, name) == (Engine, "args"):
        return _engine_args()
    if (cls, name) == (Deployment, "env"):
        return {"type": "object", "additionalProperties": _ONE_OR_NULL}
    return of_hint(hint)


def _hinted(words: tuple[str, ...], otherwise: Schema) -> Schema:
    return {"anyOf": [{"enum": list(words)}, otherwise]} if words else dict(otherwise)


def _described(schema: Schema, text: str | None) -> Schema:
    return schema | {"description": text} if text else schema


def _default(field: dataclasses.Field[Any]) -> Schema:
    """Return the default; what is empty or 0 means that nothing is said, so it is left out."""
    value = field.default
    if value is dataclasses.MISSING or (value in ("", 0, 0.0, ()) and value is not False):
        return {}
    return {"default": list(value) if isinstance(value, tuple) else value}


def _class_told(cls: type) -> Schema:
    text = inspect.getdoc(cls) or ""
    return {"description": text.replace("``", "")}
