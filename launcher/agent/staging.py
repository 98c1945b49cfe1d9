"""Write what nothing points to yet, and let systemd read the unit before it gets to its place."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List

from . import files, record, systemd
from .failed import ChangeError


def stage(request: Dict[str, Any]) -> None:
    """Write environment file and manifest of a release, and the files that all deployments share.

    Raises:
        OSError: no space, read-only.
    """
    env_file, manifest, _ = request["files"]
    for path in sorted({os.path.dirname(entry["path"]) for entry in request["shared"]}):
        os.makedirs(path, exist_ok=True)
    folder = os.path.dirname(env_file["path"])
    # Open folders, closed files: another user of a later release must not lock an older one out of its own.
    files.folder(os.path.dirname(folder), 0o755, "root")
    files.folder(folder, 0o755, "root")
    for entry in [*request["shared"], env_file, manifest]:
        files.write(entry)
    record.write_shared(request["shared"])


def verify(unit: str, text: str) -> None:
    """Let systemd read a unit under its real name.

    Raises:
        ChangeError: it would not be read as it is meant; with systemd's own lines.
    """
    folder = tempfile.mkdtemp(prefix="launch-", dir="/run")
    try:
        path = os.path.join(folder, unit)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        lines = systemd.verify(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if lines:
        raise ChangeError("systemd would not read the unit as it is meant", lines)


def overridden(loaded: Dict[str, Any], path: str, env_file: str, commands: List[List[List[str]]]) -> List[str]:
    """Return in what the loaded unit is not the one on disk, one line each."""
    found: List[str] = []
    if loaded["FragmentPath"] != path:
        found.append(f"the unit is loaded from {loaded['FragmentPath']}")
    env_files = [entry[0] for entry in loaded["EnvironmentFiles"]]
    if env_files != [env_file]:
        found.append(f"environment files as loaded: {', '.join(env_files) or 'none'}")
    for name, wanted in zip(("ExecStart", "ExecStartPost"), commands):
        if [entry[1] for entry in loaded[name]] != wanted:
            found.append(f"{name}= as loaded is not the one of the release")
    return found
