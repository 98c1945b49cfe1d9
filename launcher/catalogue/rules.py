"""Rules over a deployment: what NCCL or an engine would ignore, change, refuse or die of, before a server is touched.

A rule refuses only what is known to happen from a source line, a log or a run; everything else warns or informs.
`--allow RULE` lets a refused value through, and the release's manifest says so.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from launcher.agent.obstacle import REFUSALS
from launcher.catalogue import inert, nccl
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from launcher.schema import Deployment

Severity = Literal["refuse", "warn", "inform"]


@dataclass(frozen=True)
class Rule:
    """One piece of knowledge.

    Attributes:
        id: stable name, for `--allow` and for users' checks.
        severity: what follows from a hit.
        explanation: what really happens, in one or two sentences.
        source: document, source file or run, with versions.
        find: yields one text for each hit: the key with its value, and what to do.
    """

    id: str
    severity: Severity
    explanation: str
    source: str
    find: Callable[[Deployment], Iterable[str]]


@dataclass(frozen=True)
class Finding:
    """A rule that hit; ``allowed`` when it would refuse but was let through."""

    rule: str
    severity: Severity
    text: str
    explanation: str
    source: str
    allowed: bool = False


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, in the order of the documentation."""
    # they import this module
    from launcher.catalogue import engine_rules, nccl_measured_rules, nccl_resource_rules, nccl_rules

    return (*nccl_rules.RULES, *nccl_resource_rules.RULES, *nccl_measured_rules.RULES, *engine_rules.RULES)


def check(deployment: Deployment) -> tuple[Finding, ...]:
    """Apply all rules.

    Raises:
        ConfigError: ``allow`` names a rule that does not exist, or one that refuses nothing.
    """
    _check_allowed(deployment.allow)
    deployment = _with_variables(deployment)
    return tuple(
        Finding(rule.id, rule.severity, text, rule.explanation, rule.source, allowed=rule.id in deployment.allow)
        for rule in all_rules()
        for text in rule.find(deployment)
    )


def _with_variables(deployment: Deployment) -> Deployment:
    """Return the deployment with NCCL variables of ``env`` among those of ``nccl``: the rules hold for both."""
    nccl_map = dict(deployment.nccl)
    for name, value in deployment.env.items():
        key = name.removeprefix("NCCL_").lower()
        if name.startswith("NCCL_") and key in nccl.variables():
            nccl_map.setdefault(key, value)
    return dataclasses.replace(deployment, nccl=nccl_map)


def refusals(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding that stops the deployment."""
    return [
        f"{finding.text} [{finding.rule}] {finding.explanation} ({finding.source}). To force it: --allow {finding.rule}"
        for finding in findings
        if finding.severity == "refuse" and not finding.allowed
    ]


def forced() -> dict[str, str]:
    """Return what ``--allow`` can name, with what it lets happen."""
    told = {rule.id: rule.explanation for rule in all_rules() if _can_be_forced(rule)}
    return told | dict.fromkeys(sorted(REFUSALS), "")


def _can_be_forced(rule: Rule) -> bool:
    return rule.severity != "inform" or rule.id in inert.RULES


def _check_allowed(names: Sequence[str]) -> None:
    """Refuse names of nothing: neither of a rule nor of what a host looks for before its old server stops.

    A rule after which a setting does nothing keeps points out of a sweep, whatever its severity.
    """
    known = {rule.id: rule for rule in all_rules()}
    every = {*known, *REFUSALS}
    problems = [f"--allow {name}: there is no such rule{nearest(name, every)}" for name in names if name not in every]
    problems += [
        f"--allow {name}: this rule refuses nothing"
        for name in names
        if name in known and not _can_be_forced(known[name])
    ]
    if problems:
        raise ConfigError(*problems)
