"""The values that an override tries: comma lists, choice, range, glob, sort and shuffle, as Hydra reads them."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from hydra.core.override_parser.types import Glob, RangeSweep, Transformer
from hydra.errors import HydraException

from launcher.compose import overrides as ov
from launcher.compose.sources import called
from launcher.errors import ConfigError
from launcher.paths import GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hydra.core.override_parser.types import Override

    from launcher.layers import Layers

#: More points than this are a mistake.
MOST = 5000
_CALL = re.compile(r"\s*[A-Za-z_]\w*\((.*)\)\s*", re.DOTALL)
_NAMED = re.compile(r"\s*[A-Za-z_]\w*\s*=")


def values_of(override: Override, layers: Layers, labels: Mapping[str, str]) -> list[str]:
    """Return what an override tries, each as one would type it alone; Hydra's idea of ``1e3`` alters nothing.

    Raises:
        ConfigError: it names no values, or more than a sweep can hold.
    """
    key, line, value = override.key_or_group, override.input_line or "", override.value()
    if override.is_interval_sweep():
        raise ConfigError(
            f"{called(line, labels)}: interval() names no values to try, and nothing searches it yet: give a list, as"
            f" {key}=A,B, or range(FIRST,END,STEP)"
        )
    try:
        found = _options(override, value, layers, labels) if isinstance(value, Glob) else _listed(override)
    except (HydraException, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{called(line, labels)}: {error}") from error
    if not found:
        raise ConfigError(f"{called(line, labels)} names no values to try: list them, as {key}=A,B")
    return found


def _options(override: Override, glob: Glob, layers: Layers, labels: Mapping[str, str]) -> list[str]:
    """Return the options of a group that a glob picks."""
    key, line = override.key_or_group, override.input_line or ""
    if key not in GROUPS:
        raise ConfigError(
            f"{called(line, labels)}: glob() picks options of a group ({', '.join(GROUPS)}), and {key!r} is none"
        )
    valid = layers.options(key)
    found = glob.filter(valid)
    if not found:
        raise ConfigError(f"{called(line, labels)} names no values to try: the group has {', '.join(valid)}")
    return found


def _listed(override: Override) -> list[str]:
    value = override.value()
    if isinstance(value, RangeSweep):
        _check_length(override.key_or_group, value)
    texts = itertools.islice(map(Transformer.str, override.sweep_iterator()), MOST + 1)
    typed: dict[str, str] = {}
    for leaf in _leaves(override.get_value_string()):
        with suppress(ConfigError):
            typed.setdefault(ov.parse([f"x={leaf}"])[0].get_value_element_as_str(), leaf)
    return [typed.get(text, text) for text in texts]


def _check_length(key: str, value: RangeSweep) -> None:
    """Refuse a range that would not end, before it is walked through."""
    start, stop, step = (float(number or 0) for number in (value.start, value.stop, value.step))
    if not step:
        raise ConfigError(f"{key}: a range with steps of 0 never ends")
    if (stop - start) / step > MOST:
        raise ConfigError(
            f"{key}: a range of {int((stop - start) / step):,} values; a sweep has {MOST:,} points at most"
        )


def _leaves(text: str) -> list[str]:
    """Return the values in the text of a list, out of all its functions, as they are written."""
    parts = ov.split(text)
    if len(parts) > 1:
        return [leaf for part in parts for leaf in _leaves(part)]
    call = _CALL.fullmatch(text)
    if call:
        return [leaf for part in ov.split(call[1]) if not _NAMED.match(part) for leaf in _leaves(part)]
    return [text.strip()]
