"""Write what was adopted: secrets first, then the deployment file; all of one server or nothing of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.adopt import secret_store
from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.compose import Layers


def file_of(name: str) -> Path:
    """Return where a deployment's file lies, below the current folder."""
    return Path("conf") / "deployment" / f"{name}.yaml"


def check(name: str, text: str, secrets: Mapping[str, str], layers: Layers) -> bool:
    """Return whether there is something to write: not where the very same file is there already.

    Raises:
        ConfigError: another file, deployment or secret of that name is there.
    """
    file = file_of(name)
    other = f"give another name: name={name}_2, for one server at a time"
    try:
        there = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} is there and cannot be read ({secret_store.reason(error)}); nothing was written"
        ) from None
    if there is not None and there != text:
        raise ConfigError(f"{file} is there already and says something else; nothing was written: {other}")
    if there is None and (hit := layers.find(f"deployment/{name}")):
        raise ConfigError(f"{hit[0].label} has a deployment {name!r} already; nothing was written: {other}")
    secret_store.check(name, secrets)
    return there is None


def write(name: str, text: str, secrets: Mapping[str, str]) -> None:
    """Write secrets and file; a file of that name that has appeared meanwhile is left alone.

    Raises:
        ConfigError: the file has appeared meanwhile.
        LaunchError: something cannot be written; what was made is taken away again.
    """
    file = file_of(name)
    made = secret_store.write(name, secrets)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _put(file, text)
    except FileExistsError as error:
        secret_store.remove(made)
        raise ConfigError(f"{error.filename or file} is there already; nothing was written") from None
    except OSError as error:
        secret_store.remove(made)
        raise LaunchError(f"{file} cannot be written: {secret_store.reason(error)}; nothing was written") from None


def _put(file: Path, text: str) -> None:
    with file.open("x", encoding="utf-8") as stream:
        try:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            with suppress(OSError):
                file.unlink()
            raise
