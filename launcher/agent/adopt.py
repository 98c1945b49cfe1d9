"""The servers that run on this host, whoever started them. Reads only; its result is plain data."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import facts, ports
from .adopt_find import Seen, descendants, home_of, mains, table, titled
from .adopt_read import read
from .preflight_host import who
from .processes import cgroup_of, read_process, start_time


def adopt() -> Dict[str, Any]:
    """Look for servers.

    Returns:
        ``servers``, each as `adopt_read.read` tells it; ``gpus``, the names of this host's; ``remarks``, pairs of a
        piece and what it means, about what is no server that could be adopted.
    """
    processes = table()
    try:
        gpus: Optional[List[Dict[str, Any]]] = facts.gpus(facts.output("nvidia-smi", "-q", "-x"))
    except facts.Unknown:
        gpus = None
    found = mains(processes)
    ours = {pid for pid in found if home_of(cgroup_of(pid)).kind == "launch"}
    others = {pid: _server(pid, engine, processes, gpus) for pid, engine in found.items() if pid not in ours}
    servers = [server for server in others.values() if server]
    remarks = [
        (home_of(cgroup_of(pid)).name, f"process {pid} is a deployment of launch already") for pid in sorted(ours)
    ]
    remarks += [(f"process {pid}", "ended while it was looked at") for pid, server in others.items() if not server]
    remarks += _overwritten(processes)
    known = {one for pid in found for one in (pid, *descendants(pid, processes))}
    remarks += _strangers(gpus, known | set(titled(processes)))
    return {"servers": servers, "gpus": [gpu["name"] for gpu in gpus or ()], "remarks": remarks, "problems": []}


def _server(
    pid: int, engine: str, processes: Mapping[int, Seen], gpus: "Optional[Sequence[Mapping[str, Any]]]"
) -> Optional[Dict[str, Any]]:
    """Return a server, None when it ends meanwhile: what was read of it then is not whole."""
    server = None
    try:
        server = read(pid, engine, processes, gpus)
    except (OSError, LookupError, ValueError):
        if start_time(pid) is not None:
            raise
    return server if start_time(pid) is not None else None


def _overwritten(processes: Mapping[int, Seen]) -> List[Tuple[str, str]]:
    """Tell of processes of an engine whose server cannot be told by its command."""
    found = []
    for pid in titled(processes):
        title = processes[pid].words[0]
        listens = ports.of(pid, [pid, *descendants(pid, processes)])
        why = "a title is written over its command, which is lost: launch adopt reads the command from a file instead"
        rest = "a worker whose server is gone: end it"
        found.append((title, f"process {pid}: {why if listens else rest}"))
    return found


def _strangers(gpus: "Optional[Sequence[Mapping[str, Any]]]", known: "set[int]") -> List[Tuple[str, str]]:
    """Tell of processes on the GPUs that are no servers."""
    pids = sorted({pid for gpu in gpus or () for pid in gpu["pids"]} - known)
    return [(who(pid), "computes on a GPU, and is no server of SGLang or vLLM") for pid in pids if read_process(pid)]
