"""Host keys on record, read as OpenSSH reads ``known_hosts``.

paramiko's own reader knows no patterns, stops at a second key of one type, and skips ``@revoked`` and
``@cert-authority`` lines silently, so that a revoked key on another line is accepted (5.1.0). Here a key is
accepted when a line for the host holds it and no ``@revoked`` line does. Nothing is ever added to a file, and
``StrictHostKeyChecking no`` in somebody's configuration changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from launcher.host.ssh_route import SSH_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.host.ssh_route import Endpoint

Marker = Literal["", "@revoked", "@cert-authority"]


@dataclass(frozen=True)
class Entry:
    """One line of a file."""

    marker: Marker
    patterns: str
    kind: str
    blob: bytes
    file: str
    line: int

    @property
    def where(self) -> str:
        """The line's place, for messages."""
        return f"{self.file}:{self.line}"

    def matches(self, name: str) -> bool:
        """Tell whether the line is about a host: hashed, or patterns of which none with ``!`` fits."""
        if self.patterns.startswith("|1|"):
            return _hash_fits(self.patterns, name)
        words = self.patterns.split(",")
        if any(_fits(word[1:], name) for word in words if word.startswith("!")):
            return False
        return any(_fits(word, name) for word in words if not word.startswith("!"))


@dataclass(frozen=True)
class Record:
    """What the files say about one host."""

    names: tuple[str, ...]
    keys: tuple[Entry, ...] = ()
    # Lines for the host name without its port; OpenSSH accepts their keys, and calls none changed for them.
    portless: tuple[Entry, ...] = ()
    revoked: tuple[Entry, ...] = ()
    authorities: tuple[Entry, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The types of key on record, in which a host has to identify itself."""
        return frozenset(entry.kind for entry in (*self.keys, *self.portless))

    def judge(self, blob: bytes) -> Literal["known", "revoked", "changed", "certificate only", "unknown"]:
        """Return what is known of a key that the host offers."""
        if any(entry.blob == blob for entry in self.revoked):
            return "revoked"
        if any(entry.blob == blob for entry in (*self.keys, *self.portless)):
            return "known"
        if self.keys:
            return "changed"
        return "certificate only" if self.authorities else "unknown"


def record(endpoint: Endpoint) -> Record:
    """Return what an endpoint's files say about it; files that are not there say nothing."""
    entries: list[Entry] = []
    for file in endpoint.known_hosts:
        path = Path(file)
        if path.is_file():
            entries += read(path.read_text(encoding="utf-8", errors="replace"), file)
    return select(entries, names(endpoint))


def names(endpoint: Endpoint) -> tuple[str, ...]:
    """Return what the host is called in the files: its alias, or its name with the port where that is not 22."""
    if endpoint.host_key_alias:
        return (endpoint.host_key_alias.lower(),)
    host = endpoint.hostname.lower()
    return (host,) if endpoint.port == SSH_PORT else (f"[{host}]:{endpoint.port}", host)


def select(entries: Iterable[Entry], called: tuple[str, ...]) -> Record:
    """Return the entries about a host, sorted by what they mean."""
    keys, portless, revoked, authorities = [], [], [], []
    for entry in entries:
        fitting = [name for name in called if entry.matches(name)]
        if not fitting:
            continue
        if entry.marker == "@revoked":
            revoked.append(entry)
        elif entry.marker == "@cert-authority":
            authorities.append(entry)
        elif called[0] in fitting:
            keys.append(entry)
        else:
            portless.append(entry)
    return Record(called, tuple(keys), tuple(portless), tuple(revoked), tuple(authorities))


def read(text: str, file: str) -> list[Entry]:
    """Read a file's text; what OpenSSH would skip (comments, old SSH-1 keys, broken lines) is skipped."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker: Marker = ""
        if words[0] == "@revoked":
            marker = "@revoked"
        elif words[0] == "@cert-authority":
            marker = "@cert-authority"
        elif words[0].startswith("@"):
            continue
        patterns, kind, key = [*words[1 if marker else 0 :], "", "", ""][:3]
        try:
            blob = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            continue
        if blob:
            found.append(Entry(marker, patterns, kind, blob, file, number))
    return found


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as OpenSSH prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _fits(pattern: str, name: str) -> bool:
    wild = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(wild, name) is not None


def _hash_fits(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        wanted = base64.b64decode(digest, validate=True)
        made = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(made, wanted)
