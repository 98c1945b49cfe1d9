"""A plain loop over the all-reduces of Kimi-K2.5, as somebody would write it by hand: what the tool is compared with.

One process a GPU: ``python3 hand.py RANK RANKS MEETING`` where MEETING is a path that no file lies at. Rank 0 writes
microseconds an all-reduce by bytes to MEETING.json.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HIDDEN, STEP = 7168, 122
TOKENS = (1, 3, 8, 24, 64, 192, 2048, 8192)


def measure(torch: Any, dist: Any, tokens: int) -> float:  # noqa: ANN401 - modules
    """Return the median of some replays of a graph, in microseconds an all-reduce."""
    buffer = torch.zeros(tokens * HIDDEN, dtype=torch.bfloat16, device="cuda")
    count = STEP if tokens <= 2048 else 24
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        dist.all_reduce(buffer)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(count):
            dist.all_reduce(buffer)
    for _ in range(3):
        graph.replay()
    found = []
    for _ in range(30 if tokens <= 192 else 8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1000 / count)
    return float(statistics.median(found))


def main(rank: int, ranks: int, meeting: str) -> None:
    """Be one rank."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=ranks, device_id=device)
    found = {tokens * HIDDEN * 2: round(measure(torch, dist, tokens), 2) for tokens in TOKENS}
    if rank == 0:
        Path(f"{meeting}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
