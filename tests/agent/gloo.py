"""Ranks without GPUs: torch of vLLM's CPU build with gloo, small messages, and interpreters that misbehave."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import launcher.agent
from tests.engines import vllm_cpu

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = "/usr/bin/python3"
PROGRAM = (Path(launcher.agent.__file__).parent / "comm_rank.py").read_text()
SIZES = (
    {"collective": "all_reduce", "elements": 128, "bytes": 256, "count": 4},
    {"collective": "all_reduce", "elements": 100_000, "bytes": 200_000, "count": 2},
    {"collective": "all_gather", "elements": 256, "bytes": 1024, "count": 1},
)


def site() -> str:
    """Return the folder with torch; installs it first where it is not there yet."""
    return str(vllm_cpu.installed() / "lib/python3.11/site-packages")


def specification(*folders: Path, torch: bool = True, **fields: Any) -> dict[str, Any]:
    """Return what `comm.run` measures.

    Args:
        folders: before torch in the search path: a ``sitecustomize.py`` there is run first.
        torch: whether it can be imported.
        fields: instead of the usual ones; those of ``rank`` by ``rank_NAME``.
    """
    path = [*map(str, folders), *([site()] if torch else [])]
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
    env |= fields.pop("env", {})
    rank = {"backend": "gloo", "dtype": "bfloat16", "seconds": 0.01, "fewest_replays": 3, "most_replays": 5}
    rank |= {"deadline": fields.get("deadline", 30), "sizes": list(SIZES), "parts": 2}
    rank |= {name[5:]: fields.pop(name) for name in list(fields) if name.startswith("rank_")}
    usual = {"python": PYTHON, "program": PROGRAM, "cwd": "", "user": "", "world": 2, "gpus": [], "deadline": 30}
    return {**usual, "env": env, "rank": rank, **fields}


def custom(folder: Path, code: str) -> Path:
    """Make a folder whose ``sitecustomize.py`` every interpreter that has it in its path runs first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return folder


def children(of: int) -> dict[int, str]:
    """Return the live children of a process, each with its command line."""
    found = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z" and int(fields[1]) == of:
            found[pid] = line
    return found


def ranks(of: int) -> dict[int, int]:
    """Return the ranks that a process has started: pid by rank."""
    lines = {pid: line.split() for pid, line in children(of).items()}
    return {int(words[-1]): pid for pid, words in lines.items() if words[1:-1] == ["-u", "-"]}


def alive(pids: list[int]) -> list[int]:
    """Return which of these processes are still there; one that nobody has waited for is not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descriptors() -> set[str]:
    """Return what this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the one that listed them
            continue
    return found


def wait(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what a condition says as soon as it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")
