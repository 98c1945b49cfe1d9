"""A job of a sweep, and what a sweep needs of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from launcher.errors import LaunchError
from launcher.slurm import states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from launcher.slurm import spool
    from launcher.slurm.states import State


#: Of a trial: job, point, begin.
Key = tuple[str, str, float]


class JobError(LaunchError):
    """A job ended without having measured all of its points."""


class Cluster(Protocol):
    """See `launcher.slurm.cluster.Cluster`."""

    def name(self, job: str) -> str:
        """Return what a job is called in Slurm."""

    def submit(self, job: str, folder: Path, exclude: str, work: Callable[..., None], *given: object) -> str:
        """Submit a function and return the id of its job."""

    def states(self, ids: Sequence[str]) -> dict[str, State]:
        """Return the state of every job."""

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs."""


@dataclass
class Job:
    """A job of the sweep that has not ended; a further try of it has another folder and id."""

    name: str
    folder: Path
    id: str = ""
    tries: int = 1
    state: State = field(default_factory=lambda: states.State("PENDING"))
    #: Since when it has ended in Slurm's eyes without a word of its own.
    silent: float = 0.0
    begun: spool.Begun | None = None
    #: Trials that are in the journal of the sweep already.
    known: set[Key] = field(default_factory=set)

    def told(self) -> str:
        """Return it with id and node, for people."""
        return f"Slurm job {self.id}{f' on {self.state.node}' if self.state.node else ''}"
