"""How people write a host: ``gpu1``, ``ops@gpu1``, ``gpu1:2222``, ``ops@[fd00::1]:2222``, ``fe80::1%eth0``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launcher.errors import ConfigError

# What OpenSSH 9.6 refuses too: names reach a shell through `ProxyCommand` and `Match exec`.
_NOT_IN_A_HOST = re.compile(r"^-|[\s\x00-\x1f\x7f'`\"$\\;&<>|(){}\[\]]")
_NOT_IN_A_USER = re.compile(r"^[-\s]|[\x00-\x1f\x7f'`\"$;&<>|(){}]|\s-|\\$")
_LAST_PORT = 65535


@dataclass(frozen=True)
class Name:
    """A host as it was written; no user is ``""`` and no port is 0."""

    host: str
    user: str = ""
    port: int = 0


def parse(text: str, key: str = "target.hosts") -> Name:
    """Read a host. With more than one colon and no brackets it is an IPv6 address without a port.

    Args:
        text: what was written; ``ssh://`` may stand before it.
        key: where it was written, for the message.

    Raises:
        ConfigError: it is no host, or names a port that cannot be.
    """
    user, at, place = text.removeprefix("ssh://").rpartition("@")
    host, port = _place(place)
    if not host or _NOT_IN_A_HOST.search(host):
        raise ConfigError(f"{key}: {text!r} is not a host; write HOST, USER@HOST, HOST:PORT or [IPV6]:PORT")
    if at and (not user or _NOT_IN_A_USER.search(user)):
        raise ConfigError(f"{key}: {text!r} does not name a user; write USER@HOST")
    if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
        raise ConfigError(f"{key}: {text!r} does not end in a port; write HOST:PORT with a port from 1 to {_LAST_PORT}")
    return Name(host, user, int(port or 0))


def _place(text: str) -> tuple[str, str | None]:
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(.*))?", text)
    if bracketed:
        return bracketed[1], bracketed[2]
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None
