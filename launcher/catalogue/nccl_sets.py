"""NCCL variables as a set that can be compared: what can change the speed of a collective on one host, in one spelling.

``PROTO=LL ALGO=Ring`` and ``ALGO=Ring,Ring PROTO=LL DEBUG=INFO`` are the same set. A variable that is kept although it
changes nothing costs a comparison; one that is dropped although it changes something would make a false one. So
everything is kept but what is known to act elsewhere.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from launcher.catalogue import environment, nccl
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

#: Topics (column ``scope`` of nccl.csv) without a say in the speed of a collective inside one host.
_ELSEWHERE = frozenset(("debug", "network", "resilience"))
#: The same of single names. The transport that P2P_DISABLE decides is a property of the measurement, not of the set.
_NOT_PART = frozenset(
    ("P2P_DISABLE", "ENV_PLUGIN", "GIN_PLUGIN", "NET_PLUGIN", "PROFILER_PLUGIN", "RMA_PLUGIN", "NO_CACHE")
)
#: What an engine adds by itself; kept apart from the set.
BASE = ("CUMEM_ENABLE", "NVLS_ENABLE")
#: Read by somebody else, who tells NCCL.
_FOREIGN = frozenset(("TUNER_CONFIG_FILE",))
_EXPRESSIONS = frozenset(("ALGO", "PROTO"))


def canonical(variables: Mapping[str, str], *, p2p: bool, collective: str = "all_reduce") -> dict[str, str]:
    """Return what of some NCCL variables can change the speed of a collective, sorted by name.

    Args:
        variables: value by name, without the prefix ``NCCL_``.
        p2p: whether the GPUs reach each other directly; without it P2P_LEVEL is not even read (NCCL 2.28.9, run).
        collective: as in ``allreduce.csv``: ALGO and PROTO are reduced to what holds for it.
    """
    kept = {}
    for name, given in sorted(variables.items()):
        if not _counts(name) or (name == "P2P_LEVEL" and not p2p):
            continue
        value = "_".join(_spelled(name, given).split())  # in a written set, blanks stand between variables
        if name in _EXPRESSIONS:
            value = _for_collective(value, collective)
        if value:
            kept[name] = value
    return kept


def written(variables: Mapping[str, str]) -> str:
    """Return a set as ``allreduce.csv`` has it: ``NAME=VALUE``, sorted, with blanks between."""
    return " ".join(f"{name}={value}" for name, value in sorted(variables.items()))


def read(text: str) -> dict[str, str]:
    """Return the variables of a written set."""
    return dict(pair.partition("=")[::2] for pair in text.split())


def given(deployment: Deployment) -> dict[str, str]:
    """Return the NCCL variables of a deployment by name without prefix, those of ``env`` too."""
    found = {key.upper(): value for key, value in deployment.nccl.items()}
    for name, value in deployment.env.items():
        if name.startswith(nccl.PREFIX):
            found.setdefault(name.removeprefix(nccl.PREFIX), value)
    if "ALGO" in found:
        found["ALGO"] = nccl.per_collective(found["ALGO"], deployment.engine.nccl_version)
    return found


def has_p2p(deployment: Deployment, variables: Mapping[str, str]) -> bool:
    """Return whether the GPUs of a deployment may reach each other directly."""
    off = variables.get("P2P_DISABLE") == "1" or variables.get("P2P_LEVEL", "").upper() in {"LOC", "0"}
    return not off and deployment.hw.p2p != "impossible"


def has_nvls(variables: Mapping[str, str], engine: str = "") -> bool:
    """Return whether NCCL may reduce inside the NVSwitch: not without cuMem (NCCL source 2.21 to 2.30).

    Args:
        variables: value by name without prefix.
        engine: whose own additions hold where nothing is set.
    """
    effective = {**(_added(engine) if engine else {}), **variables}
    return "0" not in {effective.get(name) for name in BASE}


@functools.cache
def _added(engine: str) -> dict[str, str]:
    """Return what the newest release of an engine sets of the base when it is unset."""
    return {
        row["name"].removeprefix(nccl.PREFIX): row["value"]
        for row in environment.rows("engine_additions.csv")
        if row["engine"] == engine
        and row["name"].removeprefix(nccl.PREFIX) in BASE
        and row["when"].startswith("when unset")
        and not row["until"]
    }


def _counts(name: str) -> bool:
    variable = nccl.variables().get(name.lower())
    if variable is None or not variable.is_setting or name in _NOT_PART or name in BASE:
        return False
    return name in _FOREIGN or (variable.reader == "nccl" and variable.scope not in _ELSEWHERE)


def _spelled(name: str, value: str) -> str:
    try:
        return nccl.canonical(name.lower(), value)
    except ConfigError:  # another rule tells; as it stands it equals nothing that was measured
        return value


def _for_collective(value: str, collective: str) -> str:
    """Return the list of an ALGO or PROTO expression that holds for a collective, its names in order."""
    lists = dict(entry.rpartition(":")[::2] for entry in value.split(";"))
    chosen = lists.get(collective.replace("_", ""), lists.get("", ""))
    caret = "^" if chosen.startswith("^") else ""
    return caret + ",".join(sorted(chosen.removeprefix("^").split(",")))
