"""A Compose file: the server in a container of docker, started and proven in it by a program of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.render import image as images
from launcher.render.exports.export import (
    KEPT_BY_TASK,
    NO_DRIFT,
    NO_PLACE,
    NO_WAY_BACK,
    Export,
    head,
    plain_name,
    raise_all,
    refuse_nodes,
)
from launcher.render.exports.yaml_text import document, escaped
from launcher.render.release import File

if TYPE_CHECKING:
    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

_LOST = (
    "a refusal (78) is not final: docker starts the container again and again, with longer pauses",
    images.HIDDEN,
    "engine.user, unit.slice and the unit's limits do not hold: the server runs as the image's user",
    NO_DRIFT,
    "a container keeps the environment that it was made with: use docker compose up, not docker restart",
    NO_WAY_BACK,
    NO_PLACE,
)
_ASK = "import urllib.request as r,ssl;r.urlopen('{url}',timeout=15{more})"


def build(deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return the Compose file and the program beside it.

    Raises:
        ConfigError: no image, or a deployment that one file cannot carry.
    """
    raise_all(refuse_nodes(deployment, "a Compose file"))
    name, program = f"{release.name}.compose.yaml", f"{release.digest}.program.py"
    use = f"docker compose --file {name} up --detach --wait"
    lost = (*_LOST, *_of_secrets(deployment, release))
    data = {"name": plain_name(release.name), "services": {"server": _service(deployment, release, program)}}
    return Export(
        (
            File(name, head(release, use, KEPT_BY_TASK, lost) + document(data), 0o600),
            File(program, programs.task(release.manifest.text, "container"), 0o644),
        ),
        KEPT_BY_TASK,
        lost,
        f"docker compose --file {{folder}}/{name} up --detach --wait",
    )


def _of_secrets(deployment: Deployment, release: Release) -> tuple[str, ...]:
    """Return what its user has to write, since no secret is part of the file."""
    told = []
    if deployment.secrets.env:
        names = ", ".join(sorted(deployment.secrets.env))
        told.append(
            f"secrets are yours to bring: {release.name}.secrets.env beside this file, mode 0600, with a line"
            f" NAME='VALUE' for {names}; docker inspect shows them to whoever may use docker"
        )
    if deployment.secrets.args:
        flags = ", ".join(key.replace("_", "-") for key in sorted(deployment.secrets.args))
        told.append(f'{release.name}.secrets.yaml beside this file, mode 0600, with a line FLAG: "VALUE" for {flags}')
    return tuple(told)


def _service(deployment: Deployment, release: Release, program: str) -> dict[str, Any]:
    unit = deployment.unit
    volumes = [_volume(f"./{program}", images.PROGRAM)]
    volumes += [_volume(*mount) for mount in images.mounts(deployment)]
    if deployment.secrets.args:
        volumes.append(_volume(f"./{release.name}.secrets.yaml", f"/run/launch/{release.name}/secrets.yaml"))
    return {
        "image": images.image(deployment),
        "container_name": f"launch-{release.name}",
        "entrypoint": [escaped(word) for word in images.start_words(deployment)],
        "command": [escaped(word) for word in release.argv],
        "environment": {key: escaped(value) for key, value in sorted(release.env.items())},
        **({"env_file": [f"./{release.name}.secrets.env"]} if deployment.secrets.env else {}),
        "labels": {"launch.deployment": release.name, "launch.digest": release.digest},
        "network_mode": "host",
        "ipc": "host",
        "ulimits": {"memlock": -1, "nofile": 524288},
        # All GPUs, as a unit has them: CUDA_VISIBLE_DEVICES of the release chooses, and counts over all.
        "deploy": {
            "resources": {"reservations": {"devices": [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]}}
        },
        "volumes": volumes,
        "restart": "unless-stopped",
        "stop_grace_period": f"{unit.stop_timeout}s",
        "healthcheck": {
            "test": ["CMD", deployment.engine.python, "-I", "-c", _question(deployment)],
            "interval": "10s",
            "timeout": "20s",
            "retries": 6,
            "start_period": f"{unit.start_timeout}s",
        },
    }


def _question(deployment: Deployment) -> str:
    more = ",context=ssl._create_unverified_context()" if images.has_tls(deployment) else ""
    return _ASK.format(url=images.health_url(deployment), more=more)


def _volume(source: str, target: str, read_only: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
    bind = {"type": "bind", "source": source, "target": target, "read_only": read_only}
    # A path that is not there is an error, not an empty folder.
    return {**bind, "bind": {"create_host_path": False}}
