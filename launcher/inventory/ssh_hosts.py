"""The hosts that an SSH configuration names, for patterns such as ``gpu*``; how to get there is asked of OpenSSH."""

from __future__ import annotations

import glob
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.host.ssh_config import home, tilde
from launcher.inventory.known import Read, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.inventory.known import Inventory

_DEEPEST = 16  # as OpenSSH 9


def hosts(config: str) -> Inventory:
    """Return every host that stands by its full name behind ``Host``, in the files' order.

    Args:
        config: the only file to read; empty: the user's and the system's. ``Include`` is followed.
    """
    files = [Path(tilde(config))] if config else [home() / ".ssh/config", Path("/etc/ssh/ssh_config")]
    read = Read()
    for file in files:
        for name in _names(file, 0):
            read.host(name)
    return resolve(read, str(files[0]))


def _names(file: Path, depth: int) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        said = re.match(r"\s*(host|include)(?:\s*=\s*|\s+)(.+)", line, re.IGNORECASE)
        if not said:
            continue
        try:
            words = shlex.split(said[2], comments=True)
        except ValueError:
            continue  # OpenSSH refuses the file as soon as it is asked, with the line
        if said[1].lower() == "host":
            yield from (word for word in words if not re.search(r"[*?!]", word))
        elif depth < _DEEPEST:
            base = Path("/etc/ssh") if file.is_relative_to("/etc/ssh") else home() / ".ssh"
            for pattern in words:
                for found in sorted(glob.glob(str(base / tilde(pattern)))):  # noqa: PTH207 - it may be absolute
                    yield from _names(Path(found), depth + 1)
