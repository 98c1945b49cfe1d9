"""The server in the foreground: the same command and environment, without systemd."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from launcher.catalogue import environment as known
from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.render import Release

_ARGUMENT = "arg."


def environment(
    base: Mapping[str, str], given: Mapping[str, str], secrets: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the environment of a server or a measurement, and the settings of the shell that are left out of it.

    A setting that the guard would refuse under systemd is not passed on; everything else of the shell is. Where the
    configuration names no GPUs, those that a scheduler gave (CUDA_VISIBLE_DEVICES) are kept.
    """
    own = {name: value for name, value in secrets.items() if not name.startswith(_ARGUMENT)}
    dropped = sorted(
        name
        for name in base
        if name not in given and name not in own and name in known.settings() and name != "CUDA_VISIBLE_DEVICES"
    )
    kept = {name: value for name, value in base.items() if name not in dropped}
    return {**kept, **given, **own}, dropped


def replace_process(release: Release, env: Mapping[str, str], secrets: Mapping[str, str]) -> NoReturn:
    """Become the server, so that signals and exit code pass through.

    Raises:
        LaunchError: the program cannot be started.
    """
    argv = list(release.argv)
    if arguments := secret_arguments(secrets):
        argv[-1] = secrets_file(arguments)
    folder = release.settings.get("WorkingDirectory")
    try:
        if folder:
            os.chdir(folder)
        os.execve(argv[0], argv, dict(env))  # noqa: S606 - the point of `launch run`
    except OSError as error:
        what = f"engine.working_directory={folder}" if error.filename == folder else f"engine.python={argv[0]}"
        raise LaunchError(f"{what} cannot be used: {error.strerror}") from error


def secret_arguments(secrets: Mapping[str, str]) -> dict[str, str]:
    """Return those of the secrets that are flags of the server, by key."""
    return {name[len(_ARGUMENT) :]: value for name, value in secrets.items() if name.startswith(_ARGUMENT)}


def secrets_file(arguments: Mapping[str, str]) -> str:
    """Write secret flags where only this user can read them, in memory and gone with the session or the machine."""
    folder = tempfile.mkdtemp(prefix="launch-", dir=os.environ.get("XDG_RUNTIME_DIR") or "/dev/shm")  # noqa: S108
    path = Path(folder) / "secrets.yaml"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key.replace('_', '-')}: {json.dumps(value)}\n" for key, value in arguments.items()))
    return str(path)
