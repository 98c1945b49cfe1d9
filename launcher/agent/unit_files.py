"""Every file on this host that takes part in a unit: where systemd looks, what lies there, what drop-ins say."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Dict, List, Tuple

from .processes import read_bytes

#: systemd's folders for units, the strongest first (systemd.unit(5), 247 to 257; tried).
FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
#: What a distribution ships; the release was proven with it.
VENDOR = "/usr/lib/systemd/system"


def state(path: str) -> Dict[str, Any]:
    """Return what lies at a path: ``kind`` and, by kind, ``target``, or ``sha256``, ``mode``, ``owner``, ``ctime``.

    Kinds are ``file``, ``link``, ``other`` (a folder, a device), ``unreadable`` and ``absent``.
    """
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return {"kind": "link", "target": os.readlink(path), "ctime": status.st_ctime}
    except FileNotFoundError:
        return {"kind": "absent"}
    except OSError as error:
        return {"kind": "unreadable", "reason": str(error.strerror)}
    seen = {
        "mode": stat.S_IMODE(status.st_mode),
        "owner": f"{status.st_uid}:{status.st_gid}",
        "ctime": status.st_ctime,
    }
    if not stat.S_ISREG(status.st_mode):
        return {**seen, "kind": "other"}
    content = read_bytes(path)
    if content is None:
        return {**seen, "kind": "unreadable", "reason": "no permission, or it went away"}
    return {**seen, "kind": "file", "sha256": hashlib.sha256(content).hexdigest(), "content": content}


def namesakes(unit: str) -> Dict[str, Dict[str, Any]]:
    """Return the files of a unit's name outside /etc/systemd/system, the strongest first."""
    paths = [f"{folder}/{unit}" for folder in FOLDERS if folder != "/etc/systemd/system"]
    return {path: state(path) for path in paths if os.path.lexists(path)}


def drop_in_folders(unit: str) -> List[str]:
    """Return the folder names whose drop-ins apply to a unit, the most specific first.

    Beside its own there is one for each prefix that ends in a dash, and one for all services.
    """
    stem = unit[: -len(".service")]
    prefixes = [stem[: i + 1] for i in range(len(stem) - 1, -1, -1) if stem[i] == "-" and i < len(stem) - 1]
    return [f"{unit}.d", *(f"{prefix}.service.d" for prefix in prefixes), "service.d"]


def drop_ins(unit: str) -> Dict[str, Dict[str, Any]]:
    """Return every drop-in that takes effect, with its ``settings``.

    Of two with the same file name the one in the stronger folder counts, wherever in the tree the other lies; one
    that is empty or a link to /dev/null has no effect of its own.
    """
    found: Dict[str, Tuple[str, Dict[str, Any]]] = {}
    for folder in (f"{place}/{name}" for place in FOLDERS for name in drop_in_folders(unit)):
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.endswith(".conf") and not entry.startswith(".") and entry not in found:
                found[entry] = (f"{folder}/{entry}", _drop_in(f"{folder}/{entry}"))
    return dict(sorted(found.values(), key=lambda item: os.path.basename(item[0])))


def _drop_in(path: str) -> Dict[str, Any]:
    seen = state(os.path.realpath(path))
    content = seen.pop("content", b"")
    return {**seen, "settings": settings(content.decode("utf-8", "replace"))}


def settings(text: str) -> List[Tuple[str, str]]:
    """Return the settings of a unit file in order, as key and value; continued lines are joined, comments skipped."""
    found: List[Tuple[str, str]] = []
    whole = ""
    for line in text.splitlines():
        line = line.strip()
        if line[:1] in ("#", ";"):
            continue
        whole += line[:-1] + " " if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        key, sign, value = whole.partition("=")
        if sign and not whole.startswith("["):
            found.append((key.strip(), value.strip()))
        whole = ""
    return found
