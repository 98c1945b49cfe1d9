"""What stands in the way of a start, as one line of a report."""

from __future__ import annotations

from typing import NamedTuple

REFUSE = "refuse"
WARN = "warn"

_OF_A_MODEL = ("folder", "missing", "config", "index", "unreadable")
#: Ids of the obstacles that refuse, as `--allow` takes them.
REFUSALS = frozenset(
    (
        *(f"{prefix}-{id_}" for prefix in ("model", "draft") for id_ in _OF_A_MODEL),
        *("draft-mismatch", "engine-python", "engine-missing", "disk-read-only", "disk-full", "disk-inodes"),
        *("port", "gpu-busy", "image-missing"),
    )
)


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
