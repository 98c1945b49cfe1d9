"""Lines in the journal of the unit that the caller belongs to."""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from typing import Dict

_JOURNAL = "/run/systemd/journal/socket"
#: Seconds that a journal that does not read gets, and characters of one value: a datagram has to fit into its socket.
_SECONDS, _LONGEST = 5, 8000
#: journalctl shows a message that has any of these as "[blob data]".
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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


def say_of(unit: str, text: str, *, level: int, **fields: str) -> None:
    """Write one line about another unit, from root: it stands in ``journalctl -u`` of both units.

    journalctl believes root's ``OBJECT_SYSTEMD_UNIT=``. Of ``OBJECT_PID=`` the journal would make the same field, but
    only while the process lives, and a stopped service has none.

    Args:
        unit: that the line is about.
        text: may hold anything; it becomes one line.
        level: 3 error, 4 warning, 5 notice, 6 info.
        **fields: further fields of the entry.
    """
    message = "launch: " + _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    named = {"MESSAGE": message, "PRIORITY": str(level), "SYSLOG_IDENTIFIER": "launch", "OBJECT_SYSTEMD_UNIT": unit}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_SECONDS)
            channel.sendto(_entry({**named, **fields}), _JOURNAL)
    except OSError:
        sys.stderr.write(f"<{level}>{message}\n")
        sys.stderr.flush()


def _entry(fields: Dict[str, str]) -> bytes:
    """Return an entry in the journal's own protocol, each value with its length: a line break in it ends nothing."""
    values = ((name, value[:_LONGEST].encode("utf-8", "backslashreplace")) for name, value in fields.items())
    return b"".join(name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n" for name, value in values)


def _send_to_journal(entry: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(entry.encode("utf-8", "surrogateescape"), _JOURNAL)
        except OSError:
            sys.stderr.write(entry)
