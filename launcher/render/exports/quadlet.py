"""A Quadlet file: podman's generator makes the unit of it, and a program of ours in the container guards and proves.

Only keys that podman 4.4 has, the first with Quadlet; everything else goes through ``PodmanArgs=``, so that the same
file means the same in every version: an unknown key is ignored by some and an error for others, and ``Notify=healthy``
means "at once" before 5.0. Ready is what the program reports after the proof (``Notify=true``).

The generator takes ``Exec=`` apart as systemd does and quotes it again; ``%`` and ``$`` go through it to systemd. What
``EnvironmentFile=`` names is read by podman, which takes quotes for part of the value: hence a file of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from launcher.render import encode
from launcher.render import image as images
from launcher.render.exports.env import raw
from launcher.render.exports.export import (
    KEPT_BY_TASK,
    NO_DRIFT,
    NO_PLACE,
    NO_WAY_BACK,
    Export,
    head,
    raise_all,
    refuse_nodes,
)
from launcher.render.release import ETC, File

if TYPE_CHECKING:
    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

_KEPT = (
    *KEPT_BY_TASK,
    "systemctl start returns when the server answers and is proven; a refusal (78) is final",
)
_LOST = (
    images.HIDDEN,
    "engine.user does not hold: the server runs as the image's user",
    "launch status, drift, history and rollback know nothing of this server: its unit is made by podman's generator",
    NO_DRIFT,
    NO_WAY_BACK,
    NO_PLACE,
)
#: Where the files belong: the generator's folder, and ours.
FOLDER = "/etc/containers/systemd"


def build(deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return the Quadlet file, and environment file and program that it names.

    Raises:
        ConfigError: no image, or a deployment that one container cannot carry.
    """
    raise_all(refuse_nodes(deployment, "a Quadlet file"))
    name = f"launch-{release.name}.container"
    files = {"env": f"{release.digest}.container.env", "program": f"{release.digest}.program.py"}
    folder = f"{ETC}/{release.name}"
    use = f"{files['env']} and {files['program']} belong into {folder}, this file into {FOLDER}"
    lost = (*_LOST, *_of_secrets(deployment))
    sections = {
        "Unit": _unit(deployment, release),
        "Container": _container(deployment, release, {key: f"{folder}/{file}" for key, file in files.items()}),
        "Service": _service(deployment),
        "Install": ["WantedBy=multi-user.target"],
    }
    text = head(release, use, _KEPT, lost)
    text += "\n".join("\n".join([f"[{title}]", *lines, ""]) for title, lines in sections.items())
    commands = [
        f"install -D -m 644 -t {folder} {{folder}}/{files['program']}",
        f"install -D -m 600 -t {folder} {{folder}}/{files['env']}",
        f"install -D -m 644 -t {FOLDER} {{folder}}/{name}",
        "systemctl daemon-reload",
        f"systemctl restart launch-{release.name}.service",
    ]
    return Export(
        (
            File(name, text, 0o644),
            File(files["env"], raw(release.env), 0o600),
            File(files["program"], programs.task(release.manifest.text, "container"), 0o644),
        ),
        _KEPT,
        lost,
        " && ".join(commands),
    )


def _of_secrets(deployment: Deployment) -> tuple[str, ...]:
    names = [*sorted(deployment.secrets.env), *(["secrets.yaml"] if deployment.secrets.args else [])]
    told = [f"secrets are yours to bring: podman secret create {_secret(deployment, name)} FILE" for name in names]
    if deployment.secrets.args:
        flags = ", ".join(key.replace("_", "-") for key in sorted(deployment.secrets.args))
        told.append(f'the file for secrets.yaml has a line FLAG: "VALUE" for {flags}')
    return tuple(told)


def _secret(deployment: Deployment, name: str) -> str:
    return f"launch-{deployment.name}-{name}"


def _unit(deployment: Deployment, release: Release) -> list[str]:
    mounts = [mount.source for mount in images.mounts(deployment)]
    return [
        f"Description=LLM server {release.name} (launch {release.digest})",
        "Wants=network-online.target",
        "After=network-online.target nvidia-persistenced.service nvidia-fabricmanager.service",
        *(f"RequiresMountsFor={encode.word(path)}" for path in mounts),
        "StartLimitIntervalSec=1h",
        "StartLimitBurst=30",
    ]


def _container(deployment: Deployment, release: Release, files: dict[str, str]) -> list[str]:
    volumes = [f"{files['program']}:{images.PROGRAM}:ro"]
    volumes += [f"{m.source}:{m.target}{':ro' if m.read_only else ''}" for m in images.mounts(deployment)]
    return [
        f"Image={images.image(deployment)}",
        f"ContainerName=launch-{release.name}",
        f"Exec={' '.join(map(encode.argument, release.argv))}",
        f"EnvironmentFile={files['env']}",
        # All GPUs, as a unit has them: CUDA_VISIBLE_DEVICES of the release chooses, and counts over all.
        "AddDevice=nvidia.com/gpu=all",
        "Network=host",
        "Notify=true",
        *(f"Volume={volume}" for volume in volumes),
        *(f"PodmanArgs={encode.argument(word)}" for word in _arguments(deployment, release)),
    ]


def _arguments(deployment: Deployment, release: Release) -> list[str]:
    secrets = [f"--secret={_secret(deployment, key)},type=env,target={key}" for key in sorted(deployment.secrets.env)]
    if deployment.secrets.args:
        place = f"/run/launch/{release.name}/secrets.yaml"
        secrets.append(f"--secret={_secret(deployment, 'secrets.yaml')},target={place},mode=0400")
    return [
        f"--entrypoint={json.dumps(images.start_words(deployment))}",
        "--ipc=host",
        # Those of the unit: locked memory without a limit, for RDMA.
        "--ulimit=host",
        "--pids-limit=0",
        # Else podman hands on the proxy variables of the host.
        "--http-proxy=false",
        f"--stop-timeout={deployment.unit.stop_timeout}",
        f"--label=launch.digest={release.digest}",
        *secrets,
    ]


def _service(deployment: Deployment) -> list[str]:
    unit = deployment.unit
    return [
        f"TimeoutStartSec={unit.start_timeout}",
        # podman needs a moment of its own to end a container.
        f"TimeoutStopSec={unit.stop_timeout + 30}",
        f"RestartSec={unit.restart_delay}",
        "Restart=always",
        "RestartPreventExitStatus=78",
        "OOMPolicy=stop",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=524288",
        "TasksMax=infinity",
    ]
