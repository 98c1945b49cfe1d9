"""What is asked of the agent, as plain data; pure builders."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from launcher.host import bundle
from launcher.paths import data_dir
from launcher.render import encode
from launcher.render.environment import environment
from launcher.render.intent import lasting
from launcher.render.release import ETC, UNITS, File, Release
from launcher.render.unit import AGENT_PATH, account_words, guard_words, wait_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.host.secret_values import SecretValues
    from launcher.schema import Deployment


#: As the units of ``systemd/`` name the interpreter.
_PYTHON = "/usr/bin/python3"


def shared_files(python: str) -> tuple[File, ...]:
    """Return the files that are the same for every deployment: the agent and the units of ``systemd/``.

    Args:
        python: the host's interpreter; deployments of one host that name different ones write these files in turn.
    """
    program = encode.plain_path("target.python", python)
    units = sorted(p for p in data_dir("systemd").iterdir() if p.suffix in {".service", ".slice", ".target", ".timer"})
    return (
        File(AGENT_PATH, bundle.program(), 0o644),
        *(File(f"{UNITS}/{p.name}", p.read_text(encoding="utf-8").replace(_PYTHON, program), 0o644) for p in units),
    )


def sha256(file: File) -> str:
    """Return the digest of a file's content, as the probe reports it."""
    return hashlib.sha256(file.text.encode()).hexdigest()


def probe_request(release: Release, deployment: Deployment, secrets: SecretValues) -> dict[str, Any]:
    """Return the request for one look; of secrets only names and the key of their fingerprints go with it."""
    return {
        "verb": "probe",
        "unit": release.unit_name,
        "paths": [file.path for file in (*release.files, *shared_files(deployment.target.python))],
        "name": release.name,
        "needs": needs(deployment),
        "secrets": {"folder": secrets_folder(release), "nonce": secrets.nonce, "ids": secrets.ids},
    }


def secrets_folder(release: Release) -> str:
    """Return where a deployment's secrets lie on a host; root alone may look into it."""
    return f"{ETC}/{release.name}/secrets"


def apply_request(
    release: Release, deployment: Deployment, secrets: SecretValues, intent: Mapping[str, Any], *, restart: bool
) -> dict[str, Any]:
    """Return the request that brings a release into service.

    Args:
        release: what is wanted.
        deployment: what it was rendered from.
        secrets: with their values.
        intent: what the host keeps beside it, see `launcher.render.intent`.
        restart: whether the server must be restarted.
    """
    return {
        "verb": "apply",
        "unit": release.unit_name,
        "files": [_entry(file) for file in release.files],
        "shared": [_entry(file) for file in shared_files(deployment.target.python)],
        "commands": loaded_commands(release, deployment),
        "secrets": [
            _entry(File(f"{secrets_folder(release)}/{id_}", value, 0o600)) for id_, value in secrets.reveal().items()
        ],
        "needs": needs(deployment),
        "intent": intent,
        "restart": restart,
    }


def drift_request(deployment: Deployment) -> dict[str, Any]:
    """Return the request for one check of a deployment against what was applied last."""
    return {"verb": "drift", "name": deployment.name, "accept": lasting(deployment)["accept"]}


def fix_request(deployment: Deployment, *, restart: bool) -> dict[str, Any]:
    """Return the request that puts last applied back; only with ``restart`` the server is touched."""
    shared = [_entry(file) for file in shared_files(deployment.target.python)]
    return {**drift_request(deployment), "verb": "fix", "shared": shared, "restart": restart}


def loaded_commands(release: Release, deployment: Deployment) -> list[list[list[str]]]:
    """Return ``ExecStart=`` and ``ExecStartPost=`` as the manager shows them: before variables are put in."""
    python, manifest = deployment.target.python, release.manifest.path
    return [
        [[*guard_words(python, manifest), *(word.replace("$", "$$") for word in release.argv)]],
        [wait_words(python, manifest, deployment.unit.start_timeout), account_words(python, manifest)],
    ]


def _entry(file: File) -> dict[str, Any]:
    return {"path": file.path, "text": file.text, "mode": file.mode, "group": file.group}


def needs(deployment: Deployment) -> dict[str, Any]:
    """Return what a host must have, and must have free, for a deployment."""
    folders = {}
    if deployment.engine.working_directory:
        folders["engine.working_directory"] = deployment.engine.working_directory
    return {
        "user": deployment.engine.user,
        "programs": {"engine.python": deployment.engine.python, "target.python": deployment.target.python},
        "folders": folders,
        "log_file": deployment.unit.log_file,
        "name": deployment.name,
        "port": deployment.engine.port,
        "gpus": list(deployment.engine.gpus),
        "memory_fraction": deployment.engine.memory_fraction,
        "nccl": nccl(deployment),
    }


def nccl(deployment: Deployment) -> dict[str, Any]:
    """Return the variables of NCCL, and whether they also belong into /etc/nccl.conf."""
    env = {name: value for name, value in environment(deployment).items() if name.startswith("NCCL_")}
    return {"block": deployment.unit.nccl_conf, "env": env}
