"""One rank of a communication measurement; runs in the engine's own interpreter, with torch and nothing else of ours.

Its text is sent over standard input with a line ``SPEC = {...}`` before it, so nothing of it lies on a disk. What
NCCL prints goes to standard output; what this program says goes as JSON lines to a pipe of its own, each phase before
it begins: of a rank that hangs the last one is known.

Each collective of a step is captured into one CUDA graph, as the engines do for decode and verify, and replayed.
Without CUDA (gloo, for tests) it is a plain loop. The sum is checked on random whole numbers, small enough to be
exact in bfloat16, through a graph too, before and after the timing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List

#: Seconds that one size may take: a graph of a whole step is shortened where it alone would take longer.
_GRAPH_SECONDS = 0.1
#: No graph is shorter than this: its launch would weigh too much.
_FEWEST = 8
#: Numbers 0 to 7: the sum of 32 ranks is exact in bfloat16 (whole numbers to 256).
_LARGEST = 7


class Rank:
    """What one rank knows: its place, its device, and where it reports to."""

    def __init__(self, spec: Dict[str, Any], rank: int) -> None:
        self.spec, self.rank = spec, rank
        self.world: int = spec["world"]
        self.cuda: bool = spec["backend"] == "nccl"
        self.pipe = os.fdopen(spec["pipe"], "w", encoding="utf-8")
        self.phase("import torch")
        self.torch: Any = importlib.import_module("torch")
        self.dist: Any = importlib.import_module("torch.distributed")
        self.device: Any = self.torch.device("cpu")
        self.dtype: Any = getattr(self.torch, spec["dtype"])

    def tell(self, **message: Any) -> None:  # noqa: ANN401 - any JSON
        """Send one message to the parent."""
        self.pipe.write(json.dumps(message) + "\n")
        self.pipe.flush()

    def phase(self, name: str) -> None:
        """Say what begins now."""
        self.tell(phase=name)

    def ready(self) -> None:
        """Take the GPU and join the others."""
        self.phase("wait for the word to begin")
        os.read(self.spec["go"], 1)  # ends when the parent closes its side
        if self.cuda:
            self.phase("take the GPU")
            count = self.torch.cuda.device_count() if self.torch.cuda.is_available() else 0
            if count < self.world:
                self.tell(lacking="gpus", seen=count)
                raise SystemExit(3)
            self.device = self.torch.device("cuda", self.rank)
            self.torch.cuda.set_device(self.device)
            self.torch.zeros(1, device=self.device)
        self.phase("join the communicator")
        limit = timedelta(seconds=self.spec["deadline"])
        options = {"device_id": self.device} if self.cuda else {}
        self.dist.init_process_group(
            self.spec["backend"],
            init_method="file://" + self.spec["meeting"],
            rank=self.rank,
            world_size=self.world,
            timeout=limit,
            **options,
        )
        self.dist.all_reduce(self.torch.zeros(1, device=self.device))
        self.wait()

    def wait(self) -> None:
        """Wait until the device has done everything."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def versions(self) -> Dict[str, Any]:
        """Return what was measured with."""
        torch = self.torch
        found: Dict[str, Any] = {"torch": torch.__version__, "python": sys.version.split()[0]}
        if self.cuda:
            version = torch.cuda.nccl.version()
            found["nccl"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
            found["cuda"] = torch.version.cuda
            found["gpu"] = torch.cuda.get_device_name(self.device)
        return found

    def agree(self, value: float) -> float:
        """Return the largest of what the ranks say: all have to do the same number of collectives."""
        tensor = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX)
        return float(tensor.item())


class Collective:
    """One collective at one size: its buffers, how it is called, and what must come out."""

    def __init__(self, rank: Rank, size: Dict[str, Any]) -> None:
        self.at, self.size = rank, size
        torch, elements = rank.torch, size["elements"]
        self.gathers: bool = size["collective"] == "all_gather"
        self.given: Any = torch.zeros(elements, dtype=rank.dtype, device=rank.device)
        self.out: Any = (
            torch.zeros(elements * rank.world, dtype=rank.dtype, device=rank.device) if self.gathers else None
        )

    def call(self) -> None:
        """Do it once, in place as the engines do."""
        if self.gathers:
            self.at.dist.all_gather_into_tensor(self.out, self.given)
        else:
            self.at.dist.all_reduce(self.given)

    def _random(self, rank: int, turn: int) -> Any:  # noqa: ANN401 - a tensor
        torch = self.at.torch
        generator = torch.Generator(device=self.at.device)
        generator.manual_seed(1000 * turn + rank)
        shape = (self.size["elements"],)
        numbers = torch.randint(0, _LARGEST + 1, shape, generator=generator, device=self.at.device)
        return numbers.to(self.at.dtype)

    def wrong(self, turn: int) -> int:
        """Return how many numbers are not what they must be, after one run on random data."""
        torch = self.at.torch
        self.given.copy_(self._random(self.at.rank, turn))
        once = self._captured(1)
        self.given.copy_(self._random(self.at.rank, turn))
        once()
        self.at.wait()
        bad = 0
        if self.gathers:
            parts = self.out.view(self.at.world, -1)
            for rank in range(self.at.world):
                bad += int((parts[rank] != self._random(rank, turn)).sum().item())
        else:
            total = torch.zeros_like(self.given)
            for rank in range(self.at.world):
                total += self._random(rank, turn)
            bad = int((self.given != total).sum().item())
        self.given.zero_()
        return bad

    def _captured(self, number: int) -> Callable[[], None]:
        """Return what does the collective so many times: a graph's replay, a loop without CUDA."""
        if not self.at.cuda:

            def loop() -> None:
                for _ in range(number):
                    self.call()

            return loop
        torch = self.at.torch
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(number):
                self.call()
        torch.cuda.synchronize()
        replay: Callable[[], None] = graph.replay
        return replay

    def measure(self) -> Dict[str, Any]:
        """Return microseconds per collective, one number a replay, and how many were in the graph."""
        self.given.zero_()
        one = self.at.agree(min(self._timed(self._captured(_FEWEST), 2)) / _FEWEST)
        count = self.size["count"]
        seconds = one / 1e6
        number = max(_FEWEST, min(count, int(_GRAPH_SECONDS / max(seconds, 1e-9))))
        budget, spec = self.at.spec["seconds"], self.at.spec
        replays = int(min(max(budget / max(number * seconds, 1e-9), spec["fewest_replays"]), spec["most_replays"]))
        replay = self._captured(number)
        self._timed(replay, 2)
        return {"us": [round(us / number, 4) for us in self._timed(replay, replays)], "graph": number}

    def _timed(self, replay: Callable[[], None], times: int) -> List[float]:
        """Return the microseconds of each replay."""
        if not self.at.cuda:
            found = []
            for _ in range(times):
                begin = time.perf_counter()
                replay()
                found.append((time.perf_counter() - begin) * 1e6)
            return found
        torch = self.at.torch
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
        marks[0].record()
        for mark in marks[1:]:
            replay()
            mark.record()
        torch.cuda.synchronize()
        return [first.elapsed_time(then) * 1e3 for first, then in zip(marks, marks[1:])]


def run(spec: Dict[str, Any], rank: int) -> None:
    """Measure every size of a specification; see `launcher.agent.comm.run` for its keys."""
    at = Rank(spec, rank)
    at.ready()
    at.tell(versions=at.versions())
    for index, size in enumerate(spec["sizes"]):
        name = "{} of {} bytes".format(size["collective"], size["bytes"])
        at.phase("check " + name)
        collective = Collective(at, size)
        wrong = collective.wrong(2 * index)
        at.phase("measure " + name)
        found = collective.measure()
        at.phase("check again " + name)
        wrong += collective.wrong(2 * index + 1)
        at.tell(measured=index, wrong=wrong, **found)
        del collective
    at.phase("leave the communicator")
    at.dist.destroy_process_group()
    at.tell(phase="done")


if __name__ == "__main__":
    run(globals()["SPEC"], int(sys.argv[1]))
