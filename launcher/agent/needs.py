"""What a host lacks for a release, found before anything is touched."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from typing import Any, Dict, List, Optional

from . import nccl_block, systemd
from .neighbours import conflicts, deployed

#: Older ones read quotes in environment files differently and know no LoadCredential=.
OLDEST_SYSTEMD = 247


def problems(needs: Dict[str, Any], unit: str) -> List[str]:
    """Return what stands against a release on this host, one line each with the remedy."""
    return unusable() or _problems(needs, unit)


def unusable() -> List[str]:
    """Return why nothing can be looked at or changed here, one line each with the remedy."""
    if os.geteuid() != 0:
        return ["not root, and sudo without a password is not allowed for this user"]
    missing = [name for name in ("systemctl", "busctl", "journalctl", "systemd-analyze") if not shutil.which(name)]
    if missing or not os.path.isdir("/run/systemd/system"):
        return [f"systemd does not run here ({', '.join(missing) or 'no /run/systemd/system'})"]
    version = systemd.version()
    if version < OLDEST_SYSTEMD:
        return [f"systemd {version} is too old: {OLDEST_SYSTEMD} or newer is needed"]
    return []


def _problems(needs: Dict[str, Any], unit: str) -> List[str]:
    found = _foreign_unit(unit)
    try:
        user: Optional[pwd.struct_passwd] = pwd.getpwnam(needs["user"])
    except KeyError:
        user = None
        found.append(
            f"user {needs['user']!r} does not exist: set engine.user=NAME, or create it with"
            f" useradd --system --create-home --home-dir /var/lib/{needs['user']} {needs['user']}"
        )
    for key, path in needs["programs"].items():
        found += _program(key, path, user)
    for key, path in needs["folders"].items():
        if not os.path.isdir(path):
            found.append(f"the folder {path} does not exist (for {key})")
        elif user and not _allowed(path, os.X_OK, user):
            found.append(f"user {user.pw_name} may not enter {path} (for {key})")
    if needs["log_file"]:
        found += log_file(needs["log_file"])
    found += nccl_block.problems(nccl_block.read(), needs["name"], needs["nccl"])
    return found + conflicts(needs, deployed())


def _program(key: str, path: str, user: "pwd.struct_passwd | None") -> List[str]:
    if path.endswith("/podman") and not os.path.exists(path):
        return [f"{path} is not there: install podman 4.0 or newer, or set runtime=venv"]
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return [f"{path} is not there or not executable: set {key}=PATH"]
    if user and not _allowed(path, os.X_OK, user):
        return [f"user {user.pw_name} may not execute {path}: set {key}=PATH, or open its folders to that user"]
    return []


def _allowed(path: str, mode: int, user: "pwd.struct_passwd") -> bool:
    """Return whether a user may use a path, asked of the kernel in a child process that is that user."""
    child = os.fork()
    if child == 0:
        try:
            os.initgroups(user.pw_name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os._exit(0 if os.access(path, mode) else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def log_file(path: str) -> List[str]:
    """Return why systemd, which opens it as root, must not write a file: others could swap it for a link."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return [f"the folder {folder} does not exist (for unit.log_file)"]
    while True:
        status = os.stat(folder)
        if status.st_uid != 0 or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
            why = f"{folder} can be changed by others than root"
            return [f"unit.log_file={path}: {why}; use a folder of root's, or the journal: unit.log_file=''"]
        if folder == "/":
            break
        folder = os.path.dirname(folder)
    return [f"unit.log_file={path} is a link"] if os.path.islink(path) else []


def _foreign_unit(unit: str) -> List[str]:
    path = f"/etc/systemd/system/{unit}"
    if os.path.islink(path):
        target = os.readlink(path)
        word = "masked: systemctl unmask" if target == "/dev/null" else f"a link to {target}: systemctl disable"
        return [f"{path} is {word} {unit}"]
    loaded = systemd.properties(unit).get("FragmentPath", "")
    if loaded not in ("", path):
        return [f"a unit of this name is loaded from {loaded}: remove it, or set name=OTHER"]
    return []
