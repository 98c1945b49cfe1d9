"""One load, against a small server and clients that hang, crash, flood, lie, and leave children behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import comm_process, load
from launcher.agent.processes import start_time
from tests.agent.gloo import descriptors, wait
from tests.agent.serving_case import KEY, Server, client, leftovers, request, served, told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = "post('/work'); post('/work'); result(completed=2)"


def quiet(_: str) -> None:
    pass


def run(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return load.run(given, quiet, **more)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path) as one:
        yield one


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every load a folder that is its own, and see that it is empty afterwards."""
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    before = descriptors()
    yield
    gc.collect()
    assert list(place.iterdir()) == []
    assert {line for line in descriptors() - before if "pipe:" in line} == set()


# --- it goes well


def test_a_load(server: Server) -> None:
    heard: list[str] = []
    given = request(
        server, GOOD, warmup=client("post('/work'); result(completed=1)")["argv"], flush=["/flush", "/none"]
    )
    answer = load.run(given, heard.append)
    assert (answer["outcome"], answer["message"], answer["exit"]) == ("measured", "", "exit code 0")
    assert json.loads(answer["result"]) == {"completed": 2}
    assert heard == ["warm-up", "load"]
    # The warm-up is not counted.
    assert [answer[when]["/metrics"]["lines"] for when in ("before", "after")] == [
        ["t:work_total 1"],
        ["t:work_total 3"],
    ]
    assert answer["before"]["/server_info"]["values"] == {"states.0.flushed": 2, "asked_with": "none"}
    statuses = [(one["path"], one["status"]) for one in answer["flushed"]]
    assert statuses == 2 * [("/flush", 200), ("/none", 404)]
    assert set(answer["seconds"]) == {"warm-up", "client", "all"}
    assert answer["seconds"]["all"] >= answer["seconds"]["client"] + answer["seconds"]["warm-up"]
    assert answer["warmup"] == {"outcome": "ended", "exit": "exit code 0"}
    assert answer["left"] == 0
    json.dumps(answer, allow_nan=False)


def test_the_processes_and_their_environment(server: Server) -> None:
    answer = run(request(server, GOOD))
    assert answer["alive"]
    assert len(answer["processes_before"]) == 2  # the server and its child
    assert answer["processes_before"] == answer["processes_after"]
    start = start_time(server.process.pid)
    assert start
    assert {"pid": server.process.pid, "start": start.decode()}.items() <= answer["processes_before"][0].items()
    assert (answer["contradictions"], answer["proven"]) == ([], 2)


def test_an_environment_that_is_not_the_releases(server: Server) -> None:
    given = request(server, GOOD)
    given["server"]["manifest"] = {**server.manifest, "env": {"NCCL_PROTO": "Simple"}}
    answer = run(given)
    assert answer["outcome"] == "measured"
    assert len(answer["contradictions"]) == 2
    assert "NCCL_PROTO" in answer["contradictions"][0]


def test_the_caller_may_find_the_processes(server: Server) -> None:
    answer = run(request(server, GOOD), pids=lambda: [server.process.pid])
    assert [one["pid"] for one in answer["processes_after"]] == [server.process.pid]


def test_without_a_main_process_nothing_is_proven(server: Server) -> None:
    given = request(server, GOOD)
    given["server"]["main"] = 0
    answer = run(given)
    assert (answer["outcome"], answer["alive"], answer["processes_before"], answer["proven"]) == (
        "measured",
        True,
        [],
        0,
    )


def test_the_log_of_the_load_alone(server: Server) -> None:
    run(request(server, "for _ in range(5): post('/work')\nresult(completed=5)"))
    answer = run(request(server, GOOD, patterns={"work": r"work ([\d.]+) ms", "none": "(x)"}))
    assert answer["log"]["patterns"] == {"work": {"count": 2, "mean": 9.75, "low": 9.0, "high": 10.5}}
    assert answer["log"]["last"] == ["work 9.0 ms", "work 10.5 ms"]


def test_a_result_on_standard_output(server: Server) -> None:
    given = request(server, "")
    given["client"] = client("print('line'); print(json.dumps(dict(completed=1))); print('noise', file=sys.stderr)", "")
    answer = run(given)
    assert answer["result"] == 'line\n{"completed": 1}\n'
    assert (answer["stdout"], answer["stderr"]) == ("", "noise\n")


def test_keys_are_left_out_of_each_line_of_a_result(server: Server) -> None:
    lines = "[dict(a=1, info=dict(b=2)), dict(c=3)]"
    code = f"open(folder + '/result.json', 'w').write(chr(10).join(map(json.dumps, {lines})))"
    given = request(server, code)
    given["client"]["drop"] = ["info"]
    assert run(given)["result"].splitlines() == ['{"a": 1}', '{"c": 3}']


def test_the_version_is_asked(server: Server) -> None:
    given = request(server, GOOD, version=[sys.executable, "-c", "print('loading'); print('1.2.3')"])
    assert run({**given, "client": {}})["version"] == "1.2.3"
    answer = run(given)
    assert (answer["version"], answer["outcome"]) == ("1.2.3", "measured")


# --- secrets


def test_no_secret_is_told(server: Server) -> None:
    code = (
        "print(os.environ['OPENAI_API_KEY'], os.environ['MY_TOKEN'])\n"
        "print(os.environ['OPENAI_API_KEY'], file=sys.stderr)\n"
        "result(key=os.environ['OPENAI_API_KEY'], token=os.environ['MY_TOKEN'])"
    )
    given = request(server, code, env={"SERVER": server.url, "MY_TOKEN": "hf_abcdefgh"})
    given["server"]["key"] = KEY
    server.log.write_text("")
    answer = run(given)
    assert answer["before"]["/server_info"]["values"]["asked_with"] == f"Bearer {KEY}".replace(KEY, "•••")
    assert KEY not in told(answer)
    assert "hf_abcdefgh" not in told(answer)
    assert json.loads(answer["result"]) == {"key": "•••", "token": "•••"}


def test_pages_are_kept_in_part_alone(server: Server) -> None:
    answer = run(request(server, GOOD))
    assert "secret_line" not in told(answer)
    assert "api_key" not in told(answer)


# --- it goes badly


def test_a_client_that_fails_is_quoted(server: Server) -> None:
    answer = run(request(server, "result(completed=1); sys.exit('no such dataset')"))
    assert (answer["outcome"], answer["message"]) == ("failed", "the client ended with exit code 1")
    assert answer["stderr"] == "no such dataset\n"
    assert answer["alive"]


def test_a_client_that_crashes(server: Server) -> None:
    answer = run(request(server, "os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (answer["outcome"], answer["exit"]) == ("failed", "SIGSEGV")


@pytest.mark.parametrize("code", ["pass", "open(folder + '/result.json', 'w')", "os.mkdir(folder + '/result.json')"])
def test_a_client_without_a_result(server: Server, code: str) -> None:
    answer = run(request(server, code))
    assert (answer["outcome"], answer["message"]) == ("failed", "the client ended without a result")


def test_a_result_that_is_a_pipe_holds_up_nobody(server: Server) -> None:
    begin = time.monotonic()
    assert run(request(server, "os.mkfifo(folder + '/result.json')"))["outcome"] == "failed"
    assert time.monotonic() - begin < 10


def test_a_client_that_hangs_is_ended(server: Server) -> None:
    word = f"hang-{uuid.uuid4()}"
    hang = f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '{word}'])\ntime.sleep(600)"
    begin = time.monotonic()
    answer = run(request(server, hang, timeout=1))
    assert (answer["outcome"], answer["message"]) == ("timeout", "the client took longer than 1 s and was ended")
    assert time.monotonic() - begin < 8
    assert leftovers(word) == []


def test_a_client_that_heeds_no_signal_is_ended(server: Server) -> None:
    deaf = "for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(600)"
    assert run(request(server, deaf, timeout=1))["outcome"] == "timeout"


ESCAPES = {
    "child": "subprocess.Popen([sys.executable, '-c', CODE, WORD])",
    "session": "subprocess.Popen([sys.executable, '-c', CODE, WORD], start_new_session=True)",
    "bare": "subprocess.Popen([sys.executable, '-c', CODE, WORD], env={})",
    "closed": "subprocess.Popen([sys.executable, '-c', CODE, WORD], stdout=-3, stderr=-3)",
}


@pytest.mark.parametrize("code", ESCAPES.values(), ids=ESCAPES.keys())
def test_children_that_are_left_behind_are_ended(server: Server, code: str) -> None:
    word = f"left-{uuid.uuid4()}"
    begin = time.monotonic()
    answer = run(request(server, f"CODE, WORD = 'import time; time.sleep(600)', '{word}'\n{code}\n{GOOD}"))
    assert (answer["outcome"], answer["left"]) == ("measured", 1)
    assert time.monotonic() - begin < 8
    assert leftovers(word) == []


def test_a_flood_is_kept_at_both_ends(server: Server) -> None:
    flood = "print('first')\nfor _ in range(200): sys.stdout.write('x' * 100000)\nprint('last'); " + GOOD
    answer = run(request(server, flood))
    assert answer["outcome"] == "measured"
    assert len(answer["stdout"]) < 20_000
    assert answer["stdout"].endswith("xlast\n")
    assert "bytes left out" in answer["stdout"]


def test_a_client_that_closes_its_output_may_go_on(server: Server) -> None:
    answer = run(request(server, "os.close(1); os.close(2); time.sleep(1); " + GOOD))
    assert answer["outcome"] == "measured"


def test_a_warm_up_that_fails_ends_the_load(server: Server) -> None:
    answer = run(request(server, GOOD, warmup=client("sys.exit('broken')")["argv"]))
    assert (answer["outcome"], answer["message"]) == ("failed", "the warm-up ended with exit code 1")
    assert answer["stderr"] == "broken\n"
    assert answer["result"] == ""


LACKING: dict[str, tuple[dict[str, Any], str]] = {
    "no program": ({"client": {"argv": ["/none/python"], "result": "r", "drop": []}}, "/none/python cannot be started"),
    "no folder": ({"cwd": "/none"}, "/none cannot be entered: No such file or directory"),
    "no version": (
        {"version": [sys.executable, "-c", "import importlib.metadata as m; print(m.version('nothing'))"]},
        "PackageNotFoundError",
    ),
    "silent": ({"version": ["/bin/true"]}, "/bin/true: exit code 0"),
}


@pytest.mark.parametrize(("fields", "text"), LACKING.values(), ids=LACKING.keys())
def test_what_is_lacking_is_told(server: Server, fields: dict[str, Any], text: str) -> None:
    answer = run(request(server, GOOD, **fields))
    assert answer["outcome"] == "lacking"
    assert text in answer["message"]
    assert "\n" not in answer["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_the_client_becomes_the_user(server: Server, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    code = "result(uid=os.getuid(), groups=os.getgroups(), home=os.environ['HOME'], cwd=os.getcwd() == folder)"
    given = request(server, code, user="nobody")
    given["client"]["argv"][0] = "/usr/bin/python3"
    answer = run(given)
    assert json.loads(answer["result"]) == {"uid": 65534, "groups": [65534], "home": "/nonexistent", "cwd": True}
    assert run(request(server, GOOD, user="no-such-user"))["message"] == "there is no user 'no-such-user' here"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_result_that_only_root_could_read_is_not_read(server: Server, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    given = request(server, "os.symlink('/etc/shadow', folder + '/result.json')", user="nobody")
    given["client"]["argv"][0] = "/usr/bin/python3"
    answer = run(given)
    assert (answer["outcome"], answer["result"]) == ("failed", "")


# --- the server


def test_a_server_that_dies_during_the_load(server: Server) -> None:
    with server.log.open("a") as log:
        log.write("RuntimeError: out of something\n")
    begin = time.monotonic()
    answer = run(
        request(server, "post('/work')\ntry: post('/die')\nexcept Exception: pass\ntime.sleep(600)", timeout=60)
    )
    assert answer["outcome"] == "dead"
    assert answer["message"] == f"the server (process {server.process.pid}) ended during the client"
    assert not answer["alive"]
    assert answer["death"] == ["RuntimeError: out of something", "work 1.5 ms"]
    assert time.monotonic() - begin < 20
    server.process.wait(5)
    assert run(request(server, GOOD))["message"] == "the server was gone before the load"


def test_a_server_that_does_not_answer_is_measured_without_counters(server: Server) -> None:
    given = request(server, "result(completed=1)")
    given["server"]["manifest"] = {**server.manifest, "port": 9}
    answer = run(given)
    assert answer["outcome"] == "measured"
    assert answer["before"]["/metrics"] == {"status": 0}


def test_a_worker_that_dies_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_LAST_GASP", 1.0)
    answer = run(request(server, "post('/lose'); result(completed=1)"))
    assert answer["outcome"] == "measured"
    assert (len(answer["processes_before"]), len(answer["processes_after"])) == (2, 1)


# --- whoever asked


def test_nobody_waits_any_more(server: Server) -> None:
    asked = iter([False, False, True])
    with pytest.raises(comm_process.Abandoned):
        run(request(server, "time.sleep(600)"), gone=lambda: next(asked))


def test_an_interrupt_ends_the_client(server: Server) -> None:
    word = f"interrupt-{uuid.uuid4()}"
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run(request(server, f"'{word}'\ntime.sleep(600)"))
    assert leftovers(word) == []


PARENT = """
import json, sys
from launcher.agent import load
load.run(json.load(sys.stdin), lambda text: print(text, flush=True))
"""


def test_the_client_goes_with_the_program(server: Server, tmp_path: Path) -> None:
    word = f"orphan-{uuid.uuid4()}"
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env) as parent:
        assert parent.stdin
        parent.stdin.write(json.dumps(request(server, f"'{word}'\ntime.sleep(600)")).encode())
        parent.stdin.close()
        wait(lambda: leftovers(word))
        parent.kill()
        parent.wait(5)
    wait(lambda: not leftovers(word), 3)


SMI = """#!/bin/sh
n=$(cat {0}/n 2>/dev/null || echo 0); echo $((n + 1)) > {0}/n
echo "0, NVIDIA H200, 1980 MHz, 2619 MHz, $((n * 100 + 100)).50 W, 40, 0x0, 5, 16, 570.1"
"""


def test_the_gpus_are_read_while_the_client_runs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    smi = folder / "nvidia-smi"
    smi.write_text(SMI.format(folder))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("launcher.agent.readings._FIRST_LOOK", 0.1)
    answer = run(request(server, "time.sleep(1.5); " + GOOD))
    (line,) = answer["gpus"]
    assert "NVIDIA H200" in line
    # Of several readings the one with the most power.
    assert int((folder / "n").read_text()) > 1
    assert "100.50 W" not in line
