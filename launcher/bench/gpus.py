"""Memory of this machine's GPUs, as far as nvidia-smi shows it: a stopped server has to give it back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launcher.agent.facts import Unknown, gpus, output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: More than before is not given back; what the driver keeps varies.
_SLACK_MIB = 1024


def used(indices: Sequence[str]) -> dict[str, int]:
    """Return the MiB in use by GPU, of all where none is named; nothing where there are none."""
    try:
        seen = gpus(output("nvidia-smi", "-q", "-x"))
    except Unknown:
        return {}
    found = {str(g["index"]): (g["memory_mib"], g["memory_free_mib"]) for g in seen}
    return {
        index: int(total - free)
        for index, (total, free) in found.items()
        if total is not None and free is not None and (not indices or index in indices)
    }


def held(indices: Sequence[str], before: Mapping[str, int], seconds: float) -> list[str]:
    """Wait until GPUs use no more memory than before; return what they hold in the end, one line each."""
    deadline = time.monotonic() + seconds
    while before:
        now = used(indices)
        found = [
            f"GPU {index}: {now[index]} MiB of its memory are in use, {mib} MiB were before the start"
            for index, mib in before.items()
            if now.get(index, 0) > mib + _SLACK_MIB
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)
    return []
