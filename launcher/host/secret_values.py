"""Read secrets on the deploying side, and compare them with a host's without showing either."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import subprocess
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

_COMMAND_SECONDS = 60


class SecretValues:
    """The secrets of a deployment; read once, never shown."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.nonce = secrets.token_hex(16)

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(self._values)})"

    @property
    def ids(self) -> list[str]:
        """Names of the credentials."""
        return list(self._values)

    def reveal(self) -> dict[str, str]:
        """Return the values, to be written to a host and nowhere else."""
        return dict(self._values)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Return a keyed fingerprint of each value; the key is new for each look, so nothing can be kept of it."""
        return {id_: fingerprint(self.nonce, value) for id_, value in self._values.items()}


def fingerprint(nonce: str, value: str) -> str:
    """Return HMAC-SHA-256 of a value under a nonce, as the probe computes it too."""
    return hmac.new(nonce.encode(), value.encode(), hashlib.sha256).hexdigest()


def read(deployment: Deployment) -> SecretValues:
    """Read every secret from its source.

    Raises:
        ConfigError: a file or command that gives nothing, or more than one line; the value is never repeated.
    """
    values: dict[str, str] = {}
    problems: list[str] = []
    named = [(f"secrets.env.{k}", k, source) for k, source in deployment.secrets.env.items()]
    named += [(f"secrets.args.{k}", f"arg.{k}", source) for k, source in deployment.secrets.args.items()]
    for key, id_, source in named:
        kind, _, rest = source.partition(":")
        try:
            text = (_from_file if kind == "file" else _from_command)(rest)
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            problems.append(f"{key}={source}: {_reason(error)}")
            continue
        text = text.rstrip("\n")
        if not text or not text.isprintable():
            problems.append(f"{key}={source}: gives {'nothing' if not text else 'more than one plain line of text'}")
        values[id_] = text
    if problems:
        raise ConfigError(*problems)
    return SecretValues(values)


def _from_file(name: str) -> str:
    return Path(name).expanduser().read_text(encoding="utf-8")


def _from_command(command: str) -> str:
    # A shell on purpose: the user's own command line, such as `pass show hf | head -1`.
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, timeout=_COMMAND_SECONDS, check=True)  # noqa: S602
    return done.stdout.decode()


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"the command ended with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the command took longer than {_COMMAND_SECONDS} s"
    if isinstance(error, UnicodeDecodeError):
        return "is no UTF-8"
    return getattr(error, "strerror", None) or type(error).__name__
