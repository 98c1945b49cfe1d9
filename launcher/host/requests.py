"""What is asked of the agent, as plain data; pure builders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from launcher import __version__
from launcher.host import bundle
from launcher.paths import data_dir
from launcher.render import encode, podman
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
#: Seconds that a change may take beside its starts and stops.
_LIMIT_SLACK = 900


@dataclass(frozen=True)
class Change:
    """How a change of one host is done.

    Attributes:
        why: in a few words, for the lease and the history.
        restart: whether the server must be restarted.
        waits: phases after which the host waits for a word: ``staged``, ``stopped``, ``proven``.
        seen: what the plan was made of; another state on the host refuses the change.
        break_lease: end another one's change first.
        id: of this change on this host.
    """

    why: str
    restart: bool
    waits: tuple[str, ...]
    seen: Mapping[str, str]
    break_lease: bool = False
    id: str = field(default_factory=lambda: uuid4().hex[:12])


@dataclass(frozen=True)
class Limits:
    """How long a sweep's session may hold a host: ``seconds`` in all, and ``silence`` without an order."""

    seconds: int
    silence: int = 120


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
        "takes_over": taken_over(deployment),
    }


def taken_over(deployment: Deployment) -> dict[str, Any]:
    """Return which server that launch did not start makes room for a deployment, see `launcher.agent.stray.find`."""
    return {
        "digest": deployment.takes_over,
        "port": deployment.engine.port,
        "name": deployment.name,
        "unit": f"launch-{deployment.name}.service",
        "stop_timeout": deployment.unit.stop_timeout,
        "start_timeout": deployment.unit.start_timeout,
    }


def secrets_folder(release: Release) -> str:
    """Return where a deployment's secrets lie on a host; root alone may look into it."""
    return f"{ETC}/{release.name}/secrets"


def apply_request(
    release: Release,
    deployment: Deployment,
    secrets: SecretValues,
    intent: Mapping[str, Any],
    change: Change,
    link_test: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the request that brings a release into service.

    Args:
        release: what is wanted.
        deployment: what it was rendered from.
        secrets: with their values.
        intent: what the host keeps beside it, see `launcher.render.intent`.
        change: how it is done.
        link_test: of `launcher.bench.allreduce.link_test`.
    """
    return {
        "verb": "apply",
        "link_test": link_test,
        "unit": release.unit_name,
        "files": [_entry(file) for file in release.files],
        "shared": [_entry(file) for file in shared_files(deployment.target.python)],
        "commands": loaded_commands(release, deployment),
        "secrets": _secret_files(release, secrets),
        "needs": needs(deployment),
        "intent": intent,
        "takes_over": taken_over(deployment),
        **change_part(deployment, change),
    }


def change_part(deployment: Deployment, change: Change) -> dict[str, Any]:
    """Return the part of a request that every change has."""
    unit = deployment.unit
    return {
        "id": change.id,
        "why": change.why,
        "waits": list(change.waits),
        "seen": dict(change.seen),
        "restart": change.restart,
        "break_lease": change.break_lease,
        "patience": deployment.target.confirm_timeout,
        "hooks": {"before_stop": unit.before_stop, "after_start": unit.after_start, "drain": unit.drain_seconds},
        # Two starts and two stops at most, draining, hooks and waiting; then systemd ends it and the old state returns.
        "limit": 2 * (unit.start_timeout + unit.stop_timeout) + unit.drain_seconds + _LIMIT_SLACK,
    }


def session_request(
    release: Release, deployment: Deployment, secrets: SecretValues, intent: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Return the request that opens a sweep's session, see `launcher.agent.session`; the release is the baseline's."""
    return {
        "verb": "session",
        "id": uuid4().hex[:12],
        "why": "sweep",
        "unit": release.unit_name,
        "files": [_entry(file) for file in release.files],
        "secrets": [{**entry, "text": ""} for entry in _secret_files(release, secrets)],
        "needs": needs(deployment),
        "intent": intent,
        "limit": limits.seconds,
        "silence": limits.silence,
        "break_lease": False,
    }


def point_order(release: Release, deployment: Deployment, secrets: SecretValues) -> dict[str, Any]:
    """Return the order to a session to serve a point."""
    return {
        "do": "start",
        "files": [_entry(file) for file in release.files],
        "shared": [_entry(file) for file in shared_files(deployment.target.python)],
        "commands": loaded_commands(release, deployment),
        "secrets": _secret_files(release, secrets),
    }


def ask_request(id_: str, number: int, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that gives a session an order."""
    return {"verb": "session-ask", "id": id_, "number": number, "order": order}


def _secret_files(release: Release, secrets: SecretValues) -> list[dict[str, Any]]:
    folder = secrets_folder(release)
    return [_entry(File(f"{folder}/{id_}", value, 0o600)) for id_, value in secrets.reveal().items()]


def history_request(name: str) -> dict[str, Any]:
    """Return the request for the generations of a deployment."""
    return {"verb": "history", "name": name}


def rollback_request(deployment: Deployment, number: int, change: Change, by: str) -> dict[str, Any]:
    """Return the request that applies an older generation."""
    shared = [_entry(file) for file in shared_files(deployment.target.python)]
    whole = {"verb": "rollback", "name": deployment.name, "number": number, "by": by, "launch": __version__}
    return {**whole, "shared": shared, **change_part(deployment, change)}


def continue_request(id_: str, word: str, why: str = "") -> dict[str, Any]:
    """Return the request that says a word to a change, see `launcher.agent.change.go_on`; with a reason to revert."""
    return {"verb": "continue", "id": id_, "word": word, "why": why}


def uninstall_request(name: str, by: str) -> dict[str, Any]:
    """Return the request that takes a deployment off a host."""
    return {"verb": "uninstall", "name": name, "by": by}


def drift_request(deployment: Deployment) -> dict[str, Any]:
    """Return the request for one check of a deployment against what was applied last."""
    return {"verb": "drift", "name": deployment.name, "accept": lasting(deployment)["accept"]}


def fix_request(deployment: Deployment, by: str, *, restart: bool) -> dict[str, Any]:
    """Return the request that puts last applied back; only with ``restart`` the server is touched."""
    shared = [_entry(file) for file in shared_files(deployment.target.python)]
    return {**drift_request(deployment), "verb": "fix", "by": by, "shared": shared, "restart": restart}


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
        "programs": {"engine.python": _program(deployment), "target.python": deployment.target.python},
        "folders": folders,
        "log_file": deployment.unit.log_file,
        "name": deployment.name,
        "port": deployment.engine.port,
        "gpus": list(deployment.engine.gpus),
        "memory_fraction": deployment.engine.memory_fraction,
        "nccl": nccl(deployment),
        "allow": list(deployment.allow),
        "preflight": preflight(deployment),
    }


def _program(deployment: Deployment) -> str:
    """Return what a unit starts on the host, behind the guard."""
    return podman.PROGRAM if podman.is_used(deployment) else deployment.engine.python


def preflight(deployment: Deployment) -> dict[str, Any]:
    """Return what a host looks for before the old server stops, see `launcher.agent.preflight`."""
    engine, args = deployment.engine, deployment.engine.args
    load_format = str(args.get("load_format") or "")
    tokenizer = not any(args.get(key) for key in ("tokenizer", "tokenizer_path", "skip_tokenizer_init"))
    places = {"revision": str(args.get("revision") or ""), "download_dir": str(args.get("download_dir") or "")}
    draft = {
        "path": deployment.spec.draft_model_path,
        "load_format": str(args.get("speculative_draft_load_format") or load_format),
        **places,
        "revision": str(args.get("speculative_draft_model_revision") or ""),
    }
    return {
        "user": engine.user,
        "engine": engine.name,
        "python": _program(deployment),
        "image": deployment.runtime.image if podman.is_used(deployment) else "",
        "env": environment(deployment),
        "working_directory": engine.working_directory,
        "model": {"path": deployment.model.path, "load_format": load_format, "tokenizer": tokenizer, **places},
        "draft": draft if deployment.spec.draft_model_path else None,
        "port": engine.port,
        "host": engine.host,
        "unit": f"launch-{deployment.name}.service",
        "gpus": list(engine.gpus),
        "memory_fraction": engine.memory_fraction,
        "log_file": deployment.unit.log_file,
    }


def nccl(deployment: Deployment) -> dict[str, Any]:
    """Return the variables of NCCL, and whether they also belong into /etc/nccl.conf."""
    env = {name: value for name, value in environment(deployment).items() if name.startswith("NCCL_")}
    return {"block": deployment.unit.nccl_conf, "env": env}
