"""The generations of a deployment on this host: what was applied, when, by whom, why, and how it ended."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from . import files, record, systemd
from .manifest import checksum_of
from .processes import cgroup_pids, read_bytes, read_process

#: Proven generations that are kept, the newest ones.
KEPT = 10
#: Lines of history that are kept.
_LINES = 200
_RELEASE = re.compile(r"([0-9a-f]{16})\.(env|json)")


def folder(name: str) -> str:
    """Return where the generations of a deployment lie; root alone may look into it."""
    return f"{record.ETC}/{name}/generations"


def numbers(name: str) -> List[int]:
    """Return the numbers of the generations that can be returned to, in order."""
    try:
        entries = os.listdir(folder(name))
    except OSError:
        return []
    return sorted(int(e[:-5]) for e in entries if re.fullmatch(r"\d{5}\.json", e) and e != "00000.json")


def load(name: str, number: int) -> Dict[str, Any]:
    """Return the record of a generation.

    Raises:
        RecordError: it is not there, or was changed.
    """
    return record.read(f"{folder(name)}/{number:05}.json")


def written(name: str) -> List[str]:
    """Return the files that the record of the next generation is written to."""
    return [record.path_of(name), f"{folder(name)}/{_next(name):05}.json", _history(name)]


def _next(name: str) -> int:
    return max([*numbers(name), *(e["number"] for e in history(name))], default=0) + 1


def _history(name: str) -> str:
    return f"{record.ETC}/{name}/history.jsonl"


def add(name: str, entry: Mapping[str, Any]) -> int:
    """Keep what was just applied as a generation, note it in the history, and return its number.

    Args:
        name: of the deployment.
        entry: of the history: ``by``, ``why``, ``at``, ``outcome``.

    Raises:
        OSError: no space, read-only.
    """
    applied = json.loads(read_bytes(record.path_of(name)) or b"")
    there, number = numbers(name), _next(name)
    files.folder(folder(name), 0o700, "root")
    applied["number"] = number
    applied["checksum"] = checksum_of(applied)
    text = json.dumps(applied, sort_keys=True) + "\n"
    files.write({"path": f"{folder(name)}/{number:05}.json", "text": text, "mode": 0o600, "group": "root"})
    note(name, {**entry, "number": number, "digest": applied["digest"]})
    for old in there[: max(0, len(there) + 1 - KEPT)]:
        files.remove(f"{folder(name)}/{old:05}.json")
    return number


def note(name: str, entry: Mapping[str, Any]) -> None:
    """Write one line of history, of a change that failed too.

    Raises:
        OSError: no space, read-only.
    """
    lines = [*history(name), dict(entry)][-_LINES:]
    text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
    os.makedirs(f"{record.ETC}/{name}", exist_ok=True)
    files.write({"path": _history(name), "text": text, "mode": 0o600, "group": "root"})


def history(name: str) -> List[Dict[str, Any]]:
    """Return the history of a deployment, the oldest first; a line that cannot be read is left out."""
    found: List[Dict[str, Any]] = []
    for line in (read_bytes(_history(name)) or b"").splitlines():
        try:
            entry = json.loads(line)
            entry["number"], entry["digest"] = int(entry["number"]), str(entry["digest"])
            found.append(entry)
        except (ValueError, LookupError, TypeError):
            continue
    return found


def clean(name: str) -> List[str]:
    """Remove releases that no generation, unit, manager or process refers to; return their files.

    Raises:
        OSError: one cannot be removed.
        SystemdError: the manager does not answer.
    """
    place = f"{record.ETC}/{name}"
    needed = _referred(name)
    for torn in glob.glob(f"{record.ETC}/**/.launch-*.tmp", recursive=True) + glob.glob(
        f"{record.UNITS}/.launch-*.tmp"
    ):
        files.remove(torn)  # left by a power cut; there may be secrets in it
    gone = [e for e in sorted(os.listdir(place)) for m in [_RELEASE.fullmatch(e)] if m and m.group(1) not in needed]
    for entry in gone:
        files.remove(f"{place}/{entry}")
    return gone


def _referred(name: str) -> Set[str]:
    unit = record.unit_of(name)
    found: Set[str] = set()
    for path in [record.path_of(name), *(f"{folder(name)}/{n:05}.json" for n in numbers(name))]:
        found.update(_digests(read_bytes(path)))
    found.update(_digests(read_bytes(f"{record.UNITS}/{unit}")))
    found.update(_digests(read_bytes(f"{record.ETC}/pending/{name}.json")))
    loaded = systemd.properties(unit)
    found.update(_digests(json.dumps([loaded.get("EnvironmentFiles"), loaded.get("ExecStart")]).encode()))
    for pid in cgroup_pids(loaded["ControlGroup"]):
        process = read_process(pid)
        found.add(((process.env if process else None) or {}).get("LAUNCH_DIGEST", ""))
    return found


def _digests(content: Optional[bytes]) -> Iterable[str]:
    return re.findall(r"\b[0-9a-f]{16}\b", (content or b"").decode("utf-8", "replace"))
