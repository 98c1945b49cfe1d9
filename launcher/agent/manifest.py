"""The manifest of a release: what guard, waiter and probe compare a process with."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, Optional

from . import knowledge

#: Version of the manifest's form that this agent reads.
VERSION = 1


class ManifestError(Exception):
    """The manifest is missing, unreadable or not what its digest says."""


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the release's name: 16 hexadecimal digits over argument list, environment and unit settings.

    ``LAUNCH_DIGEST`` itself is left out of the environment. Nothing else of a manifest takes part, so a
    comment, a commit or a new version of this tool changes no digest and restarts nobody.
    """
    env = {k: v for k, v in content["env"].items() if k != "LAUNCH_DIGEST"}
    core = {"argv": list(content["argv"]), "env": env, "unit": dict(content["unit"])}
    text = json.dumps(core, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def checksum_of(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 over everything in a manifest but the checksum itself."""
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def parse(text: str, where: str) -> Dict[str, Any]:
    """Return a manifest from its text.

    Raises:
        ManifestError: no JSON, fields missing, or changed since it was written.
    """
    try:
        manifest = json.loads(text)
        computed = digest_of(manifest)
        digest, version, checksum = manifest["digest"], manifest["version"], manifest["checksum"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{where} is no manifest ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise ManifestError(f"{where} has version {version}, this agent reads {VERSION}: deploy again")
    if computed != digest or checksum_of(manifest) != checksum:
        raise ManifestError(f"{where} was changed after it was written")
    result: Dict[str, Any] = manifest
    return result


def load(path: str) -> Dict[str, Any]:
    """Read a manifest file; its name must carry its digest.

    Raises:
        ManifestError: see `parse`.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path} cannot be read ({error})") from error
    manifest = parse(text, path)
    stem = path.rsplit("/", 1)[-1].split(".", 1)[0]
    if stem != manifest["digest"]:
        raise ManifestError(f"{path} holds release {manifest['digest']}, its name says {stem}")
    return manifest


def compare(
    env: Mapping[str, str],
    manifest: Mapping[str, Any],
    *,
    cut: bool = False,
    also: "Mapping[str, Optional[List[str]]] | None" = None,
) -> List[str]:
    """Return how an environment contradicts a manifest, one line a variable.

    Values are told of variables that the catalogue knows; of any other it could be a secret.

    Args:
        env: of a process.
        manifest: what it should carry.
        cut: the block was overwritten by a renamed process, so absent names are unknown.
        also: values beside the release's that the engine itself is known to write, by name; never of NCCL's.
    """
    problems: List[str] = []
    for name, wanted in sorted(manifest["env"].items()):
        if name not in env:
            if not cut:
                problems.append(f"{name} is missing" + (f" (should be {_short(wanted)})" if known(name) else ""))
        elif env[name] != wanted and not (not name.startswith("NCCL_") and _by_engine(env[name], name, also or {})):
            values = f"is {_short(env[name])} (should be {_short(wanted)})"
            problems.append(f"{name} {values if known(name) else 'has another value'}")
    return problems


def _by_engine(value: str, name: str, also: Mapping[str, Optional[List[str]]]) -> bool:
    allowed = also.get(name, [])
    return allowed is None or value in allowed


def known(name: str) -> bool:
    """Return whether a variable's value may be shown: ours, and what the catalogue knows as a setting."""
    return name in knowledge.SETTINGS or name.startswith("LAUNCH_") or name == "SPT_NOENV"


def _short(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + '..."'
