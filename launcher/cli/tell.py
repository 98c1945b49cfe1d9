"""Questions and progress on the terminal: a live table there, plain lines elsewhere, JSON lines beside a record."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from launcher.cli.parser import CommandLine
    from launcher.fleet.rollout import Progress

_COLOURS = {"+": "32", "-": "31", "~": "33", "!": "31", "bold": "1", "dim": "2"}


def paint(text: str, colour: str) -> str:
    """Return text in a colour, as it is where no terminal shows it or NO_COLOR is set."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if plain else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


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
    """Return what tells a host's progress on standard error, a line each."""
    if line.json:
        return lambda host, text: print(json.dumps({"host": host, "event": text}), file=sys.stderr, flush=True)
    return lambda host, text: print(f"{host}: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def live(line: CommandLine, hosts: Sequence[str]) -> Iterator[Progress]:
    """Show the progress of several hosts: a table that changes where standard error is a terminal, else lines."""
    if line.json or not sys.stderr.isatty():
        yield progress(line)
        return
    from rich.console import Console
    from rich.live import Live

    rows = _Rows(hosts)
    with Live(get_renderable=rows.table, console=Console(stderr=True), refresh_per_second=4) as shown:

        def tell(host: str, text: str) -> None:
            rows.tell(host, text)
            shown.refresh()

        yield tell


class _Rows:
    """What each host is doing, and for how long; hosts are told of by several threads."""

    def __init__(self, hosts: Sequence[str]) -> None:
        now = time.monotonic()
        self._rows = dict.fromkeys(hosts, ("", now))
        self._lock = threading.Lock()

    def tell(self, host: str, text: str) -> None:
        with self._lock:
            self._rows[host] = (text, time.monotonic())

    def table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        with self._lock:
            rows = dict(self._rows)
        for host, (text, since) in rows.items():
            table.add_row(host, text, f"{time.monotonic() - since:.0f} s" if text else "")
        return table
