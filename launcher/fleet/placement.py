"""Deployments of one command on the same host: they must not want the same port or GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.agent.neighbours import conflicts
from launcher.errors import ConfigError
from launcher.host.requests import needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.schema import Deployment


def check(deployments: Sequence[Deployment]) -> None:
    """Refuse what cannot run side by side, before any host is looked at.

    Raises:
        ConfigError: two deployments want the same port or GPUs of a host.
    """
    problems: list[str] = []
    for index, one in enumerate(deployments):
        for other in deployments[index + 1 :]:
            shared = _hosts(one) & _hosts(other)
            lines = conflicts(needs(one), [needs(other)]) if shared else []
            problems += [f"{one.name} on {', '.join(sorted(shared))}: {line}" for line in lines]
    if problems:
        raise ConfigError(*problems)


def _hosts(deployment: Deployment) -> set[str]:
    return {"localhost"} if deployment.target.kind == "local" else set(deployment.target.hosts)
