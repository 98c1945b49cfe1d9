"""How long a running server took from its start to its first answer, as far as its own log tells."""

from __future__ import annotations

import itertools
import re
import time
from typing import Iterable, Iterator, List, Optional

from .library import first_lines

#: What the engines say when they are ready.
_READY = ("The server is fired up and ready to roll!", "Application startup complete")
#: SGLang writes ``[2026-11-30 09:12:03 TP0]``, vLLM ``INFO 11-30 09:12:03 [``; uvicorn's own lines have no time.
_LONG = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_SHORT = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d)\b")
_UNIX = re.compile(r"^(\d{9,}\.\d+) ")
#: A log may hold many starts; the newest part of it is read.
_BYTES, _LINES = 64 << 20, 1_000_000
_DAY = 24 * 3600


def of_file(path: str, since: float) -> Optional[float]:
    """Return the seconds that a start took, by the times in a log file; None where it does not say."""
    return took(_newest(path), since)


def of_unit(unit: str, since: float) -> Optional[float]:
    """Return the seconds that a start took, by the times of the journal."""
    argv = ["journalctl", "--no-pager", "-q", "-o", "short-unix", "-u", unit, f"--since=@{int(since)}"]
    return took(first_lines(argv), since)


def took(lines: Iterable[str], since: float) -> Optional[float]:
    """Return the seconds from a moment to the first line after it that says that the server is ready."""
    at: Optional[float] = None
    for line in lines:
        at = _time(line, since) or at
        # The clock of a log has whole seconds.
        if at is not None and any(text in line for text in _READY) and -1 <= at - since <= _DAY:
            return max(0.0, at - since)
    return None


def _time(line: str, since: float) -> Optional[float]:
    unix = _UNIX.match(line)
    if unix:
        return float(unix.group(1))
    found, form = _LONG.search(line), "%Y-%m-%d %H:%M:%S"
    text = found.group(1) if found else ""
    if not found:
        found = _SHORT.search(line)
        text = f"{time.localtime(since).tm_year}-{found.group(1)}" if found else ""
    try:
        return time.mktime(time.strptime(text, form)) if text else None
    except (ValueError, OverflowError):
        return None


def _newest(path: str) -> Iterator[str]:
    try:
        with open(path, "rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _BYTES))
            lines: List[bytes] = list(itertools.islice(stream, _LINES))
    except OSError:
        return
    for line in lines:
        yield line.decode("utf-8", "replace")
