"""How long a sweep will take, as far as earlier ones of its kind tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.errors import LaunchError

from . import journal, shelf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .record import Sweep

#: Of one trial before one was measured: collectives alone (2 x H200: 8 s, 11 sizes); a server that loads a large model.
_GUESSED = {"allreduce": 9.0, "serve": 600.0}
#: Sweeps that are looked at, the newest ones.
_LOOKED_AT = 5
#: Facts of a sweep that its length hangs on.
_MATTERS = ("model", "hardware", "engine", "ranks", "backend", "program")


@dataclass(frozen=True)
class Trials:
    """How long one trial takes, in seconds, and from how many earlier ones that is known; 0: it is a guess."""

    seconds: float
    known: int

    @property
    def origin(self) -> str:
        """Where the figure comes from, for people."""
        return f"as {self.known} earlier ones" if self.known else "a guess, none was measured here yet"


def trials(out: Path, sweep: Sweep) -> Trials:
    """Return how long a trial takes: of the newest sweeps of this deployment, else of any that measured the same.

    Only sweeps of the same model and engine, on the same hardware and in the same place, tell anything.

    Args:
        out: folder of the results.
        sweep: that is planned.
    """
    name, kind = sweep.name, shelf.kind(sweep.id)
    try:
        found = [folder for folder in shelf.folders(out) if shelf.kind(folder.name) == kind]
    except LaunchError:
        found = []
    own = [folder for folder in found if folder.name.endswith(f"-{name}-{kind}")]
    alike = [*_alike(own, sweep)] or [*_alike(found, sweep)]
    seconds = [trial.seconds for one in alike for trial in one.trials if not trial.failure]
    if not seconds:
        return Trials(_GUESSED.get(kind, _GUESSED["serve"]), 0)
    return Trials(sum(seconds) / len(seconds), len(seconds))


def _alike(folders: Sequence[Path], sweep: Sweep) -> Iterator[Sweep]:
    """Yield the newest sweeps that took as long as this one may."""
    known = 0
    for folder in reversed(folders):
        try:
            found = journal.load(folder)
        except LaunchError:
            continue
        if _where(found) == _where(sweep) and known < _LOOKED_AT:
            known += 1
            yield found


def _where(sweep: Sweep) -> tuple[object, ...]:
    local = sweep.target == "this machine"
    return (local, *(sweep.facts.get(key) for key in _MATTERS))
