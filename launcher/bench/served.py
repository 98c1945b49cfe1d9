"""The seam between what is measured of a served model and where it is served: a child here, or a unit on a host."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - read at run time by the type checker's users
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from launcher.sweep.points import Candidate


@dataclass(frozen=True)
class Life:
    """What a start of a point gave.

    Attributes:
        serving: whether it answers, and every process is proven to carry the release.
        message: what went wrong, for people.
        evidence: quoted lines that show it.
        seconds: from the order to start to the proof.
        proof: of `launcher.agent.serving.prove`: ``digest``, ``main``, ``proven`` (pids), ``unknown``, ``odd``,
            ``variables``, ``nccl``.
        lines: of the server's own output during the start, as far as NCCL speaks in them, and the last ones.
        facts: versions and what else a reader may ask for.
    """

    serving: bool
    message: str = ""
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0
    proof: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Production:
    """What serves when a session has put it back.

    Attributes:
        life: of it; not serving: why it cannot be measured.
        digest: of its release.
        env: of its release.
        argv: of its release.
        host: that it listens on.
        port: likewise.
    """

    life: Life
    digest: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    host: str = ""
    port: int = 0


class Servers(Protocol):
    """Where points are served, one after the other."""

    #: For people.
    name: str

    def start(self, candidate: Candidate) -> Life:
        """Start a point and prove it; what was served before is stopped first.

        Raises:
            LaunchError: nothing can be started here at all, now.
        """

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run one load against the point that serves; see `launcher.agent.load.run`.

        Raises:
            LaunchError: the machine cannot be asked.
        """

    def stop(self) -> None:
        """Stop the point that serves; nothing of it stays: no process, no port."""

    def close(self) -> str:
        """Put back what was served before the first point, and return what serves now, for people; once."""
