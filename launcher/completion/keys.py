"""The keys of a deployment and their values, from the schema and from what is known of NCCL and the engines."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from launcher.catalogue import engines, nccl, values
from launcher.completion.offer import Candidate, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCES = ("file:", "command:")
_ENGINE_ARGS = ["engine", "args"]


def keys(begun: str, engine: str) -> list[Candidate]:
    """Return the keys at the level of one that was begun: those with keys of their own end in a dot.

    Args:
        begun: a dotted key up to the cursor.
        engine: whose flags stand in ``engine.args``.
    """
    inner = begun.split(".")[:-1]
    before = "".join(f"{part}." for part in inner)
    if inner == ["nccl"]:
        variables = sorted(nccl.variables().values(), key=lambda v: not v.documented)
        return [Candidate(f"{before}{v.key}=", v.name) for v in variables if v.is_setting]
    if inner == _ENGINE_ARGS:
        flags = engines.flags(engine).values() if engine in engines.TITLES else ()
        return [Candidate(f"{before}{_arg(flag.name)}=", flag.deprecated) for flag in flags]
    hint = _hint(inner)
    if not isinstance(hint, type) or not dataclasses.is_dataclass(hint):
        return []
    return [Candidate(f"{before}{name}{'.' if _nested(hint) else '='}") for name, hint in _hints(hint)]


def choices(key: str, engine: str) -> list[Candidate]:
    """Return the values that a key can have, where they are a closed set."""
    *inner, name = key.split(".")
    if inner == ["nccl"]:
        variable = nccl.variables().get(name)
        return plain(values.allowed(variable.allowed).words) if variable else []
    if inner == _ENGINE_ARGS:
        return _flag_values(name, engine)
    if inner[:1] == ["secrets"]:
        return plain(_SOURCES)
    hint = _hint([*inner, name])
    if get_origin(hint) is Literal:
        return plain(filter(None, get_args(hint)))
    return plain(("true", "false")) if hint is bool else []


def _flag_values(name: str, engine: str) -> list[Candidate]:
    flags = engines.flags(engine).values() if engine in engines.TITLES else ()
    flag = next((flag for flag in flags if _arg(flag.name) == name.replace("-", "_")), None)
    if flag is None:
        return []
    return plain(("true", "false") if flag.takes == "none" else flag.choices)


def _arg(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _hint(parts: Sequence[str]) -> object:
    """Return the type of a dotted key; None where there is no such key, or a value of any name."""
    from launcher.schema import Deployment  # its classes take a third of the time that an answer may take

    hint: object = Deployment
    for part in parts:
        entry = get_args(hint)[-1:]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            hint = dict(_hints(hint)).get(part)
        elif entry and dataclasses.is_dataclass(entry[0]):
            hint = entry[0]
        else:
            return None
    return hint


@functools.cache
def _hints(cls: type) -> tuple[tuple[str, object], ...]:
    return tuple(typing.get_type_hints(cls).items())


def _nested(hint: object) -> bool:
    return dataclasses.is_dataclass(hint) or "Mapping" in str(hint)
