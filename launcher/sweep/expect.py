"""How long a sweep will take, as far as earlier ones of its kind tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.errors import LaunchError

from . import journal, shelf

if TYPE_CHECKING:
    from pathlib import Path

#: Of one trial before one was measured: collectives alone (2 x H200: 8 s, 11 sizes); a server that loads a large model.
_GUESSED = {"allreduce": 9.0, "serve": 600.0}
#: Sweeps that are looked at, the newest ones.
_LOOKED_AT = 5


@dataclass(frozen=True)
class Trials:
    """How long one trial takes, in seconds, and from how many earlier ones that is known; 0: it is a guess."""

    seconds: float
    known: int

    @property
    def origin(self) -> str:
        """Where the figure comes from, for people."""
        return f"as {self.known} earlier ones" if self.known else "a guess, none was measured here yet"


def trials(out: Path, name: str, kind: str) -> Trials:
    """Return how long a trial takes: of the newest sweeps of this deployment, else of any that measured the same.

    Args:
        out: folder of the results.
        name: of the deployment.
        kind: what is measured.
    """
    try:
        found = [folder for folder in shelf.folders(out) if shelf.kind(folder.name) == kind]
    except LaunchError:
        found = []
    own = [folder for folder in found if folder.name.endswith(f"-{name}-{kind}")]
    seconds = [number for folder in (own or found)[-_LOOKED_AT:] for number in _seconds(folder)]
    if not seconds:
        return Trials(_GUESSED.get(kind, _GUESSED["serve"]), 0)
    return Trials(sum(seconds) / len(seconds), len(seconds))


def _seconds(folder: Path) -> list[float]:
    try:
        return [trial.seconds for trial in journal.load(folder).trials if not trial.failure]
    except LaunchError:
        return []
