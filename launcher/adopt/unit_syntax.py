"""systemd's own syntax: lines of a unit, words of a line, specifiers and variables. It is not that of a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt.source import Word, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from launcher.adopt.source import Source

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_BLANK = " \t\n\r"
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}")


class UnitError(ValueError):
    """systemd refuses the line."""


@dataclass(frozen=True)
class Setting:
    """One assignment of a unit: its section, name, value and source."""

    section: str
    name: str
    value: Word
    source: Source

    @property
    def where(self) -> str:
        """``FILE:LINE``."""
        return f"{self.source.name}:{self.value.line}"

    @property
    def text(self) -> str:
        """The assignment as it is written."""
        return f"{self.name}={self.value.text}"


def settings(source: Source) -> Iterator[Setting | Word]:
    """Yield the assignments of a unit file in order, and each line that is none as a word."""
    section = ""
    for line in _lines(source):
        text = line.text.strip()
        header = re.fullmatch(r"\[([^\]]+)\]", text)
        name, equals, value = text.partition("=")
        if header:
            section = header.group(1)
        elif equals and section:
            yield Setting(section, name.strip(), Word(value.strip(), (), line.marks), source)
        elif text:
            yield line


def _lines(source: Source) -> Iterator[Word]:
    """Yield lines with their continuations; comments in between are skipped."""
    pieces: list[Word] = []
    for number, raw in enumerate(re.split(r"\n|\r\n?", source.text)):
        text = raw.lstrip()
        if text.startswith(("#", ";")) or (not text and not pieces):
            continue
        line = source.line(0) + number
        if text.endswith("\\"):
            pieces.append(Word(text[:-1], marks=((0, line),)))
            continue
        yield joined([*pieces, Word(text, marks=((0, line),))])
        pieces = []
    if pieces:
        yield joined(pieces)


def split(value: Word, *, strict: bool = True) -> list[Word]:
    """Return the words of a value, quotes and escapes undone.

    Raises:
        UnitError: a quote is not closed, or an escape is none.
    """
    text, at, found = value.text, 0, []
    from launcher.adopt.source import Source

    line = Source("", text, value.marks).line
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        begin, (word, at) = at, _word(text, at, strict=strict)
        found.append(Word(word, value.doubts, ((0, line(begin)),)))
    return found


def _word(text: str, at: int, *, strict: bool) -> tuple[str, int]:
    word, quoted = "", ""
    while at < len(text):
        char = text[at]
        if char == "\\":
            piece, at = _escape(text, at + 1, strict=strict)
            word += piece
            continue
        if quoted:
            quoted, word = ("", word) if char == quoted else (quoted, word + char)
        elif char in "'\"":
            quoted = char
        elif char in _BLANK:
            break
        else:
            word += char
        at += 1
    if quoted and strict:
        raise UnitError("a quote is not closed")
    return word, at


def _escape(text: str, at: int, *, strict: bool) -> tuple[str, int]:
    if at >= len(text):
        raise UnitError("a backslash at the end")
    char = text[at]
    if char in _ESCAPES:
        return _ESCAPES[char], at + 1
    if char in "\\'\"":
        return char, at + 1
    code = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})").match(text, at)
    if code:
        number = int(next(g for g in code.groups()[:3] if g), 16) if code.group(4) is None else int(code.group(4), 8)
        if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000:
            return chr(number), code.end()
    if strict:
        raise UnitError(f"systemd knows no escape \\{char}")
    return f"\\{char}", at + 1


def specified(word: Word, known: Mapping[str, str]) -> tuple[Word, list[str]]:
    """Return a word with its specifiers (``%i``) filled in, and those that are not known here."""
    unknown: list[str] = []

    def one(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter == "%":
            return "%"
        if letter not in known:
            unknown.append(match.group())
            return match.group()
        return known[letter]

    return Word(re.sub(r"%([%a-zA-Z])", one, word.text), word.doubts, word.marks), unknown


def expanded(words: list[Word], env: Mapping[str, Word], *, keep: bool) -> tuple[list[Word], list[str]]:
    """Return the words of a command with the variables in them filled in, and those that are not known here.

    Args:
        words: of the command but for the program.
        env: all variables that are known.
        keep: what is not known stays as written; otherwise it is nothing, as for systemd.
    """
    found: list[Word] = []
    unknown: list[str] = []
    for word in words:
        whole = re.fullmatch(r"\$([A-Za-z_]\w*)", word.text)
        if whole and whole.group(1) in env:
            value = env[whole.group(1)]
            pieces = split(Word(value.text, value.doubts, word.marks), strict=False)
            found += [Word(piece.text, value.doubts, word.marks) for piece in pieces]
        elif whole:
            unknown.append(word.text)
            found += [word] if keep else []
        else:
            found.append(_inserted(word, env, unknown, keep=keep))
    return found, unknown


def _inserted(word: Word, env: Mapping[str, Word], unknown: list[str], *, keep: bool) -> Word:
    doubts = list(word.doubts)

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        value = env.get(match.group(1))
        if value is None:
            unknown.append(match.group())
            return match.group() if keep else ""
        doubts.extend(value.doubts)
        return value.text

    return Word(_VARIABLE.sub(one, word.text), tuple(dict.fromkeys(doubts)), word.marks)
