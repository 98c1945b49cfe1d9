"""Generation 0: what was there under a deployment's name before our first write, and the way back to it."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional

from . import files, keep, record, systemd
from .neighbours import POINTER
from .processes import read_bytes


def path_of(name: str) -> str:
    """Return where generation 0 of a deployment lies; root alone may read it."""
    return f"{record.ETC}/{name}/generations/00000.json"


def is_first(name: str) -> bool:
    """Return whether nothing of ours was ever applied under this name."""
    unit = (read_bytes(f"{record.UNITS}/{record.unit_of(name)}") or b"").decode("utf-8", "replace")
    return not os.path.exists(path_of(name)) and not POINTER.search(unit)


def paths(unit: str) -> List[str]:
    """Return the files of a unit that a deploy replaces: the unit and its own drop-ins in /etc."""
    path = f"{record.UNITS}/{unit}"
    return [path, *sorted(glob.glob(glob.escape(path) + ".d/*"))]


def capture(name: str) -> Dict[str, Any]:
    """Return everything that was there: files, the files that they read, the links that start it, and its state.

    Raises:
        OSError: something cannot be read.
        SystemdError: the manager does not answer.
    """
    unit = record.unit_of(name)
    kept = keep.take(paths(unit))
    text = "\n".join(keep.text_of(entry) for entry in kept)
    read = re.findall(r"^EnvironmentFile=-?(/[^%*?\[\s][^%*?\[]*?)\s*$", text, re.MULTILINE)
    state = systemd.properties(unit)
    return {
        "unit": unit,
        "kept": kept,
        "read": keep.take(path for path in read if os.path.isfile(path)),
        "links": keep.take(_links(unit)),
        "folder": os.path.isdir(f"{record.UNITS}/{unit}.d"),
        "active": state["ActiveState"] in ("active", "activating", "reloading"),
    }


def _links(unit: str) -> List[str]:
    """Return the links that start a unit."""
    return sorted(path for kind in ("wants", "requires") for path in glob.glob(f"{record.UNITS}/*.{kind}/{unit}"))


def write(name: str, origin: Mapping[str, Any]) -> None:
    """Keep generation 0.

    Raises:
        OSError: no space, read-only.
    """
    path = path_of(name)
    files.folder(f"{record.ETC}/{name}", 0o755, "root")
    files.folder(os.path.dirname(path), 0o700, "root")
    text = json.dumps(origin, sort_keys=True) + "\n"
    files.write({"path": path, "text": text, "mode": 0o600, "group": "root"})


def note(name: str, taken: Mapping[str, Any]) -> None:
    """Add the server that was taken over to generation 0.

    Raises:
        OSError: no space, read-only.
    """
    zero = read(name)
    if zero is not None:
        write(name, {**zero, "stray": taken})


def read(name: str) -> Optional[Dict[str, Any]]:
    """Return generation 0, None where there is none that can be read."""
    try:
        found: Dict[str, Any] = json.loads(read_bytes(path_of(name)) or b"")
        return found if found["unit"] == record.unit_of(name) else None
    except (ValueError, LookupError, TypeError):
        return None


def clear(unit: str) -> None:
    """Take the drop-ins of a foreign unit away, which generation 0 holds; they would override ours.

    Raises:
        OSError: one cannot be removed.
    """
    for path in paths(unit)[1:]:
        files.remove(path)


def restore(origin: Mapping[str, Any]) -> None:
    """Put the files and links of generation 0 back, and take the links away that it had not.

    Raises:
        OSError: no space, read-only.
    """
    for entry in (*reversed(origin["kept"]), *origin["links"]):  # the unit after its drop-ins
        keep.put(entry)
    for link in set(_links(origin["unit"])) - {entry["path"] for entry in origin["links"]}:
        files.remove(link)
    for entry in origin["read"]:
        if not os.path.exists(entry["path"]):
            keep.put(entry)
    drop_ins = f"{record.UNITS}/{origin['unit']}.d"
    if not origin["folder"] and os.path.isdir(drop_ins) and not os.listdir(drop_ins):
        os.rmdir(drop_ins)
