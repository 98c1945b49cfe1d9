"""The Pythons of this machine: those on the PATH, and those that pyenv keeps off it."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

MINORS = range(8, 16)
TELL = "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)"


class Interpreter(NamedTuple):
    """One Python 3 by the path of its real program, not of a wrapper that picks one by the folder it runs in."""

    version: tuple[int, int]
    path: Path


@cache
def found() -> dict[tuple[int, int], Interpreter]:
    """Return one interpreter for each version from 3.8 on, oldest first."""
    seen: dict[tuple[int, int], Interpreter] = {}
    for path in _candidates():
        python = _ask(path)
        if python and python.version >= (3, MINORS.start):
            seen.setdefault(python.version, python)
    return dict(sorted(seen.items()))


def _candidates() -> list[Path]:
    names = ["python3", *(f"python3.{minor}" for minor in MINORS)]
    on_path = [shutil.which(name) for name in names]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [*(Path(path) for path in on_path if path), *sorted(pyenv.glob("versions/*/bin/python3"))]


def _ask(path: Path) -> Interpreter | None:
    """Run it: a wrapper may stand for a Python that is not there."""
    try:
        done = subprocess.run([path, "-I", "-c", TELL], capture_output=True, text=True, timeout=30, check=False)
        major, minor, real = done.stdout.rstrip("\n").split(" ", 2)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter((int(major), int(minor)), Path(real)) if done.returncode == 0 else None
