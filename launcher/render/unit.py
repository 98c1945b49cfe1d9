"""The systemd unit of a deployment, from ``templates/unit.service.j2``."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from launcher.errors import RenderError
from launcher.paths import data_dir
from launcher.render import encode, podman

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jinja2

    from launcher.schema import Deployment

#: Where the agent lies on a host; guard and waiter are started from there.
AGENT_PATH = "/usr/local/lib/launch/agent.py"
#: The guard's last word: started wrongly, and starting again cannot help (sysexits.h, EX_CONFIG).
REFUSED = 78
#: Not a setting of systemd: which credentials the unit loads, as part of the release's identity.
SECRETS = "Secrets"
_SLICE = re.compile(r"launch(-[a-z0-9_.]+)*\.slice")
_WEEK = 7 * 24 * 3600
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def unit_settings(deployment: Deployment) -> dict[str, str]:
    """Return the settings of the unit that belong to the release's identity.

    Raises:
        RenderError: a setting that systemd would read differently.
    """
    engine, unit = deployment.engine, deployment.unit
    if not _USER.fullmatch(engine.user):
        raise RenderError(f"engine.user={engine.user!r} is no name of a Linux user")
    for key, least in (("start_timeout", 10), ("stop_timeout", 1), ("restart_delay", 0)):
        seconds = getattr(unit, key)
        if not least <= seconds <= _WEEK:
            raise RenderError(f"unit.{key}={seconds} must be {least} to {_WEEK} seconds")
    if not _SLICE.fullmatch(unit.slice):
        raise RenderError(f"unit.slice={unit.slice!r} must be launch.slice or one below it, as launch-batch.slice")
    settings = {
        "User": engine.user,
        "Slice": unit.slice,
        "TimeoutStartSec": str(unit.start_timeout),
        "TimeoutStopSec": str(unit.stop_timeout),
        "RestartSec": str(unit.restart_delay),
    }
    if engine.working_directory:
        settings["WorkingDirectory"] = encode.plain_path("engine.working_directory", engine.working_directory)
    if unit.log_file:
        path = encode.plain_path("unit.log_file", unit.log_file)
        settings |= {"StandardOutput": f"append:{path}", "StandardError": f"append:{path}"}
    if podman.is_used(deployment):
        settings["Delegate"] = "yes"
    if engine.name == "sglang":
        # SGLang ends a clean stop by killing itself (0.5.17, tried): without this it counts as a failure.
        settings["SuccessExitStatus"] = "SIGKILL"
    if ids := secret_ids(deployment):
        settings[SECRETS] = " ".join(ids)
    return settings


def secret_ids(deployment: Deployment) -> list[str]:
    """Return the names of the credentials that systemd hands to the guard."""
    return [*sorted(deployment.secrets.env), *(f"arg.{key}" for key in sorted(deployment.secrets.args))]


def guard_words(python: str, manifest: str) -> list[str]:
    """Return the words before the server's own command in ``ExecStart=``."""
    return [python, "-I", "-X", "utf8", AGENT_PATH, "guard", manifest, "--"]


def wait_words(python: str, manifest: str, start_timeout: int) -> list[str]:
    """Return the words of ``ExecStartPost=``; the waiter gives up with a reason before systemd does without."""
    deadline = str(start_timeout - 5)
    return [python, "-I", "-X", "utf8", AGENT_PATH, "wait", manifest, "--pid", "${MAINPID}", "--deadline", deadline]


def account_words(python: str, manifest: str) -> list[str]:
    """Return the words of the second ``ExecStartPost=``, which runs as root to read the journal."""
    return [python, "-I", "-X", "utf8", AGENT_PATH, "account", manifest]


def unit_text(deployment: Deployment, digest: str, argv: Sequence[str], settings: Mapping[str, str]) -> str:
    """Return the text of the unit file."""
    python = encode.plain_path("target.python", deployment.target.python)
    folder = f"/etc/launch/{deployment.name}"
    mounts = [p for p in (deployment.model.path, deployment.spec.draft_model_path) if p.startswith("/")]
    return (
        _template("unit.service.j2")
        .render(
            name=deployment.name,
            digest=digest,
            settings={key: value for key, value in settings.items() if key != SECRETS},
            secrets=secret_ids(deployment),
            folder=folder,
            guard=" ".join(guard_words(python, f"{folder}/{digest}.json")),
            wait=" ".join(wait_words(python, f"{folder}/{digest}.json", deployment.unit.start_timeout)),
            account=" ".join(account_words(python, f"{folder}/{digest}.json")),
            argv=argv,
            mounts=mounts,
            sandbox=not podman.is_used(deployment),
            podman=podman.PROGRAM,
            refused=REFUSED,
        )
        .replace("\r", "")
    )


@cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - unit files are no HTML; every value passes a filter of encode
    )
    environment.filters.update(argument=encode.argument, word=encode.word)
    return environment.get_template(name)
