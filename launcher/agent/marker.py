"""What was there before a change, kept on disk until the change is confirmed, and put back when it is not.

The marker is written before anything is switched and taken away after the proof. Whoever finds one (the change itself
after a failure, its unit's ExecStopPost= when it was killed, the recovery at boot) puts back what it says.
"""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Dict, List, Mapping, Optional

from . import files, generations, keep, nccl_conf, origin, record, systemd, takeover, way_back
from .failed import FAILURES
from .manifest import ManifestError, parse
from .neighbours import POINTER
from .processes import read_bytes
from .serving import RECOVER, Emit, prove, start

FOLDER = "/etc/launch/pending"
_RUNNING = ("active", "activating", "reloading")


def capture(request: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what a change of a deployment would replace, as plain data.

    Raises:
        ChangeError: a server that is taken over cannot be read.
        OSError: a file cannot be read.
        SystemdError: the manager does not answer.
    """
    needs, unit = request["needs"], request["unit"]
    loaded = systemd.properties(unit)
    first = origin.is_first(needs["name"])
    replaced = origin.paths(unit) if first else [request["files"][-1]["path"]]
    secrets = [entry["path"] for entry in request["secrets"]]
    paths = [*replaced, *secrets, nccl_conf.PATH, *generations.written(needs["name"])]
    return {
        "name": needs["name"],
        "unit": unit,
        "log_file": needs["log_file"],
        "kept": keep.take(paths),
        "origin": origin.capture(needs["name"]) if first else None,
        "enabled": loaded["UnitFileState"] == "enabled",
        "state": loaded["ActiveState"],
        "invocation": loaded["InvocationID"],
        "stray": takeover.capture(request["takes_over"]) if request.get("takes_over") else None,
    }


def path_of(name: str) -> str:
    """Return where the marker of a deployment lies while a change of it is not confirmed."""
    return f"{FOLDER}/{name}.json"


def pending() -> List[str]:
    """Return the deployments with a change that is not confirmed."""
    entries = sorted(os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []
    return [entry[: -len(".json")] for entry in entries if entry.endswith(".json")]


def arm(before: Mapping[str, Any]) -> None:
    """Leave the marker on disk, and let the next boot look for it; root alone can read it: secrets may be in it.

    Raises:
        OSError: no space, read-only.
        SystemdError: systemctl refuses.
    """
    systemd.systemctl("enable", "launch.target", RECOVER)
    _sync_links()
    files.folder(FOLDER, 0o700, "root")
    write(before)


def write(before: Mapping[str, Any]) -> None:
    """Write the marker of a change that is armed.

    Raises:
        OSError: no space, read-only.
    """
    text = json.dumps(before, sort_keys=True) + "\n"
    files.write({"path": path_of(before["name"]), "text": text, "mode": 0o600, "group": "root"})


def disarm(name: str) -> None:
    """Take the marker away, lastingly, once everything is on disk that has come in place of it.

    Raises:
        OSError: it cannot be removed.
    """
    _sync_links()
    files.remove(path_of(name))


def _sync_links() -> None:
    """Make what starts at boot last: systemd does not sync the links that it makes and removes."""
    folders = glob.glob(f"{record.UNITS}/*.wants") + glob.glob(f"{record.UNITS}/*.requires")
    for folder in (record.UNITS, *filter(os.path.isdir, folders)):
        files.sync_folder(folder)


def read(name: str) -> Optional[Dict[str, Any]]:
    """Return what was there before a change that is not confirmed, None where there is none."""
    try:
        found: Dict[str, Any] = json.loads(read_bytes(path_of(name)) or b"")
        return found if found["name"] == name and found["kept"] and found["unit"] else None
    except (ValueError, LookupError, TypeError):
        return None


def put_back(before: Mapping[str, Any], emit: Emit, *, booting: bool = False) -> Dict[str, Any]:
    """Restore files, whether the unit starts at boot, and the server if it was stopped; then take the marker away.

    Args:
        before: see `capture`.
        emit: called with lines of progress.
        booting: systemd starts the units itself after this; no server is touched.

    Returns:
        ``outcome`` ``rolled back`` or ``failed``, and what ``serves`` now.
    """
    try:
        untouched = _untouched(before)
        _files_back(before, booting=booting)
    except FAILURES as error:
        # The marker stays, so that the next one who finds it tries again.
        return {"outcome": "failed", "serves": f"unknown; launch status shows it. The old files are not back: {error}"}
    try:
        serves = "" if booting else _server_back(before, emit, untouched=untouched)
        if before.get("stray"):
            serves = way_back.put_back(before["stray"], emit, booting=booting)
        outcome = "rolled back"
    except FAILURES as error:
        why = "; ".join([str(error), *getattr(error, "lines", [])[:3]])
        outcome, serves = "failed", f"nothing that is proven; the old files are back, but not their server: {why}"
    try:
        disarm(before["name"])
    except OSError as error:
        serves += f". {path_of(before['name'])} cannot be removed: {error}"
        outcome = "failed"
    return {"outcome": outcome, "serves": serves}


def _untouched(before: Mapping[str, Any]) -> bool:
    """Return whether the old server still runs: a unit that was stopped keeps the id of its last invocation."""
    now = systemd.properties(before["unit"])
    return now["InvocationID"] == before["invocation"] and now["ActiveState"] in _RUNNING


def _files_back(before: Mapping[str, Any], *, booting: bool) -> None:
    unit, was = before["unit"], before["kept"][0]
    if was["kind"] == "absent":
        # Both while systemd still knows the unit; at boot its start is queued, and waits for us.
        systemd.systemctl("disable", unit)
        systemd.systemctl("stop", *(["--no-block"] if booting else []), unit)
    # The unit comes last: ours waits for the recovery at boot, a foreign one starts without its drop-ins.
    for entry in reversed(before["kept"]):
        keep.put(entry)
    if before["origin"]:
        origin.restore(before["origin"])
    if was["kind"] != "absent" and not before["enabled"] and not (before["origin"] or {}).get("links"):
        systemd.systemctl("disable", unit)
    systemd.systemctl("daemon-reload")


def _server_back(before: Mapping[str, Any], emit: Emit, *, untouched: bool) -> str:
    """Bring the old server back and prove it; return what serves.

    Raises:
        ChangeError: it does not come up, or does not carry its release.
        SystemdError: systemctl refuses.
    """
    unit, was = before["unit"], before["kept"][0]
    if was["kind"] == "absent":
        return "nothing; there was no such server before"
    if before["state"] not in _RUNNING:
        systemd.systemctl("stop", unit)
        return f"nothing; it was {before['state']} before"
    if untouched:
        return "the old server, which was not touched"
    start(unit, before["name"], emit, before["log_file"], verb="restart")
    found = POINTER.search(keep.text_of(was))
    if not found:
        return "the server that was there before, restarted"
    try:
        manifest = parse((read_bytes(found.group(1) + ".json") or b"").decode("utf-8"), "the old manifest")
    except (ManifestError, ValueError):
        return "the old server again, restarted; what it should carry is not known"
    proof = prove(unit, manifest)
    return f"the old release again, restarted; {proof['digest']} proven in {len(proof['proven'])} processes"
