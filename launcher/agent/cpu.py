"""What the processors of a machine did while a load ran: how much of it was neither the server nor its client.

A sweep on a machine that somebody else works on compares disturbed starts with undisturbed ones; repeats do not help
when the disturbance comes and goes. Standard library only.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, Iterable, Optional

from .processes import stat_fields

#: Places of utime and stime after the name of a process in /proc/PID/stat, and of idle and iowait in /proc/stat.
#: Source: proc(5), Linux 6.1.
_USER, _SYSTEM = 11, 12
_IDLE = (3, 4)
_TICKS = os.sysconf("SC_CLK_TCK")


class Cpu:
    """Begins to count; `seen` ends it."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids, self._begin = pids, time.monotonic()
        self._busy, self._ours = _busy(), _ours()
        self._server = _server(pids())

    def seen(self) -> Dict[str, float]:
        """Return ``others`` (processors that everybody else kept busy on average) and ``processors``, or nothing.

        What a hypervisor has taken away counts as somebody else's, and what a process of the server used that is gone
        by now as well.
        """
        busy, seconds = _busy(), time.monotonic() - self._begin
        if busy is None or self._busy is None or seconds <= 0:
            return {}
        server = sum(used - self._server.get(pid, 0) for pid, used in _server(self._pids()).items())
        own = server / _TICKS + _ours() - self._ours
        others = max(0.0, (busy - self._busy) / _TICKS - own) / seconds
        return {"others": round(others, 3), "processors": float(os.cpu_count() or 1)}


def _busy() -> "Optional[int]":
    """Return the ticks of all processors together in which they were not idle."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            # Guests' time, the last two, is part of the user's.
            fields = [int(word) for word in stream.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(value for place, value in enumerate(fields) if place not in _IDLE)


def _server(pids: Iterable[int]) -> Dict[int, int]:
    """Return the ticks that each process has used so far."""
    found: Dict[int, int] = {}
    for pid in pids:
        fields = stat_fields(pid)
        if len(fields) > _SYSTEM:
            found[pid] = int(fields[_USER]) + int(fields[_SYSTEM])
    return found


def _ours() -> float:
    """Return the seconds of this process and of its children that have ended, such as the client."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
