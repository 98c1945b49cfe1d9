"""Candidates, and what the shell shall do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What a further part of the word may follow.
_OPEN = ("=", ".", ":")


class Candidate(NamedTuple):
    """A whole word that may stand at the cursor, and a few words on it for shells that show some."""

    text: str
    told: str = ""


class Offer(NamedTuple):
    """What fits at the cursor; ``files``: any file, found by the shell itself; ``goes_on``: no blank after the word."""

    candidates: tuple[Candidate, ...] = ()
    files: bool = False
    goes_on: bool = False


FILES = Offer(files=True)


def offer(begun: str, candidates: Iterable[Candidate], *, goes_on: bool = False) -> Offer:
    """Return the candidates that go on as a word was begun, each once, in their order."""
    fitting = tuple({c.text: c for c in candidates if c.text.startswith(begun)}.values())
    return Offer(fitting, goes_on=goes_on or any(c.text.endswith(_OPEN) for c in fitting))


def plain(texts: Iterable[str], before: str = "") -> list[Candidate]:
    """Return candidates without explanation, with the same text before each."""
    return [Candidate(f"{before}{text}") for text in texts]
