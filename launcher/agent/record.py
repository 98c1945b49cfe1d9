"""What was last applied to this host: the release, file by file, what it was meant for, and what it looked like then.

The record is what drift is measured against. It holds everything that `drift --fix` needs, so that no client and no
network has to be there; secrets are not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import files
from .manifest import ManifestError, checksum_of, parse
from .processes import read_bytes

#: Version of the record's form that this agent reads and writes.
VERSION = 1
ETC = "/etc/launch"
UNITS = "/etc/systemd/system"
#: Content and mode of the files that all deployments share, as the last deploy of any of them wrote them.
SHARED = ETC + "/shared.json"
_POINTER = re.compile(r"^EnvironmentFile=/etc/launch/([^/\n]+)/[0-9a-f]{16}\.env$", re.MULTILINE)


class RecordError(Exception):
    """The record is missing, unreadable, or was changed."""


def path_of(name: str) -> str:
    """Return where the record of a deployment lies; root alone may read it."""
    return f"{ETC}/{name}/applied.json"


def unit_of(name: str) -> str:
    """Return the unit of a deployment."""
    return f"launch-{name}.service"


def names() -> List[str]:
    """Return the deployments of this host: those with a record, and units of ours that have none."""
    found = {os.path.basename(os.path.dirname(path)) for path in _records()}
    for entry in sorted(os.listdir(UNITS)):
        if entry.startswith("launch-") and entry.endswith(".service"):
            found.update(_POINTER.findall((read_bytes(f"{UNITS}/{entry}") or b"").decode("utf-8", "replace")))
    return sorted(found)


def _records() -> List[str]:
    folders = sorted(os.listdir(ETC)) if os.path.isdir(ETC) else []
    return [path for path in map(path_of, folders) if os.path.exists(path)]


def load(name: str) -> Dict[str, Any]:
    """Return the record of a deployment, with its manifest under ``manifest``.

    Raises:
        RecordError: missing, unreadable, or changed since it was written.
    """
    return read(path_of(name))


def read(path: str) -> Dict[str, Any]:
    """Return a record from its file, see `load`."""
    content = read_bytes(path)
    if content is None:
        reason = "cannot be read" if os.path.lexists(path) else "is not there"
        raise RecordError(f"{path} {reason}: what was applied is not known")
    try:
        record: Dict[str, Any] = json.loads(content)
        intact = record["version"] == VERSION and record["checksum"] == checksum_of(record)
        record["manifest"] = parse(record["files"][1]["text"], path)
    except (ValueError, LookupError, TypeError, AttributeError, ManifestError) as error:
        raise RecordError(f"{path} is no record of what was applied ({type(error).__name__}: {error})") from error
    if not intact:
        raise RecordError(f"{path} was changed after it was written, or has another version than {VERSION}")
    return record


def state(path: str, name: str) -> Dict[str, str]:
    """Return what a plan is made of: digests of the unit file and of what was applied last."""
    content = read_bytes(path)
    try:
        applied = load(name)["digest"]
    except RecordError:
        applied = ""
    return {"unit": "" if content is None else hashlib.sha256(content).hexdigest(), "applied": applied}


def write(request: Mapping[str, Any], baseline: Mapping[str, Any], now: float) -> None:
    """Write the record of a deploy that was proven.

    Args:
        request: of `apply`: its ``files``, ``commands``, ``secrets``, ``needs`` and ``intent``.
        baseline: what the host looked like then, see `observe.baseline`.
        now: seconds of the epoch.

    Raises:
        OSError: no space, read-only.
    """
    name = request["needs"]["name"]
    record: Dict[str, Any] = {
        "version": VERSION,
        "deployment": name,
        "digest": json.loads(request["files"][1]["text"])["digest"],
        "at": int(now),
        "files": request["files"],
        "commands": request["commands"],
        "secrets": [*(entry["path"] for entry in request["secrets"]), *request.get("kept_secrets", ())],
        "needs": request["needs"],
        "intent": request["intent"],
        "baseline": baseline,
    }
    record["checksum"] = checksum_of(record)
    _write_json(path_of(name), record)


def write_shared(entries: Sequence[Mapping[str, Any]]) -> None:
    """Write down what the files that all deployments share should be; without their texts, which are long.

    Raises:
        OSError: no space, read-only.
    """
    _write_json(SHARED, [dict(entry, text="", sha256=files.sha256(entry["text"])) for entry in entries])


def shared() -> Optional[List[Dict[str, Any]]]:
    """Return path, sha256 and mode of the shared files as they were written last; None when that is not known."""
    try:
        found = json.loads(read_bytes(SHARED) or b"")
        return [dict(entry, path=str(entry["path"])) for entry in found]
    except (ValueError, LookupError, TypeError):
        return None


def _write_json(path: str, content: object) -> None:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True) + "\n"
    files.write({"path": path, "text": text, "mode": 0o600, "group": "root"})
