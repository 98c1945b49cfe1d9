"""Turn plain composed data into the frozen schema; every unknown key and bad type is named at once."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from launcher.catalogue import nccl
from launcher.errors import ConfigError, nearest
from launcher.schema import ArgValue, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _Problem(Exception):  # noqa: N818 - never leaves this module
    """What is wrong with one value."""


def to_deployment(data: Mapping[str, Any], origin: Callable[[str], str]) -> Deployment:
    """Convert composed data.

    Args:
        data: nested plain containers, interpolations resolved.
        origin: where a dotted key was set, for the messages.

    Raises:
        ConfigError: unknown keys, missing values, bad types or values outside a closed set; all in one error.
    """
    problems: list[str] = []
    result = _convert_class(Deployment, data, "", problems, origin)
    if problems:
        raise ConfigError(*problems)
    assert isinstance(result, Deployment)  # noqa: S101 - for the type checker
    return result


def _convert_class(
    cls: type, data: Mapping[str, Any], path: str, problems: list[str], origin: Callable[[str], str]
) -> object:
    hints, fields = _described(cls)
    values: dict[str, Any] = {}
    for raw_key, value in data.items():
        key = str(raw_key)
        full = f"{path}{key}"
        if key not in fields:
            where = f" in '{path[:-1]}'" if path else ""
            problems.append(f"{origin(full)}there is no key {key!r}{where}{nearest(key, fields)}")
            continue
        hint = hints[key]
        try:
            if dataclasses.is_dataclass(hint):
                inner = _mapping(value, "keys of its own")
                values[key] = _convert_class(typing.cast("type", hint), inner, f"{full}.", problems, origin)
            elif dataclasses.is_dataclass(entry := get_args(hint)[-1:] and get_args(hint)[-1]):
                values[key] = {
                    str(name): _convert_class(
                        typing.cast("type", entry),
                        _mapping(inner, "keys of its own"),
                        f"{full}.{name}.",
                        problems,
                        origin,
                    )
                    for name, inner in _mapping(value, "names and groups of keys").items()
                }
            elif get_origin(hint) is not None and "Mapping" in str(hint):
                values[key] = _convert_map(full, value, problems, origin)
            else:
                values[key] = _scalar(hint, value)
        except _Problem as error:
            problems.append(f"{origin(full)}{full} {error}")
    missing = [n for n, f in fields.items() if n not in data and _required(f)]
    problems += [f"{path}{name} is missing{_missing_hint(path)}; set {path}{name}=…" for name in missing]
    return None if problems else cls(**values)


@functools.cache
def _described(cls: type) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Return types and fields of a class by name; finding the types out takes longer than a whole conversion."""
    return typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}


def _mapping(value: object, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _Problem(f"holds {what}, not {_shown(value)}")
    return value


def _missing_hint(path: str) -> str:
    group = path.split(".", maxsplit=1)[0]
    return f" (no file of the group '{group}' sets it)" if group else ""


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _convert_map(full: str, value: object, problems: list[str], origin: Callable[[str], str]) -> dict[str, Any]:
    convert = {
        "nccl": _nccl,
        "env": _text,
        "bench.log_patterns": _text,
        "secrets.env": _source,
        "secrets.args": _source,
    }.get(full, _arg)
    result: dict[str, Any] = {}
    for raw_key, item in _mapping(value, "names and values").items():
        key = str(raw_key)
        try:
            converted = convert(key, item)
        except _Problem as error:
            problems.append(f"{origin(f'{full}.{key}')}{full}.{key} {error}")
        except ConfigError as error:
            problems.extend(f"{origin(f'{full}.{key}')}{line}" for line in error.problems)
        else:
            if convert is _arg or converted is not None:
                result[key] = converted
    return result


def _nccl(key: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str | int | float | bool):
        raise _Problem(f"is one value, not {_shown(value)}")
    return nccl.canonical(key, value)


def _text(_key: str, value: object) -> str:
    """Take a variable as it is: the environment comes here as it was written."""
    return str(value)


def _source(key: str, value: object) -> str:
    """Take where a secret comes from; a value that looks like the secret itself is not repeated."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        raise _Problem("is no name: letters, digits and '_'")
    if not isinstance(value, str) or not re.match(r"(file|command):.", value):
        raise _Problem("must say where the value comes from: file:PATH or command:COMMAND, never the value itself")
    return value


def _arg(key: str, value: object) -> ArgValue:
    if not key.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise _Problem("is no name of a flag")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Problem(f"is {value}, which no flag takes; quote it if it is meant as text")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list) and all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value):
        return tuple(value)
    raise _Problem(f"must be one value or a list of values, not {_shown(value)}")


def _scalar(hint: object, value: object) -> object:  # noqa: C901 - one case a type
    if get_origin(hint) is Literal:
        choices = [str(c) for c in get_args(hint)]
        if value in choices:
            return value
        raise _Problem(f"is {_shown(value)}{nearest(str(value), choices)}; one of {', '.join(filter(None, choices))}")
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise _Problem(f"must be true or false, not {_shown(value)}")
    if hint is int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise _Problem(f"must be a whole number from 0 up, not {_shown(value)}")
    if hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
            return float(value)
        raise _Problem(f"must be a number from 0 up, not {_shown(value)}")
    if hint is str:
        if value == "???":
            raise _Problem("is missing")
        if isinstance(value, str):
            return value
        raise _Problem(f"must be text, not {_shown(value)}; quote it if it is meant as text")
    if hint == tuple[int, ...]:
        numbers = value if isinstance(value, list) else [value]
        if all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in numbers):
            return tuple(numbers)
        raise _Problem(f"must be a list of whole numbers from 1 up, as [1,8], not {_shown(value)}")
    if get_origin(hint) is tuple:
        if isinstance(value, str) and value:
            return (value,)
        if isinstance(value, list) and all(isinstance(v, str | int) for v in value):
            return tuple(str(v) for v in value)
        raise _Problem(f"must be a list of names, as [a,b], not {_shown(value)}")
    raise TypeError(f"no conversion to {hint!r}")


def _shown(value: object) -> str:
    kinds: dict[type, str] = {dict: "a group of keys", list: "a list", type(None): "null"}
    for kind, word in kinds.items():
        if isinstance(value, kind):
            return word
    return f"{value!r}" if isinstance(value, str) else f"{str(value).lower()} ({type(value).__name__})"
