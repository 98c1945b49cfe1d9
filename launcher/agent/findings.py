"""What a check of a deployment says: one finding a difference, with both values, its likely cause and the remedy."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

#: Where a difference can lie, from what is wanted down to what runs.
LAYERS = (
    "intent",
    "files",
    "loaded",
    "processes",
    "inputs",
    "library",
    "host",
    "strays",
    "world",
    "restarts",
)
#: ``critical``: what runs, or would run after the next start, is not what was applied. ``warning``: any other drift.
#: ``unknown``: it cannot be told. ``info``: worth knowing, no drift.
SEVERITIES = ("critical", "warning", "unknown", "info")


class Finding(NamedTuple):
    """One difference between what was applied and what is.

    Attributes:
        id: stable name of the kind of difference.
        layer: one of `LAYERS`.
        severity: one of `SEVERITIES`.
        subject: what differs: a path, a variable, a property; with ``id`` it names the finding.
        text: the difference in one sentence.
        is_: the value found, "" where there is none to show.
        should: the value applied, "" where there is none to show.
        where: files or processes that show it.
        since: when it changed, as ISO time, where that can be known.
        cause: what it likely comes from.
        mend: the command, or the words, that put it right.
        fix: what ``drift --fix`` does about it: ``files``, ``restart``, or "" where it is not ours to touch.
        muted: why it is accepted and until when; "" where it is not.
    """

    id: str
    layer: str
    severity: str
    subject: str
    text: str
    is_: str = ""
    should: str = ""
    where: Tuple[str, ...] = ()
    since: str = ""
    cause: str = ""
    mend: str = ""
    fix: str = ""
    muted: str = ""

    @property
    def key(self) -> str:
        """The name of this very finding, the same in the next check."""
        return f"{self.id} {self.subject}".rstrip()


def counts(finding: "Finding | Mapping[str, Any]") -> bool:
    """Return whether a finding means that a server cannot be said to run what was applied.

    What a host does not tell about its hardware, or NCCL about its settings, is shown but proves nothing; a process
    or file that cannot be read does: it may be anything.
    """
    data = finding._asdict() if isinstance(finding, Finding) else finding
    if data["muted"] or data["severity"] == "info":
        return False
    return data["severity"] != "unknown" or data["layer"] in ("files", "loaded", "processes")


def mute(findings: Sequence[Finding], accepted: Sequence[Mapping[str, str]], today: str) -> List[Finding]:
    """Mark the findings that the configuration accepts; they stay visible.

    Args:
        findings: of a check.
        accepted: ``finding`` (its id, or id and subject), ``reason`` and ``until`` (YYYY-MM-DD, the last day).
        today: YYYY-MM-DD.
    """
    return [found._replace(muted=_reason(found, accepted, today)) for found in findings]


def _reason(found: Finding, accepted: Sequence[Mapping[str, str]], today: str) -> str:
    for entry in accepted:
        if entry["finding"] in (found.id, found.key) and today <= entry["until"]:
            return f"accepted until {entry['until']}: {entry['reason']}"
    return ""


def iso(seconds: Optional[float]) -> str:
    """Return a time of the epoch as ISO text in UTC, "" for none."""
    return "" if not seconds else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def order(findings: Sequence[Finding]) -> List[Finding]:
    """Return findings by layer, the gravest first within each."""
    return sorted(
        findings, key=lambda f: (bool(f.muted), LAYERS.index(f.layer), SEVERITIES.index(f.severity), f.id, f.subject)
    )


def as_data(findings: Sequence[Finding]) -> List[Dict[str, Any]]:
    """Return findings as plain data for JSON."""
    return [found._asdict() for found in findings]
