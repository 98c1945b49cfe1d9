"""The main job on real hosts: deploy, prove, change, refuse; what fails leaves the old server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.render.test_release import BASELINE, EAGLE
from tests.system.tool import REFERENCE, TUNED, UNIT, assert_tuned, journal, look, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet import Fleet, FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

STATE = "find /etc /usr/local /run/systemd/system /var/lib -xdev -printf '%p %T@ %C@ %m %u %g %s\\n' | sort"


def test_reference_case_reaches_every_process(launch: Launch, host: FleetHost) -> None:
    done = launch("up", *REFERENCE, "--yes")
    assert "proven in 4 processes" in done.stdout
    seen = look(host)
    assert_tuned(seen)
    command = (BASELINE + EAGLE.format(steps=2, tokens=3)).split()
    argv = seen["processes"][seen["MainPID"]]["title"]
    assert argv == ["/usr/bin/python3", "/opt/standin/standin.py", *command[1:]]
    assert host.run(f"systemctl is-enabled {UNIT}").stdout.strip() == "enabled"
    assert "launch: proof: release" in journal(host)


def test_nccls_own_account_stands_beside_the_proof(launch: Launch, host: FleetHost) -> None:
    done = launch("up", *REFERENCE, "--yes")
    assert "NCCL 2.28.9 took 6 variables by its own log" in done.stdout
    record = json.loads(launch("up", *REFERENCE, "--json").stdout)
    assert "launch: NCCL 2.28.9 by its own log: 6 proved, 0 contradicted" in journal(host)
    account = record["deployments"][0]["hosts"][0]["proof"]["nccl"]
    assert set(account["proved"]) == set(TUNED)
    assert account["contradicted"] == []


def test_a_server_that_nccl_killed_is_told_in_nccls_words(launch: Launch, host: FleetHost) -> None:
    done = launch("up", *REFERENCE, "engine.args.standin_fault=no_algorithm", "--yes", check=7)
    assert "NCCL: no algorithm: " in done.stdout
    assert "NCCL_ALGO was set to Tree" in done.stdout


def test_files_are_roots_with_the_narrowest_mode(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    listing = host.run("stat -c '%a %U:%G %n' /etc/launch /etc/launch/* /etc/launch/*/*").stdout
    modes = {line.rsplit(".", 1)[-1] if "." in line else line.rsplit("/", 1)[-1]: line for line in listing.splitlines()}
    assert modes["env"].startswith("600 root:root")
    assert modes["json"].startswith("640 root:llm")
    assert modes["kimi_k2_5_int4"].startswith("755 root:root")


def test_nothing_is_done_when_nothing_differs(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before, files = look(host), host.run(STATE).stdout
    done = launch("up", *REFERENCE)
    assert "nothing to change" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]
    assert host.run(STATE).stdout == files
    assert "in sync" in launch("status", *REFERENCE).stdout


def test_plan_only_reads(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before = host.run(STATE).stdout, look(host)["InvocationID"]
    reloads = "journalctl --sync; journalctl -o cat _PID=1 | grep -c -i reloading; true"
    count = host.run(reloads).stdout
    done = launch("plan", *REFERENCE, "nccl.algo=PAT", check=3)
    assert "NCCL_ALGO: Ring -> PAT" in done.stdout
    launch("up", *REFERENCE, "nccl.algo=PAT", check=3)  # no terminal and no --yes
    assert (host.run(STATE).stdout, look(host)["InvocationID"]) == before
    assert host.run(reloads).stdout == count


def test_one_changed_variable(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    old = look(host)["MainPID"]
    done = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes", "--json")
    record = json.loads(done.stdout)
    assert record["exit_code"] == 0
    (result,) = record["deployments"][0]["hosts"]
    variables = [c for c in result["plan"]["changes"] if c["kind"] == "variable"]
    assert variables == [{"kind": "variable", "name": "NCCL_ALGO", "old": "Ring", "new": "PAT"}]
    seen = look(host)
    assert seen["MainPID"] != old
    assert {p["env"]["NCCL_ALGO"] for p in seen["processes"].values()} == {"PAT"}


def test_repairing_files_restarts_nobody(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before = look(host)
    host.run(
        "sed -i s/Ring/Tree/ /etc/launch/*/*.env; echo >> /usr/local/lib/launch/agent.py; chmod 644 /etc/launch/*/*.env"
    )
    host.run(f"systemctl disable {UNIT}; sed -i s/RestartSec=1/RestartSec=2/ /etc/systemd/system/{UNIT}")
    done = launch("up", *REFERENCE, "--yes")
    assert "the server is not restarted" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]
    host.run(f"systemctl restart {UNIT}")
    assert_tuned(look(host))
    assert "nothing to change" in launch("plan", *REFERENCE).stdout


def test_several_hosts_at_once(launch: Launch, hosts: list[FleetHost]) -> None:
    done = launch("up", *REFERENCE, "--yes", hosts=["h1", "h2", "h3"])
    assert done.stdout.count("proven in 4 processes") == 3
    for host in hosts:
        assert_tuned(look(host))


FAILING = {
    "crashes": ("crash", "the server ended during its start"),
    "ends with 0": ("exit0", "the server ended during its start"),
    "workers lose the set": ("strip_env", "NCCL_ALGO is missing"),
    "workers change the set": ("override_env", 'NCCL_ALGO is "Tree" (should be "Ring")'),
    "never answers": ("hang503", "did not get ready in time: /health answers 503"),
    "cannot complete": ("no_completion", "/v1/completions answers 500"),
}


@pytest.mark.parametrize(("fault", "words"), FAILING.values(), ids=FAILING.keys())
def test_a_broken_release_gives_way_to_the_old_one(launch: Launch, host: FleetHost, fault: str, words: str) -> None:
    launch("up", *REFERENCE, "--yes")
    done = launch("up", *REFERENCE, f"engine.args.standin_fault={fault}", "unit.stop_timeout=3", "--yes", check=7)
    assert words in done.stdout
    assert "the old release again" in done.stdout
    seen = wait_for(host, "active")
    assert_tuned(seen)
    assert "--standin-fault" not in seen["processes"][seen["MainPID"]]["title"]
    assert "nothing to change" in launch("plan", *REFERENCE).stdout


def test_a_first_deploy_that_fails_leaves_nothing_running(launch: Launch, host: FleetHost) -> None:
    done = launch("up", *REFERENCE, "engine.args.standin_fault=crash", "--yes", check=7)
    assert "there was no such server before" in done.stdout
    seen = look(host)
    assert (seen["ActiveState"], seen["processes"]) == ("inactive", {})
    assert host.run(f"ls /etc/systemd/system/{UNIT}", check=False).returncode != 0


NOT_READY = {
    "user": ("engine.user=nobody2", "useradd --system"),
    "interpreter": ("engine.python=/opt/none/bin/python", "set engine.python=PATH"),
    "log folder": ("unit.log_file=/nowhere/x.log", "/nowhere does not exist"),
    "host python": ("target.python=/usr/bin/python9", "set target.python=PATH"),
}


@pytest.mark.parametrize(("word", "hint"), NOT_READY.values(), ids=NOT_READY.keys())
def test_a_host_that_is_not_ready_is_not_touched(launch: Launch, host: FleetHost, word: str, hint: str) -> None:
    before = host.run(STATE).stdout
    aim = [w for w in launch.aim(["h1"]) if w.split("=")[0] != word.split("=")[0]]
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "up", *REFERENCE, "--yes", *aim, word],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert hint in done.stdout
    assert "No host was changed" in done.stdout
    assert host.run(STATE).stdout == before


def test_an_unreachable_host_stops_all(launch: Launch, hosts: list[FleetHost]) -> None:
    hosts[1].unplug()
    try:
        done = launch("up", *REFERENCE, "--yes", hosts=["h1", "h2"], check=5)
    finally:
        hosts[1].plug()
    assert "h2" in done.stdout
    assert "No host was changed" in done.stdout
    assert host_is_bare(hosts[0])


def host_is_bare(host: FleetHost) -> bool:
    return host.run("ls -d /etc/launch /etc/systemd/system/launch*", check=False).stdout == ""


def test_host_keys_are_strict(launch: Launch, host: FleetHost, fleet: Fleet, tmp_path: Path) -> None:
    keys = {
        line.split()[0].split(",")[0]: line.split(maxsplit=1)[1] for line in fleet.known_hosts.read_text().splitlines()
    }
    assert keys["h1"] != keys["h2"]
    strange = tmp_path / "changed"
    strange.write_text(f"{host.address} {keys['h2']}\n")
    done = launch("up", *REFERENCE, "--yes", f"target.known_hosts={strange}", check=5)
    assert "host key has CHANGED" in done.stdout
    empty = tmp_path / "empty"
    empty.write_text("")
    done = launch("up", *REFERENCE, "--yes", f"target.known_hosts={empty}", check=5)
    assert "host key is unknown" in done.stdout
    assert host_is_bare(host)


def test_a_drop_in_that_replaces_the_command_is_refused(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before = look(host)
    host.run(
        f"mkdir -p /etc/systemd/system/{UNIT}.d && printf '[Service]\\nExecStart=\\nExecStart=/bin/sleep 99\\n'"
        f" > /etc/systemd/system/{UNIT}.d/x.conf"
    )
    done = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes", check=7)
    assert f"/etc/systemd/system/{UNIT}.d/x.conf" in done.stdout
    assert "the old server, which was not touched" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]


def test_a_full_disk_changes_nothing(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before = look(host)
    host.run("mount -t tmpfs -o size=4k tmpfs /srv && cp -a /etc/launch/kimi_k2_5_int4/. /srv/ 2>/dev/null; true")
    host.run("mount --bind /srv /etc/launch/kimi_k2_5_int4")
    try:
        done = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes", check=1)
    finally:
        host.run("umount /etc/launch/kimi_k2_5_int4; umount /srv")
    assert "No space left" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]
    assert "nothing to change" in launch("plan", *REFERENCE).stdout


def test_a_failed_start_shows_the_gpus(launch: Launch, host: FleetHost) -> None:
    line = "0, NVIDIA H200, 140 MiB, 143771 MiB, 0 %, 31, 75.20 W"
    launch("up", *REFERENCE, "--yes")
    host.run(
        "printf '#!/bin/sh\\ncase $1 in --query-gpu=*) echo \"%s\";; *) exit 9;; esac\\n'"
        f" '{line}' > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi"
    )
    try:
        done = launch("up", *REFERENCE, "engine.args.standin_fault=crash", "--yes", check=7)
    finally:
        host.run("rm /usr/bin/nvidia-smi")
    assert f"| GPU {line}" in done.stdout


def test_two_at_once(launch: Launch, host: FleetHost) -> None:
    host.run("flock /run/launch.lock sleep 5 >/dev/null 2>&1 & sleep 0.3")
    done = launch("up", *REFERENCE, "--yes", check=6)
    assert "another launch" in done.stdout


def test_an_interrupted_client_does_not_stop_the_change(launch: Launch, host: FleetHost) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "launcher",
            "up",
            *REFERENCE,
            "--yes",
            "engine.args.standin_load=10",
            *launch.aim(["h1"]),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if ": starting" in line:
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert process.returncode == 130, said
    assert "the hosts go on by themselves" in said
    assert "detached from h1" in said
    assert_tuned(wait_for(host, "active"))
    deadline = time.monotonic() + 20
    words = [*REFERENCE, "engine.args.standin_load=10"]
    while launch("plan", *words, check=None).returncode and time.monotonic() < deadline:
        time.sleep(0.5)
    assert "nothing to change" in launch("plan", *words).stdout


def test_every_value_arrives_unchanged(launch: Launch, host: FleetHost) -> None:
    hostile = {
        "A": "it's",
        "B": '"x" $HOME ${X} %n `id`',
        "C": "back\\slash\\",
        "D": "ü→\ttab",
        "E": "# x",
        "F": " pad ",
    }
    words = [part for name, value in hostile.items() for part in ("-e", f"T_{name}={value}")]
    launch("up", *REFERENCE, *words, 'engine.args.json=\'{"a": "$x %i"}\'', "--yes")
    seen = look(host)
    main = seen["processes"][seen["MainPID"]]
    assert {name: main["env"][f"T_{name}"] for name in hostile} == hostile
    assert '{"a": "$x %i"}' in main["title"]
    assert TUNED.items() <= main["env"].items()
