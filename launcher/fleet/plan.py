"""Desired release against observation: what would change on one host, and whether its server restarts."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from launcher.agent import nccl_block
from launcher.agent.expect import differences
from launcher.agent.nccl_conf import PATH, BlockError
from launcher.fleet.interfaces import no_interface
from launcher.fleet.versions import judged_by_versions
from launcher.host.requests import loaded_commands, nccl, sha256, shared_files
from launcher.render.intent import LASTING, lasting
from launcher.render.release import ETC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.render import Release
    from launcher.render.release import File
    from launcher.schema import Deployment


@dataclass(frozen=True)
class Change:
    """One difference; ``old`` or ``new`` is None where the thing is not there."""

    kind: Literal["variable", "argument", "unit", "secret", "file", "service"]
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class HostPlan:
    """What would be done on one host.

    Attributes:
        changes: differences between what is there and the release; empty when nothing would be done.
        restart: why the server would be restarted or started; "" when it would not.
        waits: whether this very release is starting, so that its proof has to be waited for.
        running: digest of the release that the main process carries, "" when none runs.
        problems: what the host lacks; any of them stops the deployment before a change.
        notes: things worth knowing that stop nothing.
        facts: what the host is, as the agent found it.
        seen: digests of what the plan was made of.
        takes_over: of a server that launch did not start and that makes room: its command, and how long nobody serves.
    """

    host: str
    digest: str
    changes: tuple[Change, ...] = ()
    restart: str = ""
    waits: bool = False
    running: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    takes_over: tuple[str, ...] = ()

    @property
    def in_sync(self) -> bool:
        """Whether nothing would be done."""
        return not self.changes and not self.restart and not self.waits


def plan_host(
    host: str,
    release: Release,
    deployment: Deployment,
    observation: Mapping[str, Any],
    secrets: Mapping[str, str] | None = None,
) -> HostPlan:
    """Compare a release with what a probe saw.

    Args:
        host: its name.
        release: what is wanted.
        deployment: what the release was rendered from.
        observation: what is there.
        secrets: keyed fingerprints of the wanted secrets, by name.
    """
    if observation["problems"]:
        return HostPlan(host, release.digest, problems=tuple(observation["problems"]))
    wanted = secrets or {}
    running, applied, loaded = observation["running"], observation["applied"], observation["unit"]["loaded"]
    base = (running or {}).get("manifest") or (applied or {}).get("manifest")
    changes = [
        *release_changes(base, release),
        *_secret_changes(observation["secrets"], wanted),
        *_file_changes(observation["files"], (*release.files, *shared_files(deployment.target.python))),
        *_record_changes(observation["record"], release, deployment),
        *_nccl_conf_changes(observation["nccl_conf"], deployment),
        *_service_changes(loaded, observation["files"], release, loaded_commands(release, deployment)),
    ]
    facts = observation["facts"]
    foreign = observation["foreign"] or []
    notes = [
        f"{path} was not written by launch: it is kept as generation 0, and uninstall puts it back" for path in foreign
    ]
    notes += [f"drop-in of somebody else: {path}" for path in loaded["DropInPaths"] if path not in foreign]
    for path, names in (facts["nccl_files"] or {}).items():
        more = [name for name in names if name not in release.env]
        notes += [f"NCCL also reads {path}: {', '.join(more)}"] if more else []
    expected = differences(asdict(deployment.hw), facts)
    notes += [f"{found.text} [{found.id}]" for found in expected if found.severity != "inform"]
    refused, warned = judged_by_versions(deployment, facts)
    taken = observation["stray"]
    return HostPlan(
        host=host,
        digest=release.digest,
        changes=tuple(changes),
        restart="; ".join(taken["told"][:1])
        or _restart_reason(release, observation)
        or _stale_secret(observation, wanted),
        waits=loaded["ActiveState"] == "activating" and (running or {}).get("digest") == release.digest,
        running=(running or {}).get("digest", ""),
        problems=(*refused, *no_interface(deployment, facts), *taken["problems"]),
        notes=(*notes, *warned, *taken["notes"]),
        facts=facts,
        seen=observation["seen"],
        takes_over=tuple(taken["told"][1:]),
    )


def release_changes(base: Mapping[str, Any] | None, release: Release) -> list[Change]:
    """Return in which variables, arguments and settings a release differs from another one's manifest."""
    return manifest_changes(base, {"env": release.env, "argv": release.argv, "unit": release.settings})


def manifest_changes(base: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> list[Change]:
    """Return in which variables, arguments and settings two manifests differ."""
    old_env = dict(base["env"]) if base else {}
    old_argv = arguments(base["argv"]) if base else {}
    old_unit = dict(base["unit"]) if base else {}
    return [
        *_differences("argument", old_argv, arguments(wanted["argv"])),
        *_differences("variable", old_env, wanted["env"]),
        *_differences("unit", old_unit, wanted["unit"]),
    ]


def _secret_changes(stored: Mapping[str, str], wanted: Mapping[str, str]) -> list[Change]:
    return [
        Change("secret", name, "another value" if stored.get(name) else None, "the value from its source")
        for name, mark in wanted.items()
        if stored.get(name) != mark
    ]


def _stale_secret(observation: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    """Return why the running server needs a restart to get its secrets; flags can only be compared on disk."""
    for name, mark in wanted.items():
        seen = observation["secrets" if name.startswith("arg.") else "running"]
        if (seen if name.startswith("arg.") else seen["secrets"]).get(name) != mark:
            return f"restart: the secret {name} has changed"
    return ""


def _differences(
    kind: Literal["variable", "argument", "unit"], old: Mapping[str, str], new: Mapping[str, str]
) -> list[Change]:
    names = [*new, *(name for name in old if name not in new)]
    return [
        Change(kind, name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name) and name != "LAUNCH_DIGEST"
    ]


def arguments(argv: Sequence[str]) -> dict[str, str]:
    """Split a command into its flags: shell-quoted values by flag, the words before the first flag as "command"."""
    groups: dict[str, list[str]] = {}
    name = "command"
    for index, word in enumerate(argv):
        if word.startswith("--") and index:
            name = word
            groups.setdefault(name, [])
        else:
            groups.setdefault(name, []).append(word)
    return {name: shlex.join(words) for name, words in groups.items()}


def _file_changes(files: Mapping[str, Mapping[str, Any]], wanted: Sequence[File]) -> list[Change]:
    changes: list[Change] = []
    for file in wanted:
        seen = files[file.path]
        if seen["sha256"] != sha256(file):
            changes.append(Change("file", file.path, "other content" if seen["sha256"] else None, "this release's"))
        elif seen["mode"] != file.mode or not seen["owner"].startswith("0:"):
            changes.append(Change("file", file.path, f"mode {seen['mode']:04o}", f"mode {file.mode:04o}"))
    return changes


def _record_changes(record: Mapping[str, Any] | None, release: Release, deployment: Deployment) -> list[Change]:
    """Return what a deploy would only write down: what drift is measured against. A new release always does."""
    path = f"{ETC}/{release.name}/applied.json"
    if record is None:
        return [Change("file", path, None, "this release's")]
    wanted = lasting(deployment)
    other = [word for key, word in LASTING.items() if record["intent"].get(key) != wanted[key]]
    return [Change("file", path, f"other {', '.join(other)}", "this configuration's")] if other else []


def _nccl_conf_changes(text: str | None, deployment: Deployment) -> list[Change]:
    try:
        if nccl_block.wanted(text, deployment.name, nccl(deployment)) == text:
            return []
    except BlockError:
        return []  # the host has told of it as a problem
    if deployment.unit.nccl_conf:
        return [Change("file", PATH, "another block, or none", "this release's variables")]
    return [Change("file", PATH, "a block of this deployment", "no block")]


def _service_changes(
    loaded: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    release: Release,
    commands: Sequence[Sequence[Sequence[str]]],
) -> list[Change]:
    changes: list[Change] = []
    if loaded["UnitFileState"] != "enabled":
        changes.append(Change("service", "start at boot", loaded["UnitFileState"] or None, "enabled"))
    if loaded["NeedDaemonReload"]:
        changes.append(Change("service", "unit as loaded", "older than its files", "reloaded"))
    if loaded["FragmentPath"] and files[release.unit.path]["sha256"] == sha256(release.unit):
        shown = {"environment file": (", ".join(e[0] for e in loaded["EnvironmentFiles"]), release.env_file.path)}
        for name, wanted in zip(("ExecStart", "ExecStartPost"), commands, strict=True):
            is_ = "; ".join(shlex.join(entry[1]) for entry in loaded[name])
            shown[f"{name}="] = (is_, "; ".join(map(shlex.join, wanted)))
        changes += [
            Change("service", f"{name} as loaded", is_ or None, "as in the unit file")
            for name, (is_, should) in shown.items()
            if is_ != should
        ]
    return changes


def _restart_reason(release: Release, observation: Mapping[str, Any]) -> str:
    running, loaded = observation["running"], observation["unit"]["loaded"]
    if running is None:
        return "start: it is not running"
    if running["digest"] != release.digest:
        return f"restart: release {running['digest'] or 'unknown'} is running"
    if running["manifest"] is None:
        return "restart: its manifest is gone or was changed"
    if loaded["ActiveState"] == "activating":
        return ""  # it loads already: to start it over would cost minutes
    verdict = running["verdict"]
    if verdict is None:
        return f"restart: the service is {loaded['ActiveState']}"
    return f"restart: {verdict['contradictions'][0]}" if verdict["contradictions"] else ""
