"""What a run of the watch leaves for the next one."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple

from . import files
from .processes import read_bytes


class Seen(NamedTuple):
    """One deployment at the last run.

    Attributes:
        state: what was said about it in one line.
        unsure: names of the findings that could not be told.
        alerted: names of the findings that an alert was started for.
        restarts: the count that was seen, and that an alert was started for.
        textfile: where its metrics went.
    """

    state: str = ""
    unsure: List[str] = []  # noqa: RUF012 - never changed
    alerted: List[str] = []  # noqa: RUF012
    restarts: int = 0
    textfile: str = ""


def folder() -> str:
    """Return the unit's runtime folder; also for a check that somebody starts by hand."""
    return os.environ.get("RUNTIME_DIRECTORY") or "/run/launch-drift"


def load() -> Dict[str, Seen]:
    """Return what the last run left; nothing where there was none, or where its file is damaged."""
    try:
        data = json.loads(read_bytes(_path()) or b"")
        return {str(name): _seen(entry) for name, entry in data["deployments"].items()}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}


def _seen(entry: Mapping[str, Any]) -> Seen:
    return Seen(
        state=str(entry["state"]),
        unsure=[str(name) for name in entry["unsure"]],
        alerted=[str(name) for name in entry["alerted"]],
        restarts=int(entry["restarts"]),
        textfile=str(entry["textfile"]),
    )


def store(seen: Mapping[str, Seen]) -> None:
    """Leave this for the next run.

    Raises:
        OSError: no space, or no permission.
    """
    text = json.dumps({"deployments": {name: entry._asdict() for name, entry in seen.items()}}, indent=1)
    os.makedirs(folder(), exist_ok=True)
    files.write({"path": _path(), "text": text + "\n", "mode": 0o600, "group": "root"})


def _path() -> str:
    return os.path.join(folder(), "state.json")
