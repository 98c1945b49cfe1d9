"""What is asked of the agent, as plain data; pure builders."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from launcher.host import bundle
from launcher.paths import data_dir
from launcher.render.release import ETC, UNITS, File, Release
from launcher.render.unit import AGENT_PATH, account_words, guard_words, wait_words

if TYPE_CHECKING:
    from launcher.host.secret_values import SecretValues
    from launcher.schema import Deployment


def shared_files() -> tuple[File, ...]:
    """Return the files that are the same for every deployment: the agent and the units of ``systemd/``."""
    units = sorted(p for p in data_dir("systemd").iterdir() if p.suffix in {".service", ".slice", ".target", ".timer"})
    return (
        File(AGENT_PATH, bundle.program(), 0o644),
        *(File(f"{UNITS}/{path.name}", path.read_text(encoding="utf-8"), 0o644) for path in units),
    )


def sha256(file: File) -> str:
    """Return the digest of a file's content, as the probe reports it."""
    return hashlib.sha256(file.text.encode()).hexdigest()


def probe_request(release: Release, deployment: Deployment, secrets: SecretValues) -> dict[str, Any]:
    """Return the request for one look; of secrets only names and the key of their fingerprints go with it."""
    return {
        "verb": "probe",
        "unit": release.unit_name,
        "paths": [file.path for file in (*release.files, *shared_files())],
        "needs": needs(deployment),
        "secrets": {"folder": secrets_folder(release), "nonce": secrets.nonce, "ids": secrets.ids},
    }


def secrets_folder(release: Release) -> str:
    """Return where a deployment's secrets lie on a host; root alone may look into it."""
    return f"{ETC}/{release.name}/secrets"


def apply_request(release: Release, deployment: Deployment, secrets: SecretValues, *, restart: bool) -> dict[str, Any]:
    """Return the request that brings a release into service."""
    return {
        "verb": "apply",
        "unit": release.unit_name,
        "files": [_entry(file) for file in release.files],
        "shared": [_entry(file) for file in shared_files()],
        "commands": loaded_commands(release, deployment),
        "secrets": [
            _entry(File(f"{secrets_folder(release)}/{id_}", value, 0o600)) for id_, value in secrets.reveal().items()
        ],
        "needs": needs(deployment),
        "restart": restart,
    }


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
    }
