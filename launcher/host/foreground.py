"""The server in the foreground: the same command and environment, without systemd."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from launcher.catalogue import environment as known
from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.render import Release


def environment(base: Mapping[str, str], release: Release) -> tuple[dict[str, str], list[str]]:
    """Return the environment to start the server with, and the settings of the shell that are left out of it.

    A setting that the guard would refuse under systemd is not passed on; everything else of the shell is.
    """
    prefixes = known.watched_prefixes()
    dropped = sorted(
        name
        for name in base
        if name not in release.env and (name in known.settings() or name.startswith(tuple(prefixes)))
    )
    kept = {name: value for name, value in base.items() if name not in dropped}
    return {**kept, **release.env}, dropped


def replace_process(release: Release, env: Mapping[str, str]) -> NoReturn:
    """Become the server, so that signals and exit code pass through.

    Raises:
        LaunchError: the program cannot be started.
    """
    try:
        os.execve(release.argv[0], list(release.argv), dict(env))  # noqa: S606 - the point of `launch run`
    except OSError as error:
        raise LaunchError(f"engine.python={release.argv[0]} cannot be started: {error.strerror}") from error
