"""Files as they are, kept as plain data and put back to the byte, with mode, owner and time of change."""

from __future__ import annotations

import base64
import os
import stat
import tempfile
from typing import IO, Any, Dict, Iterable, List, Mapping

from . import files


def take(paths: Iterable[str]) -> List[Dict[str, Any]]:
    """Return what lies at each path: a file, a link, or nothing.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    return [_take(path) for path in paths]


def _take(path: str) -> Dict[str, Any]:
    if not os.path.lexists(path):
        return {"path": path, "kind": "absent"}
    status = os.lstat(path)
    entry = {"path": path, "uid": status.st_uid, "gid": status.st_gid, "mtime": status.st_mtime_ns}
    if stat.S_ISLNK(status.st_mode):
        return {**entry, "kind": "link", "target": os.readlink(path)}
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is neither a file nor a link", path)
    with open(path, "rb") as stream:
        content = base64.b64encode(stream.read()).decode("ascii")
    return {**entry, "kind": "file", "mode": stat.S_IMODE(status.st_mode), "content": content}


def text_of(entry: Mapping[str, Any]) -> str:
    """Return the text of a kept file, "" for anything else."""
    return base64.b64decode(entry.get("content", "")).decode("utf-8", "replace")


def put(entry: Mapping[str, Any]) -> None:
    """Put one kept thing back, completely or not at all, also after a power cut.

    What is there already is not written again: that needs no space.

    Raises:
        OSError: no space, read-only.
    """
    path = entry["path"]
    if entry["kind"] == "absent":
        files.remove(path)
        return
    if _is_there(entry):
        return
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        files.sync_folder(os.path.dirname(folder))
    descriptor, temporary = tempfile.mkstemp(prefix=".launch-", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            _fill(stream, temporary, entry)
        os.rename(temporary, path)
    except BaseException:
        files.remove_quietly(temporary)
        raise
    files.sync_folder(folder)


def _is_there(entry: Mapping[str, Any]) -> bool:
    try:
        return _take(entry["path"]) == dict(entry)
    except OSError:
        return False


def _fill(stream: IO[bytes], temporary: str, entry: Mapping[str, Any]) -> None:
    """Make a temporary file, which is open as a stream, what was kept."""
    times = (entry["mtime"], entry["mtime"])
    if entry["kind"] == "link":
        os.unlink(temporary)
        os.symlink(entry["target"], temporary)
        os.lchown(temporary, entry["uid"], entry["gid"])
        os.utime(temporary, ns=times, follow_symlinks=False)
        return
    stream.write(base64.b64decode(entry["content"]))
    stream.flush()
    os.fchown(stream.fileno(), entry["uid"], entry["gid"])
    os.fchmod(stream.fileno(), entry["mode"])
    os.utime(stream.fileno(), ns=times)
    os.fsync(stream.fileno())
