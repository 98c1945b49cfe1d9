"""A text and where it stands: every word, and every text inside of a word, knows its line in the file."""

from __future__ import annotations

import bisect
import functools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from launcher.adopt.found import Remark
from launcher.adopt.secret import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Pairs of an offset in a text and the line of the file that stands there.
Marks = tuple[tuple[int, int], ...]

_LONGEST_QUOTE = 160


class Assumed(Remark):
    """A remark on a value that is taken as known all the same, such as a default."""


@dataclass(frozen=True)
class Word:
    """One argument as the program would get it.

    Attributes:
        text: what is not known stays visible in it as written, such as ``$MODEL``.
        doubts: what is not known of it.
        marks: where its characters stand in the file.
    """

    text: str
    doubts: tuple[Remark, ...] = ()
    marks: Marks = ((0, 1),)

    @property
    def unknown(self) -> bool:
        """Whether a part of it is not known."""
        return any(not isinstance(doubt, Assumed) for doubt in self.doubts)

    @property
    def line(self) -> int:
        """The line in which it begins."""
        return self.marks[0][1] if self.marks else 1


#: What is not said.
NOTHING = Word("")


@dataclass(frozen=True)
class Source:
    """A text to be read.

    Attributes:
        name: of its file, as the user named it.
        text: all of it.
        marks: where its characters stand in the file.
    """

    name: str
    text: str
    marks: Marks = field(default=((0, 1),))

    def line(self, offset: int) -> int:
        """Return the line of the file in which a character stands."""
        at = max(0, bisect.bisect_right([mark[0] for mark in self.marks], offset) - 1)
        start, line = self.marks[at]
        return line + bisect.bisect_left(self._ends, offset) - bisect.bisect_left(self._ends, start)

    @functools.cached_property
    def _ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def where(self, offset: int) -> str:
        """Return ``FILE:LINE`` of a character."""
        return f"{self.name}:{self.line(offset)}"

    def remark(self, start: int, end: int, why: str) -> Remark:
        """Return a remark that quotes the text between two offsets."""
        return Remark(self.where(start), quote(self.text[start:end]), why)


def quote(text: str) -> str:
    """Return a piece of the input on one line, secrets masked."""
    start = text[: 4 * _LONGEST_QUOTE].replace("\\\n", " ").strip("\n")
    line = " ".join(start.split("\n")[0].split())
    shown = masked(line)
    cut = len(shown) > _LONGEST_QUOTE or "\n" in start or len(text) > 4 * _LONGEST_QUOTE
    return shown[:_LONGEST_QUOTE] + (" …" if cut else "")


def plain(texts: Iterable[str], line: int = 1) -> tuple[Word, ...]:
    """Return words that all stand in one line."""
    return tuple(Word(text, marks=((0, line),)) for text in texts)


def joined(words: Sequence[Word], between: str = " ") -> Word:
    """Return words as one text, each part still knowing its line."""
    text, marks = "", []
    for number, word in enumerate(words):
        text += between if number else ""
        marks += [(offset + len(text), line) for offset, line in word.marks]
        text += word.text
    return Word(text, tuple(doubt for word in words for doubt in word.doubts), tuple(marks) or ((0, 1),))


def part(word: Word, start: int, end: int | None = None) -> Word:
    """Return a piece of a word."""
    end = len(word.text) if end is None else end
    text = word.text[start:end]
    source = Source("", word.text, word.marks)
    inside = tuple((offset - start, line) for offset, line in word.marks if start < offset < end)
    return replace(word, text=text, marks=((0, source.line(start)), *inside))
