"""A host's disk: an overlay over the shared root folder, or a copy where overlays do not work."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fleet.shell import execute


def create(base: Path, folder: Path) -> Path:
    """Make a writable root below `folder` that begins as `base`."""
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir(parents=True)
    layers = f"lowerdir={base},upperdir={upper},workdir={work}"
    mount = subprocess.run(
        ["mount", "-t", "overlay", "launch-fleet", "-o", layers, str(root)], capture_output=True, check=False
    )
    if mount.returncode:
        execute("cp", "-a", "--reflink=auto", f"{base}/.", str(root), timeout=600)
    return root


def mounts(folder: Path) -> list[Path]:
    """Return what is mounted at or below a folder, the deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        target = Path(line.split()[4].encode().decode("unicode_escape"))
        if target == folder or folder in target.parents:
            found.append(target)
    return found[::-1]


def remove(folder: Path) -> None:
    """Unmount everything below a folder and delete it, never crossing into another file system."""
    for target in mounts(folder):
        if subprocess.run(["umount", str(target)], capture_output=True, check=False).returncode:
            execute("umount", "--lazy", str(target), check=False)
    execute("rm", "-rf", "--one-file-system", str(folder), timeout=300)
