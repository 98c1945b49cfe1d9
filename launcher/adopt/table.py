"""What differs between a server as it was started and as launch will start it: one row each, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: In the order in which people need them: what gets lost first.
KINDS = ("cannot be said", "changed", "left out", "secret", "added")
Kind = Literal["cannot be said", "changed", "left out", "secret", "added"]
SHOWN = "…"


@dataclass(frozen=True)
class Row:
    """One difference.

    Attributes:
        kind: one of `KINDS`.
        what: a flag, a variable, or a part such as ``program``.
        was: as it was started; empty: not there.
        will: as launch starts it; empty: not there.
        why: and what to do, where something is to be done.
    """

    kind: Kind
    what: str
    was: str
    will: str
    why: str


def ordered(rows: list[Row]) -> tuple[Row, ...]:
    """Return rows by their kinds, each once."""
    return tuple(sorted(dict.fromkeys(rows), key=lambda row: KINDS.index(row.kind)))
