"""Where the options of a command end that runs another command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt.source import Word, part

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Spec:
    """The options of a program, as its manual has them.

    Attributes:
        short: letters that take a value.
        long: long options that take a value as the next word.
        flags: long options that take none; None: every one that is not in ``long``.
        single_dash: options of more than one letter that begin with one dash (``-lms``) and take a value.
    """

    short: str = ""
    long: frozenset[str] = frozenset()
    flags: frozenset[str] | None = None
    single_dash: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Options:
    """What was split: the options in their order (value None: takes none), the words after them, strange ones."""

    options: tuple[tuple[str, Word | None], ...]
    rest: tuple[Word, ...]
    unknown: tuple[str, ...] = ()

    def values(self, *names: str) -> list[Word]:
        """Return all values of an option, by any of its names."""
        return [value for name, value in self.options if name in names and value is not None]

    def last(self, *names: str) -> Word | None:
        """Return the last value of an option, None where it has none."""
        values = self.values(*names)
        return values[-1] if values else None

    def has(self, *names: str) -> bool:
        """Return whether an option is given."""
        return any(name in names for name, _ in self.options)


def split(words: Sequence[Word], spec: Spec) -> Options:
    """Split the words behind a program's name into its options and what follows them."""
    found: list[tuple[str, Word | None]] = []
    unknown: list[str] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        value = words[at + 1] if at + 1 < len(words) else None
        if text in spec.single_dash:
            found.append((text, value))
            at += 2
        elif text.startswith("--"):
            at += _long(words[at], value, spec, found, unknown)
        else:
            at += _short(words[at], value, spec, found)
    return Options(tuple(found), tuple(words[at:]), tuple(unknown))


def _long(word: Word, value: Word | None, spec: Spec, found: list[tuple[str, Word | None]], unknown: list[str]) -> int:
    name, equals, _ = word.text.partition("=")
    if spec.flags is not None and name not in spec.flags and name not in spec.long:
        unknown.append(name)
    if equals:
        found.append((name, part(word, len(name) + 1)))
        return 1
    if name in spec.long:
        found.append((name, value))
        return 2
    found.append((name, None))
    return 1


def _short(word: Word, value: Word | None, spec: Spec, found: list[tuple[str, Word | None]]) -> int:
    for at, letter in enumerate(word.text[1:], 1):
        if letter in spec.short:
            inline = word.text[at + 1 :]
            found.append((f"-{letter}", part(word, at + 1) if inline else value))
            return 1 if inline else 2
        found.append((f"-{letter}", None))
    return 1
