"""The drift check of one deployment, on its host: observe, judge in every layer, mute what is accepted."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import (
    drift_files,
    drift_host,
    drift_inputs,
    drift_loaded,
    drift_processes,
    lease,
    marker,
    record,
    systemd,
    unit_files,
)
from .findings import Finding, as_data, counts, mute, order
from .observe import look, observe
from .processes import unit_processes

#: A difference in a process must still be there after this long, in the same process: an engine's compilers and the
#: like run shorter, with an environment of their own.
SETTLE_SECONDS = 2.0

deployments = record.names


def check(name: str, accepted: "Optional[Sequence[Mapping[str, str]]]" = None) -> Dict[str, Any]:
    """Check one deployment of this host. Reads only.

    Args:
        name: of the deployment.
        accepted: differences that are accepted; as they were applied, when not given.

    Returns:
        ``applied`` (None where no record tells), ``running`` digest, ``service``, ``findings`` and counts; see
        docs/drift.md.

    Raises:
        SystemdError: the manager does not answer.
    """
    today = time.strftime("%Y-%m-%d")
    try:
        applied = record.load(name)
    except record.RecordError as error:
        return _without_record(name, str(error))
    seen = dict(observe(applied), unfinished=_left_behind(name))
    found = judge(applied, seen, _shared())
    if any(f.layer == "processes" and f.severity != "info" for f in found) and seen["processes"]:
        found = judge(applied, _settled(applied, seen), _shared())
    accepted = applied["intent"].get("accept", []) if accepted is None else accepted
    return _report(name, applied, seen, mute(order(found), accepted, today))


def _left_behind(name: str) -> bool:
    return marker.read(name) is not None and lease.holder() is None


def judge(
    applied: Mapping[str, Any], seen: Mapping[str, Any], shared: "Optional[List[Dict[str, Any]]]"
) -> List[Finding]:
    """Return everything in which an observation differs from what was applied. Pure."""
    in_files = [*drift_files.findings(applied, seen, shared), *_unfinished(applied, seen)]
    return [
        *in_files,
        *drift_loaded.findings(applied, seen, in_files),
        *drift_processes.findings(applied, seen),
        *drift_inputs.findings(applied, seen),
        *drift_host.findings(applied, seen),
    ]


def _unfinished(applied: Mapping[str, Any], seen: Mapping[str, Any]) -> List[Finding]:
    """Return a finding where a change was cut short and nobody has put back what was there before it."""
    if not seen["unfinished"]:
        return []
    path = marker.path_of(applied["deployment"])
    text = f"a change was cut short, and what was there before is not back: {path} is still there"
    base = Finding("change-unfinished", "files", "critical", path, text, where=(path,), fix="files")
    return [base._replace(cause="the change was killed and so was its repair", mend="launch drift --fix, or launch up")]


def _settled(applied: Mapping[str, Any], seen: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a later look at the processes, in which one counts only if it was there before."""
    time.sleep(SETTLE_SECONDS)
    loaded = systemd.all_properties(record.unit_of(applied["deployment"]))
    if any(loaded[name] != seen["loaded"][name] for name in ("InvocationID", "MainPID", "ActiveState")):
        return dict(observe(applied), unfinished=seen["unfinished"])  # it was restarted in between
    before = {(p["pid"], p["start"]) for p in seen["processes"]}
    again = [look(p) for p in unit_processes(loaded["ControlGroup"]) if (p.pid, p.start) in before]
    return dict(seen, loaded=loaded, processes=again)


def _shared() -> "Optional[List[Dict[str, Any]]]":
    entries = record.shared()
    return None if entries is None else [dict(entry, seen=unit_files.state(entry["path"])) for entry in entries]


def _report(name: str, applied: Mapping[str, Any], seen: Mapping[str, Any], found: List[Finding]) -> Dict[str, Any]:
    loaded, processes = seen["loaded"], seen["processes"]
    main = next((p for p in processes if p["pid"] == loaded["MainPID"]), None)
    wrong = {
        label for f in found if f.layer == "processes" and f.id.startswith("env-") and counts(f) for label in f.where
    }
    intent = applied["intent"]
    return {
        "deployment": name,
        "applied": {
            "digest": applied["digest"],
            "at": applied["at"],
            "by": intent.get("by", ""),
            "launch": intent.get("launch", ""),
        },
        "running": (main["env"] or {}).get("LAUNCH_DIGEST", "") if main else "",
        "service": f"{loaded['ActiveState']} ({loaded['SubState']})",
        "since": loaded.get("ActiveEnterTimestamp", 0) // 1_000_000,
        "restarts": int(loaded.get("NRestarts", 0)),
        "main": int(loaded.get("MainPID", 0)),
        "processes": len(processes),
        "proven": sum(drift_processes.label(p) not in wrong for p in processes),
        "variables": len(applied["manifest"]["env"]),
        "nccl": seen["nccl"],
        "watch": intent.get("watch", {}),
        "about": _about(seen["facts"]),
        "change": lease.holder(),
        "manifest": applied["manifest"],
        "intent": intent,
        "findings": as_data(found),
    }


def _about(facts: Mapping[str, Any]) -> Dict[str, str]:
    """Return the versions that all hosts of a world should share."""
    packages = (facts.get("engine") or {}).get("versions", {})
    drivers = sorted({str(gpu["driver"]) for gpu in facts.get("gpus") or []})
    return {"driver": ", ".join(drivers), "packages": ", ".join(f"{n} {v}" for n, v in sorted(packages.items()))}


def _without_record(name: str, reason: str) -> Dict[str, Any]:
    unit = record.unit_of(name)
    loaded = systemd.properties(unit)
    there = loaded["LoadState"] != "not-found" or (record.path_of(name) in reason and "was changed" in reason)
    found: List[Finding] = []
    if there:
        found = [
            Finding(
                "record-missing",
                "files",
                "unknown",
                record.path_of(name),
                reason,
                where=(record.path_of(name),),
                cause="deployed by an older launch, or removed by hand",
                mend="launch up writes it; the server is not restarted for it",
            )
        ]
    return {
        "deployment": name,
        "applied": None,
        "running": "",
        "service": f"{loaded['ActiveState']} ({loaded['SubState']})" if there else "",
        "since": 0,
        "restarts": int(loaded.get("NRestarts", 0)),
        "main": int(loaded.get("MainPID", 0)),
        "processes": 0,
        "proven": 0,
        "variables": 0,
        "nccl": None,
        "watch": {},
        "about": {},
        "change": lease.holder(),
        "manifest": None,
        "intent": None,
        "findings": as_data(found),
    }
