"""The fleet's hosts behave as hosts do when power, cable or process goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.fleet import Fleet, FleetError, FleetHost, slot

pytestmark = pytest.mark.fleet

ROOT = Path(__file__).resolve().parents[2]
BOOT_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.fleet import Fleet
fleet = Fleet.boot(1, state=Path(sys.argv[1]))
print(fleet.shape.number, flush=True)
time.sleep(60)
"""
RESTARTING = """\
[Service]
Environment=SPT_NOENV=1 NCCL_ALGO=Ring
ExecStart=/opt/standin/python -m sglang.launch_server --model-path m --host 0.0.0.0 --port 8000 --tp-size 2
User=llm
Restart=always
RestartSec=100ms
"""


def fleet_command(state: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fleet", *words],
        cwd=ROOT,
        env=os.environ | {"LAUNCH_FLEET_STATE": str(state)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def say(state: Path, *words: str) -> tuple[int, str]:
    with fleet_command(state, *words) as process:
        text, _ = process.communicate(timeout=60)
    return process.returncode, text


def until_healthy(host: FleetHost) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{host.address}:8000/health", timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(host.run("journalctl -u llm").stdout)


def test_hosts_are_separate_machines_that_know_each_other(fleet: Fleet) -> None:
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/etc/hostname", "/proc/1/cmdline"):
        seen = {host.run(f"tr '\\0' ' ' < {path}").stdout for host in fleet.hosts}
        assert len(seen) == (1 if path.endswith("cmdline") else 3)
    one, two, _ = fleet.hosts
    assert one.run("systemctl is-system-running; journalctl -u ssh | grep -c Accepted").stdout.startswith("running")
    assert one.run("bash -c 'exec 3<>/dev/tcp/h2/22; head -c 4 <&3'").stdout == "SSH-"
    (two.root / "root/note").write_text("from outside")
    assert two.run("cat note; rm note").stdout == "from outside"


def test_network_online_is_reached_and_the_service_user_exists(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    host.run("systemctl start network-online.target")
    assert int(host.run("id -u llm").stdout) < 1000
    assert host.run("getent passwd llm").stdout.split(":")[5] == "/var/lib/llm"


def test_a_failed_command_shows_what_it_said(fleet: Fleet) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        fleet.hosts[0].run("echo broken >&2; exit 3")
    assert caught.value.returncode == 3
    assert "broken" in caught.value.__notes__[0]
    assert fleet.hosts[0].run("exit 3", check=False).returncode == 3


def test_power_cut_ends_everything_and_keeps_synced_data(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    machine, boot = host.run("cat /etc/machine-id").stdout, host.boot_id()
    host.run("echo kept > /var/lib/kept; sync; trap '' TERM HUP; nohup sleep 600 >/dev/null 2>&1 &")
    begun = time.monotonic()
    host.power_cut()
    assert time.monotonic() - begun < 2
    assert not host.is_on()
    assert host.run("true", check=False).returncode == 255
    host.boot()
    assert host.run("cat /var/lib/kept; rm /var/lib/kept").stdout == "kept\n"
    assert host.run("cat /etc/machine-id").stdout == machine
    assert host.boot_id() != boot
    assert host.run("pgrep -x sleep", check=False).stdout == ""


def test_reboot_gives_a_new_boot_id_and_the_journal_stays(fleet: Fleet) -> None:
    host = fleet.hosts[1]
    before = host.boot_id()
    host.reboot()
    assert host.boot_id() != before
    assert len(host.run("journalctl --list-boots --quiet").stdout.splitlines()) >= 2


def test_stop_is_orderly(fleet: Fleet) -> None:
    host = fleet.hosts[1]
    host.stop()
    assert not host.is_on()
    with pytest.raises(FleetError, match="h2 is off"):
        host.reboot()
    host.boot()
    assert "Stopped" in host.run("journalctl -b -1 -u ssh").stdout


def test_unplugged_means_unreachable_until_plugged(fleet: Fleet) -> None:
    host = fleet.hosts[2]
    boot = host.boot_id()
    host.unplug()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            host.run("true", timeout=1)
        assert host.is_on()
        assert fleet.hosts[0].run("true").returncode == 0
        with pytest.raises(FleetError, match="unplugged"):
            host.boot()
    finally:
        host.plug()
    assert host.boot_id() == boot


def test_a_unit_with_the_stand_in_restarts(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    unit = host.root / "etc/systemd/system/llm.service"
    unit.write_text(RESTARTING)
    host.run("systemctl daemon-reload && systemctl start llm")
    try:
        main = "systemctl show llm --property MainPID --value"
        first = host.run(main).stdout.strip()
        until_healthy(host)
        shown = host.run(f"tr '\\0' ' ' < /proc/{first}/cmdline; ps -eo args").stdout
        assert shown.startswith("/usr/bin/python3 /opt/standin/standin.py -m sglang.launch_server --model-path m")
        assert "sglang::scheduler_TP1" in shown
        host.run(f"kill -KILL {first}")
        host.run(f"until p=$({main}) && [ $p != 0 ] && [ $p != {first} ]; do sleep 0.05; done")
        until_healthy(host)
        assert host.run("systemctl show llm --property NRestarts --value").stdout == "1\n"
    finally:
        host.run("systemctl stop llm; systemctl reset-failed llm", check=False)
        unit.unlink()
        host.run("systemctl daemon-reload")


def test_loopback_hosts_share_the_network_beside_another_fleet(fleet: Fleet) -> None:
    with Fleet.boot(2, own_network=False) as other:
        assert {host.address.split(".")[0] for host in other.hosts} == {"127"}
        assert other.hosts[1].run("hostname").stdout == "h2\n"
        assert other.hosts[0].boot_id() != fleet.hosts[0].boot_id()
        with pytest.raises(FleetError, match="no cable"):
            other.hosts[0].unplug()
        folder, number = other.state, other.shape.number
        other.close()
        assert not folder.exists()
        assert not other.hosts[0].cgroup.path.exists()
        assert not slot.is_held(number, folder)
    assert fleet.hosts[0].run("true").returncode == 0


def test_a_killed_run_leaves_nothing_in_the_way_of_the_next(fleet: Fleet, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with subprocess.Popen(
        [sys.executable, "-c", BOOT_AND_WAIT, state], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        process.kill()
    assert (state / "h1/root/etc").exists()
    with Fleet.boot(1, state=state) as again:
        assert again.shape.number == number
        assert again.hosts[0].run("hostname").stdout == "h1\n"
    assert not state.exists()
    assert not [path for path in Path("/sys/class/net").iterdir() if path.name.partition("-")[0] == f"lf{number}"]
    assert not list(Path("/run/netns").glob(f"lf{number}-*"))


def test_a_folder_with_other_files_is_not_touched(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(FleetError, match="not an empty folder"):
        Fleet.boot(1, state=tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"


def test_from_the_terminal(fleet: Fleet, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert say(state, "list") == (1, f"fleet: no fleet is up in {state}\n")
    with fleet_command(state, "up", "1") as up:
        assert up.stdout is not None
        shown = [up.stdout.readline() for _ in range(3)]
        assert shown[1].split()[:3:2] == ["h1", "on"]
        assert shown[2].startswith("up in ")
        assert "no such host: h9; there are h1" in say(state, "reboot", "h9")[1]
        assert "already" in say(state, "up", "1")[1]
        for verb, column in (("unplug", "out"), ("plug", "in"), ("power-cut", "off"), ("reboot", "on")):
            assert say(state, verb, "h1") == (0, "")
            assert column in say(state, "list")[1].splitlines()[1].split()
        assert say(state, "down") == (0, "")
        assert up.wait(10) == 0
    assert not state.exists()


def test_ctrl_c_ends_the_fleet(fleet: Fleet, tmp_path: Path) -> None:
    with fleet_command(tmp_path / "state", "up", "1") as up:
        assert up.stdout is not None
        up.stdout.readline()
        up.send_signal(signal.SIGINT)
        assert up.wait(20) == 0
    assert not (tmp_path / "state").exists()
