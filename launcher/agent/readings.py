"""What is read of a server and its machine beside a load: counters, its log, its processes, the GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional

from . import credentials, systemd
from .comm_process import GPU_FIELDS
from .processes import Process, cgroup_pids, read_process, start_time, stat_fields
from .wait import request

#: Lines of one page, and characters of one, that are kept; bytes of a log that are looked at.
_LINES, _LONGEST, _LOG = 400, 600, 16_000_000
#: Lines of NCCL in the log, last lines of it, and those of a server that has died.
_NCCL, _LAST, _DEATH = 100, 20, 400
#: Seconds after which the GPUs are read for the first time; each later time is twice as far.
_FIRST_LOOK = 4.0
#: Place of power.draw in a line of nvidia-smi.
_POWER = GPU_FIELDS.split(",").index("power.draw")


Pids = Callable[[], Iterable[int]]


class Server(NamedTuple):
    """What is measured: its manifest, its main process with the start of that, and how all others are found."""

    manifest: Mapping[str, Any]
    main: int
    started: Optional[bytes]
    pids: Pids
    key: str
    log: Mapping[str, str]

    def dead(self) -> bool:
        """Return whether the main process is gone; never where nobody said which it is."""
        return bool(self.main) and (self.started is None or start_time(self.main) != self.started)

    def look(self) -> List[Process]:
        """Return all its processes."""
        return [found for found in map(read_process, self.pids()) if found is not None]


def server(given: Mapping[str, Any], pids: "Optional[Pids]") -> Server:
    """Return what is measured; see `launcher.agent.load.run` for what is given."""
    main, cgroup = given.get("main", 0), given.get("cgroup", "")
    find = pids or ((lambda: cgroup_pids(cgroup)) if cgroup else (lambda: tree(main) if main else []))
    key = given.get("key") or credentials.api_key(given["manifest"], main)
    return Server(given["manifest"], main, start_time(main) if main else None, find, key, given.get("log", {}))


def pages(manifest: Mapping[str, Any], key: str, wanted: Iterable[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Ask a server for pages and keep of them only what was asked for: some hold secrets (SGLang's ``/server_info``).

    Args:
        manifest: of its release, which says where it answers.
        key: that it asks a client for.
        wanted: each with ``path`` and ``lines`` (how lines begin that are kept) or ``keys`` (paths into its JSON).

    Returns:
        By path ``status`` (0: no answer) and ``lines`` or ``values`` (by the path's words, joined by dots).
    """
    found: Dict[str, Dict[str, Any]] = {}
    for page in wanted:
        status, text = request(manifest, key, "GET", page["path"])
        kept: Dict[str, Any] = {"status": status}
        if status == 200 and "keys" in page:
            kept["values"] = _values(text, page["keys"])
        elif status == 200:
            starts = tuple(page["lines"])
            kept["lines"] = [line[:_LONGEST] for line in text.splitlines() if line.startswith(starts)][:_LINES]
        found[page["path"]] = kept
    return found


def _values(text: str, keys: Iterable[List[Any]]) -> Dict[str, Any]:
    try:
        whole = json.loads(text)
    except ValueError:
        return {}
    found: Dict[str, Any] = {}
    for words in keys:
        value = whole
        try:
            for word in words:
                value = value[word]
        except (LookupError, TypeError):
            continue
        if isinstance(value, (str, int, float, bool)):
            found[".".join(map(str, words))] = value
    return found


def tree(main: int) -> List[int]:
    """Return a process and everything below it; nothing when it is gone."""
    parents = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        fields = stat_fields(pid)
        if len(fields) > 1:
            parents[pid] = int(fields[1])
    found = newest = {main} & set(parents)
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest} - found
        found = found | newest
    return sorted(found)


def processes(pids: Iterable[int]) -> List[Dict[str, Any]]:
    """Return what tells processes from later ones: ``pid``, ``start`` (clock ticks since boot), and ``title``."""
    seen = (read_process(pid) for pid in pids)
    return [{"pid": p.pid, "start": p.start.decode(), "title": p.title[:80]} for p in seen if p is not None]


def lasting(found: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return those that live as long as the server; helpers of torch's compiler come and go."""
    return [one for one in found if "compile_worker" not in one["title"]]


class Log:
    """What a server writes from now on.

    Args:
        where: ``file``, or ``unit`` with ``invocation``; {} when nobody knows.
    """

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where, self._since, self._size = where, time.time(), 0
        if where.get("file"):
            with contextlib.suppress(OSError):
                self._size = os.path.getsize(where["file"])

    def read(self) -> List[str]:
        """Return its lines, the newest ones of a flood; nothing where they cannot be read."""
        return self._lines(self._size, ["-n", "100000", f"--since=@{int(self._since)}"])

    def end(self) -> List[str]:
        """Return its last lines, whenever they were written: a death has its cause among them."""
        return self._lines(0, ["-n", str(_DEATH)])[-_DEATH:]

    def _lines(self, begin: int, part: List[str]) -> List[str]:
        if self._where.get("file"):
            return self._file(self._where["file"], begin).decode("utf-8", "replace").splitlines()
        if not self._where.get("unit"):
            return []
        argv = ["journalctl", "--no-pager", "-q", "-o", "cat", *part]
        invocation = self._where.get("invocation", "")
        argv += [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else ["-u", self._where["unit"]]
        try:
            return systemd.command(argv).splitlines()
        except systemd.SystemdError:
            return []

    def _file(self, path: str, begin: int) -> bytes:
        try:
            with open(path, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(max(begin if size >= begin else 0, size - _LOG))
                return stream.read(_LOG)
        except OSError:
            return b""


def told(lines: List[str], patterns: Mapping[str, str]) -> Dict[str, Any]:
    """Return of a log ``nccl`` (its lines), ``last`` lines, and ``patterns``: count, mean, lowest, highest by name.

    Args:
        lines: of the log.
        patterns: regular expressions by name, each with one group that is a number.
    """
    found = {name: _numbers(re.compile(pattern), lines) for name, pattern in patterns.items()}
    return {
        "nccl": [line[:_LONGEST] for line in lines if "NCCL" in line][-_NCCL:],
        "last": [line[:_LONGEST] for line in lines if line.strip()][-_LAST:],
        "patterns": {
            name: {"count": len(v), "mean": statistics.mean(v), "low": min(v), "high": max(v)}
            for name, v in found.items()
            if v
        },
    }


def _numbers(pattern: "re.Pattern[str]", lines: List[str]) -> List[float]:
    found: List[float] = []
    for line in lines:
        for match in pattern.finditer(line[:_LONGEST]):
            with contextlib.suppress(ValueError, TypeError):
                found.append(float(match.group(1)))
    return found


class Gpus:
    """What nvidia-smi says while a command runs, a few times: nobody knows beforehand where its middle is."""

    def __init__(self) -> None:
        self._begin, self._next = time.monotonic(), _FIRST_LOOK
        self._running: "Optional[subprocess.Popen[bytes]]" = None
        self._readings: List[List[str]] = []

    def look(self) -> None:
        """Begin a reading when it is time, and take one that is there."""
        self._take()
        if self._running is None and time.monotonic() - self._begin > self._next:
            self._next *= 2
            try:
                argv = ["nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader"]
                null = subprocess.DEVNULL
                self._running = subprocess.Popen(argv, stdin=null, stdout=subprocess.PIPE, stderr=null)
            except OSError:
                self._next = float("inf")

    def _take(self) -> None:
        if self._running is None or self._running.poll() is None:
            return
        text = self._running.communicate()[0].decode("utf-8", "replace")
        if self._running.returncode == 0:
            self._readings.append(text.splitlines())
        self._running = None

    def busiest(self) -> List[str]:
        """Return a line for each GPU of the reading in which they drew most; nothing where there are none."""
        if self._running is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(2)
            self._take()
        if self._running is not None:
            self._running.kill()
            self._running.communicate()
        return max(self._readings, key=_drawn, default=[])


def _drawn(lines: List[str]) -> float:
    total = 0.0
    for line in lines:
        with contextlib.suppress(ValueError, IndexError):
            total += float(line.split(", ")[_POWER].split()[0])
    return total
