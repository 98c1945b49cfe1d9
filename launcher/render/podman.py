"""The server in a container of podman, as the command of an ordinary unit: the guard becomes ``podman run``.

The guard on the host checks environment and command as ever and becomes podman, which hands each variable of the
release on by its name (``--env=NAME``), from its own environment: so there is one environment file, systemd's. The
container lives in the unit's own control group (``--cgroups=split``), where waiter and check find its processes.

Not Quadlet: a unit in the generator's folder stands below ``/etc`` and cannot be the one pointer that is switched and
switched back. Needs podman 4.0 or newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.render import image as images

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.schema import Deployment

PROGRAM = "/usr/bin/podman"


def is_used(deployment: Deployment) -> bool:
    """Return whether the server runs in a container."""
    return deployment.runtime.kind == "podman"


def words(deployment: Deployment, variables: Iterable[str], argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command of the unit.

    Args:
        deployment: with an image.
        variables: names of what the server gets.
        argv: the server's own command, in the image.

    Raises:
        ConfigError: no image.
    """
    volumes = [f"{m.source}:{m.target}{':ro' if m.read_only else ''}" for m in images.mounts(deployment)]
    if deployment.secrets.args:
        volumes.append(f"/run/launch/{deployment.name}:/run/launch/{deployment.name}:ro")
    return (
        *(PROGRAM, "run", f"--name=launch-{deployment.name}", "--replace", "--rm", "--pull=never"),
        *("--cgroups=split", "--sdnotify=ignore", "--log-driver=none"),
        *("--network=host", "--ipc=host", "--ulimit=host", "--pids-limit=0", "--http-proxy=false"),
        "--device=nvidia.com/gpu=all",
        f"--stop-timeout={deployment.unit.stop_timeout}",
        *(f"--volume={volume}" for volume in volumes),
        # What NCCL would find in the image is no input: it says nowhere that it read it.
        "--volume=/dev/null:/etc/nccl.conf:ro",
        *(f"--env={name}" for name in sorted({*variables, "INVOCATION_ID"})),
        *("--entrypoint=", images.image(deployment)),
        *argv,
    )


def problems(deployment: Deployment) -> list[str]:
    """Return what does not go with a container, one line each."""
    found = []
    if deployment.engine.user != "root":
        found.append(f"engine.user={deployment.engine.user}: podman is started by root here: set engine.user=root")
    if deployment.engine.working_directory:
        found.append("engine.working_directory is a folder of the host; a container has the image's")
    if deployment.target.kind == "process":
        found.append("target=process starts the engine itself: it does not go with runtime=podman")
    if deployment.target.link_test != "off" or deployment.bench.kind == "allreduce":
        found.append("link_test and bench=allreduce need the engine's interpreter on the host, not in an image")
    return found
