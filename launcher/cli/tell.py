"""Questions and progress on the terminal."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.cli.parser import CommandLine
    from launcher.fleet.rollout import Progress

_COLOURS = {"+": "32", "-": "31", "~": "33", "!": "31", "bold": "1", "dim": "2"}


def paint(text: str, colour: str) -> str:
    """Return text in a colour, as it is where no terminal shows it."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if sys.stdout.isatty() else text


def who() -> str:
    """Return who asks from where, for the lease and the record on the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def confirmed(line: CommandLine, question: str) -> bool:
    """Ask at the terminal; where there is none the answer is no."""
    if line.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def progress(line: CommandLine) -> Progress:
    """Return what shows a host's progress on standard error; nothing beside a record."""

    def tell(host: str, text: str) -> None:
        print(f"{host}: {text}", file=sys.stderr, flush=True)

    return (lambda _host, _text: None) if line.json else tell
