"""``a{b,c}`` and ``{1..3}``: what one word of a script becomes before anything else happens to it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.words import Atom

_MOST_WORDS = 200  # from one word; more is no list of arguments


def expand(units: Sequence[Atom]) -> list[list[Atom]]:
    """Expand braces in a word that is given character by character; quoted pieces are one unit each.

    Raises:
        OverflowError: more words than any command has.
    """
    for start in [i for i, unit in enumerate(units) if _is(unit, "{")]:
        if start == 0 and len(units) > 1 and _is(units[1], "}"):
            continue  # a word that begins with {} is no choice
        commas: list[int] = []
        depth, dots, end = 0, False, -1
        for at in range(start, len(units)):
            dots |= depth == 1 and _is(units[at], ".") and _is(units[at - 1], ".")
            if depth == 1 and _is(units[at], "}") and not commas and not dots:
                continue  # a brace with nothing to choose from closes nothing
            depth += _is(units[at], "{") - _is(units[at], "}")
            if depth == 1 and _is(units[at], ","):
                commas.append(at)
            if depth == 0:
                end = at
                break
        if end < 0:
            continue
        edges = [start, *commas, end]
        inner = [list(units[a + 1 : b]) for a, b in itertools.pairwise(edges)]
        choices = [way for piece in inner for way in expand(piece)] if commas else _range(inner[0])
        if choices:
            tails = expand(units[end + 1 :])
            if len(choices) * len(tails) > _MOST_WORDS:
                raise OverflowError
            return [[*units[:start], *choice, *tail] for choice in choices for tail in tails]
    return [list(units)]


def _is(unit: Atom, text: str) -> bool:
    return unit.kind == "bare" and unit.text == text


def _range(units: Sequence[Atom]) -> list[list[Atom]]:
    from launcher.adopt.words import Atom

    if any(unit.kind != "bare" for unit in units):
        return []
    found = re.fullmatch(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?", "".join(unit.text for unit in units))
    if found is None:
        return []
    first, last = int(found.group(1)), int(found.group(2))
    step = abs(int(found.group(3) or 1)) or 1
    if abs(last - first) // step > 1000:
        return []
    width = max(len(t) for t in found.groups()[:2]) if re.search(r"(?:^|\.)-?0\d", found.group()) else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [[Atom("bare", f"{number:0{width}d}", (), units[0].marks)] for number in numbers]
