"""Put last applied back, layer by layer: files, then what is loaded, then, if asked, the running server.

Never a newer wish: everything comes from the record on this host. What is not ours is not touched; the findings that
are left say how to mend it.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Sequence

from . import files, marker, nccl_block, record, systemd
from .check import check
from .failed import FAILURES
from .findings import counts
from .lease import LeaseHeld, lease
from .library import failed_start
from .serving import Emit, enable, start

#: Not ours to mend, and the guard would refuse a start with them: the server would be down instead of wrong.
#: What the note of the lease says; nothing ends a repair by force.
_SECONDS = 3600
_IN_THE_WAY = ("manager-environment", "drop-in", "port-taken", "unit-shadowed", "record-missing")


def fix(request: Mapping[str, Any], emit: Emit) -> Dict[str, Any]:
    """Put back what was applied last.

    Args:
        request: ``name``; ``accept``ed differences, which are left alone; ``shared`` files of this launch; ``restart``
            (whether the server may be restarted).
        emit: called with a line of progress.

    Returns:
        ``outcome`` (``done``, ``failed`` or ``locked``), ``did`` (steps), ``message``, ``evidence`` and, under
        ``check``, the state afterwards.
    """
    try:
        with lease(request["by"], request["name"], "drift --fix", _SECONDS):
            return _fix(request, emit)
    except LeaseHeld as held:
        return {"outcome": "locked", "did": [], "message": str(held), "evidence": [], "check": None}


def _fix(request: Mapping[str, Any], emit: Emit) -> Dict[str, Any]:
    name, accepted = request["name"], request["accept"]
    did: List[str] = []
    before = check(name, accepted)
    begin = time.time()
    message = ""
    evidence: List[str] = []
    try:
        applied = record.load(name)
        if _todo(before, "files"):
            emit("putting files back")
            did += _files(applied, request["shared"], before)
            before = check(name, accepted)
        if request["restart"] and _todo(before, "restart"):
            obstacles = in_the_way(before["findings"])
            if obstacles:
                message = "not restarted: the server would not come up with what is left; mend it first"
                return _answer("failed", did, message, obstacles, before)
            emit("restarting")
            needs, unit = applied["needs"], record.unit_of(name)
            start(unit, name, emit, needs["log_file"], verb="restart")
            did.append(f"restarted {unit}")
            before = check(name, accepted)
    except record.RecordError as error:
        return _answer("failed", did, f"{error}: launch up deploys again", [], before)
    except FAILURES as error:
        message = str(error)
        evidence = list(getattr(error, "lines", [])) or failed_start(record.unit_of(name), begin)
        return _answer("failed", did, message, evidence, check(name, accepted))
    return _answer("done", did, message, evidence, before)


def _answer(
    outcome: str, did: List[str], message: str, evidence: Sequence[str], after: Dict[str, Any]
) -> Dict[str, Any]:
    # Who is changing the host is this very repair.
    after = dict(after, change=None)
    return {"outcome": outcome, "did": did, "message": message, "evidence": list(evidence), "check": after}


def _todo(report: Mapping[str, Any], kind: str) -> bool:
    return any(f["fix"] == kind and counts(f) for f in report["findings"])


def in_the_way(findings: Sequence[Mapping[str, Any]]) -> List[str]:
    """Return what would keep a restarted server from coming up, one line each."""
    found = [f for f in findings if f["id"] in _IN_THE_WAY and f["severity"] == "critical"]
    return [f"{f['text']}: {f['mend']}" for f in found]


def _files(applied: Mapping[str, Any], shared: Sequence[Dict[str, Any]], report: Mapping[str, Any]) -> List[str]:
    """Write the release's files, enable and reload; return what was done."""
    did: List[str] = []
    env, manifest, unit = applied["files"]
    if any(f["id"].startswith(("agent-", "shared-unit-", "shared-unknown")) for f in report["findings"]):
        did += [f"wrote {entry['path']}" for entry in shared if files.write(entry)]
        record.write_shared(shared)
    did += [f"wrote {entry['path']}" for entry in (env, manifest, unit) if files.write(entry)]
    marker.disarm(applied["deployment"])
    needs = applied["needs"]
    text = nccl_block.read()
    if not nccl_block.problems(text, needs["name"], needs["nccl"]) and nccl_block.put(
        nccl_block.wanted(text, needs["name"], needs["nccl"])
    ):
        did.append("put the block in /etc/nccl.conf right")
    if any(f["id"] == "not-enabled" and counts(f) for f in report["findings"]):
        enable(unit["path"].rpartition("/")[2])
        did.append("enabled the unit")
    systemd.systemctl("daemon-reload")
    return [*did, "made systemd load its files again"]
