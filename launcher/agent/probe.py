"""The one look at a host. Reads only; its result is the observation, plain data."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Any, Dict, Optional

from . import credentials, nccl_block, origin, record, stray, systemd
from .evidence import settled, unguarded
from .facts import facts
from .library import account
from .manifest import ManifestError, parse
from .needs import problems
from .neighbours import POINTER
from .processes import read_bytes, read_process
from .record import state


def probe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Observe one deployment on this host.

    Args:
        request: ``unit`` (name), ``paths`` (files whose state is wanted), ``needs`` (user and programs that the
            release will need), ``secrets`` (names, their folder, and the nonce of their fingerprints), ``takes_over``
            (see `launcher.agent.stray.find`).

    Returns:
        The observation; only ``problems`` where the host cannot be looked at.
    """
    unit = request["unit"]
    lacking = problems(request["needs"], unit)
    if lacking:
        return {"problems": lacking}
    text = read_text(f"/etc/systemd/system/{unit}")
    loaded = systemd.properties(unit)
    taken = stray.look(request["takes_over"])
    return {
        "files": {path: file_state(path) for path in request["paths"]},
        "unit": {"text": text, "loaded": loaded},
        "applied": _applied(text),
        "record": _recorded(request["name"]),
        "seen": {**state(f"/etc/systemd/system/{unit}", request["name"]), "taken": taken["mark"]},
        "stray": taken,
        "foreign": origin.is_first(request["name"]) and [p for p in origin.paths(unit) if os.path.lexists(p)],
        "nccl_conf": nccl_block.read(),
        "running": _running(request["needs"]["name"], loaded, request["secrets"]),
        "secrets": _stored(request["secrets"]),
        "facts": facts(request["needs"]["programs"]["engine.python"], request["needs"]["user"]),
        "problems": [],
    }


def file_state(path: str) -> Dict[str, Any]:
    """Return digest, mode and owner of a file; an empty digest when it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return {"sha256": "", "mode": 0, "owner": ""}
    content = read_bytes(path) if stat.S_ISREG(status.st_mode) else None
    digest = hashlib.sha256(content).hexdigest() if content is not None else "unreadable"
    return {"sha256": digest, "mode": stat.S_IMODE(status.st_mode), "owner": f"{status.st_uid}:{status.st_gid}"}


def read_text(path: str) -> Optional[str]:
    """Return a file as text, or None when it cannot be read."""
    content = read_bytes(path)
    return None if content is None else content.decode("utf-8", "replace")


def _applied(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the release that the unit file on disk points to."""
    found = POINTER.search(text or "")
    return {"digest": found.group(2), "manifest": _manifest_at(found.group(1) + ".json")} if found else None


def _recorded(name: str) -> Optional[Dict[str, Any]]:
    """Return digest and intent of what was applied last, None where no record tells."""
    try:
        found = record.load(name)
    except record.RecordError:
        return None
    return {"digest": found["digest"], "intent": found["intent"]}


def _manifest_at(path: str) -> Optional[Dict[str, Any]]:
    try:
        return parse(read_text(path) or "", path)
    except ManifestError:
        return None


def _stored(wanted: Dict[str, Any]) -> Dict[str, str]:
    """Return a keyed fingerprint of each secret that lies on this host, "" for those that do not."""
    folder, nonce = wanted["folder"], wanted["nonce"]
    return {i: credentials.fingerprint(nonce, read_bytes(os.path.join(folder, i))) for i in wanted["ids"]}


def _running(name: str, loaded: Dict[str, Any], wanted: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return what the main process carries and how all processes compare with it."""
    main = int(loaded.get("MainPID", 0))
    process = read_process(main) if main else None
    if process is None:
        return None
    env = process.env or {}
    digest = env.get("LAUNCH_DIGEST", "") if re.fullmatch("[0-9a-f]{16}", env.get("LAUNCH_DIGEST", "")) else ""
    manifest = _manifest_at(f"/etc/launch/{name}/{digest}.json") if digest else None
    verdict = None
    if manifest is not None and loaded["ActiveState"] == "active":
        verdict = settled(manifest, main, loaded["ControlGroup"])._asdict()
        verdict["contradictions"] += unguarded(f"/run/launch/{name}", manifest, main, loaded["InvocationID"])
    secrets = {
        i: credentials.fingerprint(wanted["nonce"], os.fsencode(env[i]) if i in env else None) for i in wanted["ids"]
    }
    nccl = account(f"launch-{name}.service", loaded["InvocationID"], manifest) if verdict and manifest else None
    seen = {"main": main, "digest": digest, "manifest": manifest, "verdict": verdict}
    return {**seen, "secrets": secrets, "nccl": nccl}
