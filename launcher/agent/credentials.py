"""Secrets on the host: systemd hands them to the guard as credentials; nobody shows them."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any, Dict, Mapping, Optional

from .processes import read_bytes, read_process


class CredentialError(Exception):
    """A secret that the release names did not arrive."""


def read(id_: str) -> str:
    """Return one credential of this process's unit.

    Raises:
        CredentialError: systemd handed none over, or an empty one.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    content = read_bytes(os.path.join(folder, id_)) if folder else None
    if not content:
        raise CredentialError(f"the secret {id_} did not arrive (LoadCredential=): deploy again")
    return content.decode("utf-8", "surrogateescape")


def environment(manifest: Mapping[str, Any]) -> Dict[str, str]:
    """Return the secret variables of a release.

    Raises:
        CredentialError: one is not there.
    """
    return {name: read(name) for name in manifest.get("secrets", {}).get("env", [])}


def write_arguments(manifest: Mapping[str, Any], folder: str) -> None:
    """Write the engine's secret flags into a file that only its user can read.

    Raises:
        CredentialError: one is not there.
        OSError: the file cannot be written.
    """
    arguments = manifest.get("secrets", {}).get("args", {})
    if not arguments:
        return
    # JSON strings are YAML strings.
    text = "".join(f"{flag}: {json.dumps(read(id_))}\n" for flag, id_ in arguments.items())
    path = os.path.join(folder, "secrets.yaml")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(text)


def api_key(manifest: Mapping[str, Any], main: int) -> str:
    """Return the key that the server will ask a client for, or "".

    systemd 252 hands credentials to the main process only (tried), so the waiter looks where the guard put them.
    """
    secrets = manifest.get("secrets", {})
    if "api-key" in secrets.get("args", {}):
        text = (read_bytes(f"/run/launch/{manifest['name']}/secrets.yaml") or b"").decode("utf-8", "surrogateescape")
        lines = dict(line.split(": ", 1) for line in text.splitlines())
        return str(json.loads(lines.get("api-key", '""')))
    if "VLLM_API_KEY" in secrets.get("env", []):
        process = read_process(main)
        return ((process.env if process else None) or {}).get("VLLM_API_KEY", "")
    return ""


def fingerprint(nonce: str, value: Optional[bytes]) -> str:
    """Return a keyed fingerprint of a secret, "" for none."""
    return "" if value is None else hmac.new(nonce.encode(), value, hashlib.sha256).hexdigest()
