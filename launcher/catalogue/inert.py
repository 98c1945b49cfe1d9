"""Settings of a deployment that certainly do nothing: points that differ in them alone would measure noise."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from launcher.catalogue import engines, nccl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.catalogue.rules import Finding
    from launcher.schema import Deployment

#: Rules whose texts begin with the one key that does nothing.
RULES = ("engine-flag-inert", "custom-all-reduce-inert", "nccl-p2p-level-void")
_KEY = re.compile(r"[\w.-]+")


def settings(deployment: Deployment, findings: Iterable[Finding]) -> dict[str, str]:
    """Return by key the rule after which a setting does nothing; not where the rule was allowed, or is not certain."""
    found: dict[str, str] = {}
    for finding in findings:
        match = _KEY.match(finding.text)
        if finding.rule in RULES and not finding.allowed and match and _is_certain(deployment, finding.rule, match[0]):
            found[match[0]] = finding.rule
    return found


def without(deployment: Deployment, keys: Iterable[str]) -> Deployment:
    """Return a deployment without settings of NCCL and flags of the engine."""
    gone = set(keys)
    args = {key: value for key, value in deployment.engine.args.items() if f"engine.args.{_flag(key)}" not in gone}
    variables = {key: value for key, value in deployment.nccl.items() if f"nccl.{key}" not in gone}
    names = {f"{nccl.PREFIX}{key.removeprefix('nccl.').upper()}" for key in gone if key.startswith("nccl.")}
    env = {name: value for name, value in deployment.env.items() if name not in names}
    engine = dataclasses.replace(deployment.engine, args=args)
    return dataclasses.replace(deployment, engine=engine, nccl=variables, env=env)


def value(deployment: Deployment, key: str) -> object:
    """Return what a setting is, whichever way it is set; None where it is not."""
    group, _, name = key.rpartition(".")
    if group == "nccl":
        return deployment.nccl.get(name, deployment.env.get(f"{nccl.PREFIX}{name.upper()}"))
    return next((value for flag, value in deployment.engine.args.items() if _flag(flag) == name), None)


def _flag(key: str) -> str:
    return key.replace("-", "_")


def _is_certain(deployment: Deployment, rule: str, key: str) -> bool:
    """Return whether the release is known to be one in which the flag does nothing."""
    if rule != "engine-flag-inert":
        return True
    engine, version = deployment.engine.name, deployment.engine.version
    flag = f"--{key.removeprefix('engine.args.').replace('_', '-')}"
    read = engines.versions(engine)
    for row in engines.inert(engine):
        first, last = (version, version) if version else (read[0], read[-1])
        if row.flag == flag and row.condition.startswith("always"):
            return engines.order(row.since) <= engines.order(first) and engines.order(last) <= engines.order(row.until)
    return False
