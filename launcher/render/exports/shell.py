"""A POSIX shell script: the same command and environment, started and proven by the program that it carries."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from launcher.render import encode
from launcher.render.exports.export import (
    KEPT_BY_TASK,
    NO_DRIFT,
    NO_LIMITS,
    NO_PLACE,
    NO_WAY_BACK,
    Export,
    head,
    raise_all,
    refuse_nodes,
)
from launcher.render.release import File

if TYPE_CHECKING:
    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

#: Ends the program in the script; no line of Python is this word.
_END = "LAUNCH_PROGRAM"
_LOST = (
    "nobody starts the server again: not after a crash, and not at boot",
    "other variables of the calling shell reach the server; those that are known as settings are refused by name",
    NO_DRIFT,
    NO_WAY_BACK,
    NO_PLACE,
    NO_LIMITS,
)


def build(deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return the script.

    Raises:
        ConfigError: a script cannot carry the deployment.
    """
    problems = refuse_nodes(deployment, "a script")
    if deployment.secrets.args:
        problems.append(
            "secrets.args: these flags reach the server through a file that the unit's guard writes; a script has none."
            " Use launch run, or launch up"
        )
    raise_all(problems)
    python = encode.plain_path("target.python", deployment.target.python)
    name = f"{release.name}.sh"
    # No ``env NAME=VALUE`` for secrets: everybody could read them in the list of processes.
    words = [
        "exec /usr/bin/env",
        *(f"    {encode.environment_file({key: value}).rstrip(chr(10))}" for key, value in sorted(release.env.items())),
        f"    {python} -I -X utf8 -",
        *(f"    {shlex.quote(word)}" for word in release.argv),
        f"    <<'{_END}'",
    ]
    lines = [
        "#!/bin/sh",
        head(release, f"sh {name}", KEPT_BY_TASK, _LOST).rstrip("\n"),
        "# Values are written as they are, a $ too:",
        "# shellcheck disable=SC2016",
        "set -eu",
        *(_secret(key, source) for key, source in sorted(deployment.secrets.env.items())),
        " \\\n".join(words),
        programs.task(release.manifest.text, "shell"),
        _END,
    ]
    return Export(
        (File(name, "\n".join(lines) + "\n", 0o700),), KEPT_BY_TASK, _LOST, f"sh {{folder}}/{name}, where it shall run"
    )


def _secret(name: str, source: str) -> str:
    """Return the line that reads a secret when the script runs, there where it runs."""
    kind, _, rest = source.partition(":")
    if kind == "command":
        read = f"sh -c {shlex.quote(rest)}"
    elif rest.startswith("~/"):
        read = f'cat -- "$HOME"/{shlex.quote(rest[2:])}'
    else:
        read = f"cat -- {shlex.quote(rest)}"
    return f"{name}=$({read})\nexport {name}"
