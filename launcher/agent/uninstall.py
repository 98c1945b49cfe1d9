"""Take a deployment off this host and return to what was there before the first deploy."""

from __future__ import annotations

import glob
import os
import shutil
from typing import Any, Dict, List, Mapping

from . import files, marker, nccl_block, origin, record, systemd, way_back
from .failed import FAILURES, ChangeError
from .lease import LeaseHeld, lease
from .serving import RECOVER, TIMER, Emit, stop

#: What the note of the lease says; nothing ends it by force.
_SECONDS = 3600


def uninstall(request: Mapping[str, Any], emit: Emit) -> Dict[str, Any]:
    """Stop a server, remove everything of ours, and put generation 0 back.

    Args:
        request: ``name`` and ``by``.
        emit: called with lines of progress.

    Returns:
        ``outcome`` (``done``, ``failed``, ``refused`` or ``locked``), ``did`` (steps), ``message``.
    """
    name = request["name"]
    did: List[str] = []
    try:
        with lease(request["by"], name, "uninstall", _SECONDS):
            if name not in record.names() and origin.read(name) is None:
                return {"outcome": "refused", "message": f"{name} is not deployed here", "did": did}
            _uninstall(name, did, emit)
    except LeaseHeld as held:
        return {"outcome": "locked", "message": str(held), "did": did}
    except FAILURES as error:
        return {"outcome": "failed", "message": str(error), "did": did}
    return {"outcome": "done", "message": "", "did": did}


def _uninstall(name: str, did: List[str], emit: Emit) -> None:
    unit, zero = record.unit_of(name), origin.read(name)
    emit("stopping the server")
    _stop(name, unit, emit)
    did.append(f"stopped {unit}")
    if os.path.lexists(f"{record.UNITS}/{unit}"):
        systemd.systemctl("disable", unit)
        files.remove(f"{record.UNITS}/{unit}")
    _no_block(name)
    if zero:
        origin.restore(zero)
        did.append(f"put back generation 0: {sum(e['kind'] != 'absent' for e in zero['kept'])} files")
    marker.disarm(name)
    shutil.rmtree(f"{record.ETC}/{name}")
    did.append(f"removed {record.ETC}/{name}")
    if not record.names():
        did += _last()
    systemd.systemctl("daemon-reload")
    if zero and zero["active"]:
        systemd.systemctl("start", unit)
        did.append(f"started {unit} as it was before")
    if zero and zero.get("stray"):
        did.append(way_back.after_uninstall(zero["stray"]))


def _stop(name: str, unit: str, emit: Emit) -> None:
    try:
        needs = record.load(name)["needs"]
        stop(unit, needs["user"], needs["port"], emit)
    except record.RecordError:
        if systemd.properties(unit)["LoadState"] != "not-found":  # as after a first deploy that failed
            systemd.systemctl("stop", unit)


def _no_block(name: str) -> None:
    """Take the deployment's block out of /etc/nccl.conf."""
    text = nccl_block.read()
    nccl_block.put(nccl_block.wanted(text, name, {"block": False, "env": {}}))


def _last() -> List[str]:
    """Remove what all deployments share, when none is left."""
    entries = record.shared()
    if entries is None:
        raise ChangeError(f"{record.SHARED} cannot be read: remove {record.UNITS}/launch* and {record.ETC} by hand")
    systemd.systemctl("disable", "--now", TIMER, RECOVER, "launch.target")
    for entry in entries:
        files.remove(entry["path"])
    for folder in {os.path.dirname(entry["path"]) for entry in entries} - {record.UNITS}:
        if not os.listdir(folder):
            os.rmdir(folder)
    shutil.rmtree(record.ETC)
    for folder in (path for name in ("change", "drift", "again") for path in glob.glob(f"/run/launch-{name}")):
        shutil.rmtree(folder)
    if os.path.isdir("/run/launch") and not os.listdir("/run/launch"):
        os.rmdir("/run/launch")
    return ["removed the agent and the shared units"]
