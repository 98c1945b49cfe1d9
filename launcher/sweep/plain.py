"""Frozen records to plain JSON data and back, for whatever dataclasses `launcher.sweep.record` holds.

A number that JSON lacks (infinity, not a number) travels as the text ``inf``, ``-inf`` or ``nan`` and comes back as a
number where a number is expected. Where anything may stand, tuples come back as lists. Keys that are not known are
passed over, for a newer version may have written them; what has no default must be there. A field that is marked
``sparse`` is left out where it is empty.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class UnfitError(Exception):
    """Data does not fit a record; says where in it and why."""


def to_plain(value: Any) -> Any:  # noqa: ANN401 - any value of a record
    """Return what JSON can hold; what it cannot is written as text, so that nothing measured is lost over it."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: to_plain(one) for field, one in found if one or not field.metadata.get("sparse")}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else str(value)


def from_plain(hint: Any, value: Any, where: str = "") -> Any:  # noqa: ANN401 - any type, any value
    """Return plain data as a value of a type.

    Args:
        hint: a dataclass, or what its fields are annotated with.
        value: what JSON held.
        where: place of it, for the message.

    Raises:
        UnfitError: it does not fit.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast("type", hint), value, where)
    if origin is tuple:
        entries = _of(list, value, where, "a list")
        return tuple(from_plain(arguments[0], entry, f"{where}[{n}]") for n, entry in enumerate(entries))
    if origin is Mapping:
        entries = _of(dict, value, where, "names with values")
        return {key: from_plain(arguments[1], entry, _below(where, key)) for key, entry in entries.items()}
    if origin is Literal:
        if value in arguments:
            return value
        raise UnfitError(f"{where} is {value!r}, which is none of {', '.join(map(repr, arguments))}")
    if hint is float:
        return _number(value, where)
    return _of(hint, value, where, _NAMES.get(hint, str(hint)))


def _record(cls: type, value: Any, where: str) -> Any:  # noqa: ANN401 - any value
    given = _of(dict, value, where, "names with values")
    hints, made = _hints(cls), {}
    for field in dataclasses.fields(cls):
        if field.name in given:
            made[field.name] = from_plain(hints[field.name], given[field.name], _below(where, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UnfitError(f"{_below(where, field.name)} is missing")
    return cls(**made)


def _of(wanted: type, value: Any, where: str, name: str) -> Any:  # noqa: ANN401 - any value
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    raise UnfitError(f"{where or 'it'} is {_short(value)}, not {name}")


def _number(value: Any, where: str) -> float:  # noqa: ANN401 - any value
    if value in ("inf", "-inf", "nan") or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return float(value)
    raise UnfitError(f"{where} is {_short(value)}, not a number")


def _short(value: Any) -> str:  # noqa: ANN401 - any value
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)
