"""Measure points with `bench=allreduce`: on this machine as a child, or on a host through the agent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launcher.agent import bench as here
from launcher.agent.comm_ranks import Ranks
from launcher.bench import allreduce
from launcher.bench.steps import sizes, steps
from launcher.errors import ConfigError, HostError, LaunchError
from launcher.fleet.rollout import transports
from launcher.host import foreground

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.host.transport import Transport
    from launcher.schema import Deployment
    from launcher.sweep.record import Point, Trial

    #: Of `launcher.bench.allreduce.specification`.
    Spec = Mapping[str, Any]
    Events = Callable[[str], None]


#: Processors that a machine must have for each rank before the next ranks are started beside those that measure.
_CPUS_PER_RANK = 4


class Place(Protocol):
    """Where measurements run."""

    #: For people.
    name: str

    def measure(self, deployment: Deployment, spec: Spec, upcoming: Spec | None, emit: Events) -> dict[str, Any]:
        """Return the answer of `launcher.agent.bench.measure`; ``upcoming`` may be made ready meanwhile."""

    def close(self) -> None:
        """End what was prepared."""


class Here:
    """The machine that launch runs on, without systemd and without becoming another user."""

    name = "this machine"

    def __init__(self) -> None:
        self._ahead: Ranks | None = None

    def close(self) -> None:
        """See `Place.close`."""
        if self._ahead:
            self._ahead.stop()
            self._ahead = None

    def measure(self, deployment: Deployment, spec: Spec, upcoming: Spec | None, emit: Events) -> dict[str, Any]:
        """See `Place.measure`.

        The next ranks import torch meanwhile, where that leaves the ones that measure their processors.
        """
        whole = self._whole(spec)
        if self._ahead and self._ahead.spec != whole:
            self.close()
        ready, self._ahead = self._ahead, None
        if upcoming and not spec.get("nccl_tests") and (os.cpu_count() or 1) >= _CPUS_PER_RANK * spec["world"]:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # its own trial will say what is wrong
                self._ahead = Ranks(self._whole(upcoming)).start()
        return here.measure(whole, list(deployment.allow), emit, ready)

    def _whole(self, spec: Spec) -> dict[str, Any]:
        """Complete the environment; settings of NCCL and the engines in this shell are left out, as by `launch run`."""
        env, _ = foreground.environment(os.environ, spec["env"], {})
        # A scheduler's choice of GPUs is the one that counts where the configuration names none.
        gpus = spec["gpus"] or [word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.isdigit()]
        cwd = spec["cwd"] or str(Path.cwd())
        return {**spec, "env": env, "gpus": gpus, "user": "", "cwd": cwd}


class There:
    """A host that is reached through the agent, as root, who becomes the engine's user."""

    def __init__(self, way: Transport, by: str) -> None:
        self.name = way.host
        self._way, self._by = way, by

    def measure(self, deployment: Deployment, spec: Spec, upcoming: Spec | None, emit: Events) -> dict[str, Any]:  # noqa: ARG002
        """See `Place.measure`; each question to a host is whole."""
        request = {
            "verb": "bench",
            "spec": spec,
            "name": deployment.name,
            "by": self._by,
            "allow": list(deployment.allow),
        }
        answer = self._way.call(request, emit)
        if answer["problems"]:
            raise HostError(self.name, "; ".join(answer["problems"]))
        return answer

    def close(self) -> None:
        """See `Place.close`."""


def place(deployment: Deployment, by: str) -> Place:
    """Return where a deployment is measured.

    Raises:
        ConfigError: nowhere is named, or several hosts are.
    """
    target = deployment.target
    if target.kind == "render":
        raise ConfigError(
            "there is nothing to measure on: add target=process for this machine, or target=ssh 'target.hosts=[HOST]'"
        )
    if target.kind == "process":
        return Here()
    ways = transports(target)
    if len(ways) > 1:
        raise ConfigError("a measurement takes one host: name one in target.hosts")
    return There(ways[0], by)


class AllReduce:
    """Measures the collectives of points; see `launcher.sweep.session.Measure`."""

    def __init__(self, deployments: Mapping[str, Deployment], where: Place, emit: Events) -> None:
        self._deployments, self._where, self._emit = deployments, where, emit

    def _specification(self, point: Point) -> dict[str, Any]:
        deployment = self._deployments[point.digest]
        return allreduce.specification(deployment, sizes(steps(deployment)))

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:
        """Measure one fresh start of all ranks.

        Raises:
            LaunchError: something else holds the GPUs or the host, or there is no GPU.
        """
        deployment = self._deployments[point.digest]
        wanted = steps(deployment)
        spec = self._specification(point)
        then = self._specification(upcoming) if upcoming else None
        begin = time.time()
        answer = self._where.measure(deployment, spec, then, self._emit)
        if answer["outcome"] in ("refused", "locked", "lacking"):
            raise _error(self._where.name, answer)
        env = {name: value for name, value in spec["env"].items() if name.startswith("NCCL_")}
        return allreduce.trial(point.digest, order, begin, time.time() - begin, answer, wanted, env)


class LockedError(HostError):
    """Another launch is changing the host."""

    exit_code = 6


def _error(name: str, answer: Mapping[str, Any]) -> LaunchError:
    if answer["outcome"] == "locked":
        return LockedError(name, answer["message"])
    return HostError(name, answer["message"])
