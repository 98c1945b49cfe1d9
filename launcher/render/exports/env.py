"""Environment files alone, as systemd and as docker and podman read them; the two differ in nearly everything.

docker (26.1.5) and podman (5.4.2) read ``NAME=VALUE`` to the end of the line: quotes, blanks and backslashes belong to
the value, so no value can hold a line's end, and no line can be longer than their scanner takes.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from launcher.errors import RenderError
from launcher.render.exports.export import NO_DRIFT, NO_PLACE, NO_WAY_BACK, Export, head
from launcher.render.release import File

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.render.exports.export import Programs
    from launcher.render.release import Release
    from launcher.schema import Deployment

#: Longest line that Go's bufio.Scanner takes, with its end.
_LONGEST = 64 * 1024
_LOST = (
    "no guard: nothing compares what arrives with the release. A wrong, missing or further variable is not noticed",
    "no proof: neither in the main process nor in its workers",
    "the command is not part of the file: it stands in the manifest and in the comment below",
    "secrets are not part of the file",
    NO_DRIFT,
    NO_WAY_BACK,
    NO_PLACE,
)


def build(deployment: Deployment, release: Release, _programs: Programs) -> Export:
    """Return the file for containers; the one for systemd is part of the release.

    Raises:
        RenderError: a value that such a file cannot hold.
    """
    name = f"{release.name}.container.env"
    use = (
        f"docker run --env-file {name}, podman run --env-file {name}; for systemd: EnvironmentFile={release.digest}.env"
    )
    command = shlex.join(release.argv)
    comments = [f"# command: {command}"] if command.isprintable() else [f"# command: argv in {release.digest}.json"]
    comments += [f"# secret, to be set by other means: {key}" for key in sorted(deployment.secrets.env)]
    comments += [f"# secret flag, not in the command: --{key}" for key in sorted(deployment.secrets.args)]
    text = head(release, use, (), _LOST) + "\n".join(comments) + "\n" + raw(release.env)
    return Export((File(name, text, 0o600),), (), _LOST, f"docker run --env-file {{folder}}/{name} IMAGE COMMAND")


def raw(env: Mapping[str, str]) -> str:
    """Return an environment file as docker and podman read it.

    Raises:
        RenderError: a value with a line's end, or a line that is too long.
    """
    problems = [
        f"env.{name}: {reason}; docker and podman read such files line by line"
        for name, value in sorted(env.items())
        if (reason := _unfit(f"{name}={value}"))
    ]
    if problems:
        raise RenderError(*problems)
    return "".join(f"{name}={value}\n" for name, value in sorted(env.items()))


def _unfit(line: str) -> str:
    if "\n" in line or "\r" in line:
        return "holds the end of a line"
    return f"longer than {_LONGEST - 2} bytes" if len(line.encode()) > _LONGEST - 2 else ""
