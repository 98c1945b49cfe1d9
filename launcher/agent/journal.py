"""Lines in the journal of the unit that the caller belongs to."""

from __future__ import annotations

import os
import socket
import sys

_JOURNAL = "/run/systemd/journal/socket"


def say(text: str, *, level: int = 6) -> None:
    """Write journal lines (level 3 error, 4 warning, 6 info), also where the server's own output goes to a file."""
    to_journal = not os.environ.get("JOURNAL_STREAM") and os.path.exists(_JOURNAL)
    for line in text.splitlines():
        if to_journal:
            _send_to_journal(f"MESSAGE=launch: {line}\nPRIORITY={level}\nSYSLOG_IDENTIFIER=launch\n")
        else:
            # systemd reads the level from the prefix.
            sys.stderr.write(f"<{level}>launch: {line}\n")
    sys.stderr.flush()


def _send_to_journal(entry: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(entry.encode("utf-8", "surrogateescape"), _JOURNAL)
        except OSError:
            sys.stderr.write(entry)
