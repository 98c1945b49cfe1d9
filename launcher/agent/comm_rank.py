"""One rank of a communication measurement; runs in the engine's own interpreter, with torch and nothing else of ours.

Its text is sent over standard input with a line ``SPEC = {...}`` before it, so nothing of it lies on a disk. What
NCCL prints goes to standard output; what this program says goes as JSON lines to a pipe of its own, each phase before
it begins: of a rank that hangs the last one is known.

Each collective of a step is captured into one CUDA graph, as the engines do for decode and verify, and replayed. The
replays of all sizes are spread over several rounds: what disturbs a machine for a while then hits all sizes alike.
Without CUDA (gloo, for tests) it is a plain loop. The sum is checked on random whole numbers, small enough to be
exact in bfloat16, through a graph too, before and after the timing.
"""

from __future__ import annotations

import ctypes
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
_IOLBF = 1  # glibc's stdio.h


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
        self.store: Any = None
        self.flag: Any = None
        self.agreed = 0
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
        # The parent ends a hang; a rank that gave up by itself would look like one that failed.
        limit = timedelta(seconds=2 * self.spec["deadline"] + 30)
        options = {"device_id": self.device} if self.cuda else {}
        self.store = self.dist.FileStore(self.spec["meeting"], self.world)
        self.store.set_timeout(limit)
        self.dist.init_process_group(
            self.spec["backend"],
            store=self.dist.PrefixStore("group", self.store),
            rank=self.rank,
            world_size=self.world,
            timeout=limit,
            **options,
        )
        self.flag = self.torch.zeros(1, device=self.device)
        self.dist.all_reduce(self.flag)
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
        """Return the largest of what the ranks say: all have to do the same number of collectives.

        Not by a collective: where those bring wrong numbers, each rank would go on with another one, and hang.
        """
        self.agreed += 1
        self.store.set("agree/{}/{}".format(self.agreed, self.rank), repr(value))
        return max(float(self.store.get("agree/{}/{}".format(self.agreed, rank))) for rank in range(self.world))


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
        self.name = "{} of {} bytes".format(size["collective"], size["bytes"])
        self.bad, self.number, self.replays = 0, 0, 0
        self.us: List[float] = []
        self.replay: Callable[[], None] = self.call

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

    def wrong(self, turn: int) -> None:
        """Count the numbers that are not what they must be, after one run on random data."""
        torch = self.at.torch
        self.given.copy_(self._random(self.at.rank, turn))
        once = self._captured(1)
        self.given.copy_(self._random(self.at.rank, turn))
        once()
        self.at.wait()
        if self.gathers:
            parts = self.out.view(self.at.world, -1)
            for rank in range(self.at.world):
                self.bad += int((parts[rank] != self._random(rank, turn)).sum().item())
        else:
            total = torch.zeros_like(self.given)
            for rank in range(self.at.world):
                total += self._random(rank, turn)
            self.bad += int((self.given != total).sum().item())
        self.given.zero_()

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

    def capture(self) -> None:
        """Capture a whole step, or as much of it as takes a tenth of a second."""
        self.given.zero_()
        probe = self._captured(_FEWEST)
        one = self.at.agree(min(self._timed(probe) for _ in range(2)) / _FEWEST) / 1e6
        self.number = max(_FEWEST, min(self.size["count"], int(_GRAPH_SECONDS / max(one, 1e-9))))
        spec = self.at.spec
        wanted = spec["seconds"] / max(self.number * one, 1e-9)
        self.replays = int(min(max(wanted, spec["fewest_replays"]), spec["most_replays"]))
        self.replay = self._captured(self.number)
        self._timed(self.replay)

    def measure(self, part: int, parts: int) -> None:
        """Replay one part of all replays, in no more parts than leave two for each.

        The first replay after those of another graph takes about a tenth of a millisecond longer, and is not counted:
        an engine replays the same graph step after step.
        """
        turns = min(parts, max(1, self.replays // 2))
        if part >= turns:
            return
        self._timed(self.replay)
        for _ in range(self.replays * (part + 1) // turns - self.replays * part // turns):
            self.us.append(round(self._timed(self.replay) / self.number, 4))

    def _timed(self, replay: Callable[[], None]) -> float:
        """Return the microseconds of one replay, begun by all ranks at once, as after the rest of a step."""
        self.at.dist.all_reduce(self.at.flag)
        if not self.at.cuda:
            begin = time.perf_counter()
            replay()
            return (time.perf_counter() - begin) * 1e6
        torch = self.at.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3


def _by_line() -> None:
    """Let C write line by line: NCCL's last words before a hang or a crash would stay in its buffer."""
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, 0)


def run(spec: Dict[str, Any], rank: int) -> None:
    """Measure every size of a specification; see `launcher.agent.comm.run` for its keys."""
    _by_line()
    at = Rank(spec, rank)
    at.ready()
    at.tell(versions=at.versions())
    _measure(at)
    at.phase("done")
    # All graphs are gone with their collectives: NCCL waits for the last one.
    at.dist.destroy_process_group()


def _measure(at: Rank) -> None:
    """Check, capture and measure every size, and tell what was found."""
    every, parts = [Collective(at, size) for size in at.spec["sizes"]], at.spec["parts"]
    for turn, collective in enumerate(every):
        at.phase("check " + collective.name)
        collective.wrong(turn)
        at.phase("capture " + collective.name)
        collective.capture()
    for part in range(parts):
        for collective in every:
            at.phase("measure {}, part {} of {}".format(collective.name, part + 1, parts))
            collective.measure(part, parts)
    for turn, collective in enumerate(every):
        at.phase("check again " + collective.name)
        collective.wrong(len(every) + turn)
        at.tell(measured=turn, wrong=collective.bad, us=collective.us, graph=collective.number)


if __name__ == "__main__":
    run(globals()["SPEC"], int(sys.argv[1]))
