"""Points served by children: proven or not serving, whatever the server does, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import leftovers
from launcher.bench import child as child_module
from launcher.bench import premises
from launcher.bench.child import Child
from launcher.errors import LaunchError
from tests.bench.served import candidate, free_port, listens, living, marked, standin, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.bench.served import Servers
    from launcher.sweep.points import Candidate

ROOT = Path(__file__).parent.parent.parent
TUNED = {"NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_MAX_NCHANNELS", "NCCL_NTHREADS", "NCCL_P2P_LEVEL", "NCCL_PROTO"}
WORKERS = {"sglang": "sglang::scheduler_TP", "vllm": "VLLM::Worker_TP"}


class Here:
    """Servers in a test's folder; at its end nothing may be left of any."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, []  # type: Path, list[str]
        self.child = Child(folder / "logs", self.said.append)
        self.port = free_port()
        self.digests: set[str] = set()
        self.pids: set[int] = set()
        self.before = set(children())  # of tests before this one

    def candidate(self, *words: str, fault: str = "", python: Path | None = None, **how: Any) -> Candidate:
        made = candidate(python or standin(self.folder / "engine", fault), self.port, *words, **how)
        self.digests.add(made.release.digest)
        return made

    def tree(self) -> list[int]:
        assert self.child._kept
        return self.child._kept.tree()

    def wrapper(self, *lines: str) -> Path:
        """Return an interpreter that does something before it becomes the stand-in."""
        path = self.folder / "wrapped"
        path.write_text("\n".join(("#!/bin/sh", *lines, f'exec {standin(self.folder / "engine")} "$@"\n')))
        path.chmod(0o755)
        return path

    def assert_nothing_left(self) -> None:
        assert [marked(digest) for digest in self.digests] == [{} for _ in self.digests]
        assert living(self.pids) == []
        assert not listens(self.port)
        assert set(children()) <= self.before


def children() -> list[int]:
    """Return the children of this process that have not been waited for."""
    text = "".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return [int(word) for word in text.split()]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    made = Here(tmp_path)
    yield made
    assert made.child.close() == "nothing runs; nothing was served here before"
    made.assert_nothing_left()


# --- served


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_every_process_is_proven_and_a_stop_leaves_nothing(here: Here, engine: str) -> None:
    servers: Servers = here.child
    point = here.candidate(engine=engine)
    life = servers.start(point)
    assert (life.serving, life.message, life.evidence) == (True, "", ())
    pids = marked(point.release.digest)
    assert sorted(pids) == sorted(life.proof["proven"]) == here.tree()
    assert len(pids) == 4
    assert sum(title.startswith(WORKERS[engine]) for title in pids.values()) == 2
    assert (life.proof["digest"], life.proof["unknown"], life.proof["odd"]) == (point.release.digest, [], [])
    assert (set(life.proof["nccl"]["proved"]), life.proof["nccl"]["contradicted"]) == (TUNED, [])
    assert life.facts["versions"] == {"nccl": "2.28.9"}
    assert any("NCCL_ALGO set by environment to Ring" in line for line in life.lines)
    main = life.proof["main"]
    assert Path(f"/proc/{main}/cwd").resolve() == Path.cwd()
    assert os.getsid(main) == main != os.getsid(0)
    begin = time.monotonic()
    servers.stop()
    assert time.monotonic() - begin < 4, "the limit is 5 s"
    assert here.said == []
    here.pids = set(pids)
    here.assert_nothing_left()


def test_the_command_and_the_environment_are_exactly_the_releases(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("OF_THE_SHELL", "ü\udcff")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    point = here.candidate()
    life = here.child.start(point)
    assert (life.serving, life.proof["odd"], life.facts["left_out"]) == (True, [], ["NCCL_P2P_DISABLE"])
    block = Path(f"/proc/{life.proof['main']}/environ").read_bytes().split(b"\0")[:-1]
    env = dict(os.fsdecode(entry).split("=", 1) for entry in block)
    shells = {name: value for name, value in os.environ.items() if name != "NCCL_P2P_DISABLE"}
    assert env == {**shells, **point.release.env}
    words = Path(f"/proc/{life.proof['main']}/cmdline").read_bytes().decode().split("\0")[:-1]
    assert words[2:] == list(point.release.argv[1:])  # behind the interpreter of the stand-in, and the stand-in


def test_a_working_directory(here: Here) -> None:
    life = here.child.start(here.candidate(f"engine.working_directory={here.folder}"))
    assert Path(f"/proc/{life.proof['main']}/cwd").resolve() == here.folder


def test_starts_in_a_row_on_one_port(here: Here) -> None:
    first, second = here.candidate(), here.candidate("nccl.proto=Simple")
    assert first.release.digest != second.release.digest
    lives = [here.child.start(point) for point in (first, second, first)]
    assert [life.serving for life in lives] == [True, True, True]
    assert len(marked(first.release.digest)) == 4
    assert marked(second.release.digest) == {}
    logs = sorted((here.folder / "logs").iterdir())
    assert [str(log) for log in logs] == [life.facts["log"] for life in lives]
    assert [log.name[:3] for log in logs] == ["001", "002", "003"]
    assert all("standin: asked to stop" in log.read_text() for log in logs[:2])
    assert {oct(log.stat().st_mode & 0o777) for log in logs} == {"0o600"}


LOAD: dict[str, Any] = {
    "client": {"argv": ["/bin/sh", "-c", "echo '{\"completed\": 1}'"], "result": "", "drop": []},
    "version": [],
    "warmup": [],
    "env": {},
    "cwd": "",
    "user": "nobody",
    "timeout": 10,
    "flush": [],
    "patterns": {},
    "pages": [{"path": "/version", "keys": [["version"]]}],
}


def test_a_load(here: Here) -> None:
    with pytest.raises(LaunchError, match="nothing serves here"):
        here.child.load(LOAD)
    life = here.child.start(here.candidate())
    answer = here.child.load(LOAD)
    assert (answer["outcome"], answer["result"].strip()) == ("measured", '{"completed": 1}'), answer
    assert [p["pid"] for p in answer["processes_after"]] == here.tree()
    assert (answer["proven"], answer["contradictions"]) == (4, [])
    assert answer["after"]["/version"]["values"] == {"version": "0.0.0+standin"}
    assert any("GET /version" in line for line in answer["log"]["last"])
    os.kill(life.proof["main"], signal.SIGKILL)
    assert here.child.load(LOAD)["outcome"] == "dead"


# --- not serving

DIED = {
    "crash": ("exit code 1", "unknown", "RuntimeError: stand-in fault: crash"),
    "exit0": ("exit code 0", "ended by itself", "standin: leaving with 0 during load"),
    "no_algorithm": ("exit code 1", "NCCL: no algorithm", "NCCL WARN Error : no algorithm/protocol available"),
}


@pytest.mark.parametrize(("fault", "told"), DIED.items(), ids=DIED.keys())
def test_a_server_that_ends_during_its_start(here: Here, fault: str, told: tuple[str, str, str]) -> None:
    status, kind, line = told
    begin = time.monotonic()
    life = here.child.start(here.candidate(fault=fault))
    assert time.monotonic() - begin < 10, "the limit is 15 s"
    assert (life.serving, life.message) == (False, f"the server ended during its start: {status}")
    assert any(line in text for text in life.evidence)
    assert any(line in text for text in life.lines)
    assert kind in ("unknown", life.facts["failure"])
    here.assert_nothing_left()


#: What is told, and a limit in which it comes so far, on a busy machine too.
LATE = {
    "hang": ("nothing listens on its port yet", 1),
    "hang503": ("/health answers 503", 5),
    "no_completion": ("/v1/completions answers 500", 5),
}


@pytest.mark.parametrize(("fault", "told"), LATE.items(), ids=LATE.keys())
def test_a_server_that_never_gets_ready(here: Here, fault: str, told: tuple[str, int]) -> None:
    missing, limit = told
    life = here.child.start(here.candidate(fault=fault, start=limit))
    assert (life.serving, life.facts["failure"]) == (False, "timeout")
    assert life.message == f"the server did not get ready in {limit} s: {missing}"
    here.assert_nothing_left()


WRONG = {
    "strip_env": 'NCCL_ALGO is missing (should be "Ring")',
    "override_env": 'NCCL_ALGO is "Tree" (should be "Ring")',
    "nccl_extra": "NCCL_P2P_DISABLE is set, but the release does not set it",
    "bare_child": "LAUNCH_DIGEST is missing",
}


@pytest.mark.parametrize(("fault", "line"), WRONG.items(), ids=WRONG.keys())
def test_a_process_that_contradicts_the_release(here: Here, fault: str, line: str) -> None:
    life = here.child.start(here.candidate(fault=fault))
    assert (life.serving, life.message) == (False, "what runs does not carry the release")
    assert any(line in text for text in life.evidence)
    assert life.proof["contradictions"]
    here.assert_nothing_left()


def test_nccl_that_says_something_else(here: Here) -> None:
    wrapped = here.wrapper("echo 'h:7:7 [0] NCCL INFO NCCL_ALGO set by environment to Tree'")
    life = here.child.start(here.candidate(python=wrapped))
    assert (life.serving, life.proof["contradictions"]) == (False, [])
    (line,) = life.evidence
    assert line.startswith("NCCL's log contradicts NCCL_ALGO: ")
    assert "set by environment to Tree" in line


def test_helpers_that_come_and_go_do_not_matter(here: Here) -> None:
    assert here.child.start(here.candidate(fault="brief_children")).serving


def test_an_environment_that_was_overwritten_is_unknown(here: Here) -> None:
    life = here.child.start(here.candidate(fault="cut_env"))
    assert life.serving
    assert len(life.proof["unknown"]) == 2
    assert len(life.proof["proven"]) == 2


# --- refused beforehand


def test_a_port_that_is_taken(here: Here) -> None:
    with socket.create_server(("127.0.0.1", here.port)):
        with pytest.raises(LaunchError, match=rf"port {here.port} is taken by process {os.getpid()} \("):
            here.child.start(here.candidate())
        assert not (here.folder / "logs").exists()


def fake_gpu(here: Here, monkeypatch: pytest.MonkeyPatch, free: int, pid: int = 0) -> None:
    """Let nvidia-smi show one GPU of 80000 MiB."""
    tool = here.folder / "tools" / "nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    memory = f"<fb_memory_usage><total>80000 MiB</total><free>{free} MiB</free></fb_memory_usage>"
    job = f"<process_info><pid>{pid}</pid><type>C</type></process_info>" if pid else ""
    text = f'<nvidia_smi_log><gpu id="0">{memory}<processes>{job}</processes></gpu></nvidia_smi_log>'
    tool.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\n")
    tool.chmod(0o755)
    if str(tool.parent) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_gpus_that_others_hold(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu(here, monkeypatch, 80_000, os.getpid())
    with pytest.raises(LaunchError, match=rf"GPU 0: process {os.getpid()} .* computes there"):
        here.child.start(here.candidate())


def test_gpu_memory_that_is_not_given_back(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(premises, "_FREE", 0.5)
    fake_gpu(here, monkeypatch, 79_500)
    assert here.child.start(here.candidate()).serving
    fake_gpu(here, monkeypatch, 50_000)
    with pytest.raises(LaunchError, match="GPU 0: 30000 MiB of its memory are in use, 500 MiB were before the start"):
        here.child.stop()
    with pytest.raises(LaunchError, match="GPU 0: 30000 MiB of its memory are in use, by nobody"):
        here.child.start(here.candidate())


UNUSABLE = {
    "missing": ("/nonexistent/python", "", "engine.python=/nonexistent/python is not there, or cannot be executed"),
    "a folder": ("/tmp", "", "engine.python=/tmp is not there, or cannot be executed"),
    "no program": ("{}/other", "", "engine.python={}/other cannot be started: Exec format error"),
    "no directory": ("", "engine.working_directory=/none", "engine.working_directory=/none cannot be entered: No such"),
}


@pytest.mark.parametrize(("python", "word", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_started(here: Here, python: str, word: str, message: str) -> None:
    (here.folder / "other").write_bytes(b"\x7fELF")
    (here.folder / "other").chmod(0o755)
    given = Path(python.format(here.folder)) if python else None
    with pytest.raises(LaunchError) as caught:
        here.child.start(here.candidate(*filter(None, [word]), python=given))
    assert message.format(here.folder) in str(caught.value)
    here.assert_nothing_left()


# --- ends


def test_a_server_that_ignores_sigterm_is_killed(here: Here) -> None:
    life = here.child.start(here.candidate(stop=1))
    here.pids = set(here.tree())
    os.kill(life.proof["main"], signal.SIGSTOP)
    begin = time.monotonic()
    here.child.stop()
    assert 1 <= time.monotonic() - begin < 5
    assert here.said == ["warning: 4 processes of the server did not end by themselves and were killed"]
    here.assert_nothing_left()


def test_a_stop_that_is_interrupted_leaves_nothing(here: Here) -> None:
    life = here.child.start(here.candidate(stop=60))
    here.pids = set(here.tree())
    os.kill(life.proof["main"], signal.SIGSTOP)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        here.child.stop()
    timer.join()
    here.assert_nothing_left()


def test_workers_that_outlive_their_main_process(here: Here) -> None:
    life = here.child.start(here.candidate(engine="vllm"))
    here.pids = set(here.tree())
    main = life.proof["main"]
    os.kill(main, signal.SIGKILL)
    until(lambda: main not in here.tree())
    assert len(here.tree()) >= 2
    here.child.stop()
    here.assert_nothing_left()


def test_a_daemon_without_any_mark_goes_too(here: Here) -> None:
    point = here.candidate(python=here.wrapper("(setsid env -i sleep 1000 &)"))
    life = here.child.start(point)
    assert not life.serving
    (pid,) = {int(text.split()[1]) for text in life.evidence if "(sleep 1000)" in text}
    assert living([pid]) == []


def test_a_keeper_that_is_killed(here: Here) -> None:
    here.child.start(here.candidate(engine="vllm"))
    here.pids = set(here.tree())
    assert here.child._kept
    os.kill(here.child._kept._keeper.pid, signal.SIGKILL)
    until(lambda: here.child._kept and here.child._kept.status is not None)
    assert living(here.pids)
    here.child.stop()
    here.assert_nothing_left()


def test_a_server_that_dies_later_is_cleaned_up_and_followed(here: Here) -> None:
    point = here.candidate(fault="crash_after_ready")
    assert here.child.start(point).serving
    until(lambda: here.child._kept and here.child._kept.status is not None)
    assert here.child.start(here.candidate()).serving


def test_segments_of_its_dead_processes_go(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    monkeypatch.setattr(leftovers, "_SHM", str(shm))
    (shm / "nccl-others").write_text("of another container")
    here.child.start(here.candidate())
    (shm / "nccl-ours").write_text("")
    here.child.stop()
    assert [path.name for path in shm.iterdir()] == ["nccl-others"]
    assert here.said == ["removed 1 segments of dead processes from /dev/shm"]


# --- secrets


def test_secrets_are_in_no_command_and_no_log(here: Here) -> None:
    key, token = "k-0123456789", "t-9876543210"
    (here.folder / "key").write_text(key)
    (here.folder / "token").write_text(token)
    words = (f"secrets.args.api_key=file:{here.folder}/key", f"secrets.env.HF_TOKEN=file:{here.folder}/token")
    point = here.candidate(*words, python=here.wrapper("echo NCCL was told $HF_TOKEN"))
    life = here.child.start(point)
    assert life.serving, life
    (path,) = (
        Path(word)
        for word in Path(f"/proc/{life.proof['main']}/cmdline").read_text().split("\0")
        if word.endswith("secrets.yaml")
    )
    assert path.read_text() == f'api-key: "{key}"\n'
    assert path.stat().st_mode & 0o777 == 0o600
    told = repr(life)
    for pid in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            told += (pid / "cmdline").read_bytes().decode("utf-8", "replace")
    assert "***" in told
    assert key not in told + Path(life.facts["log"]).read_text()
    assert token not in told
    assert f"HF_TOKEN={token}" in Path(f"/proc/{life.proof['main']}/environ").read_text().split("\0")
    here.child.stop()
    assert not path.parent.exists()


# --- launch itself ends

LAUNCH = """
import sys, time
from pathlib import Path
from launcher.bench.child import Child
from tests.bench.served import candidate
with Child(Path(sys.argv[1]) / "logs", print) as child:
    print("begins", flush=True)
    life = child.start(candidate(sys.argv[2], int(sys.argv[3]), env={"STANDIN_LOAD_SECONDS": sys.argv[4]}))
    assert life.serving, life
    print("serves", flush=True)
    time.sleep(1000)
"""


def launched(here: Here, load: str, word: str) -> tuple[subprocess.Popen[str], Candidate]:
    """Start a launch of its own and return it once it has said a word."""
    python = standin(here.folder / "engine")
    point = here.candidate(python=python, env={"STANDIN_LOAD_SECONDS": load})
    argv = [sys.executable, "-c", LAUNCH, str(here.folder), str(python), str(here.port), load]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    while (line := process.stdout.readline().strip()) != word:
        assert line, "it ended"
    until(lambda: len(marked(point.release.digest)) >= 4)
    return process, point


@pytest.mark.parametrize("frozen", [False, True], ids=["", "its server hangs"])
def test_launch_killed_takes_everything_with_it(here: Here, *, frozen: bool) -> None:
    process, point = launched(here, "0.1", "serves")
    pids = marked(point.release.digest)
    if frozen:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.communicate()
    until(lambda: not living(pids), 3)


WAYS = {
    "Ctrl-C while it starts": (signal.SIGINT, "1000", "begins"),
    "Ctrl-C while it serves": (signal.SIGINT, "0.1", "serves"),
    "SIGTERM while it starts": (signal.SIGTERM, "1000", "begins"),
    "SIGTERM while it serves": (signal.SIGTERM, "0.1", "serves"),
}


@pytest.mark.parametrize(("number", "load", "word"), WAYS.values(), ids=WAYS.keys())
def test_launch_interrupted_leaves_nothing(here: Here, number: int, load: str, word: str) -> None:
    process, point = launched(here, load, word)
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode != 0
    assert marked(point.release.digest) == {}


def test_an_interruption_without_a_context_leaves_nothing(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_TELL", 0)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    here.child._emit = interrupt
    with pytest.raises(KeyboardInterrupt):
        here.child.start(here.candidate(fault="hang"))
    here.assert_nothing_left()


def test_progress_is_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_TELL", 0.3)
    here.child.start(here.candidate(fault="hang", start=4))
    assert here.said[0] in [f"waiting for the server for {s} s: nothing listens on its port yet" for s in range(5)]
