"""Secrets that were found in commands: each in a file of its own that only its user can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.adopt.settings import SECRETS
from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check(name: str, values: Mapping[str, str]) -> None:
    """Refuse to go on where another secret would be overwritten.

    Raises:
        ConfigError: a file is there and holds something else.
    """
    for key, value in values.items():
        shown, path = f"{SECRETS}/{name}/{key}", _path(name, key)
        try:
            there = path.read_text(encoding="utf-8").rstrip("\n")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{shown} is there already and cannot be read: {reason(error)}") from None
        if there != value.rstrip("\n"):
            raise ConfigError(f"{shown} is there already and holds another value: move it away, or give another name=")


def write(name: str, values: Mapping[str, str]) -> list[Path]:
    """Write what is not there yet, and return the files that were made.

    Raises:
        LaunchError: one cannot be written; those made before are taken away again.
    """
    made: list[Path] = []
    try:
        for key, value in values.items():
            path = _path(name, key)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.chmod(0o700)
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue  # the same value: `check` has looked
            made.append(path)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                os.fchmod(stream.fileno(), 0o600)
                stream.write(value.rstrip("\n") + "\n")
                stream.flush()
                os.fsync(stream.fileno())
    except OSError as error:
        remove(made)
        raise LaunchError(f"{SECRETS}/{name}: {reason(error)}; nothing was written") from None
    return made


def remove(paths: list[Path]) -> None:
    """Take files away that were just made."""
    for path in paths:
        with suppress(OSError):
            path.unlink()
        with suppress(OSError):
            path.parent.rmdir()


def _path(name: str, key: str) -> Path:
    try:
        return Path(SECRETS).expanduser() / name / key
    except RuntimeError as error:
        raise LaunchError(f"{SECRETS}: {error}") from error


def reason(error: Exception) -> str:
    """Return why a file could not be read or written, in a few words."""
    return getattr(error, "strerror", None) or type(error).__name__
