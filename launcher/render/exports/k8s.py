"""Kubernetes objects: a ConfigMap with a program of ours, and a Deployment whose container it starts and proves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.render import image as images
from launcher.render.exports.export import (
    KEPT_BY_TASK,
    NO_DRIFT,
    NO_PLACE,
    Export,
    head,
    plain_name,
    raise_all,
    refuse_nodes,
)
from launcher.render.exports.yaml_text import Block, document, escaped
from launcher.render.release import File

if TYPE_CHECKING:
    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

_LOST = (
    "a refusal (78) is not final: the kubelet starts the container again and again (CrashLoopBackOff)",
    "the old pod is gone before the new one is proven (strategy Recreate: two do not fit on the GPUs)",
    "kubectl rollout undo goes back; whether what it starts is proven stands in the log of that pod alone",
    images.HIDDEN,
    "locked memory cannot be set in a pod: it is that of the node's container runtime (RDMA needs it unlimited)",
    "engine.user, unit.slice and the unit's limits do not hold: the server runs as the image's user",
    "what a webhook or a LimitRange adds to the pod is not seen, unless it changes the environment, which is refused",
    NO_DRIFT,
    NO_PLACE,
)
_SECRET_FLAGS = "secrets.yaml"  # noqa: S105 - the name of a file
_PERIOD = 10


def build(deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return the objects as one file.

    Raises:
        ConfigError: no image, or a deployment that a pod cannot carry.
    """
    image = images.image(deployment)
    raise_all([*refuse_nodes(deployment, "a pod"), *_unfit(deployment)])
    name = f"{release.name}.k8s.yaml"
    lost = (*_LOST, *_of_secrets(deployment, release))
    program = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _program_name(release), "labels": _labels(release)},
        "immutable": True,
        "data": {images.PROGRAM.rpartition("/")[2]: Block(programs.task(release.manifest.text, "container"))},
    }
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": plain_name(release.name), "labels": _labels(release)},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            # A model may take as long to load; the default calls the roll-out failed after ten minutes.
            "progressDeadlineSeconds": deployment.unit.start_timeout + 60,
            "selector": {"matchLabels": _selector(release)},
            "template": {"metadata": {"labels": _labels(release)}, "spec": _pod(deployment, release, image)},
        },
    }
    text = head(release, f"kubectl apply --filename {name}", KEPT_BY_TASK, lost)
    text += "---\n".join(map(document, (program, workload)))
    return Export((File(name, text, 0o600),), KEPT_BY_TASK, lost, f"kubectl apply --filename {{folder}}/{name}")


def _unfit(deployment: Deployment) -> list[str]:
    problems = []
    if deployment.engine.gpus:
        problems.append(
            f"engine.gpus={list(deployment.engine.gpus)}: Kubernetes chooses the GPUs of a pod: leave it empty"
        )
    if deployment.engine.host in ("127.0.0.1", "localhost", "::1"):
        problems.append(
            f"engine.host={deployment.engine.host}: nothing outside of the pod reaches it, its probes neither: set"
            " engine.host=0.0.0.0"
        )
    return problems


def _of_secrets(deployment: Deployment, release: Release) -> tuple[str, ...]:
    words = [f"--from-file={key}=FILE" for key in sorted(deployment.secrets.env)]
    words += [f"--from-file={_SECRET_FLAGS}=FILE"] if deployment.secrets.args else []
    if not words:
        return ()
    told = [f"secrets are yours to bring: kubectl create secret generic {plain_name(release.name)} {' '.join(words)}"]
    if deployment.secrets.args:
        flags = ", ".join(key.replace("_", "-") for key in sorted(deployment.secrets.args))
        told.append(f'the file for {_SECRET_FLAGS} has a line FLAG: "VALUE" for {flags}')
    return tuple(told)


def _program_name(release: Release) -> str:
    return f"{plain_name(release.name)}-{release.digest}"


def _selector(release: Release) -> dict[str, str]:
    return {"app.kubernetes.io/name": plain_name(release.name)[:63].rstrip("-")}


def _labels(release: Release) -> dict[str, str]:
    return {**_selector(release), "launch/digest": release.digest}


def _pod(deployment: Deployment, release: Release, image: str) -> dict[str, Any]:
    mounts = images.mounts(deployment)
    folder = images.PROGRAM.rpartition("/")[0]
    volumes: list[dict[str, Any]] = [
        {"name": "program", "configMap": {"name": _program_name(release)}},
        # Where ranks exchange data; the default of 64 MiB is too small for NCCL.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    volumes += [
        {"name": f"host-{number}", "hostPath": {"path": mount.source, "type": "Directory"}}
        for number, mount in enumerate(mounts)
    ]
    places: list[dict[str, Any]] = [
        {"name": "program", "mountPath": folder, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    places += [
        {"name": f"host-{number}", "mountPath": mount.target, "readOnly": mount.read_only}
        for number, mount in enumerate(mounts)
    ]
    if deployment.secrets.args:
        items = [{"key": _SECRET_FLAGS, "path": _SECRET_FLAGS}]
        volumes.append({"name": "flags", "secret": {"secretName": plain_name(release.name), "items": items}})
        places.append({"name": "flags", "mountPath": f"/run/launch/{release.name}", "readOnly": True})
    return {
        # Else a Service called vllm brings VLLM_PORT=tcp://… into every pod.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": deployment.unit.stop_timeout,
        "containers": [_container(deployment, release, image, places)],
        "volumes": volumes,
    }


def _container(deployment: Deployment, release: Release, image: str, places: list[dict[str, Any]]) -> dict[str, Any]:
    probe = {
        "httpGet": {
            "path": "/health",
            "port": deployment.engine.port,
            "scheme": "HTTPS" if images.has_tls(deployment) else "HTTP",
        },
        "periodSeconds": _PERIOD,
        "timeoutSeconds": 20,
    }
    secrets = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": plain_name(release.name), "key": key}}}
        for key in sorted(deployment.secrets.env)
    ]
    return {
        "name": "server",
        "image": image,
        "command": [escaped(word) for word in images.start_words(deployment)],
        "args": [escaped(word) for word in release.argv],
        "env": [*({"name": key, "value": escaped(value)} for key, value in sorted(release.env.items())), *secrets],
        "ports": [{"name": "http", "containerPort": deployment.engine.port}],
        "resources": {"limits": {"nvidia.com/gpu": deployment.engine.tensor_parallel}},
        "startupProbe": {**probe, "failureThreshold": -(-deployment.unit.start_timeout // _PERIOD)},
        "readinessProbe": {**probe, "failureThreshold": 3},
        "volumeMounts": places,
    }
