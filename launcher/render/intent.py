"""What the host keeps beside a release: what was meant, so that its own check can tell drift without us."""

from __future__ import annotations

import dataclasses
import re
from datetime import date
from typing import TYPE_CHECKING, Any

from launcher import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.schema import Deployment

_UNIT = re.compile(r"[A-Za-z0-9:_.@{}\\-]+\.(service|target|path|socket|timer|scope|slice|mount)")
#: Parts of a lasting intent in words.
LASTING = {
    "hw": "expected hardware",
    "accept": "accepted differences",
    "watch": "alert or metrics",
    "nccl_conf": "block in /etc/nccl.conf",
}


def intent(deployment: Deployment, words: Iterable[str] = (), by: str = "") -> dict[str, Any]:
    """Return what a record keeps of a deployment beside its release.

    Args:
        deployment: the composed deployment.
        words: names and overrides that it was composed from.
        by: who deploys, from where.
    """
    return {**lasting(deployment), "words": list(words), "by": by, "launch": __version__}


def lasting(deployment: Deployment) -> dict[str, Any]:
    """Return the part of the intent whose change alone is worth a deploy without a restart."""
    drift = deployment.drift
    return {
        "hw": dataclasses.asdict(deployment.hw),
        "accept": [dataclasses.asdict(entry) for entry in drift.accept.values()],
        "nccl_conf": deployment.unit.nccl_conf,
        "watch": {"alert": drift.alert.replace("{deployment}", deployment.name), "textfile": drift.textfile},
    }


def problems(deployment: Deployment) -> list[str]:
    """Return what is wrong with the settings of the check, one line each."""
    found: list[str] = []
    for name, entry in deployment.drift.accept.items():
        key = f"drift.accept.{name}"
        if not re.fullmatch(r"[a-z-]+( \S.*)?", entry.finding):
            found.append(
                f"{key}.finding={entry.finding!r} is no finding: its id, or id and subject, as drift shows them"
            )
        if not entry.reason.strip():
            found.append(f"{key}.reason is empty: say why it is accepted")
        if not _is_date(entry.until):
            found.append(f"{key}.until={entry.until!r} is no date: write the last day as 2027-01-31")
    alert = deployment.drift.alert.replace("{deployment}", "x")
    if alert and not _UNIT.fullmatch(alert):
        found.append(f"drift.alert={deployment.drift.alert!r} is no name of a unit, as page@{{deployment}}.service")
    path = deployment.drift.textfile
    if path and not re.fullmatch(r"/([A-Za-z0-9._-]+/)+[A-Za-z0-9._-]+\.prom", path):
        found.append(f"drift.textfile={path!r} must be an absolute path that ends in .prom")
    return found


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
