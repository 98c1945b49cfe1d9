"""Ranks of gloo on this machine: what they measure, how they fail, and that nothing of them is left in any case."""

from __future__ import annotations

import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import comm, comm_process, comm_ranks
from tests.agent.gloo import PYTHON, SIZES, alive, custom, descriptors, ranks, specification, wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

fleet = pytest.mark.fleet

#: Interpreters without torch: they fail right away, which is enough for what is not about measuring.
STUB = """
import sys, types
torch = types.ModuleType("torch")
torch.bfloat16, torch.device = 1, str
torch.distributed = types.ModuleType("torch.distributed")
sys.modules.update({"torch": torch, "torch.distributed": torch.distributed})
"""


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does: no process, no open file and no folder is left of it."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    gc.collect()
    before = descriptors()
    yield
    gc.collect()
    assert ranks(os.getpid()) == {}
    assert descriptors() == before
    assert list(place.iterdir()) == []


def quiet(_: str) -> None:
    """Tell nobody."""


class Acting(threading.Thread):
    """Does something to the ranks of this process while they measure."""

    def __init__(self, act: Callable[[dict[int, int]], None], wanted: int = 2) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, int] = {}
        self._act, self._wanted, self._now = act, wanted, threading.Event()

    def emit(self, _: str) -> None:
        """Begin when the first size is measured."""
        self._now.set()

    def run(self) -> None:
        assert self._now.wait(30)
        self.seen = ranks(os.getpid())
        self._act(self.seen)


#: So many replays that it is still measured when something is done to it.
ENDLESS: dict[str, Any] = {"rank_seconds": 60, "rank_fewest_replays": 100_000, "rank_most_replays": 100_000}


# --- measured


@fleet
def test_what_is_measured() -> None:
    told: list[str] = []
    answer = comm.run(specification(), told.append)
    assert (answer["outcome"], answer["message"]) == ("measured", "")
    assert [{name: row[name] for name in SIZES[0]} for row in answer["rows"]] == list(SIZES)
    for row in answer["rows"]:
        assert (row["wrong"], row["wrong_ranks"], row["graph"]) == (0, [], 8)
        assert 3 <= len(row["us"]) <= 5
        assert 1 < statistics.median(row["us"]) < 1e6
    assert answer["environment"] == []
    assert [(rank["exit"], rank["phase"]) for rank in answer["ranks"]] == 2 * [("exit code 0", "done")]
    assert answer["versions"].keys() == {"torch", "python"}
    phases = [name for name, _ in answer["phases"]]
    assert phases[0] == "import torch"
    assert phases[-1] == "done"
    measured = [f"measure {s['collective']} of {s['bytes']} bytes, part {n} of 2" for n in (1, 2) for s in SIZES]
    assert [name for name in phases if name.startswith("measure ")] == measured
    assert told == measured
    assert json.loads(json.dumps(answer))["outcome"] == "measured"


NOISE = """
import atexit, os, sys
os.write(1, b"host:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\\n")
os.write(1, b"\\xff\\xfe no UTF-8\\n")
os.write(2, b"on standard error\\n")
os.write(1, b"x" * 70 + b"\\n" + b"flood\\n" * 180_000)
for number in range(300):
    os.write(1, b"host:7:7 [0] NCCL INFO AllReduce: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\\n")
os.write(1, b"1" * 1_000_000 + b"\\n")
atexit.register(os.write, 1, b"the very last, without an end of line")
"""


@fleet
def test_whatever_they_print_does_no_harm(tmp_path: Path) -> None:
    answer = comm.run(specification(custom(tmp_path / "site", NOISE)), quiet)
    assert answer["outcome"] == "measured"
    for lines in answer["lines"]:
        assert lines[0].endswith("NCCL version 2.28.9+cuda13.0")
        assert lines[1] == "\ufffd\ufffd no UTF-8"
        assert lines[2] == "on standard error"
        assert lines[-1] == "the very last, without an end of line"
        assert sum("Bytes -> Algo" in line for line in lines) == 1
        assert len(lines) <= 4000
        assert max(map(len, lines)) <= 1 << 16


@fleet
def test_the_environment_is_what_was_given(tmp_path: Path) -> None:
    code = "import json, os, sys; print('ENV ' + json.dumps(dict(os.environ)), flush=True)"
    spec = specification(custom(tmp_path / "site", code), env={"NCCL_ALGO": "Tree", "EMPTY": "", "ODD": "a=b\n'\"ü"})
    answer = comm.run(spec, quiet)
    assert (answer["outcome"], answer["environment"]) == ("measured", [])
    for lines in answer["lines"]:
        (seen,) = [json.loads(line[4:]) for line in lines if line.startswith("ENV ")]
        assert seen == spec["env"]


WRONG = """
with open("/proc/self/cmdline") as file:
    number = file.read().split("\\0")[-2]
if number == "1":
    import torch.distributed as dist
    right = dist.all_reduce
    def all_reduce(tensor, *args, **kwargs):
        done = right(tensor, *args, **kwargs)
        tensor += 1
        return done
    dist.all_reduce = all_reduce
"""


@fleet
def test_wrong_sums_are_counted(tmp_path: Path) -> None:
    answer = comm.run(specification(custom(tmp_path / "site", WRONG)), quiet)
    assert answer["outcome"] == "measured", answer
    small, large, gathered = answer["rows"]
    assert small["wrong"] == 2 * 128  # every number, before and after the timing
    assert large["wrong"] == 2 * 100_000
    assert (small["wrong_ranks"], gathered["wrong_ranks"], gathered["wrong"]) == ([1], [], 0)


# --- it fails


@fleet
@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_rank_is_named(number: int) -> None:
    acting = Acting(lambda seen: os.kill(seen[number], signal.SIGKILL))
    acting.start()
    answer = comm.run(specification(**ENDLESS), acting.emit)
    assert answer["outcome"] == "failed"
    assert answer["message"] == f"rank {number} ended with SIGKILL in: measure all_reduce of 256 bytes, part 1 of 2"
    assert answer["ranks"][number]["exit"] == "SIGKILL"
    assert answer["rows"] == []
    assert len(acting.seen) == 2
    assert alive(list(acting.seen.values())) == []


@fleet
def test_a_stopped_rank_is_a_hang() -> None:
    acting = Acting(lambda seen: os.kill(seen[1], signal.SIGSTOP))
    acting.start()
    spec = specification(**ENDLESS, deadline=6)  # more than a start takes on a busy machine
    answer = comm.run(spec, acting.emit)
    assert answer["outcome"] == "hung"
    assert answer["message"] == "no sign of life for 6 s: rank 0, 1 in: measure all_reduce of 256 bytes, part 1 of 2"
    assert [rank["phase"] for rank in answer["ranks"]] == 2 * ["measure all_reduce of 256 bytes, part 1 of 2"]
    assert alive(list(acting.seen.values())) == []


@fleet
def test_a_rank_that_lags_behind_is_named(tmp_path: Path) -> None:
    late = """
import sys, time
with open("/proc/self/cmdline") as file:
    number = file.read().split("\\0")[-2]
import torch.distributed as dist
if number == "1":
    dist.FileStore = lambda *_: time.sleep(60)
"""
    began = time.monotonic()
    answer = comm.run(specification(custom(tmp_path / "site", late), deadline=6), quiet)
    assert answer["outcome"] == "hung"
    assert answer["message"] == "no sign of life for 6 s: rank 0, 1 in: join the communicator"
    assert time.monotonic() - began < 30


def test_a_rank_that_does_not_even_import_is_a_hang(tmp_path: Path) -> None:
    late = "import sys, time\nif sys.argv != ['-c']: time.sleep(60)"
    spec = specification(custom(tmp_path / "site", late), torch=False, deadline=0.5)
    answer = comm.run(spec, quiet)
    assert (answer["outcome"], answer["message"]) == (
        "hung", "no sign of life for 0.5 s: rank 0, 1 in: start the interpreter",
    )  # fmt: skip


def test_the_first_to_fail_is_named(tmp_path: Path) -> None:
    code = STUB + "\nimport os, time\nwith open('/proc/self/cmdline') as file: number = file.read().split('\\0')[-2]\n"
    code += "class Dist(types.ModuleType):\n    def __getattr__(self, name):\n"
    code += "        if number == '1':\n            raise SystemExit(9)\n"
    code += "        time.sleep(1)\n        raise SystemExit(7)\n"
    code += "sys.modules['torch.distributed'] = torch.distributed = Dist('torch.distributed')\n"
    answer = comm.run(specification(custom(tmp_path / "site", code), torch=False), quiet)
    assert answer["outcome"] == "failed"
    assert answer["message"] == "rank 1 ended with exit code 9 in: join the communicator"
    assert answer["ranks"][0]["exit"] == "exit code 7"


# --- something is lacking

LACKING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "torch": ({"torch": False}, [PYTHON, "No module named 'torch'", "engine.python=PATH"]),
    "interpreter": ({"python": "/none/python"}, ["/none/python cannot be started: it is not there; set engine.python"]),
    "no program": ({"python": "/bin"}, ["/bin cannot be started: Permission denied"]),
    "no Python": ({"python": "/bin/false"}, ["/bin/false cannot import torch: exit code 1; set engine.python"]),
    "folder": ({"cwd": "/none"}, ["engine.working_directory=/none cannot be entered: No such file or directory"]),
}


@pytest.mark.parametrize(("fields", "parts"), LACKING.values(), ids=LACKING.keys())
def test_what_is_lacking_is_told(fields: dict[str, Any], parts: list[str]) -> None:
    answer = comm.run(specification(**{"torch": False, **fields}), quiet)
    assert answer["outcome"] == "lacking"
    assert [part for part in parts if part not in answer["message"]] == []
    assert "\n" not in answer["message"]


@fleet
def test_missing_gpus_are_counted() -> None:
    answer = comm.run(specification(rank_backend="nccl"), quiet)
    assert answer["outcome"] == "lacking"
    assert answer["message"].startswith("2 GPUs are needed (engine.tensor_parallel)")
    assert "sees 0" in answer["message"]
    assert "bench.backend=gloo" in answer["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_the_ranks_become_the_user(tmp_path: Path) -> None:
    code = "import os; print('USER', os.getuid(), os.getgroups(), flush=True)"
    folder = custom(tmp_path / "site", code)
    for part in (folder, *folder.parents):
        if part.is_relative_to(tempfile.gettempdir()) or str(part).startswith("/tmp/"):
            part.chmod(part.stat().st_mode | 0o055)
    answer = comm.run(specification(folder, torch=False, user="nobody"), quiet)
    assert "USER 65534 [65534]" in answer["lines"][0]


# --- nothing is left


def test_ranks_that_were_made_ready_and_not_used(tmp_path: Path) -> None:
    spec = specification(custom(tmp_path / "site", STUB), torch=False)
    ready = comm_ranks.Ranks(spec).start()
    pids = ranks(os.getpid())
    assert len(pids) == 2
    ready.stop()
    ready.stop()
    assert alive(list(pids.values())) == []


@fleet
def test_ranks_that_were_made_ready_are_used() -> None:
    spec = specification()
    ready = comm_ranks.Ranks(spec).start()
    pids = set(ranks(os.getpid()).values())
    seen: set[int] = set()
    answer = comm.run(spec, lambda _: seen.update(ranks(os.getpid()).values()), ready)
    assert answer["outcome"] == "measured"
    assert seen == pids


def test_ranks_that_died_while_they_waited_are_told_of(tmp_path: Path) -> None:
    spec = specification(custom(tmp_path / "site", STUB), torch=False)
    ready = comm_ranks.Ranks(spec).start()
    for pid in ranks(os.getpid()).values():
        os.kill(pid, signal.SIGKILL)
    answer = comm.run(spec, quiet, ready)
    assert answer["outcome"] in ("failed", "lacking")
    assert "SIGKILL" in answer["message"]


@pytest.mark.parametrize(
    "fields", [{}, {"python": "/none/python"}, {"cwd": "/none"}], ids=["no torch", "no Python", "no folder"]
)
def test_many_runs_leak_nothing(fields: dict[str, Any]) -> None:
    before = descriptors()
    for _ in range(20):
        assert comm.run(specification(torch=False, **fields), quiet)["outcome"] == "lacking"
    gc.collect()
    assert descriptors() == before


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


@fleet
def test_an_interrupt_ends_them_all() -> None:
    with pytest.raises(KeyboardInterrupt):
        comm.run(specification(**ENDLESS), interrupt)


def test_an_interrupt_while_they_import(tmp_path: Path) -> None:
    spec = specification(custom(tmp_path / "site", "import time; time.sleep(60)"), torch=False)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        comm.run(spec, quiet)


def test_nobody_waits_any_more(tmp_path: Path) -> None:
    spec = specification(custom(tmp_path / "site", "import time; time.sleep(60)"), torch=False)
    asked = iter([False, False, True])
    with pytest.raises(comm_process.Abandoned):
        comm.run(spec, quiet, gone=lambda: next(asked))


PARENT = """
import json, sys
from launcher.agent import comm
comm.run(json.load(sys.stdin), lambda text: None)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_go_with_the_program(number: int, tmp_path: Path) -> None:
    spec = specification(custom(tmp_path / "site", "import time; time.sleep(60)"), torch=False)
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, env=env) as parent:
        assert parent.stdin
        parent.stdin.write(json.dumps(spec).encode())
        parent.stdin.close()
        wait(lambda: len(ranks(parent.pid)) == 2)
        pids = ranks(parent.pid)
        parent.send_signal(number)
        parent.wait(5)
    wait(lambda: not alive(list(pids.values())), 2)
