"""Other deployments on this host: whose GPUs and ports a release must not take."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Mapping

from .manifest import ManifestError, parse
from .processes import read_bytes

_UNITS = "/etc/systemd/system"
POINTER = re.compile(r"^EnvironmentFile=(/etc/launch/[^/\n]+/([0-9a-f]{16}))\.env$", re.MULTILINE)


def conflicts(wanted: Mapping[str, Any], others: "Iterator[Dict[str, Any]] | List[Dict[str, Any]]") -> List[str]:
    """Return what a release would take from other deployments, one line each.

    Args:
        wanted: ``name``, ``port``, ``gpus`` (empty for all) and ``memory_fraction`` of the release.
        others: manifests with the same keys.
    """
    found: List[str] = []
    for other in others:
        if other["name"] == wanted["name"]:
            continue
        if other["port"] == wanted["port"]:
            found.append(f"port {wanted['port']} belongs to deployment {other['name']}: set engine.port")
        shared = _shared(wanted["gpus"], other.get("gpus", []))
        room = wanted["memory_fraction"] + other.get("memory_fraction", 0)
        stated = wanted["memory_fraction"] and other.get("memory_fraction", 0)
        if shared and not (stated and room <= 1):
            taken = f"their memory fractions add up to {room:g}" if stated else "a memory fraction is not stated"
            found.append(f"{shared} also belong to deployment {other['name']} and {taken}: set engine.gpus")
    return found


def _shared(one: List[str], other: List[str]) -> str:
    if not one and not other:
        return "all GPUs"
    both = sorted(set(one) & set(other)) if one and other else sorted(one or other)
    return f"GPUs {', '.join(both)}" if both else ""


def deployed() -> Iterator[Dict[str, Any]]:
    """Yield the manifest of every deployment whose unit lies on this host and starts at boot or runs."""
    for name in sorted(os.listdir(_UNITS)):
        if not (name.startswith("launch-") and name.endswith(".service")) or not _in_use(name):
            continue
        found = POINTER.search((read_bytes(os.path.join(_UNITS, name)) or b"").decode("utf-8", "replace"))
        if not found:
            continue
        path = found.group(1) + ".json"
        try:
            yield parse((read_bytes(path) or b"").decode("utf-8", "replace"), path)
        except ManifestError:
            continue


def _in_use(unit: str) -> bool:
    wanted = os.path.lexists(os.path.join(_UNITS, "launch.target.wants", unit))
    return wanted or os.path.isdir(f"/run/launch/{unit[len('launch-') : -len('.service')]}")
