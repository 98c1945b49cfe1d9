"""The stand-in behaves as the observed engines do; what it gets wrong, every test above it would too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STANDIN = Path(__file__).with_name("standin.py")
FLAVOURS = ["sglang", "vllm"]
GIVEN = {"PATH": os.environ["PATH"], "NCCL_ALGO": "Ring", "NCCL_NTHREADS": "512", "NCCL_DEBUG": "INFO"}


class Server:
    """A running stand-in with its children."""

    def __init__(self, flavour: str, log: Path, *flags: str, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        engine = {
            "sglang": ["-m", "sglang.launch_server", "--model-path", "m", "--tp-size=8"],
            "vllm": ["-m", "vllm.entrypoints.cli.main", "serve", "m", "--tensor-parallel-size", "8"],
        }[flavour]
        self.log = log
        with log.open("w") as file:
            self.main = subprocess.Popen(
                [sys.executable, STANDIN, *engine, "--port", str(self.port), "--any-flag", "-1", *flags],
                env=GIVEN | environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """Send a request; status 0 stands for no connection."""
        data = json.dumps(body).encode() if body is not None else None
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data), timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as err:
            with err:
                return err.code, err.read().decode()
        except OSError:
            return 0, ""

    def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def ready(self) -> Server:
        """Wait for readiness and return itself."""
        self.until(lambda: self.ask("/health")[0] == 200)
        return self

    def children(self) -> dict[int, str]:
        """Return the command line of every living process that was started, but the first, by number."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                line = (folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
                if int(fields[3]) == self.main.pid != int(folder.name) and fields[0] != "Z":
                    found[int(folder.name)] = line
        return found

    def workers(self) -> list[int]:
        """Return the numbers of the renamed processes."""
        return sorted(pid for pid, line in self.children().items() if line.startswith(("sglang::", "VLLM::")))

    def end(self) -> None:
        """Kill whatever is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.main.pid, signal.SIGKILL)
        self.main.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def run(flavour: str, *flags: str, **environment: str) -> Server:
        servers.append(Server(flavour, tmp_path / f"{len(servers)}.log", *flags, **environment))
        return servers[-1]

    yield run
    for server in servers:
        server.end()


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_health_goes_from_closed_over_503_to_200(start: Callable[..., Server], flavour: str) -> None:
    server = start(flavour, STANDIN_WARMUP_SECONDS="0.4")
    seen: list[int] = []

    def look() -> bool:
        seen.append(server.ask("/health")[0])
        return seen[-1] == 200

    server.until(look)
    assert sorted(set(seen), key=seen.index) == [0, 503, 200]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_endpoints(start: Callable[..., Server], flavour: str) -> None:
    server = start(flavour, "--served-model-name", "nick").ready()
    assert json.loads(server.ask("/v1/models")[1])["data"][0]["id"] == "nick"
    status, text = server.ask("/v1/completions", {"prompt": "x", "max_tokens": 3})
    assert (status, json.loads(text)["usage"]["completion_tokens"]) == (200, 3)
    status, text = server.ask("/v1/chat/completions", {"messages": [], "max_tokens": 3, "stream": True})
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert sum("delta" in part for e in events[:-1] for part in json.loads(e)["choices"]) == 3
    assert f"{flavour}:num_requests_total 2.0" in server.ask("/metrics")[1]
    assert server.ask("/nothing")[0] == 404


@pytest.mark.parametrize(("flavour", "title"), [("sglang", "sglang::scheduler_TP"), ("vllm", "VLLM::Worker_TP")])
def test_with_spt_noenv_the_workers_environment_is_complete(
    start: Callable[..., Server], flavour: str, title: str
) -> None:
    server = start(flavour, SPT_NOENV="1").ready()
    workers = server.workers()
    assert sorted(server.children()[pid] for pid in workers) == [f"{title}0", f"{title}1"]
    for pid in workers:
        entries = environment_of(pid).rstrip(b"\0").split(b"\0")
        assert {f"{name}={value}".encode() for name, value in GIVEN.items()} <= set(entries)
        assert Path(f"/proc/{pid}/comm").read_text().strip() == title[:15]


@pytest.mark.parametrize(("flavour", "survivors"), [("sglang", True), ("vllm", False)])
def test_without_it_the_environment_is_cut_and_begins_with_nul(
    start: Callable[..., Server], flavour: str, survivors: bool
) -> None:
    server = start(flavour).ready()
    assert len(server.workers()) == 2
    for pid in server.workers():
        block = environment_of(pid)
        assert block.startswith(b"\0")
        assert b"NCCL_ALGO" not in block
        assert (b"NCCL_CUMEM_ENABLE=0" in block) is survivors
    others = [pid for pid in server.children() if pid not in server.workers()]
    assert len(others) == 1
    assert "resource_tracker" in server.children()[others[0]]
    assert b"NCCL_ALGO=Ring" in environment_of(others[0])


def test_nccl_says_what_it_read(start: Callable[..., Server]) -> None:
    server = start("sglang", NCCL_P2P_LEVEL="1").ready()
    server.until(lambda: server.log.read_text().count("NCCL_P2P_LEVEL") == 2)
    host = socket.gethostname()
    for rank, pid in enumerate(server.workers()):
        for text in ("NCCL_ALGO set by environment to Ring\n", "NCCL_NTHREADS set by environment to 512.\n"):
            lines = {f"{host}:{pid}:{pid} [{r}] NCCL INFO {text}" for r in (rank, 1 - rank)}
            assert any(line in server.log.read_text() for line in lines)
    assert "NCCL_P2P_LEVEL set by environment to 1\n" in server.log.read_text()
    assert "NCCL INFO" not in start("sglang", NCCL_DEBUG="WARN").ready().log.read_text()


@pytest.mark.parametrize(("flavour", "status"), [("sglang", -signal.SIGKILL), ("vllm", 0)])
def test_stop(start: Callable[..., Server], flavour: str, status: int) -> None:
    server = start(flavour).ready()
    server.main.terminate()
    assert server.main.wait(5) == status
    server.until(lambda: not server.children(), 2)


@pytest.mark.parametrize(("flavour", "status"), [("sglang", -signal.SIGKILL), ("vllm", 0)])
def test_a_killed_worker_ends_the_server(start: Callable[..., Server], flavour: str, status: int) -> None:
    server = start(flavour).ready()
    os.kill(server.workers()[0], signal.SIGKILL)
    assert server.main.wait(5) == status
    server.until(lambda: not server.children(), 2)


def test_a_killed_main_takes_sglangs_workers_along_and_leaves_vllms(start: Callable[..., Server]) -> None:
    sglang, vllm = start("sglang").ready(), start("vllm").ready()
    for server in (sglang, vllm):
        server.main.kill()
        server.main.wait()
    sglang.until(lambda: not sglang.children(), 2)
    time.sleep(0.3)
    assert len(vllm.children()) == 3


@pytest.mark.parametrize(("fault", "status"), [("crash", 1), ("exit0", 0), ("crash_after_ready", 1)])
def test_faults_that_end_it(start: Callable[..., Server], fault: str, status: int) -> None:
    server = start("sglang", "--standin-fault", fault)
    if fault == "crash_after_ready":
        server.ready()
    assert server.main.wait(5) == status
    server.until(lambda: not server.children(), 2)
    assert ("Traceback" in server.log.read_text()) is (status == 1)


def test_faults_that_keep_it_from_serving(start: Callable[..., Server]) -> None:
    hang, hang503 = start("vllm", STANDIN_FAULT="hang"), start("sglang", STANDIN_FAULT="hang503")
    no_completion = start("sglang", STANDIN_FAULT="no_completion").ready()
    assert no_completion.ask("/v1/completions", {"prompt": "x"})[0] == 500
    hang503.until(lambda: hang503.ask("/health")[0] == 503)
    time.sleep(0.5)
    assert (hang.ask("/health")[0], hang503.ask("/health")[0]) == (0, 503)
    assert hang.main.poll() is None
    assert len(hang.workers()) == 2


def test_faults_of_the_workers_environment(start: Callable[..., Server]) -> None:
    stripped = start("sglang", "--standin-fault=strip_env", SPT_NOENV="1").ready()
    changed = start("vllm", "--standin-fault=override_env", SPT_NOENV="1").ready()
    assert b"NCCL_ALGO" not in environment_of(stripped.workers()[0])
    assert b"NCCL_ALGO=Tree" in environment_of(changed.workers()[0])
    for server in (stripped, changed):
        assert b"NCCL_ALGO=Ring" in environment_of(server.main.pid)


def test_an_unknown_fault_is_refused(start: Callable[..., Server]) -> None:
    assert start("sglang", "--standin-fault=typo").main.wait(5) == 1


def test_the_interpreter_beside_it_keeps_pid_and_environment(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!{sys.executable} {STANDIN}\n")
    interpreter.chmod(0o755)
    environment = {"B": "two words = 2", "A": "é"}
    argv = ["-m", "sglang.launch_server", "--standin-fault", "hang", "--standin-workers", "0"]
    with subprocess.Popen([interpreter, *argv], env=environment, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 5
        wanted = [sys.executable, str(STANDIN), *argv]
        while Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[:-1] != wanted:
            assert time.monotonic() < end
        block = environment_of(process.pid).rstrip(b"\0").split(b"\0")
        assert block == [f"{name}={value}".encode() for name, value in environment.items()]
        process.kill()
    done = subprocess.run([interpreter, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"
