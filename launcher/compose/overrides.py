"""Read the overrides of a command line: which are groups, which are values, and what is wrong with them."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from launcher.compose.sources import shown
from launcher.errors import ConfigError, nearest
from launcher.paths import GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.override_parser.types import Override


#: Maps whose names are set one by one, so that each has its own origin and arrives as typed.
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
    inner = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{inner}"')


def parse(texts: Sequence[str]) -> list[Override]:
    """Parse override texts with Hydra's grammar; all bad ones are named at once.

    Raises:
        ConfigError: an override does not fit the grammar.
    """
    parser = OverridesParser.create()
    parsed: list[Override] = []
    problems: list[str] = []
    for text in texts:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException:
            problems.append(
                f"override {shown(text)!r} cannot be read; a value with special characters needs quotes:"
                f" {quoted(shown(text))}"
                if "=" in text
                else f"{text!r} is neither a verb, a deployment's name nor an override KEY=VALUE"
            )
    if problems:
        raise ConfigError(*problems)
    return parsed


@dataclass(frozen=True)
class Expansion:
    """A command line with comma lists, taken apart.

    Attributes:
        axes: swept keys with their values, in the order typed.
        fixed: override texts that are the same for every point.
        points: of each point its override texts and its value by axis; the product of all lists and ranges.
    """

    axes: dict[str, tuple[str, ...]]
    fixed: tuple[str, ...]
    points: tuple[tuple[tuple[str, ...], dict[str, str]], ...]


def expand(texts: Sequence[str]) -> Expansion:
    """Expand comma lists, ranges and choices.

    Raises:
        ConfigError: an override does not fit the grammar, a key is swept twice, or no values are named.
    """
    fixed: list[str] = []
    written: dict[str, list[tuple[str, str]]] = {}
    for override in parse(texts):
        if not override.is_sweep_override():
            fixed.append(override.input_line or "")
            continue
        key, element = override.key_or_group, override.get_key_element()
        if key in written:
            raise ConfigError(f"{key} is swept twice: give one list")
        if key.startswith("secrets"):
            raise ConfigError(f"{key}: a secret is no axis of a sweep: it changes no measurement")
        try:
            values = [str(value) for value in override.sweep_string_iterator()]
        except HydraException:  # glob and interval, which name no values
            values = []
        if not values:
            raise ConfigError(f"override {override.input_line!r} names no values to try: list them, as {key}=A,B")
        written[key] = [(f"{element}={value}", value) for value in values]
    points = tuple(
        ((*fixed, *(word for word, _ in chosen)), {key: v for key, (_, v) in zip(written, chosen, strict=True)})
        for chosen in itertools.product(*written.values())
    )
    return Expansion({key: tuple(v for _, v in values) for key, values in written.items()}, tuple(fixed), points)


def read(texts: Sequence[str], top_level: Sequence[str]) -> Overrides:
    """Classify overrides that hold no sweep.

    Args:
        texts: as typed, with or without ``+``.
        top_level: names of the schema's fields, for hints.

    Raises:
        ConfigError: bad grammar, a comma list without ``-m``, an unknown first key, a key given twice.
    """
    groups: dict[str, str] = {}
    values: list[str] = []
    environment: dict[str, str | None] = {}
    typed: dict[str, str] = {}
    problems: list[str] = []
    for override in parse(texts):
        line = override.input_line or ""
        key = override.key_or_group
        if problem := _problem(override, line, key, typed, top_level):
            problems.append(problem)
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


def _problem(override: Override, line: str, key: str, typed: dict[str, str], top_level: Sequence[str]) -> str:
    first = key.split(".", maxsplit=1)[0]
    line = shown(line)
    if override.is_sweep_override():
        return f"override {line!r} is a list of values: add -m to try each, or quote it: {quoted(line)}"
    if key in _MAPS and not override.is_delete():
        return f"override {line!r}: set the names one by one: {key}.NAME=VALUE"
    if override.package is not None:
        return f"override {line!r}: '@' is not used here; every group has its own place"
    if first not in (*GROUPS, *top_level):
        return f"override {line!r}: there is no key or group {first!r}{nearest(first, [*GROUPS, *top_level])}"
    if key in typed:
        return f"override {line!r} contradicts {shown(typed[key])!r}: give {key!r} once"
    if key in GROUPS and override.is_delete():
        return f"override {line!r}: a group cannot be removed; choose another option"
    if key in GROUPS and not isinstance(override.value(), str):
        return f"override {line!r}: choose one option by name, as {key}=NAME"
    return ""
