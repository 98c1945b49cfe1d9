"""What stands before the cursor: verb, names, flags and overrides, as far as a candidate depends on them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class Line:
    """The words before the cursor and the one at it.

    Attributes:
        bare: verb and names, or points and files.
        overrides: values by key, the last one of each; ``+`` in front is left out.
        flags: values by flag; "" where it has none.
        asks: the flag whose value stands at the cursor.
    """

    current: str
    bare: tuple[str, ...]
    overrides: dict[str, str]
    flags: tuple[tuple[str, str], ...]
    asks: str = ""

    @property
    def verb(self) -> str:
        """The verb, "" where none was typed yet."""
        return self.bare[0] if self.bare else ""

    @property
    def sweeps(self) -> bool:
        """Whether a comma begins another value."""
        return any(flag in ("-m", "--multirun") for flag, _ in self.flags)

    def given(self, flag: str) -> list[str]:
        """Return the values of a flag."""
        return [value for name, value in self.flags if name == flag]


def line(words: Sequence[str], takes: Collection[str]) -> Line:
    """Take words apart; the last one is at the cursor.

    Args:
        words: without the program, quotes resolved.
        takes: flags whose value is the next word.
    """
    *before, current = words or [""]
    bare: list[str] = []
    overrides: dict[str, str] = {}
    flags: list[tuple[str, str]] = []
    asks = ""
    for word in before:
        name, sign, value = word.partition("=")
        if asks:
            flags.append((asks, word))
            asks = ""
        elif word.startswith("-"):
            asks = word if word in takes else ""
            flags += [] if asks else [(name, value)]
        elif sign:
            overrides[name.lstrip("+~")] = value
        else:
            bare.append(word)
    return Line(current, tuple(bare), overrides, tuple(flags), asks)


def of_bash(text: str) -> list[str]:
    """Return the words of a line up to the cursor, the program left out; the last one may be empty."""
    text = re.sub(r"\\$", "", text)
    for quote in ("", "'", '"'):
        try:
            words = shlex.split(f"{text}{quote}")
        except ValueError:
            continue
        begins = not quote and re.search(r"(?<!\\)\s$", text)
        return [*words[1:], ""] if begins or len(words) == 1 else words[1:]
    return [""]


def cut_of_bash(text: str, breaks: str) -> int:
    """Return how many characters of the word at the cursor bash leaves alone: up to the last one that breaks words.

    ``+hw=rtx`` is three words for bash, and it replaces the last; inside quotes nothing breaks a word.
    """
    try:
        shlex.split(re.sub(r"\\$", "", text))
    except ValueError:
        return 0
    return max((of_bash(text)[-1].rfind(sign) + 1 for sign in breaks if not sign.isspace()), default=0)
