"""What stands in the way of a start, as one line of a report."""

from __future__ import annotations

from typing import NamedTuple

REFUSE = "refuse"
WARN = "warn"


class Obstacle(NamedTuple):
    """One obstacle: ``severity`` is "refuse" or "warn"; the text says what, where, and what to do next."""

    id: str
    severity: str
    text: str


def refuse(id_: str, text: str) -> Obstacle:
    """Return an obstacle that the server cannot start with."""
    return Obstacle(id_, REFUSE, text)


def warn(id_: str, text: str) -> Obstacle:
    """Return an obstacle that the server may live with."""
    return Obstacle(id_, WARN, text)


def some(names: "list[str]", most: int = 3) -> str:
    """Return the first of several names, and how many there are besides."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
