"""Servers that somebody else started: found by their commands, read from /proc, and run again as they were."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import adopt, adopt_read, own_start, shown, stray, stray_record, takeover
from launcher.agent.adopt_find import (
    Home,
    Seen,
    descendants,
    digest,
    digest_of,
    engine_of,
    home_of,
    mains,
    starter,
    table,
    titled,
)
from launcher.agent.processes import Process, start_time
from launcher.host import bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
STANDIN = Path(__file__).parent.parent / "standin" / "standin.py"
PYTHON = "/usr/bin/python3.11"

# --- which processes are servers ---

COMMANDS: dict[str, tuple[str, str]] = {
    "python3 -m sglang.launch_server --model-path m": (PYTHON, "sglang"),
    "python3 -u -X utf8 -m vllm.entrypoints.openai.api_server --model m": (PYTHON, "vllm"),
    "/opt/venv/bin/python3 /opt/venv/bin/vllm serve m --port 8000": (PYTHON, "vllm"),
    "/opt/venv/bin/python /opt/venv/bin/sglang serve --model-path m": (PYTHON, "sglang"),
    "python3 -um vllm.entrypoints.cli.main serve m": ("/usr/bin/python3.12 (deleted)", "vllm"),
    "python3 /src/sglang/launch_server.py --tp 8": (PYTHON, "sglang"),
    "python3 /opt/launcher.py -m sglang.launch_server": (PYTHON, "sglang"),
    "python3 -m vllm.entrypoints.cli.main bench serve": (PYTHON, ""),
    "/opt/venv/bin/python3 /opt/venv/bin/vllm bench serve": (PYTHON, ""),
    "python3 -m sglang.bench_serving --port 8000": (PYTHON, ""),
    "sudo -u llm python3 -m sglang.launch_server": ("/usr/bin/sudo", ""),
    "ssh gpu1 python3 -m sglang.launch_server": ("/usr/bin/ssh", ""),
    "python3 train.py --note -m sglang.launch_server": (PYTHON, ""),
    "tail -f vllm": ("/usr/bin/tail", ""),
    "python3 -m": (PYTHON, ""),
}


@pytest.mark.parametrize(("command", "wanted"), COMMANDS.items(), ids=COMMANDS)
def test_a_server_is_known_by_its_command(command: str, wanted: tuple[str, str]) -> None:
    exe, engine = wanted
    assert engine_of(command.split(), exe) == engine


def process(parent: int, command: str, exe: str = PYTHON) -> Seen:
    return Seen(parent, command.split(" "), exe)


SERVER = "python3 -m sglang.launch_server --tp 2"
TABLE = {
    10: process(1, "bash run.sh", "/usr/bin/bash"),
    11: process(10, SERVER),
    12: process(11, "python3 -c from multiprocessing.resource_tracker import main"),
    13: process(11, SERVER),  # forked, with the command of its parent
    14: Seen(13, ["sglang::scheduler_TP0", "", ""], PYTHON),
    20: Seen(1, ["VLLM::Worker_TP0", ""], PYTHON),
    30: process(2, "-bash", "/usr/bin/bash"),
    31: process(30, "sudo python3 -m vllm.entrypoints.openai.api_server", "/usr/bin/sudo"),
    32: process(31, "python3 -m vllm.entrypoints.openai.api_server"),
}


def test_the_main_process_is_the_one_above_all_others() -> None:
    assert mains(TABLE) == {11: "sglang", 32: "vllm"}
    assert titled(TABLE) == [20]


def test_who_may_start_it_again() -> None:
    assert starter(11, TABLE) == 10  # a script, perhaps a loop
    assert starter(32, TABLE) == 0  # a shell that somebody types in, behind sudo


GROUPS = {
    "/system.slice/llm.service": Home("unit", "llm.service"),
    "/system.slice/launch-a.service": Home("launch", "launch-a.service"),
    "/launch.slice/launch-b.service": Home("launch", "launch-b.service"),
    "/system.slice/launch-again-a.service": Home("again", "launch-again-a.service"),
    "/user.slice/user-1000.slice/session-3.scope": Home("hand", "session-3.scope"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/tmux-spawn-1.scope": Home("hand", "tmux-spawn-1.scope"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service": Home("user unit", "llm.service"),
    f"/system.slice/docker-{'ab' * 32}.scope": Home("container", "docker abababababab"),
    f"/docker/{'cd' * 32}": Home("container", "docker cdcdcdcdcdcd"),
    f"/machine.slice/libpod-{'0f' * 32}.scope/container": Home("container", "podman 0f0f0f0f0f0f"),
    "/system.slice/docker.service": Home("unit", "docker.service"),
    "/system.slice/slurmstepd.scope/job_77/step_0": Home("job", "job_77"),
    "/": Home("hand", ""),
}


@pytest.mark.parametrize(("group", "wanted"), GROUPS.items(), ids=GROUPS)
def test_what_a_server_belongs_to(group: str, wanted: Home) -> None:
    assert home_of(group) == wanted


def test_command_folder_and_user_make_the_digest() -> None:
    one = digest(b"a\0b", "/srv", 7)
    assert len({one, digest(b"a b", "/srv", 7), digest(b"a\0b", "/srv2", 7), digest(b"a\0b", "/srv", 8)}) == 4
    assert one == digest(b"a\0b", "/srv", 7)


# --- what people see ---

SHOWN = {
    "vllm serve m --api-key one two --port 1": "vllm serve m --api-key *** *** --port 1",
    "x --hf-token=abc --tokenizer-path t --max-tokens 9": "x --hf-token=*** --tokenizer-path t --max-tokens 9",
    "x hf_abcdefghijk http://me:pw@host/": "x *** 'http://***@host/'",
    "x --ssl-keyfile-password p --chat-template {a}": "x --ssl-keyfile-password *** --chat-template '{a}'",
}


@pytest.mark.parametrize(("command", "wanted"), SHOWN.items(), ids=SHOWN)
def test_a_command_is_shown_without_secrets(command: str, wanted: str) -> None:
    assert shown.command(command.split()) == wanted
    assert shown.command(command.split(), 10) == wanted[:9] + "…"


# --- how long its start took ---

SINCE = time.mktime((2026, 11, 30, 9, 0, 0, 0, 0, -1))
LOGS = {
    "sglang": ("[2026-11-30 09:01:35 TP0] x\n[2026-11-30 09:01:36] The server is fired up and ready to roll!", 96),
    "vllm": ("INFO 11-30 09:00:42 [api.py:1] x\nINFO:     Application startup complete.", 42),
    "the start before": ("[2026-11-30 08:01:36] The server is fired up and ready to roll!", None),
    "both": (
        "\n".join(f"[2026-11-30 {at}] The server is fired up and ready to roll!" for at in ("08:01:36", "09:00:30")),
        30,
    ),
    "the journal": (f"{SINCE + 12.5:.6f} h python[1]: INFO:     Application startup complete.", 12.5),
    "no times": ("INFO:     Application startup complete.", None),
    "not ready": ("[2026-11-30 09:01:36] loading", None),
}


@pytest.mark.parametrize(("log", "wanted"), LOGS.values(), ids=LOGS)
def test_how_long_a_start_took(tmp_path: Path, log: str, wanted: float | None) -> None:
    assert own_start.took(log.splitlines(), SINCE) == wanted
    (tmp_path / "log").write_text(log)
    assert own_start.of_file(str(tmp_path / "log"), SINCE) == wanted
    assert own_start.of_file(str(tmp_path / "none"), SINCE) is None


# --- an environment that was overwritten ---


def test_the_tracker_holds_what_the_main_process_has_overwritten() -> None:
    main = Process(1, b"1", "sglang::main", {"NCCL_CUMEM_ENABLE": "0"}, cut=True)
    tracker = Process(2, b"1", "python3 -c from multiprocessing.resource_tracker …", {"NCCL_ALGO": "Ring"}, cut=False)
    env, remarks = adopt_read._environment(main, [tracker])
    assert env == {"NCCL_CUMEM_ENABLE": "0", "NCCL_ALGO": "Ring"}
    assert "resource tracker (process 2)" in remarks[0][1]
    env, remarks = adopt_read._environment(main, [])
    assert env == {"NCCL_CUMEM_ENABLE": "0"}
    assert "what is missing here is unknown" in remarks[0][1]
    assert adopt_read._environment(Process(1, b"1", "", None, cut=True), [])[0] == {}


# --- a real server ---


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A stand-in engine with two workers, one variable of which differs; its process and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"PATH": "/usr/bin", "SPT_NOENV": "1", "NCCL_ALGO": "Ring", "HF_TOKEN": "s", "STANDIN_FAULT": "override_env"}
    argv = [sys.executable, str(STANDIN), "-m", "sglang.launch_server", "--tp-size", "2", "--port", str(port), ""]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=tmp_path)
    deadline = time.monotonic() + 20
    while "ready to roll" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield child.pid, port
    child.terminate()
    child.wait(10)


def test_a_running_server_is_read(server: tuple[int, int], tmp_path: Path) -> None:
    pid, port = server
    with bundle.informed():
        found = adopt.adopt()
    (told,) = [one for one in found["servers"] if one["pid"] == pid]
    assert told["argv"] == [
        *(sys.executable, str(STANDIN), "-m", "sglang.launch_server", "--tp-size", "2", "--port", str(port), ""),
    ]
    assert told["env"]["HF_TOKEN"] == "s"
    assert (told["engine"], told["working_directory"], told["log_file"]) == ("sglang", str(tmp_path), f"{tmp_path}/log")
    assert told["argv_digest"] == digest_of(pid) != ""
    assert told["python"] == sys.executable
    assert told["nccl_version"] == ""
    differs = dict(told["remarks"])
    assert "otherwise in the main process" in differs["NCCL_ALGO=Tree"]
    assert "NCCL_CUMEM_ENABLE=0" not in differs  # the engine's own
    json.dumps(found)


#: Looks for servers, and prints each thing that would change this host, and each program that is run.
WATCHED = """
import os, sys
from launcher.agent import adopt
from launcher.host import bundle
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.kill",
           "os.truncate", "os.utime", "os.setxattr", "os.exec", "os.fork", "os.system", "os.posix_spawn", "shutil.move")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def hook(event, args):
    if event in CHANGES or (event == "open" and (args[2] or 0) & WRITES and args[0] != os.devnull):
        print(event, args)
    elif event == "subprocess.Popen":
        print("runs", *args[1][:2])
with bundle.informed():
    sys.addaudithook(hook)
    found = adopt.adopt()
    print("found", *(one["pid"] for one in found["servers"]))
"""


def test_the_look_changes_nothing(server: tuple[int, int]) -> None:
    """Opened for writing, removed, signalled: nothing; and no other programs than those that only show."""
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True, timeout=60)
    *events, found = done.stdout.splitlines()
    assert str(server[0]) in found.split()
    assert {line for line in events if line not in ("runs nvidia-smi -q", "runs systemctl show")} == set()


# --- run again ---

BECOME = "import json, sys; from launcher.agent import again; again._become(json.load(open(sys.argv[1])))"


@ROOT
def test_a_process_is_run_again_as_it_was(tmp_path: Path) -> None:
    def recorded(child: subprocess.Popen[bytes]) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while (words := Path(f"/proc/{child.pid}/cmdline").read_bytes()) != b"sleep\x00600\x00":
            assert time.monotonic() < deadline, words
            time.sleep(0.02)
        return stray_record.take(child.pid)

    tmp_path.chmod(0o755)
    (tmp_path / "out").write_text("before\n")
    shell = (
        "cd {0}; umask 027; ulimit -n 512; ulimit -c 0; trap '' INT;"
        " exec env -i 'A=b c' EMPTY= nice -n 2 setpriv --reuid=65534 --regid=65534 --groups=7,65534"
        " sh -c 'exec sleep 600' >> {0}/out 2> /dev/null < /dev/null"
    )
    one = subprocess.Popen(["sh", "-c", shell.format(tmp_path)])
    two = None
    try:
        old = recorded(one)
        assert (old["argv"], old["cwd"], old["uids"]) == (["sleep", "600"], str(tmp_path), [65534] * 3)
        assert {"A=b c", "EMPTY="} <= set(old["env"])
        assert old["limits"]["NOFILE"] == [512, 512]
        (tmp_path / "record").write_text(json.dumps(old))
        two = subprocess.Popen([sys.executable, "-c", BECOME, str(tmp_path / "record")])
        assert recorded(two) == old
        assert stray_record.lost(old) == []
    finally:
        for child in (one, two):
            if child:
                child.kill()
                child.wait()
    assert start_time(one.pid) is None
    assert old["ignored"] >> (signal.SIGINT - 1) & 1


# --- taken over ---

REFUSED = {
    "docker": (Home("container", "docker abababababab"), "docker update --restart=no abababababab; docker stop"),
    "kubernetes": (Home("container", "crictl abababababab"), "scale its workload to none"),
    "slurm": (Home("job", "job_77"), "belongs to a job of Slurm (job_77)"),
    "user unit": (Home("user unit", "llm.service"), "systemctl --user disable --now llm.service"),
}


@pytest.mark.parametrize(("home", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_taken_over_is_told_with_what_to_do(home: Home, words: str) -> None:
    told = stray._unfit(stray.Stray(7, "1", home, [7]), {"port": 1, "unit": "launch-a.service"})
    assert told.startswith("process 7, which takes_over names, ")
    assert words in told


def test_a_server_that_does_not_end_is_killed_with_all_that_it_started() -> None:
    script = "trap '' TERM; sleep 600 & setsid sleep 600 & while :; do sleep 600; done"
    main, stranger = subprocess.Popen(["sh", "-c", script]), subprocess.Popen(["sleep", "600"])
    try:
        deadline = time.monotonic() + 10
        while len(below := descendants(main.pid, table())) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        there = {pid: start_time(pid) or b"" for pid in (main.pid, *below)}
        there[stranger.pid] = b"0"  # a number that belongs to another process by now
        told: list[str] = []
        takeover.end(main.pid, there, 0.3, told.append)
        takeover.end_rest(there)
        assert told == [f"process {main.pid} did not end within 0.3 s after SIGTERM: SIGKILL"]
        assert [pid for pid in there if start_time(pid)] == [stranger.pid]
    finally:
        for child in (main, stranger):
            child.kill()
            child.wait()


def test_a_server_that_ends_meanwhile_is_told_and_not_half_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        pass
    words = ("python3", "-m", "sglang.launch_server")
    monkeypatch.setattr(adopt, "table", lambda: {child.pid: Seen(1, words, "/usr/bin/python3")})
    with bundle.informed():
        found = adopt.adopt()
    assert found["servers"] == []
    assert (f"process {child.pid}", "ended while it was looked at") in found["remarks"]
