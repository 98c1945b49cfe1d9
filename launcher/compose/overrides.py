"""Read the overrides of a command line: which are groups, which are values, and what is wrong with them."""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from launcher.compose.sources import called, shown
from launcher.errors import ConfigError, nearest
from launcher.paths import EXPERIMENT, GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.override_parser.types import Override


#: Maps whose names are set one by one, so that each has its own origin and arrives as typed.
_SEVERAL = 2
_MAPS = ("env", "secrets", "secrets.env", "secrets.args", "engine.args")


@dataclass(frozen=True)
class Overrides:
    """A command line's overrides, checked and in canonical order.

    Attributes:
        groups: option by group, in the order of `GROUPS`.
        values: overrides of single values, as Hydra text with ``++``, in the order typed.
        environment: variables set by ``env.NAME=VALUE``; None takes one away.
        typed: what the user wrote, by key; for messages.
    """

    groups: tuple[tuple[str, str], ...]
    values: tuple[str, ...]
    environment: dict[str, str | None]
    typed: dict[str, str]


def quoted(text: str) -> str:
    """Return ``KEY=VALUE`` with the value quoted for Hydra and the whole quoted for a shell, ready to paste."""
    key, _, value = text.partition("=")
    return shlex.quote(f"{key}={quoted_value(value)}")


def quoted_value(value: str) -> str:
    """Return a value in quotes, so that Hydra reads exactly this text."""
    return QuotedString(value, Quote.double).with_quotes()


@functools.lru_cache(maxsize=16384)
def _parsed(text: str) -> Override:
    """Parse one override; the points of a sweep share nearly all of theirs, so nobody may alter the result."""
    return _parser().parse_override(text)


@functools.cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


def parse(texts: Sequence[str], labels: Mapping[str, str] | None = None) -> list[Override]:
    """Parse override texts with Hydra's grammar; all bad ones are named at once.

    Args:
        texts: as typed, or as a file says.
        labels: by text, which file and key it comes from.

    Raises:
        ConfigError: an override does not fit the grammar.
    """
    parsed: list[Override] = []
    problems: list[str] = []
    for text in texts:
        try:
            parsed.append(_parsed(text))
        except HydraException:
            problems.append(
                f"{called(text, labels)} cannot be read; {_advice(shown(text))}"
                if "=" in text
                else f"{text!r} is neither a verb, a deployment's name nor an override KEY=VALUE"
            )
    if problems:
        raise ConfigError(*problems)
    return parsed


def _advice(text: str) -> str:
    """Return how an override could be meant: as one value in quotes, or as a list of which some need quotes."""
    key, _, value = text.partition("=")
    found = f"a value with special characters needs quotes: {quoted(text)}"
    elements = split(value)
    if len(elements) < _SEVERAL:
        return found
    listed = ",".join(one if _is_one(one) else quoted_value(one.strip()) for one in elements)
    return f"{found}; in a list each such value does: {shlex.quote(f'{key}={listed}')}"


def _is_one(element: str) -> bool:
    """Return whether an element of a list can stand there as it is."""
    try:
        return bool(element.strip()) and not _parsed(f"x={element}").is_sweep_override()
    except HydraException:
        return False


def split(text: str) -> list[str]:
    """Split at the commas that stand in no quotes and no brackets."""
    parts, depth, quote, escaped = [""], 0, "", False
    for sign in text:
        if escaped:
            escaped = False
        elif sign == "\\":
            escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and not depth:
            parts.append("")
            continue
        parts[-1] += sign
    return parts


def read(texts: Sequence[str], top_level: Sequence[str], labels: Mapping[str, str] | None = None) -> Overrides:
    """Classify overrides that hold no sweep.

    Args:
        texts: as typed, with or without ``+``.
        top_level: names of the schema's fields, for hints.
        labels: by text, which file and key it comes from; all others were typed.

    Raises:
        ConfigError: bad grammar, a comma list without ``-m``, an unknown first key, a key given twice.
    """
    groups: dict[str, str] = {}
    values: list[str] = []
    environment: dict[str, str | None] = {}
    typed: dict[str, str] = {}
    problems: list[str] = []
    for override in parse(texts, labels):
        line = override.input_line or ""
        key = override.key_or_group
        if problem := _problem(override, line, typed, top_level):
            problems.append(f"{called(line, labels)}{problem}")
            continue
        typed[key] = line
        if key in GROUPS:
            groups[key] = str(override.value())
        elif key.startswith("env."):
            environment[key[4:]] = _variable(override, line)
        else:
            values.append(line if override.is_delete() else "++" + line.lstrip("+"))
    if problems:
        raise ConfigError(*problems)
    ordered = tuple((group, groups[group]) for group in GROUPS if group in groups)
    return Overrides(groups=ordered, values=tuple(values), environment=environment, typed=typed)


def _variable(override: Override, line: str) -> str | None:
    """Return the text as typed: Hydra reads ``1e3`` as 1000.0; only its quotes are taken off."""
    if override.is_delete():
        return None
    raw, value = line.partition("=")[2], override.value()
    return value if isinstance(value, str) and raw.strip()[:1] in {"'", '"'} else raw


def _problem(override: Override, line: str, typed: dict[str, str], top_level: Sequence[str]) -> str:
    """Return what is wrong with an override, as the end of a message that begins with it."""
    key = override.key_or_group
    first = key.split(".", maxsplit=1)[0]
    if key == EXPERIMENT:
        return " is a whole sweep: add -m"
    if override.is_sweep_override():
        return f" is a list of values: add -m to try each, or quote it: {quoted(shown(line))}"
    if key in _MAPS and not override.is_delete():
        return f": set the names one by one: {key}.NAME=VALUE"
    if override.package is not None:
        return ": '@' is not used here; every group has its own place"
    if first not in (*GROUPS, *top_level):
        return f": there is no key or group {first!r}{nearest(first, [*GROUPS, *top_level])}"
    if key in typed:
        return f" contradicts {shown(typed[key])!r}: give {key!r} once"
    if key in GROUPS and override.is_delete():
        return ": a group cannot be removed; choose another option"
    if key in GROUPS and not isinstance(override.value(), str):
        return f": choose one option by name, as {key}=NAME"
    return ""
