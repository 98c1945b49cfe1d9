"""What a careless or hostile hand can do to a host: the proof is never false and the old server never lost."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.system.tool import REFERENCE, UNIT, assert_tuned, journal, look, wait_for

if TYPE_CHECKING:
    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

UNIT_FILE = f"/etc/systemd/system/{UNIT}"
OTHER_SERVER = (
    "ExecStart=\nExecStart=/opt/standin/python -m sglang.launch_server --model-path /tmp/other --tp-size 2 --port 8000"
)


def drop_in(host: FleetHost, text: str) -> None:
    host.run(
        f"mkdir -p {UNIT_FILE}.d && cat > {UNIT_FILE}.d/x.conf <<'EOF'\n[Service]\n{text}\nEOF\nsystemctl daemon-reload"
    )


def test_another_command_by_drop_in_is_never_proven(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    drop_in(host, OTHER_SERVER)
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    assert "was not started by the guard" in journal(host)
    assert "in sync" not in launch("status", *REFERENCE, check=4).stdout


def test_another_command_without_a_waiter_is_found_by_every_look(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    drop_in(host, f"ExecStartPost=\n{OTHER_SERVER}")
    host.run(f"systemctl restart {UNIT}; sleep 2")
    done = launch("plan", *REFERENCE, check=3)
    assert "ExecStart= as loaded" in done.stdout
    assert "ExecStartPost= as loaded" in done.stdout
    assert "was not started by the guard" in done.stdout
    assert "[unguarded]" in launch("drift", *REFERENCE, check=4).stdout


def test_a_taken_out_waiter_stops_a_deploy(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    before = look(host)
    drop_in(host, "ExecStartPost=")
    done = launch("up", *REFERENCE, "nccl.algo=Tree", "engine.args.standin_fault=crash", "--yes", check=7)
    assert "x.conf" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("bare_child", "NCCL_ALGO is missing"), ("nccl_extra", "NCCL_P2P_DISABLE is set, but the release does not")],
)
def test_a_process_that_differs_fails_the_start(launch: Launch, host: FleetHost, fault: str, words: str) -> None:
    done = launch("up", *REFERENCE, f"engine.args.standin_fault={fault}", "--yes", check=7)
    assert words in done.stdout


def test_helpers_that_come_and_go_do_not(launch: Launch, host: FleetHost) -> None:
    words = [*REFERENCE, "engine.args.standin_fault=brief_children"]
    launch("up", *words, "--yes")
    for _ in range(3):
        assert "restart" not in launch("plan", *words).stdout
    host.run(f"systemctl restart {UNIT}")


def test_unknown_is_never_counted_as_proven(launch: Launch, host: FleetHost) -> None:
    done = launch("up", *REFERENCE, "-e", "SPT_NOENV=", "--yes")
    assert "proven in 2 processes, 2 UNKNOWN" in done.stdout
    assert "2 unknown" in journal(host)


def test_another_user_does_not_lock_the_old_release_out(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run("id llm2 || useradd --system --home-dir /var/lib/llm llm2")
    launch("up", *REFERENCE, "engine.user=llm2", "engine.args.standin_fault=crash", "--yes", check=7)
    assert_tuned(wait_for(host, "active"))
    host.run(f"systemctl restart {UNIT}")
    assert_tuned(look(host))


def test_a_stopped_service_stays_stopped_after_a_failed_deploy(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run(f"systemctl disable --now {UNIT}")
    done = launch("up", *REFERENCE, "engine.args.standin_fault=crash", "--yes", check=7)
    assert "nothing; it was inactive before" in done.stdout
    host.run("sleep 3")
    assert look(host)["ActiveState"] in {"inactive", "failed"}
    assert host.run(f"systemctl is-enabled {UNIT}", check=False).stdout.strip() == "disabled"


def test_a_private_umask_of_the_login(launch: Launch, host: FleetHost) -> None:
    host.run("cp /root/.bashrc /root/.bashrc.kept; sed -i '1i umask 077' /root/.bashrc")
    try:
        assert host.run("umask").stdout.strip() == "0077"
        launch("up", *REFERENCE, "--yes")
    finally:
        host.run("mv /root/.bashrc.kept /root/.bashrc")
    assert_tuned(look(host))


def test_a_loading_server_is_not_started_over(launch: Launch, host: FleetHost) -> None:
    words = [*REFERENCE, "engine.args.standin_load=10"]  # until a client has looked, on a busy machine too
    launch("up", *words, "--yes")
    host.run(f"kill -9 {look(host)['MainPID']}")
    loading = wait_for(host, "activating", other_than="0")
    while not loading["processes"]:
        loading = wait_for(host, "activating", other_than="0")
    done = launch("up", *words, "--yes")
    assert "wait: this release is starting already" in done.stdout
    assert "proven in 4 processes" in done.stdout
    assert look(host)["MainPID"] == loading["MainPID"]


def test_a_start_by_hand_after_a_refusal_is_a_new_attempt(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    # In one go on the host: the second start has to come before the automatic restart.
    host.run(
        f"echo override_env > /opt/standin/fault; systemctl restart {UNIT}; code=$?; rm /opt/standin/fault;"
        f" [ $code != 0 ] && systemctl restart {UNIT}"
    )
    assert_tuned(look(host))


RUNTIME = (
    f"mkdir -p /run/systemd/system; printf '[Service]\\nExecStart=/bin/sleep 99\\n' > /run/systemd/system/{UNIT};"
    f" systemctl daemon-reload; systemctl start {UNIT}"
)
NOT_OURS = {
    "masked": (f"ln -s /dev/null {UNIT_FILE}", "masked"),
    "linked": (
        f"printf '[Service]\\nExecStart=/bin/true\\n' > /opt/x.service; ln -s /opt/x.service {UNIT_FILE}",
        "a link to",
    ),
    "runtime": (RUNTIME, "is loaded from /run/systemd/system"),
}


@pytest.mark.parametrize(("make", "words"), NOT_OURS.values(), ids=NOT_OURS.keys())
def test_units_that_are_not_ours_are_left_alone(launch: Launch, host: FleetHost, make: str, words: str) -> None:
    host.run(f"{make}; systemctl daemon-reload")
    before = host.run(
        f"ls -l /etc/systemd/system/ /run/systemd/system 2>/dev/null; systemctl is-active {UNIT}", check=False
    )
    done = launch("up", *REFERENCE, "--yes", check=1)
    assert words in done.stdout
    after = host.run(
        f"ls -l /etc/systemd/system/ /run/systemd/system 2>/dev/null; systemctl is-active {UNIT}", check=False
    )
    assert after.stdout == before.stdout


def test_a_log_file_hides_no_reason(launch: Launch, host: FleetHost) -> None:
    words = [*REFERENCE, "unit.log_file=/var/log/llm.log"]
    launch("up", *words, "--yes")
    assert "launch: proof: release" in journal(host)
    assert "standin" in host.run("cat /var/log/llm.log").stdout
    done = launch("up", *words, "engine.args.standin_fault=override_env", "--yes", check=7)
    assert 'NCCL_ALGO is "Tree"' in done.stdout
    done = launch("up", *words, "engine.args.standin_fault=crash", "--yes", check=7)
    assert "RuntimeError: stand-in fault: crash" in done.stdout


LACKING = {
    "log folder of the user": (
        "mkdir -p /var/log/llm && chown llm /var/log/llm",
        "unit.log_file=/var/log/llm/x",
        "others than root",
    ),
    "log file is a link": ("ln -sf /etc/cron.d/x /var/log/x.log", "unit.log_file=/var/log/x.log", "is a link"),
    "closed interpreter": (
        "mkdir -p /root/venv && cp /opt/standin/python /root/venv/python",
        "engine.python=/root/venv/python",
        "user llm may not execute /root/venv/python",
    ),
}


@pytest.mark.parametrize(("make", "word", "part"), LACKING.values(), ids=LACKING.keys())
def test_what_the_user_may_not_is_found_before(
    launch: Launch, host: FleetHost, make: str, word: str, part: str
) -> None:
    host.run(make)
    words = [word] if not word.startswith("engine.python") else []
    if words:
        assert part in launch("plan", *REFERENCE, *words, check=1).stdout
    else:
        assert part in launch("plan", *REFERENCE, check=1, python="/root/venv/python").stdout


def test_the_servers_user_cannot_stop_a_deploy(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run("mkdir /run/launch/kimi_k2_5_int4/refused; chown llm /run/launch/kimi_k2_5_int4/refused")
    launch("up", *REFERENCE, "nccl.algo=Tree", "--yes")


@pytest.mark.parametrize("seconds", [2, 16])
def test_a_cut_cable(launch: Launch, host: FleetHost, seconds: int) -> None:
    """Where it is mended in time the client takes its change up again; else the host goes back by itself."""
    launch("up", *REFERENCE, "--yes")
    words = [*REFERENCE, "nccl.max_nchannels=8", "engine.args.standin_load=3", "target.confirm_timeout=6"]
    with subprocess.Popen(
        [sys.executable, "-m", "launcher", "up", *words, "--yes", *launch.aim(["h1"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if ": starting" in line:
                break
        host.unplug()
        time.sleep(seconds)
        host.plug()
        out, said = process.communicate(timeout=120)
    seen = wait_for(host, "active", seconds=60)
    value = next(iter(seen["processes"].values()))["env"]["NCCL_MAX_NCHANNELS"]
    assert (process.returncode, value) == ((0, "8") if seconds < 10 else (7, "16")), out + said
    assert host.run("ls /etc/launch/pending").stdout == ""
    drifted = launch("drift", *words, check=None)
    assert drifted.returncode == (0 if seconds < 10 else 3), drifted.stdout
