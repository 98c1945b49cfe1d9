"""A release: what a deployment renders to for one host. Immutable, and named by its digest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.agent.manifest import checksum_of, digest_of
from launcher.errors import RenderError
from launcher.render import command, encode, fit, intent, podman
from launcher.render.environment import environment
from launcher.render.unit import unit_settings, unit_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

#: Everything of ours on a host lies below these.
ETC = "/etc/launch"
UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class File:
    """One file of a release; ``group`` is the user whose primary group may read it, or root."""

    path: str
    text: str
    mode: int
    group: str = "root"


@dataclass(frozen=True)
class Release:
    """The rendered deployment.

    Attributes:
        name: of the deployment.
        digest: 16 hexadecimal digits over argument list, environment and unit settings alone.
        argv: the server's command.
        env: the server's environment, with ``LAUNCH_DEPLOYMENT`` and ``LAUNCH_DIGEST``.
        settings: of the unit.
        port: where the server answers.
        unit: the unit file, the only pointer to the other two.
        env_file: immutable, named by the digest.
        manifest: what guard and waiter compare with.
    """

    name: str
    digest: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    settings: Mapping[str, str]
    port: int
    unit: File
    env_file: File
    manifest: File

    @property
    def unit_name(self) -> str:
        """The unit's name for systemctl."""
        return f"launch-{self.name}.service"

    @property
    def files(self) -> tuple[File, File, File]:
        """All three, in the order in which they are written."""
        return (self.env_file, self.manifest, self.unit)


def _empty(deployment: Deployment) -> list[str]:
    fraction = deployment.engine.memory_fraction
    taken = deployment.takes_over
    found = (
        [] if re.fullmatch("([0-9a-f]{64})?", taken) else [f"takes_over={taken!r} is no SHA-256, as adopt writes it"]
    )
    found += [f"{key} is empty" for key, text in (("model.path", deployment.model.path),) if not text.strip()]
    return found + ([f"engine.memory_fraction={fraction:g} must be 0 to 1"] if fraction > 1 else [])


def render(deployment: Deployment) -> Release:
    """Render a deployment; the same deployment gives the same bytes.

    Raises:
        RenderError: a value cannot survive the trip to the process; names the key.
    """
    argv = command.argv(deployment)
    env = environment(deployment)
    if podman.is_used(deployment):
        given = {*env, "LAUNCH_DEPLOYMENT", "LAUNCH_DIGEST", *deployment.secrets.env}
        argv = podman.words(deployment, given, argv)
    problems = [*encode.check_environment(env), *encode.check_arguments(argv)] or encode.check_total(argv, env)
    if not 1 <= deployment.engine.port <= 65535:
        problems.append(f"engine.port={deployment.engine.port} is no port: 1 to 65535")
    problems += [*_empty(deployment), *fit.problems(deployment), *intent.problems(deployment)]
    problems += podman.problems(deployment) if podman.is_used(deployment) else []
    if problems:
        raise RenderError(*problems)
    settings = unit_settings(deployment)
    env["LAUNCH_DEPLOYMENT"] = deployment.name
    content: dict[str, object] = {"argv": list(argv), "env": env, "unit": dict(settings)}
    digest = digest_of(content)
    env["LAUNCH_DIGEST"] = digest
    folder = f"{ETC}/{deployment.name}"
    manifest: dict[str, object] = {
        **content,
        "version": 1,
        "name": deployment.name,
        "digest": digest,
        "engine": deployment.engine.name,
        "port": deployment.engine.port,
        "host": deployment.engine.host,
        "ready": deployment.unit.ready,
        "allowed": sorted(deployment.allow),
        "gpus": list(deployment.engine.gpus),
        "memory_fraction": deployment.engine.memory_fraction,
        "secrets": {
            "env": sorted(deployment.secrets.env),
            "args": {key.replace("_", "-"): f"arg.{key}" for key in sorted(deployment.secrets.args)},
        },
    }
    manifest["checksum"] = checksum_of(manifest)
    manifest_text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return Release(
        name=deployment.name,
        digest=digest,
        argv=argv,
        env=env,
        settings=settings,
        port=deployment.engine.port,
        unit=File(f"{UNITS}/launch-{deployment.name}.service", unit_text(deployment, digest, argv, settings), 0o644),
        env_file=File(f"{folder}/{digest}.env", encode.environment_file(env), 0o600),
        manifest=File(f"{folder}/{digest}.json", manifest_text, 0o640, group=deployment.engine.user),
    )
