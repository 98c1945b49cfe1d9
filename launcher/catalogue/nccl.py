"""The NCCL variables: one row each in ``nccl.csv``, and the canonical text of a value.

The legend of the columns and where the facts come from (source tags, released binaries, NVIDIA's
documentation, own runs) is in this folder's README.md. The file is read once, at the first question, not at
import.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from launcher.catalogue import values
from launcher.catalogue.values import RefusedError, Value
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "NCCL_"

# What the words of the on_invalid column mean for the user (legend: README.md).
_CONSEQUENCES = {
    "junk_to_zero": "NCCL would read it as {read}",
    "init_fails": "NCCL's initialisation would fail",
    "logging_off": "NCCL would switch its log off without a message",
    "ignored_silent": "NCCL would ignore it without a message",
    "ignored_info": "NCCL would ignore it with no more than an INFO line",
    "default_silent": "NCCL would use its default without a message",
    "default_info": "NCCL would use its default with no more than an INFO line",
    "default_warn": "NCCL would use its default with a warning",
    "clamp": "NCCL would change it to another number",
    "no_check": "NCCL would take it unchecked",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One row of the catalogue; the fields are its columns, `key` is what a configuration calls it."""

    name: str
    key: str
    kind: str
    allowed: str
    default: str
    default_history: str
    since: str
    removed: str
    scope: str
    reader: str
    documented: bool
    on_invalid: str
    log_evidence: str
    read_when: str
    note: str

    @property
    def is_setting(self) -> bool:
        """Whether some program reads it; misspelt and long gone names are there for the message only."""
        return self.on_invalid != "not_read"


@functools.cache
def variables() -> Mapping[str, Variable]:
    """Return every row of the catalogue by its key: ``algo`` for NCCL_ALGO."""
    with Path(__file__).with_name("nccl.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return MappingProxyType({v.key: v for v in map(_variable, rows)})


def _variable(row: dict[str, str]) -> Variable:
    return Variable(
        name=row["name"],
        key=row["name"].removeprefix(PREFIX).lower(),
        kind=row["type"],
        allowed=row["allowed"],
        default=row["default"],
        default_history=row["default_history"],
        since=row["since_version"],
        removed=row["deprecated_or_removed_in"],
        scope=row["scope"],
        reader=row["reader"],
        documented=row["documented"] == "yes",
        on_invalid=row["on_invalid"],
        log_evidence=row["log_evidence"],
        read_when=row["read_when"],
        note=row["note"],
    )


@functools.cache
def settings() -> frozenset[str]:
    """Return the environment variables that somebody reads: NCCL, its plugins, nccl-tests, or PyTorch."""
    return frozenset(v.name for v in variables().values() if v.is_setting)


def canonical(key: str, value: Value) -> str:
    """Return the one text form of a value that every NCCL release reads the same way.

    A value that NCCL would silently turn into something else is refused, and so is one outside the
    catalogue's `allowed` column, where a value allowed in any release counts. What the catalogue describes
    only in words (interface lists, paths, addresses, plugin names …) passes unchanged.
    """
    variable = _find(key)
    try:
        return _convert(variable, value)
    except RefusedError as refused:
        reaction = "" if refused.complete else _consequence(variable, value)
        problem = f"nccl.{key}={_show(value)}: {refused}"
        link = "" if not reaction else " " if problem.endswith("?") else ". "
        raise ConfigError(problem + link + reaction) from None


def _find(key: str) -> Variable:
    """Return the variable of a key, or explain why there is none."""
    variable = variables().get(key)
    if variable is None:
        keys = tuple(v.key for v in variables().values() if v.is_setting)
        plain = key.upper().removeprefix(PREFIX)
        if plain.lower() in keys:
            message = f"nccl.{key}: write {PREFIX}{plain} as nccl.{plain.lower()}"
        else:
            message = f"nccl.{key}: NCCL reads no variable {PREFIX}{plain}{nearest(plain, keys)}"
        raise ConfigError(message)
    if not variable.is_setting:
        fact = "no longer reads" if variable.reader == "nccl" else "has never read"
        message = f"nccl.{key}: NCCL {fact} {variable.name}. {variable.note}"
        raise ConfigError(message)
    return variable


def _convert(variable: Variable, value: Value) -> str:
    """Apply the rule of the variable's kind."""
    spec = values.allowed(variable.allowed)
    if value == "" and not spec.free:
        raise RefusedError("is empty, which counts as not set: leave the key out", complete=True)
    if isinstance(value, int) and value.bit_length() > 64:
        raise RefusedError("does not fit into 64 bits", complete=True)
    match variable.kind:
        case "bool":
            return values.switch(value, spec)
        case "int":
            return values.number(value, spec)
        case "bytes":
            return values.size(value, spec)
        case "float":
            return values.real(value)
        case "enum" | "level":
            return values.choice(value, spec)
        case "enum-flags":
            return values.flags(value, spec)
        case "enum-list":
            return values.listing(value, spec)
        case "algo-expr":
            return values.expression(value, spec, "NCCL algorithm")
        case "proto-expr":
            return values.expression(value, spec, "NCCL protocol")
    return values.text(value)


def _show(value: Value) -> str:
    """Return the value as a message shows it, of bearable length."""
    if isinstance(value, int) and abs(value) > 2**64:
        return f"({value.bit_length()} bits)"
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "…"


def _consequence(variable: Variable, value: Value) -> str:
    """Say what NCCL itself would have made of a refused value, from the on_invalid column."""
    if isinstance(value, bool) or not isinstance(value, str | int) or variable.reader != "nccl":
        return ""
    plain = str(value)
    column = re.sub(r"\([^)]*\)", "", variable.on_invalid)
    found = re.findall(rf"({'|'.join(_CONSEQUENCES)})[a-z_]*(?:@([<>=.\d]+))?", column)
    if values.INTEGER.fullmatch(plain):
        found = [(word, release) for word, release in found if word != "junk_to_zero"]
    elif found[:1] == [("junk_to_zero", "")]:
        found = found[:1]
    texts = [_CONSEQUENCES[word] + (f" ({release})" if release else "") for word, release in found]
    return "; ".join(texts).format(read=would_read(plain))


def would_read(text: str) -> int:
    """Return what the library's C parser makes of a text: base detected, the end not checked."""
    number = r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]{1,15})|(0[0-7]{0,20})|([1-9][0-9]{0,17}))"
    found = re.match(number, text, re.ASCII)
    if not found:
        return 0
    sign, hexadecimal, octal, decimal = found.groups()
    read = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return -read if sign == "-" else read


def version_of(text: str) -> tuple[int, ...]:
    """Return a version for comparison; empty when none is named (``<=2.3.5`` is the oldest public tag)."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def per_collective(value: str, version: str = "") -> str:
    """Return NCCL_ALGO so that every collective keeps an algorithm.

    Only all-reduce has a tree: from 2.24 a bare ``Tree`` makes the others fail, and from 2.31 a value without a
    leading list clears every function that it does not name (NCCL source; NCCL 2.28.9, run). Before 2.24 there are
    plain lists only, and a bare ``Tree`` is harmless.
    """
    if version and version_of(version) < (2, 24):
        return value
    if value.lower() == "tree":
        return f"Ring,Tree;allreduce:{value}"
    return f"Ring,Tree;{value}" if ":" in value.split(";")[0] else value
