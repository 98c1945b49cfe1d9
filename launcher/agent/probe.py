"""The one look at a host. Reads only; its result is the observation, plain data."""

from __future__ import annotations

import hashlib
import os
import platform
import pwd
import re
import socket
import stat
from typing import Any, Dict, List, Optional

from . import credentials, systemd
from .manifest import ManifestError, parse
from .neighbours import POINTER, conflicts, deployed
from .processes import judge, read_bytes, read_process, unit_processes

#: Older ones read quotes in environment files differently and know no LoadCredential=.
OLDEST_SYSTEMD = 247


def probe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Observe one deployment on this host.

    Args:
        request: ``unit`` (name), ``paths`` (files whose state is wanted), ``needs`` (user and programs that the
            release will need), ``secrets`` (names, their folder, and the nonce of their fingerprints).
    """
    unit = request["unit"]
    files = {path: file_state(path) for path in request["paths"]}
    text = read_text(f"/etc/systemd/system/{unit}")
    loaded = systemd.properties(unit)
    applied = _applied(text)
    return {
        "hostname": socket.gethostname(),
        "boot_id": (read_text("/proc/sys/kernel/random/boot_id") or "").strip(),
        "python": platform.python_version(),
        "systemd": systemd.version(),
        "files": files,
        "unit": {"text": text, "loaded": loaded},
        "applied": applied,
        "running": _running(loaded, request["secrets"]),
        "secrets": _stored(request["secrets"]),
        "problems": problems(request["needs"]),
    }


def file_state(path: str) -> Dict[str, Any]:
    """Return digest, mode and owner of a file; an empty digest when it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return {"sha256": "", "mode": 0, "owner": ""}
    content = read_bytes(path) if stat.S_ISREG(status.st_mode) else None
    digest = hashlib.sha256(content).hexdigest() if content is not None else "unreadable"
    return {
        "sha256": digest,
        "mode": stat.S_IMODE(status.st_mode),
        "owner": f"{status.st_uid}:{status.st_gid}",
    }


def read_text(path: str) -> Optional[str]:
    """Return a file as text, or None when it cannot be read."""
    content = read_bytes(path)
    return None if content is None else content.decode("utf-8", "replace")


def problems(needs: Dict[str, Any]) -> List[str]:
    """Return what this host lacks for the release, one line each with the remedy."""
    found: List[str] = []
    if os.geteuid() != 0:
        found.append("not root, and sudo without a password is not allowed for this user")
    version = systemd.version()
    if version < OLDEST_SYSTEMD:
        found.append(f"systemd {version} is too old: {OLDEST_SYSTEMD} or newer is needed")
    try:
        pwd.getpwnam(needs["user"])
    except KeyError:
        found.append(
            f"user {needs['user']!r} does not exist: set engine.user=NAME, or create it with"
            f" useradd --system --create-home --home-dir /var/lib/{needs['user']} {needs['user']}"
        )
    for key, path in needs["programs"].items():
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            found.append(f"{path} is not there or not executable: set {key}=PATH")
    for key, path in needs["folders"].items():
        if not os.path.isdir(path):
            found.append(f"the folder {path} does not exist (for {key})")
    return found + conflicts(needs, deployed())


def _applied(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the release that the unit file on disk points to."""
    found = POINTER.search(text or "")
    return {"digest": found.group(2), "manifest": manifest_at(found.group(1) + ".json")} if found else None


def manifest_at(path: str) -> Optional[Dict[str, Any]]:
    """Return a valid manifest, or None."""
    try:
        return parse(read_text(path) or "", path)
    except ManifestError:
        return None


def _stored(wanted: Dict[str, Any]) -> Dict[str, str]:
    """Return a keyed fingerprint of each secret that lies on this host, "" for those that do not."""
    folder, nonce = wanted["folder"], wanted["nonce"]
    return {i: credentials.fingerprint(nonce, read_bytes(os.path.join(folder, i))) for i in wanted["ids"]}


def _running(loaded: Dict[str, Any], wanted: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return what the main process carries and how all processes compare with it."""
    main = int(loaded.get("MainPID", 0))
    process = read_process(main) if main else None
    if process is None:
        return None
    env = process.env or {}
    digest = env.get("LAUNCH_DIGEST", "")
    path = f"/etc/launch/{env.get('LAUNCH_DEPLOYMENT', '')}/{digest}.json"
    manifest = manifest_at(path) if re.fullmatch("[0-9a-f]{16}", digest) else None
    verdict = judge(list(unit_processes(loaded["ControlGroup"])), manifest, main)._asdict() if manifest else None
    secrets = {
        i: credentials.fingerprint(wanted["nonce"], os.fsencode(env[i]) if i in env else None) for i in wanted["ids"]
    }
    return {"main": main, "digest": digest, "manifest": manifest, "verdict": verdict, "secrets": secrets}
