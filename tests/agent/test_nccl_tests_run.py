"""nccl-tests run in place of torch: what they measure, how they fail, and that nothing of them is left in any case."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import bench, comm, comm_process, nccl_tests_run, nccl_tests_size
from tests.agent.gloo import SIZES, alive, children, descriptors, wait
from tests.agent.nccl_tests_build import build, specification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL, LARGE, GATHERED = (size["bytes"] for size in SIZES)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def clean(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does: no process, no open file and no folder is left of it."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    gc.collect()
    before = descriptors()
    yield
    gc.collect()
    assert programs(os.getpid()) == []
    assert descriptors() == before
    assert list(place.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "build")


def programs(of: int) -> list[int]:
    """Return the programs of nccl-tests that a process runs."""
    return [pid for pid, line in children(of).items() if "_perf" in line]


def quiet(_: str) -> None:
    """Tell nobody."""


# --- measured


def test_what_is_measured(folder: Path) -> None:
    told: list[str] = []
    answer = nccl_tests_run.run(specification(folder), told.append)
    assert (answer["outcome"], answer["message"]) == ("measured", "")
    assert [{name: row[name] for name in SIZES[0]} for row in answer["rows"]] == list(SIZES)
    in_place, elsewhere = [10.25 + n for n in range(5)], [20.5 + n for n in range(5)]
    assert [row["us"] for row in answer["rows"]] == [in_place, in_place, elsewhere]
    for row in answer["rows"]:
        assert (row["wrong"], row["wrong_ranks"], row["graph"]) == (0, [], 20)
    assert answer["environment"] == []
    assert answer["ranks"] == [{"rank": 0, "exit": "exit code 0", "phase": "done"}]
    assert answer["versions"] == {"nccl-tests": "2.19.1", "nccl": "2.28.9", "gpu": "NVIDIA Stand-in"}
    names = [f"{size['collective']} of {size['bytes']} bytes" for size in SIZES]
    of_each = [[f"start {name}", f"join the communicator for {name}", f"measure {name}"] for name in names]
    assert [name for name, _ in answer["phases"]] == [*sum(of_each, []), "done"]  # noqa: RUF017 - three of three
    assert told == [f"measure {name}" for name in names]
    assert json.loads(json.dumps(answer))["outcome"] == "measured"
    assert answer.keys() == {*comm_process.EMPTY, "outcome", "message"}


def test_what_nccl_printed_is_there_once_a_size(folder: Path) -> None:
    lines = nccl_tests_run.run(specification(folder), quiet)["lines"]
    assert len(lines) == len(SIZES)
    for told in lines:
        assert sum("NCCL_ALGO set by environment to Ring" in line for line in told) == 1
        assert sum("Bytes -> Algo" in line for line in told) == 1
    assert "secret" not in json.dumps(lines)


def test_how_often_a_size_is_replayed() -> None:
    plan = nccl_tests_size.plan(specification("/opt/build"))
    assert [(wanted.size["bytes"], wanted.replays) for wanted in plan] == [(SMALL, 60), (LARGE, 37), (GATHERED, 60)]
    large = {"collective": "all_reduce", "elements": 1 << 26, "bytes": 1 << 27, "count": 1}
    assert nccl_tests_size.plan(specification("/opt/build", rank_sizes=[large]))[0].replays == 2


@pytest.mark.parametrize(
    ("standin", "json_"), [({"lacks": "J"}, False), ({"fault": "skips JSON"}, False), ({}, True)], ids=str
)
def test_without_json_the_table_is_read(standin: dict[str, Any], json_: bool, folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin=standin), quiet)
    assert (answer["outcome"], answer["message"]) == ("measured", "")
    assert answer["rows"][0]["us"] == [10.25, 11.25, 12.25, 13.25, 14.25]
    assert answer["versions"] == {"nccl-tests": "2.19.1", "nccl": "2.28.9", "gpu": "NVIDIA Stand-in"}
    wrote = any("# Writing JSON" in line for lines in answer["lines"] for line in lines)
    assert wrote is json_
    # One more command than sizes where the first one had to find out.
    assert len(answer["lines"]) == len(SIZES) + ("lacks" in standin)


def test_wrong_numbers_are_counted_and_no_failure(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={"wrong": 17, "only": LARGE}), quiet)
    assert (answer["outcome"], answer["message"]) == ("measured", "")
    assert [row["wrong"] for row in answer["rows"]] == [0, 17, 0]


def test_wrong_numbers_of_the_table(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={"wrong": 3, "lacks": "J"}), quiet)
    assert [row["wrong"] for row in answer["rows"]] == [3, 3, 3]


def test_a_last_warning_of_nccl_is_no_failure(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={"warns": "a warning of long ago"}), quiet)
    assert answer["outcome"] == "measured"
    assert "# error: a warning of long ago" in answer["lines"][0]


def test_the_environment_is_what_was_given(folder: Path) -> None:
    odd = {"EMPTY": "", "ODD": "a=b\n'\"ü", "NCCL_DEBUG": "INFO"}
    answer = nccl_tests_run.run(specification(folder, env=odd), quiet)
    assert (answer["outcome"], answer["environment"]) == ("measured", [])


def test_a_log_file_of_ones_own_is_kept(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    answer = nccl_tests_run.run(specification(folder, env={"NCCL_DEBUG_FILE": str(log)}), quiet)
    assert (answer["outcome"], answer["environment"]) == ("measured", [])
    assert "NCCL_ALGO set by environment" in log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_the_program_becomes_the_user(folder: Path, place: Path) -> None:
    program = folder / "all_reduce_perf"
    told = "import os; print('USER', os.getuid(), os.getgroups(), oct(os.stat(os.path.dirname(sys.argv[-1])).st_mode))"
    program.write_text(program.read_text().replace("\n    Program(", f"\n    {told}\n    Program("))
    for part in (place, *folder.parents):
        if str(part).startswith("/tmp/"):
            part.chmod(part.stat().st_mode | 0o055)
    answer = nccl_tests_run.run(specification(folder, user="nobody"), quiet)
    assert (answer["outcome"], answer["message"]) == ("measured", "")
    assert "USER 65534 [65534] 0o40700" in answer["lines"][0]
    # Also what NCCL opens by a name, which belongs to whoever started it.
    assert not any("INFO" in line and line.startswith("#") for line in answer["lines"][0])
    assert any("NCCL_ALGO set by environment" in line for line in answer["lines"][0])


# --- it fails


FAILED: dict[str, tuple[dict[str, Any], str]] = {
    "NCCL": (
        {"fault": "nccl", "where": "measure", "only": LARGE},
        "exit code 3 in: measure all_reduce of 200000 bytes: standinhost: Test NCCL failure all_reduce.cu:44 ",
    ),
    "CUDA": (
        {"fault": "memory"},
        "exit code 2 in: join the communicator for all_reduce of 256 bytes: standinhost: Test CUDA failure common.cu:",
    ),
    "signal": (
        {"fault": "killed", "where": "measure"},
        "SIGSEGV in: measure all_reduce of 256 bytes",
    ),
    "the other program": (
        {"fault": "killed", "only": GATHERED},
        "SIGSEGV in: join the communicator for all_gather of 1024 bytes",
    ),
}


@pytest.mark.parametrize("lacks", ["", "J"])
@pytest.mark.parametrize(("standin", "message"), FAILED.values(), ids=FAILED.keys())
def test_a_failure_is_told(standin: dict[str, Any], message: str, lacks: str, folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={**standin, "lacks": lacks}), quiet)
    assert (answer["outcome"], answer["rows"]) == ("failed", [])
    program = "all_gather_perf" if standin.get("only") == GATHERED else "all_reduce_perf"
    assert answer["message"].startswith(f"{program} ended with {message}")
    assert answer["ranks"][0]["exit"] == message.split(" in: ")[0]


def test_what_it_has_started_goes_with_it(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={"fault": "child"}), quiet)
    assert answer["outcome"] == "failed"
    wait(lambda: not [pid for pid, line in children(1).items() if str(folder) in line], 5)


HUNG = {
    "start": "start all_reduce of 256 bytes",
    "join": "join the communicator for all_reduce of 256 bytes",
    "measure": "measure all_reduce of 256 bytes",
}


@pytest.mark.parametrize(("where", "phase"), HUNG.items())
def test_a_hang_ends_and_is_told(where: str, phase: str, folder: Path) -> None:
    pids: list[int] = []
    spec = specification(folder, standin={"fault": "hang", "where": where}, deadline=0.8)
    watch = threading.Timer(0.5, lambda: pids.extend(programs(os.getpid())))
    watch.start()
    answer = nccl_tests_run.run(spec, quiet)
    watch.join()
    assert answer["outcome"] == "hung"
    assert answer["message"] == f"no sign of life for 0.8 s: all_reduce_perf in: {phase}"
    assert answer["ranks"] == [{"rank": 0, "exit": "SIGKILL", "phase": phase}]
    assert len(pids) == 1
    assert alive(pids) == []


def test_one_that_never_stops_talking_is_a_hang_too(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin={"fault": "flood"}, deadline=0.5), quiet)
    assert answer["outcome"] == "hung"
    assert answer["message"].startswith("not at its end after 2.5 s: all_reduce_perf in: join the communicator for")


# --- something is lacking


LACKING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "options": ({"lacks": "NJ"}, ["is too old, or another program: it does not know -N; set bench.nccl_tests=PATH"]),
    "graphs": ({"lacks": "G"}, ["it does not know -G; set bench.nccl_tests"]),
    "type": ({"fault": "no type"}, ["measures something else", "type: float, not bfloat16"]),
    "graph": ({"fault": "no graph"}, ["measures something else", "replays of a graph: 0, not 60"]),
    "GPUs": (
        {"fault": "no GPUs"},
        ["2 GPUs are needed (engine.tensor_parallel), all_reduce_perf says: Invalid number of GPUs: 2 requested"],
    ),
}


@pytest.mark.parametrize(("standin", "parts"), LACKING.values(), ids=LACKING.keys())
def test_what_a_build_lacks_is_told(standin: dict[str, Any], parts: list[str], folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, standin=standin), quiet)
    assert answer["outcome"] == "lacking"
    assert [part for part in parts if part not in answer["message"]] == []
    assert "\n" not in answer["message"]


SCRIPTS = {
    "fails": ("#!/bin/sh\nexit 1\n", "is no program of nccl-tests (exit code 1, it says nothing)"),
    "another": ("#!/bin/sh\necho hello\n", "is no program of nccl-tests (exit code 0, it says 'hello')"),
    "library": (
        "#!/bin/sh\necho 'x: error while loading shared libraries: libnccl.so.2: cannot open' >&2; exit 127\n",
        "error while loading shared libraries: libnccl.so.2: cannot open: name its folder in env.LD_LIBRARY_PATH",
    ),
    "broken": ("#!/none\n", "cannot be started"),
    "no program": ("hello\n", "cannot be started: Exec format error; set bench.nccl_tests"),
}


@pytest.mark.parametrize(("text", "part"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_another_program_is_told(text: str, part: str, folder: Path) -> None:
    (folder / "all_reduce_perf").write_text(text)
    answer = nccl_tests_run.run(specification(folder), quiet)
    assert answer["outcome"] == "lacking"
    assert part in answer["message"]


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    answer = nccl_tests_run.run(specification(tmp_path / "none"), quiet)
    assert answer["outcome"] == "lacking"
    path = tmp_path / "none/all_reduce_perf"
    assert answer["message"] == f"{path} cannot be started: it is not there; set bench.nccl_tests=PATH"


def test_a_program_that_may_not_be_run(folder: Path) -> None:
    (folder / "all_reduce_perf").chmod(0o644)
    answer = nccl_tests_run.run(specification(folder), quiet)
    path = folder / "all_reduce_perf"
    assert answer["message"] == f"{path} cannot be started: Permission denied; set bench.nccl_tests=PATH"


def test_the_path_of_a_program_names_its_build(folder: Path, tmp_path: Path) -> None:
    other = build(tmp_path / "mpi", "all_reduce_perf_mpi", "all_gather_perf_mpi")
    for path in (folder / "all_reduce_perf", other / "all_reduce_perf_mpi"):
        assert nccl_tests_run.run(specification(path), quiet)["outcome"] == "measured"
    answer = nccl_tests_run.run(specification(folder / "all_gather_perf"), quiet)
    assert answer["outcome"] == "lacking"
    assert answer["message"].endswith("all_gather_perf is not all_reduce_perf")


def test_an_unknown_folder_is_told(folder: Path) -> None:
    answer = nccl_tests_run.run(specification(folder, cwd="/none"), quiet)
    assert answer["message"] == "engine.working_directory=/none cannot be entered: No such file or directory"


# --- the secrets in the file


def test_its_file_is_gone_while_it_still_runs(folder: Path, place: Path) -> None:
    found: list[str] = []
    spec = specification(folder, standin={"fault": "hang", "where": "measure"}, deadline=1)

    def look(_: str) -> None:
        (own,) = place.iterdir()
        found.append(oct(own.stat().st_mode))
        found.extend(path.name for path in own.iterdir())

    assert nccl_tests_run.run(spec, look)["outcome"] == "hung"
    assert found == ["0o40700"]


def test_another_file_than_its_own_is_not_touched(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    program = folder / "all_reduce_perf"
    program.write_text(program.read_text().replace("JSON output to {path}", f"JSON output to {other}"))
    answer = nccl_tests_run.run(specification(folder), quiet)
    assert other.read_text() == "{}"
    assert answer["rows"][0]["us"][0] == 10.25  # of the table


# --- nothing is left


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_ends_it(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        nccl_tests_run.run(specification(folder, standin={"fault": "hang", "where": "measure"}), interrupt)


def test_nobody_waits_any_more(folder: Path) -> None:
    asked = iter([False, False, True])
    with pytest.raises(comm_process.Abandoned):
        nccl_tests_run.run(specification(folder, standin={"fault": "hang"}), quiet, lambda: next(asked))


PARENT = """
import json, sys
from launcher.agent import nccl_tests_run
nccl_tests_run.run(json.load(sys.stdin), lambda text: print(text, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_with_the_program_and_leaves_no_file(number: int, folder: Path, tmp_path: Path) -> None:
    spec = specification(folder, standin={"fault": "hang", "where": "measure"})
    temporary = tmp_path / "parent"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=env, **pipes) as parent:  # type: ignore[call-overload]
        parent.stdin.write(json.dumps(spec).encode())
        parent.stdin.close()
        assert parent.stdout.readline().startswith(b"measure")
        pids = programs(parent.pid)
        assert len(pids) == 1
        parent.send_signal(number)
        parent.wait(5)
    wait(lambda: not alive(pids), 2)
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


def test_many_runs_leak_nothing(folder: Path) -> None:
    before = descriptors()
    for path in (folder, "/none", folder) * 3:
        nccl_tests_run.run(specification(path, standin={"fault": "memory"}), quiet)
    gc.collect()
    assert descriptors() == before


# --- as the agent answers


def test_the_agent_runs_it_and_explains_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "busy", lambda _: [])
    monkeypatch.setattr(bench, "facts", lambda *_: {})
    monkeypatch.setattr(bench, "hints", lambda *_: ["try this"])
    monkeypatch.setattr(comm, "run", None)
    spec = specification(folder, standin={"fault": "nccl", "where": "measure"})
    answer = bench.measure(spec, [], quiet)
    assert (answer["outcome"], answer["hints"]) == ("failed", ["try this"])
    assert any(line.endswith("Test failure common.cu:1234") for line in answer["last"])
    assert not any(line.startswith("rank ") for line in answer["last"])
    assert bench.measure(specification(folder), [], quiet)["outcome"] == "measured"


def test_the_agent_refuses_while_others_compute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "busy", lambda _: ["GPU 0: somebody [gpu-busy]"])
    answer = bench.measure(specification(folder), [], quiet)
    assert (answer["outcome"], answer["message"]) == ("refused", "GPU 0: somebody [gpu-busy]")
    assert bench.measure(specification(folder), ["gpu-busy"], quiet)["outcome"] == "measured"
