"""One sweep on two real hosts: they share its points, each beside its own baseline, and both get production back."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.fleet import Fleet
from tests.system.change_tool import begin, inside, wait_until_over
from tests.system.test_serve_sweep import CLIENT, measured, served
from tests.system.tool import WIPE, Launch, assert_tuned, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

BOTH = ("h1", "h2")
#: What each number of channels does to the stand-in's speed (`tests.system.test_serve_sweep.LAW`), and where it is run.
WORDS = {2: ("worse", "h1"), 4: ("better", "h2"), 8: ("no difference", "h1"), 12: ("trade", "h2")}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Two hosts with the measuring program."""
    with Fleet.boot(2) as booted:
        for host in booted.hosts:
            host.run(f"cat > /opt/standin/client.py <<'EOF'\n{CLIENT.read_text()}\nEOF")
        yield booted


@pytest.fixture
def hosts(fleet: Fleet) -> list[FleetHost]:
    """Both, with the deployment served."""
    for host in fleet.hosts:
        host.run(WIPE)
    Launch(fleet)("up", *served(), "--yes", hosts=BOTH)
    return fleet.hosts


def labels(told: dict[str, Any]) -> dict[str, str]:
    return {point["digest"]: point["label"] for point in told["points"]}


def assert_back(fleet: Fleet, hosts: list[FleetHost]) -> None:
    """Assert that every host serves its deployment as before, and nothing of the sweep is left."""
    for host in hosts:
        wait_until_over(host)
        assert_tuned(wait_for(host, "active"))
        assert inside(host, "ls /etc/launch/pending") == ""
    assert Launch(fleet)("drift", *served(), hosts=[host.name for host in hosts]).returncode == 0


@pytest.mark.alone
def test_two_hosts_share_the_points_of_one_sweep(fleet: Fleet, hosts: list[FleetHost], tmp_path: Path) -> None:
    before = [look(host)["MainPID"] for host in hosts]
    words = ("-m", "nccl.max_nchannels=2,4,8,12", *served(), *measured(tmp_path), "sweep.closing=true")
    plan = Launch(fleet)("plan", *words, hosts=BOTH).stdout
    assert "2 hosts share the points, at the same time, each beside a baseline of its own: h1 7, h2 7 starts" in plan
    asked = Launch(fleet)(*words, hosts=BOTH, check=3)
    assert "h1, h2: launch-kimi_k2_5_int4.service, if it runs there, makes room" in asked.stdout
    done = Launch(fleet)(*words, "--yes", "--json", hosts=BOTH)
    told = json.loads(done.stdout)
    names = labels(told)
    words_by = {names[digest]: word for digest, word in told["judgement"]["overall"].items()}
    expected = {f"nccl.max_nchannels={n}": word for n, (word, _) in WORDS.items()}
    assert words_by == {"baseline": "baseline", **expected}
    for number, (_, home) in WORDS.items():
        ran = {trial["host"] for trial in told["trials"] if names[trial["point"]].endswith(f"={number}")}
        assert ran == {home}
    assert {t["host"] for t in told["trials"] if names[t["point"]] == "baseline"} == {*BOTH}
    assert sorted(trial["order"] for trial in told["trials"]) == list(range(1, len(told["trials"]) + 1))
    spans = [(t["at"], t["at"] + t["seconds"], t["host"]) for t in told["trials"]]
    assert any(a < until and at < b for at, until, x in spans for a, b, y in spans if x == "h1" and y == "h2")
    assert all(t["proof"]["NCCL_MAX_NCHANNELS"]["word"] == "proved" for t in told["trials"])
    assert [look(host)["MainPID"] for host in hosts] != before
    assert_back(fleet, hosts)
    assert done.stderr.count("the old release again, restarted") == 2
    assert [(trial["host"], trial["failure"]) for trial in told["closing"]["trials"]] in (
        [("h1", ""), ("h2", "")],
        [("h2", ""), ("h1", "")],
    )
    assert [text[:16] for text in told["closing"]["summary"]] == ["Production on h1", "Production on h2"]
    folder = tmp_path / told["id"]
    assert "<small>on h2</small>" in (folder / "report.html").read_text()
    rows = list(csv.DictReader((folder / "verdicts.csv").read_text().splitlines()))
    assert {(row["point"], row["host"]) for row in rows} == {
        (f"nccl.max_nchannels={n}", home) for n, (_, home) in WORDS.items()
    }
    command = [sys.executable, "-m", "launcher", "results", told["id"], f"sweep.out={tmp_path}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("baseline")] == [
        ["baseline", "h1", "baseline"],
        ["baseline", "h2", "baseline"],
    ]


def test_a_host_that_dies_is_left_out_and_a_resumed_sweep_finishes_its_points(
    fleet: Fleet, hosts: list[FleetHost], tmp_path: Path
) -> None:
    words = ("-m", "nccl.max_nchannels=2,4", *served(), *measured(tmp_path))
    short = ("sweep.repeats=1", "sweep.max_repeats=1", "--yes")
    running = begin(Launch(fleet), *words, *short, hosts=BOTH)
    running.until("baseline on h2")
    hosts[1].power_cut()
    assert running.end() != 0
    said = running.said()
    assert "this host drops out" in said
    (folder,) = tmp_path.iterdir()
    assert "h2 dropped out, not measured to the end: 'nccl.max_nchannels=4'." in said
    assert f"--resume={folder.name}" in said
    assert_back(fleet, hosts[:1])
    hosts[1].boot()
    assert_back(fleet, hosts)
    first = look(hosts[0])["MainPID"]
    done = Launch(fleet)(*words, *short, f"--resume={folder.name}", "--json", hosts=BOTH)
    told = json.loads(done.stdout)
    names = labels(told)
    ran = {(names[trial["point"]], trial["host"]) for trial in told["trials"]}
    assert ran >= {("nccl.max_nchannels=2", "h1"), ("nccl.max_nchannels=4", "h2")}
    assert look(hosts[0])["MainPID"] == first, "a host that is done is left alone"
    assert_back(fleet, hosts)


def test_where_one_host_is_not_ready_nothing_is_touched(fleet: Fleet, hosts: list[FleetHost], tmp_path: Path) -> None:
    before = [look(host) for host in hosts]
    words = ("-m", "nccl.max_nchannels=2,4", *served(), *measured(tmp_path), "--yes")
    hosts[1].run("mv /mnt/models/Kimi-K2.5/config.json /mnt/models/kept")
    done = Launch(fleet)(*words, hosts=BOTH, check=1)
    hosts[1].run("mv /mnt/models/kept /mnt/models/Kimi-K2.5/config.json")
    assert "h2: the host is not ready" in done.stderr
    assert "h1: serves what was there before; nothing was replaced" in done.stderr
    hosts[1].run(
        "printf '#!/bin/sh\\necho No devices were found\\n' > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi"
    )
    done = Launch(fleet)(*words, hosts=BOTH, check=2)
    hosts[1].run("rm /usr/bin/nvidia-smi")
    assert "GPUs: unknown (nvidia-smi is not installed) on h1, none on h2" in done.stderr
    assert "sweep them one at a time" in done.stderr
    assert [look(host) for host in hosts] == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_an_interrupt_puts_both_back(
    fleet: Fleet, hosts: list[FleetHost], tmp_path: Path, number: signal.Signals
) -> None:
    words = ("-m", "nccl.max_nchannels=2,4", *served(), *measured(tmp_path), "--yes")
    running = begin(Launch(fleet), *words, hosts=BOTH)
    running.until("3/")
    running.process.send_signal(number)
    assert running.end() == 130
    assert running.said().count("the old release again, restarted") == 2
    assert "Ended: interrupted." in running.said()
    assert_back(fleet, hosts)
