"""When nothing is measured since something else holds the GPUs, and what a failure is explained with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import bench, comm, comm_process, preflight_host
from launcher.agent.facts import Unknown
from tests.facts.replay import H200, text, tool, tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

XML = "nvidia-smi_-q_-x"
#: More than there can be: of another container, or gone.
NOBODY = 2**22 + 1


def smi(*pids: tuple[int, int], used: dict[int, int] | None = None) -> str:
    """Return the XML of two H200: which process computes on which GPU, and how many MiB are in use."""
    head, *cards = re.split(r"(?=\t<gpu id=)", text(H200, XML))
    for number, card in enumerate(cards):
        jobs = "".join(
            f"<process_info><pid>{pid}</pid><type>C</type><used_memory>9 MiB</used_memory></process_info>"
            for gpu, pid in pids
            if gpu == number
        )
        card = re.sub(r"(<processes>)\s*(</processes>)", rf"\1{jobs}\2", card)
        free = 143771 - (used or {}).get(number, 615)
        cards[number] = re.sub(r"(<fb_memory_usage>.*?<free>)\d+", rf"\g<1>{free}", card, count=1, flags=re.DOTALL)
    return head + "".join(cards)


def spec(*gpus: str, backend: str = "nccl", **fields: Any) -> dict[str, Any]:
    rank = {"backend": backend, "sizes": []}
    usual = {"python": sys.executable, "user": "", "env": {}, "world": 2, "gpus": list(gpus), "rank": rank}
    return {**usual, **fields}


@pytest.fixture
def other() -> Iterator[int]:
    """A process that belongs to nobody here."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set what nvidia-smi shows; the ranks are not started: they say that they measured."""
    monkeypatch.setattr(comm, "run", lambda *_: {**comm_process.EMPTY, "outcome": "measured", "message": ""})
    return lambda xml: monkeypatch.setattr(bench, "output", lambda *_: xml)


def quiet(_: str) -> None:
    """Tell nobody."""


def refusal(wanted: dict[str, Any], *allow: str) -> str:
    answer = bench.measure(wanted, list(allow), quiet)
    assert answer["outcome"] == ("refused" if answer["message"] else "measured")
    assert {*answer} >= {"rows", "lines", "ranks", "environment", "versions"}
    message: str = answer["message"]
    return message


def test_idle_gpus_are_measured(shown: Callable[[str], None]) -> None:
    shown(smi())
    assert refusal(spec()) == ""


def test_somebody_elses_process(shown: Callable[[str], None], other: int) -> None:
    shown(smi((1, other), used={1: 50_000}))
    said = refusal(spec())
    assert said.startswith(f"GPU 1: process {other} (sleep 60) of user ")
    assert "computes there; end it, or set engine.gpus [gpu-busy]" in said
    assert "nobody that this machine shows" not in said
    assert refusal(spec("1")) == said
    assert refusal(spec("0")) == ""


def test_memory_that_nobody_seems_to_hold(shown: Callable[[str], None]) -> None:
    shown(smi((0, NOBODY), used={0: 80_000, 1: 1024}))
    said = refusal(spec())
    assert said.startswith("GPU 0: 80000 MiB of its memory are in use, by nobody that this machine shows")
    assert said.endswith("[gpu-busy]")
    assert "GPU 1" not in said
    assert refusal(spec("1")) == ""


ALLOWED = {"allowed": (spec(), ("gpu-busy",)), "no GPUs are used": (spec(backend="gloo"), ())}


@pytest.mark.parametrize(("wanted", "allow"), ALLOWED.values(), ids=ALLOWED.keys())
def test_others_do_not_matter(
    wanted: dict[str, Any], allow: tuple[str, ...], shown: Callable[[str], None], other: int
) -> None:
    shown(smi((0, other), used={1: 90_000}))
    assert refusal(wanted) if wanted["rank"]["backend"] == "nccl" else True
    assert refusal(wanted, *allow) == ""


def test_a_server_of_ours_is_named(shown: Callable[[str], None], other: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bench, preflight_host):
        monkeypatch.setattr(
            module, "cgroup_of", lambda pid: "/launch.slice/launch-kimi.service" if pid == other else "/"
        )
    shown(smi((0, other), (1, other), used={0: 130_000, 1: 130_000}))
    assert refusal(spec()) == (
        "GPU 0, 1: launch-kimi.service computes there, stop it first: systemctl stop launch-kimi.service [gpu-busy]"
    )


SILENT = ("exit 1", "echo 'not XML'", "echo 'No devices were found'")


@pytest.mark.parametrize("script", SILENT)
def test_an_nvidia_smi_that_says_nothing_refuses_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comm, "run", lambda *_: {**comm_process.EMPTY, "outcome": "measured", "message": ""})
    monkeypatch.setenv("PATH", str(tool(tmp_path / "tools", "nvidia-smi", script)) + os.pathsep + os.defpath)
    assert refusal(spec()) == ""


def test_the_real_tool_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    monkeypatch.setattr(comm, "run", lambda *_: {**comm_process.EMPTY, "outcome": "measured", "message": ""})
    folder = tools(tmp_path / "tools", H200)
    monkeypatch.setenv("PATH", str(folder))
    assert refusal(spec()) == ""
    (folder / XML).write_text(smi((0, other)))
    assert refusal(spec()).startswith(f"GPU 0: process {other}")


def test_ranks_that_were_made_ready_go_with_a_refusal(shown: Callable[[str], None], other: int) -> None:
    stopped = []

    class Ready:
        def stop(self) -> None:
            stopped.append(self)

    shown(smi((0, other)))
    answer = bench.measure(spec(), [], quiet, Ready())  # type: ignore[arg-type]
    assert (answer["outcome"], len(stopped)) == ("refused", 1)


def test_a_user_who_is_not_there() -> None:
    request = {"spec": spec(user="no-such-user"), "name": "x", "by": "me", "allow": []}
    answer = bench.bench(request, quiet)
    assert (answer["outcome"], "set engine.user=NAME" in answer["message"]) == ("refused", True)


# --- what explains a failure

NOTHING: dict[str, Any] = {
    "iommu": {"mode": "passthrough", "groups": 4},
    "acs": {"bridges": 2, "on": []},
    "shm": {"size_mib": 4096, "free_mib": 4096},
    "p2p_read": [["X", "OK"], ["OK", "X"]],
    "nccl_files": {},
}
LAST = "try nccl.p2p_disable=1"
WITHOUT = {"env": {"NCCL_P2P_DISABLE": "1"}}
HINTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "nothing": ({}, {}, [LAST]),
    "nothing without P2P": ({}, WITHOUT, []),
    "IOMMU": ({"iommu": {"mode": "translated", "groups": 40}}, {}, ["boot with iommu=pt", LAST]),
    "IOMMU without P2P": ({"iommu": {"mode": "translated", "groups": 40}}, WITHOUT, []),
    "ACS": ({"acs": {"bridges": 2, "on": ["0000:00:01.0"]}}, {}, ["at 1 PCIe ports (0000:00:01.0)", LAST]),
    "not to be seen": ({"iommu": None, "acs": None}, {}, ["cannot be seen from here", LAST]),
    "not every GPU reaches every other": ({"p2p_read": [["X", "NS"], ["OK", "X"]]}, {}, ["topo -p2p r", LAST]),
    "no table": ({"p2p_read": None}, {}, [LAST]),
    "shared memory": ({"shm": {"size_mib": 64, "free_mib": 60}}, WITHOUT, ["60 MiB are free in /dev/shm"]),
    "shared memory unknown": ({"shm": None}, WITHOUT, []),
    "files": ({"nccl_files": {"/etc/nccl.conf": ["NCCL_ALGO"]}}, WITHOUT, ["/etc/nccl.conf sets NCCL_ALGO as well"]),
    "files unknown": ({"nccl_files": None}, WITHOUT, []),
}


@pytest.mark.parametrize(("known", "fields", "parts"), HINTS.values(), ids=HINTS.keys())
def test_hints(known: dict[str, Any], fields: dict[str, Any], parts: list[str]) -> None:
    found = bench.hints({**NOTHING, **known}, spec(**fields))
    assert len(found) == len(parts)
    assert [(part, hint) for part, hint in zip(parts, found, strict=True) if part not in hint] == []


JOINED = {"outcome": "hung", "message": "", "phases": [("join the communicator", 1.0)], "lines": [["a"] * 9, ["b"]]}


@pytest.mark.parametrize(("backend", "phase", "hinted"), [
    ("nccl", "join the communicator", True), ("nccl", "import torch", False), ("gloo", "join the communicator", False),
])  # fmt: skip
def test_a_failure_is_explained(backend: str, phase: str, hinted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {**comm_process.EMPTY, **JOINED, "phases": [(phase, 1.0)]}
    monkeypatch.setattr(comm, "run", lambda *_: dict(answer))
    monkeypatch.setattr(bench, "facts", lambda *_: NOTHING)
    found = bench.measure(spec(backend=backend), ["gpu-busy"], quiet)
    assert found["last"] == [*4 * ["rank 0: a"], "rank 1: b"]
    assert bool(found["hints"]) == hinted


# --- a link test

ROW = {"collective": "all_reduce", "bytes": 16384, "us": [9.0, 20.0, 10.0], "wrong": 0, "wrong_ranks": []}
LINKS: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "passed": ({"outcome": "measured", "message": "", "rows": [ROW]}, "", []),
    "wrong": (
        {"outcome": "measured", "message": "", "rows": [ROW, {**ROW, "wrong": 7, "wrong_ranks": [0, 3]}]},
        "the link test brought wrong sums",
        ["7 numbers of the all_reduce of 16384 bytes are wrong on rank 0, 3", f"hint: {LAST}"],
    ),
    "failed": (
        {"outcome": "failed", "message": "rank 1 ended with SIGKILL", "phases": [("join", 1)], "lines": [["x"]]},
        "the link test failed: rank 1 ended with SIGKILL",
        ["rank 0: x", f"hint: {LAST}"],
    ),
    "lacking": ({"outcome": "lacking", "message": "no torch"}, "the link test failed: no torch", []),
}


@pytest.mark.parametrize(("answer", "problem", "lines"), LINKS.values(), ids=LINKS.keys())
def test_link_tests(answer: dict[str, Any], problem: str, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "run", lambda *_: {**comm_process.EMPTY, **answer})
    monkeypatch.setattr(bench, "facts", lambda *_: NOTHING)
    told: list[str] = []
    said, shown = bench.link_test({"spec": spec(user="root"), "beside": True}, told.append)
    assert said == problem
    assert [(a, b) for a, b in zip(lines, shown, strict=True) if not b.startswith(a)] == []
    assert told[0] == "link test: 2 ranks, 0 sizes"
    assert told[1:] == ([] if problem else ["link test passed: 16384 bytes 10 us"])


def test_a_link_test_beside_the_old_server_may_meet_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def silent(*words: str) -> str:
        asked.append(" ".join(words))
        raise Unknown("nvidia-smi is not installed")

    monkeypatch.setattr(comm, "run", lambda *_: {**comm_process.EMPTY, "outcome": "measured", "message": ""})
    monkeypatch.setattr(bench, "output", silent)
    for beside in (True, False):
        assert bench.link_test({"spec": spec(user="root"), "beside": beside}, quiet) == ("", [])
    assert asked == ["nvidia-smi -q -x"]
