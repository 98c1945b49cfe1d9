"""Files that are there completely or not at all, also after a power cut."""

from __future__ import annotations

import hashlib
import os
import pwd
import tempfile
from typing import Any, Dict

from .processes import read_bytes


def write(entry: Dict[str, Any]) -> bool:
    """Write one file unless it is there with the same content, mode and owner.

    Temporary file in the same folder, fsync, rename, fsync of the folder; and of the one above it when the file is new,
    for the folder may be as new.

    Args:
        entry: ``path``, ``text``, ``mode`` and ``group`` (a user whose primary group may read it).

    Returns:
        Whether something was written.

    Raises:
        OSError: no space, no permission, read-only file system.
    """
    path, content, mode = entry["path"], entry["text"].encode("utf-8", "surrogateescape"), entry["mode"]
    gid = pwd.getpwnam(entry["group"]).pw_gid
    if _same(path, content, mode, gid):
        return False
    folder, is_new = os.path.dirname(path), not os.path.lexists(path)
    descriptor, temporary = tempfile.mkstemp(prefix=".launch-", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            os.fchown(stream.fileno(), 0, gid)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        remove_quietly(temporary)
        raise
    sync_folder(folder)
    if is_new:
        sync_folder(os.path.dirname(folder))
    return True


def remove(path: str) -> None:
    """Remove a file if it is there, lastingly."""
    if os.path.lexists(path):
        os.unlink(path)
        sync_folder(os.path.dirname(path))


def folder(path: str, mode: int, group: str) -> None:
    """Make a folder of root's with exactly this mode, lastingly."""
    os.makedirs(path, exist_ok=True)
    os.chown(path, 0, pwd.getpwnam(group).pw_gid)
    os.chmod(path, mode)
    sync_folder(path)
    sync_folder(os.path.dirname(path))


def sha256(text: str) -> str:
    """Return the digest of a file's text, as `observe` reports it."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sync_folder(path: str) -> None:
    """Make what was renamed, made and removed in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _same(path: str, content: bytes, mode: int, gid: int) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    wanted = (0o100000 | mode, 0, gid)
    return (status.st_mode, status.st_uid, status.st_gid) == wanted and read_bytes(path) == content


def remove_quietly(path: str) -> None:
    """Remove a file if that can be done."""
    try:
        os.unlink(path)
    except OSError:
        return
