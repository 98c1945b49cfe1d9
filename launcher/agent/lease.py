"""Who may change this host: one at a time, and everybody can see who it is.

The kernel's lock decides, so that a holder that dies leaves nothing behind. The note beside it only tells; a note of
another boot, or one that nobody holds the lock for, is of the past.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional

from .processes import read_bytes

LOCK = "/run/launch.lock"
NOTE = "/run/launch.lease"
#: Why somebody has the lease who changes nothing.
MEASURING = "bench"


class LeaseHeld(Exception):  # noqa: N818 - a state, and no failure of ours
    """Somebody else is changing this host; the text names who, what and since when."""


@contextmanager
def lease(owner: str, deployment: str, why: str, seconds: float) -> Iterator[None]:
    """Keep every other change away from this host.

    Args:
        owner: who asks, from where.
        deployment: what is changed.
        why: what is done.
        seconds: how long it may take; systemd ends it then.

    Raises:
        LeaseHeld: another one is changing it.
    """
    descriptor = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseHeld(told(holder())) from None
        now = time.monotonic()
        note = {"owner": owner, "deployment": deployment, "why": why, "pid": os.getpid(), "boot": boot()}
        _write({**note, "since": now, "expires": now + seconds})
        yield
        _remove()
    finally:
        os.close(descriptor)


def holder() -> Optional[Dict[str, Any]]:
    """Return the note of who changes this host now, None where nobody does."""
    try:
        descriptor = os.open(LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock that is given back at once: it fails exactly while somebody holds the other kind.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return note() or {
            "owner": "an older launch",
            "deployment": "",
            "why": "changes this host",
            "since": 0,
            "pid": 0,
        }
    else:
        return None
    finally:
        os.close(descriptor)


def note() -> Optional[Dict[str, Any]]:
    """Return the note of this boot, whether its writer lives or not."""
    try:
        found: Dict[str, Any] = json.loads(read_bytes(NOTE) or b"")
        return found if found["boot"] == boot() else None
    except (ValueError, LookupError, TypeError):
        return None


def told(held: Optional[Dict[str, Any]]) -> str:
    """Return in words who holds the lease."""
    if held is None:
        return "another launch was changing this host a moment ago; try again"
    if not held["pid"]:
        return f"another launch is changing this host ({LOCK})"
    since = max(0, int(time.monotonic() - held["since"]))
    what = f" {held['deployment']}" if held["deployment"] else ""
    if held["why"] == MEASURING:
        return (
            f"{held['owner']} is measuring on this host ({held['why']}{what}) since {since} s, process {held['pid']}:"
            " wait for its end; it ends with the launch that asked for it"
        )
    return (
        f"{held['owner']} is changing this host ({held['why']}{what}) since {since} s, process {held['pid']}:"
        " wait for its end, or end it and go back to what was before it with --break-lease"
    )


def boot() -> str:
    """Return the id of this boot of the machine."""
    return (read_bytes("/proc/sys/kernel/random/boot_id") or b"").decode("ascii").strip()


def _write(content: Dict[str, Any]) -> None:
    temporary = NOTE + ".tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(content, stream)
    os.rename(temporary, NOTE)


def _remove() -> None:
    try:
        os.unlink(NOTE)
    except OSError:
        return
