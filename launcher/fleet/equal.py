"""Whether hosts are equal enough to share the points of one sweep, as far as their facts tell. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def traits(facts: Mapping[str, Any], indices: Sequence[str]) -> dict[str, str]:
    """Return what has to be equal, for people: GPUs, the links between them, driver, and the packages of the engine.

    Args:
        facts: of `launcher.agent.facts`.
        indices: numbers of the GPUs that are used; all where none is named.
    """
    found = facts["gpus"]
    gpus = [gpu for gpu in found or () if not indices or str(gpu["index"]) in indices]
    kinds = Counter(_gpu(gpu) for gpu in gpus)
    drivers = sorted({gpu["driver"] or "unknown" for gpu in gpus})
    versions = (facts["engine"] or {}).get("versions") or {}
    return {
        "GPUs": _unknown(facts, "gpus") or " + ".join(f"{n} x {kind}" for kind, n in sorted(kinds.items())) or "none",
        "links": _links(facts, gpus),
        "driver": " or ".join(drivers) or "unknown",
        "engine": _unknown(facts, "engine") or ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) or "unknown",
    }


def differences(hosts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what differs from the first host, and where, one line each.

    Args:
        hosts: traits by host, one host at least.
    """
    (first, wanted), *others = hosts.items()
    return [
        f"{name}: {value} on {first}, {there[name]} on {host}"
        for host, there in others
        for name, value in wanted.items()
        if there[name] != value
    ]


def _links(facts: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return how each GPU reaches the others and the host, alike ones counted; their order does not matter."""
    rows, numbers = facts.get("topology"), [gpu["index"] for gpu in gpus]
    if not rows or not numbers or max(numbers) >= len(rows):
        return (_unknown(facts, "topology") or "unknown") if numbers else "none"
    kinds: Counter[str] = Counter()
    for gpu in gpus:
        others = Counter(rows[gpu["index"]][number] for number in numbers if number != gpu["index"])
        ways = " ".join(f"{n} {way}" for way, n in sorted(others.items()))
        generation, width = gpu.get("pcie_generation_max"), gpu.get("pcie_width")
        lanes = f"PCIe {generation or '?'} x{width or '?'}" if generation or width else ""
        kinds[", ".join(part for part in (ways, lanes) if part)] += 1
    return " + ".join(f"{n} x ({kind})" if kind else f"{n}" for kind, n in sorted(kinds.items()))


def _gpu(gpu: Mapping[str, Any]) -> str:
    """Return what a GPU is, and the limits that make one slower than its like."""
    memory, power = gpu["memory_mib"], gpu["power_limit_w"]
    return f"{gpu['name']}{f' {memory} MiB' if memory else ''}{f' {power} W' if power else ''}"


def _unknown(facts: Mapping[str, Any], name: str) -> str:
    known = facts.get(name) is not None
    return "" if known else f"unknown ({facts['unknown'].get(name, 'this host does not say')})"
