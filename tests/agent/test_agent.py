"""Manifest, knowledge, processes and guard, without a manager; the guard on every Python that is here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import evidence, knowledge, manifest, neighbours, ports, processes
from launcher.host import bundle
from launcher.render import Release, render
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHONS = sorted(
    {sys.executable, *map(str, Path.home().glob(".pyenv/versions/3.[!0-7]*/bin/python"))}
    | {p for p in ("/usr/bin/python3",) if Path(p).exists()}
)


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """The reference case with a server that prints its environment."""
    server = tmp_path / "server"
    server.write_text(f"#!{sys.executable}\nimport os, json; print(json.dumps(dict(os.environ)))\n")
    server.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return render(compose(["+hw=rtx6000x8", f"engine.python={server}", f"engine.port={port}"], {"U": "ü"}))


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(bundle.program())
    return path


def start(
    agent: Path, release: Release, env: dict[str, str], *, python: str = sys.executable, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Start the guard as the unit does."""
    path = agent.parent / f"{release.digest}.json"
    if not path.exists():
        path.write_text(release.manifest.text if text is None else text)
    words = [python, "-I", "-X", "utf8", str(agent), "guard", str(path), "--", *release.argv]
    env = {**env, "RUNTIME_DIRECTORY": str(agent.parent), "INVOCATION_ID": "i", "JOURNAL_STREAM": "1:1"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_guard_becomes_the_server(agent: Path, release: Release, python: str) -> None:
    env = {"PATH": os.environ["PATH"], **release.env}
    done = start(agent, release, env, python=python)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # The server's own Python may add LC_CTYPE; the guard adds nothing.
    given = {"RUNTIME_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM", "LC_CTYPE"}
    assert {k: v for k, v in seen.items() if k not in given} == env
    assert "guard: release" in done.stderr


def without(name: str) -> Any:
    return lambda env: env.pop(name)


REFUSED: dict[str, tuple[Any, str]] = {
    "missing": (without("NCCL_ALGO"), 'NCCL_ALGO is missing (should be "Ring")'),
    "changed": (lambda env: env.update(NCCL_PROTO="Simple"), 'NCCL_PROTO is "Simple" (should be "LL")'),
    "extra setting": (lambda env: env.update(NCCL_P2P_DISABLE="1"), "NCCL_P2P_DISABLE is set"),
    "extra of an engine": (lambda env: env.update(CUDA_VISIBLE_DEVICES="0"), "CUDA_VISIBLE_DEVICES is set"),
    "another release": (lambda env: env.update(LAUNCH_DIGEST="0"), "LAUNCH_DIGEST"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_the_guard_refuses(agent: Path, release: Release, change: Any, words: str) -> None:
    env = dict(release.env)
    change(env)
    done = start(agent, release, env)
    assert done.returncode == 78
    assert words in done.stderr
    assert done.stdout == ""


def test_an_unknown_name_of_a_family_only_warns(agent: Path, release: Release) -> None:
    done = start(agent, release, {**release.env, "NCCL_BRAND_NEW": "1"})
    assert done.returncode == 0
    assert "warning: NCCL_BRAND_NEW" in done.stderr


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"version": 1}', "\0"])
def test_a_broken_manifest_is_refused(agent: Path, release: Release, text: str) -> None:
    done = start(agent, release, dict(release.env), text=text)
    assert done.returncode == 78
    assert "Traceback" not in done.stderr


def test_a_missing_program_is_refused(agent: Path, release: Release) -> None:
    Path(release.argv[0]).unlink()
    done = start(agent, release, dict(release.env))
    assert done.returncode == 78
    assert "cannot be started" in done.stderr


@pytest.mark.parametrize("words", [[], ["guard"], ["guard", "x"], ["wait", "x"], ["nonsense"]])
def test_usage(agent: Path, words: list[str]) -> None:
    done = subprocess.run([sys.executable, str(agent), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_the_bundle_is_ascii_and_the_same_each_time() -> None:
    once = bundle.program()
    assert once.isascii()
    bundle.program.cache_clear()
    assert bundle.program() == once


def test_changed_manifests_are_found(release: Release) -> None:
    text = release.manifest.text
    assert manifest.parse(text, "x")
    for old, new in (("Ring", "Tree"), ("--tp-size", "--tp"), ("1800", "1801"), ('"version": 1', '"version": 2')):
        assert old in text
        with pytest.raises(manifest.ManifestError):
            manifest.parse(text.replace(old, new), "x")


def test_compare_knows_cut_blocks() -> None:
    wanted = {"env": {"LAUNCH_A": "1", "B": "2"}}
    assert manifest.compare({"LAUNCH_A": "1", "B": "2", "C": "3"}, wanted) == []
    assert len(manifest.compare({"LAUNCH_A": "x"}, wanted)) == 2
    assert manifest.compare({"LAUNCH_A": "x"}, wanted, cut=True) == ['LAUNCH_A is "x" (should be "1")']
    assert manifest.compare({}, wanted, cut=True) == []


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "SETTINGS", frozenset({"NCCL_ALGO", "NCCL_CUMEM_ENABLE"}))
    monkeypatch.setattr(knowledge, "PREFIXES", ("NCCL_",))
    monkeypatch.setattr(knowledge, "ADDITIONS", {"sglang": {"NCCL_CUMEM_ENABLE": ["0"]}})


EXTRAS = {
    "ours": ({"NCCL_PROTO": "LL"}, False, ([], [])),
    "setting": ({"NCCL_ALGO": "Ring"}, False, (["NCCL_ALGO"], [])),
    "unknown": ({"NCCL_X": "1"}, False, ([], ["NCCL_X"])),
    "loader": ({"LD_PRELOAD": "x"}, False, ([], ["LD_PRELOAD"])),
    "unwatched": ({"HOME": "/"}, False, ([], [])),
    "engine's own before the engine": ({"NCCL_CUMEM_ENABLE": "0"}, False, (["NCCL_CUMEM_ENABLE"], [])),
    "engine's own": ({"NCCL_CUMEM_ENABLE": "0"}, True, ([], [])),
    "engine's own with another value": ({"NCCL_CUMEM_ENABLE": "1"}, True, (["NCCL_CUMEM_ENABLE"], [])),
}


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("env", "own", "found"), EXTRAS.values(), ids=EXTRAS.keys())
def test_extras(env: dict[str, str], own: bool, found: tuple[list[str], list[str]]) -> None:
    wanted = {"engine": "sglang", "env": {"NCCL_PROTO": "LL"}}
    assert knowledge.extras(env, wanted, own=own) == found


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={"A": "1", "B": "ü"}) as process:
        while b"sleep" not in (processes.read_bytes(f"/proc/{process.pid}/cmdline") or b""):
            pass  # forked, but not yet the new program
        yield process
        process.kill()


def test_a_process_is_read(sleeper: subprocess.Popen[bytes]) -> None:
    seen = processes.read_process(sleeper.pid)
    assert seen
    assert seen._replace(start=b"") == processes.Process(sleeper.pid, b"", "sleep 60", {"A": "1", "B": "ü"}, cut=False)
    sleeper.kill()
    while processes.read_process(sleeper.pid) is not None:
        pass  # a zombie until it is waited for


WANTED = {"engine": "sglang", "env": {"A": "1"}}
VERDICTS = {
    "good": ({"A": "1"}, False, 0, 0),
    "missing": ({}, False, 1, 0),
    "cut": ({}, True, 0, 1),
    "cut and different": ({"A": "2"}, True, 1, 1),
    "unreadable": (None, True, 0, 1),
}


@pytest.mark.parametrize(("env", "cut", "contradictions", "unknown"), VERDICTS.values(), ids=VERDICTS.keys())
def test_judging_a_worker(env: dict[str, str] | None, cut: bool, contradictions: int, unknown: int) -> None:
    main = processes.Process(1, b"", "main", {"A": "1"}, cut=False)
    verdict = processes.judge([main, processes.Process(2, b"", "worker", env, cut=cut)], WANTED, 1)
    assert (len(verdict.contradictions), len(verdict.unknown)) == (contradictions, unknown)
    assert verdict.proven == ([1] if cut or contradictions else [1, 2])


def test_a_lost_main_process_is_a_contradiction() -> None:
    assert processes.judge([], WANTED, 1).contradictions == ["the main process 1 is gone"]


WORKERS = {
    "a setting of NCCL": ({"NCCL_ALGO": "Tree"}, 1, 0),
    "the engine's own addition": ({"NCCL_CUMEM_ENABLE": "0"}, 0, 0),
    "that with another value": ({"NCCL_CUMEM_ENABLE": "1"}, 1, 0),
    "an unknown name, perhaps a secret": ({"NCCL_SECRET": "s3"}, 0, 1),
    "nothing of ours": ({"HOME": "/"}, 0, 0),
}


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("extra", "wrong", "odd"), WORKERS.values(), ids=WORKERS.keys())
def test_what_appears_in_workers_alone(extra: dict[str, str], wrong: int, odd: int) -> None:
    main = processes.Process(1, b"", "main", {"A": "1"}, cut=False)
    worker = processes.Process(2, b"", "worker", {"A": "1", **extra}, cut=False)
    verdict = processes.judge([main, worker], WANTED, 1)
    assert (len(verdict.contradictions), len(verdict.odd)) == (wrong, odd)
    assert "s3" not in str(verdict)


def test_a_process_without_any_environment_is_no_renamed_one() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        while b"sleep" not in (processes.read_bytes(f"/proc/{process.pid}/cmdline") or b""):
            pass
        seen = processes.read_process(process.pid)
        process.kill()
    assert seen
    assert (seen.env, seen.cut) == ({}, False)
    assert len(processes.judge([seen], WANTED, seen.pid).contradictions) == 1


def test_values_are_told_of_known_names_only() -> None:
    wanted = {"env": {"HF_TOKEN": "s3cret", "LAUNCH_DIGEST": "1"}}
    said = " ".join(manifest.compare({"HF_TOKEN": "0ther"}, wanted) + manifest.compare({}, wanted))
    assert "s3cret" not in said
    assert "0ther" not in said
    assert "HF_TOKEN has another value" in said


def test_what_the_engine_writes_itself_is_no_contradiction_but_for_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "ADDITIONS", {"sglang": {"T": ["1"], "NCCL_T": ["1"], "U": None}})
    wanted = {"engine": "sglang", "env": {"T": "8", "NCCL_T": "8", "U": "8"}}
    worker = processes.Process(2, b"", "w", {"T": "1", "NCCL_T": "1", "U": "7"}, cut=False)
    assert [line.split()[0] for line in processes.contradictions(worker, wanted)] == ["NCCL_T"]


MARKS = {"mine": ({}, 0), "another process": ({"pid": 8}, 1), "an older start": ({"invocation": "x"}, 1)}


@pytest.mark.parametrize(("change", "count"), MARKS.values(), ids=MARKS.keys())
def test_the_mark_of_the_guard(tmp_path: Path, change: dict[str, Any], count: int) -> None:
    (tmp_path / "guard").write_text(json.dumps({"digest": "d", "pid": 7, "invocation": "i", **change}))
    assert len(evidence.unguarded(str(tmp_path), {"digest": "d"}, 7, "i")) == count
    assert len(evidence.unguarded("/none", {"digest": "d"}, 7, "i")) == 1


CONFLICTS = {
    "another port and other GPUs": ({"port": 2, "gpus": ["1"]}, 0),
    "same port": ({"port": 1, "gpus": ["1"]}, 1),
    "same GPU": ({"port": 2, "gpus": ["0"]}, 1),
    "all GPUs": ({"port": 2, "gpus": []}, 1),
    "same GPU with room": ({"port": 2, "gpus": ["0"], "memory_fraction": 0.5}, 0),
    "same GPU without room": ({"port": 2, "gpus": ["0"], "memory_fraction": 0.7}, 1),
    "itself": ({"name": "a", "port": 1}, 0),
}


@pytest.mark.parametrize(("other", "count"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_neighbours(other: dict[str, Any], count: int) -> None:
    wanted = {"name": "a", "port": 1, "gpus": ["0"], "memory_fraction": 0.5}
    assert len(neighbours.conflicts(wanted, [{"name": "b", "gpus": [], "memory_fraction": 0, **other}])) == count


ADDRESSES = {
    "wildcard asks": ("127.0.0.1", "0.0.0.0", True),
    "wildcard listens": ("0.0.0.0", "127.0.0.1", True),
    "same": ("127.0.0.1", "127.0.0.1", True),
    "another": ("127.0.0.1", "127.0.0.2", False),
    "by name": ("127.0.0.1", "localhost", True),
}


@pytest.mark.parametrize(("listener", "wanted", "taken"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_a_port_is_taken_on_an_address(listener: str, wanted: str, taken: bool) -> None:
    with socket.create_server((listener, 0)) as server:
        assert bool(ports.listening(server.getsockname()[1], wanted)) == taken


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_who_listens(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert ports.owner(ports.listening(port), [os.getpid()]) == os.getpid()
        assert f"process {os.getpid()}" in ports.holder(port)
        assert ports.owner(ports.listening(port), [1]) == 0 or os.getpid() == 1
    assert ports.listening(port) == set()
    assert ports.holder(port) == "nobody any more"
