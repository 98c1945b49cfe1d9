"""NCCL_SOCKET_IFNAME against the interfaces of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.schema import Deployment


def no_interface(deployment: Deployment, facts: Mapping[str, Any]) -> list[str]:
    """Return a line if NCCL would find no interface: its initialisation fails then (NCCL source; nccl.csv)."""
    value = deployment.nccl.get("socket_ifname") or deployment.env.get("NCCL_SOCKET_IFNAME", "")
    here = facts.get("interfaces")
    if len(value) < 2 or here is None or chosen(value, here):
        return []
    return [f"NCCL_SOCKET_IFNAME={value} names no interface of this host ({', '.join(here)}): NCCL could not start"]


def chosen(value: str, interfaces: Sequence[str]) -> list[str]:
    """Return the interfaces that a value leaves: a list of beginnings, ``=`` for whole names, ``^`` for all others."""
    excluded = value.startswith("^")
    exact = value.lstrip("^").startswith("=")
    words = [word.split(":")[0] for word in value.lstrip("^=").split(",")]
    named = [i for i in interfaces if any(i == word if exact else i.startswith(word) for word in words)]
    return [i for i in interfaces if i not in named] if excluded else named
