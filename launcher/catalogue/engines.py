"""The flags of SGLang and vLLM by release, and those that change nothing.

``engine_flags.csv`` is written by ``python -m launcher.catalogue.check_engines --update`` from the engines' own
sources, ``engine_inert.csv`` by hand; both are read at the first question. Columns and evidence: README.md.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLES = {"sglang": "SGLang", "vllm": "vLLM"}
FLAGS = Path(__file__).with_name("engine_flags.csv")
_INERT = Path(__file__).with_name("engine_inert.csv")


@dataclass(frozen=True, slots=True)
class Flag:
    """One row: a flag as the newest release that has it declares it.

    Attributes:
        takes: none, one, optional (none or one) or many values.
        choices: the values it takes where the source lists them; empty: not listed, or computed.
        since, until: first and last of the releases that were read which have the canonical name.
        spans: every name with its first and last release; the canonical one first.
    """

    engine: str
    name: str
    aliases: tuple[str, ...]
    takes: str
    choices: tuple[str, ...]
    since: str
    until: str
    deprecated: str
    source: str
    spans: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Inert:
    """A flag that a release accepts and that changes nothing."""

    engine: str
    flag: str
    condition: str
    since: str
    until: str
    source: str


def order(version: str) -> tuple[int, ...]:
    """Return what versions are compared by; a local part (``+cpu``) does not count, ``rc`` and ``dev`` come before."""
    parts = re.sub(r"a|b|rc|dev", ".-1.", version.partition("+")[0])
    return (*map(int, re.findall(r"-?\d+", parts)), 0)


@functools.cache
def rows(engine: str) -> tuple[dict[str, str], ...]:
    """Return the rows of an engine as they are written."""
    with FLAGS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = tuple(row for row in rows if row["engine"] == engine)
    if not found:
        message = f"no engine {engine!r}{nearest(engine, TITLES) or '.'} Known: {', '.join(TITLES)}"
        raise ConfigError(message)
    return found


@functools.cache
def versions(engine: str) -> tuple[str, ...]:
    """Return the releases whose source was read, oldest first."""
    return tuple(sorted((row["since"] for row in rows(engine) if not row["flag"]), key=order))


@functools.cache
def flags(engine: str) -> Mapping[str, Flag]:
    """Return every flag of the releases that were read, by its canonical name."""
    return MappingProxyType({row["flag"]: _flag(row) for row in rows(engine) if row["flag"]})


def _flag(row: dict[str, str]) -> Flag:
    own = (row["since"], row["until"])
    spans = {row["flag"]: own}
    for word in row["aliases"].split():
        name, _, span = word.partition("@")
        first, _, last = span.partition("-")
        spans[name] = (first, last) if span else own
    given = {key: row[key] for key in ("engine", "takes", "since", "until", "deprecated", "source")}
    choices = tuple(row["choices"].split("|")) if row["choices"] else ()
    return Flag(name=row["flag"], aliases=tuple(spans)[1:], choices=choices, spans=MappingProxyType(spans), **given)


@functools.cache
def names(engine: str) -> Mapping[str, Flag]:
    """Return every flag by each of its names."""
    return MappingProxyType({name: flag for flag in flags(engine).values() for name in flag.spans})


def inert(engine: str) -> tuple[Inert, ...]:
    """Return the flags of an engine that change nothing, with condition and source."""
    return tuple(row for row in _inert() if row.engine == engine)


@functools.cache
def _inert() -> tuple[Inert, ...]:
    with _INERT.open(encoding="utf-8", newline="") as file:
        return tuple(Inert(**row) for row in csv.DictReader(file))


def is_known(engine: str, version: str) -> bool:
    """Whether a release lies between the oldest and the newest that were read."""
    read = versions(engine)
    return order(read[0]) <= order(version) <= order(read[-1])


def find(engine: str, word: str, version: str | None = None) -> tuple[str, Flag] | None:
    """Return the name that a word of a command line stands for, and its flag, in a release or in any.

    Understood as the engines do: ``--flag=value``, a beginning that only one name has, and for vLLM underscores,
    ``--flag.key`` and ``-O3``.
    """
    name, known = _spelled(engine, word), _valid(engine, version)
    if name not in known and name.startswith("--"):
        longer = [other for other in known if other.startswith(name)]
        name = longer[0] if len(longer) == 1 else name
    return (name, known[name]) if name in known else None


@functools.cache
def _valid(engine: str, version: str | None) -> Mapping[str, Flag]:
    """Return the names that a release has or may have."""
    if version is None:
        return names(engine)
    read = versions(engine)
    return {name: flag for name, flag in names(engine).items() if _may_have(read, flag.spans[name], version)}


def _spelled(engine: str, word: str) -> str:
    name = word.partition("=")[0]
    if engine != "vllm":
        return name
    name = name.partition(".")[0].removesuffix("+")
    if name.startswith("-O"):
        return "--optimization-level"
    return name.replace("_", "-")


def unknown_flag(engine: str, flag: str, version: str | None = None) -> str | None:
    """Return why a release lacks a flag, or None when it has it, or may have it.

    Without a version, a flag that any of the releases has is known. Of releases between two that were read, only
    what both lack is said to be missing. For a release outside of them the message begins with "unknown version":
    it informs, and is no evidence.
    """
    if find(engine, flag, version):
        return None
    title, read, name = TITLES.get(engine, engine), versions(engine), _spelled(engine, flag)
    span = f"{read[0]} to {read[-1]}"
    start = "" if not version or is_known(engine, version) else f"unknown version {version} (read were {span}): "
    once = names(engine).get(name)
    meant = nearest(name, [n for n in _valid(engine, version) if n.startswith("--")]) or "."
    if once is None:
        return f"{start}{title} ({span}) has no flag {flag}{meant}"
    instead = f"; {once.deprecated}" if once.deprecated.startswith("use ") else meant
    return f"{start}{title} {version} has no flag {name} ({_seen(read, once.spans[name])}){instead}"


def _may_have(read: tuple[str, ...], span: tuple[str, str], version: str) -> bool:
    since, until, asked = order(span[0]), order(span[1]), order(version)
    before = max((order(v) for v in read if order(v) < since), default=())
    after = min((order(v) for v in read if order(v) > until), default=None)
    return before < asked and (after is None or asked < after)


def _seen(read: tuple[str, ...], span: tuple[str, str]) -> str:
    words = [f"first seen in {span[0]}"] if span[0] != read[0] else []
    return ", ".join(words + ([f"last seen in {span[1]}"] if span[1] != read[-1] else []))
