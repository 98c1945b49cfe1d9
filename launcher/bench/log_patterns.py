"""Figures that an engine writes into its log: patterns of the configuration, and those of `spec.profile`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from launcher.schema import Deployment

#: With EAGLE3_PROFILE=1, for a patched SGLang. Unverified: no line of it was at hand when this was written, only what
#: it times (draft steps, target verify, draft re-extend, the cycle, in milliseconds). Name one of these in
#: bench.log_patterns to correct it.
_NUMBER = r"\D{0,30}?(\d+(?:\.\d+)?) ?ms"
UNVERIFIED = {
    "unverified_verify_ms": r"(?i)\bverify" + _NUMBER,
    "unverified_draft_ms": r"(?i)\bdraft(?!\W{0,3}(?:re)?[-_ ]?extend)" + _NUMBER,
    "unverified_extend_ms": r"(?i)\b(?:re[-_ ]?)?extend" + _NUMBER,
    "unverified_cycle_ms": r"(?i)\bcycle" + _NUMBER,
}


def patterns(deployment: Deployment) -> dict[str, str]:
    """Return the patterns by the name that their means get.

    Raises:
        ConfigError: one is no regular expression, or has not exactly one group.
    """
    own = dict(deployment.bench.log_patterns)
    problems = []
    for name, text in own.items():
        try:
            groups = re.compile(text).groups
        except re.error as error:
            problems.append(f"bench.log_patterns.{name} is no regular expression: {error}")
            continue
        if groups != 1:
            problems.append(f"bench.log_patterns.{name} has {groups} groups: one, around the number, it has to have")
    if problems:
        raise ConfigError(*problems)
    return {**(UNVERIFIED if deployment.spec.profile else {}), **own}
