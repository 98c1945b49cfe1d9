"""Every restart carries the tuned set, or the service does not come up and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.tool import REFERENCE, UNIT, assert_tuned, journal, look, wait_for

if TYPE_CHECKING:
    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

DROP_IN = (
    f"mkdir -p /etc/systemd/system/{UNIT}.d && cat > /etc/systemd/system/{UNIT}.d/x.conf && systemctl daemon-reload"
)
ENV = "/etc/launch/kimi_k2_5_int4/*.env"


def worker(seen: dict[str, dict[str, dict[str, list[str]]]]) -> str:
    return next(pid for pid, p in seen["processes"].items() if p["title"][0].endswith("TP1"))


def restart(host: FleetHost, kind: str) -> None:
    """Restart the server in one of five ways and return when another main process serves."""
    before = look(host)
    main = before["MainPID"]
    if kind == "systemctl":
        host.run(f"systemctl restart {UNIT}")
    elif kind == "kill main":
        host.run(f"kill -9 {main}")
    elif kind == "kill worker":
        host.run(f"kill -9 {worker(before)}")
    elif kind == "daemon-reload":
        host.run(f"systemctl daemon-reload; systemctl restart {UNIT}")
    elif kind == "reboot":
        host.reboot()
        main = ""
    wait_for(host, "active", other_than=main)


KINDS = ["systemctl", "kill main", "kill worker", "daemon-reload", "reboot"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_of_each_kind(launch: Launch, host: FleetHost, kind: str) -> None:
    launch("up", *REFERENCE, "--yes")
    restart(host, kind)
    seen = look(host)
    assert_tuned(seen)
    assert len(seen["processes"]) == 4
    proofs = journal(host).count("launch: proof: release")
    assert proofs == 2
    assert "nothing to change" in launch("plan", *REFERENCE).stdout


@pytest.mark.parametrize("kind", ["kill main", "kill worker"])
def test_vllm_ends_in_one_clean_server(launch: Launch, host: FleetHost, kind: str) -> None:
    """Its main process ends with 0 when a worker dies, and its workers survive a killed main process."""
    launch("up", *REFERENCE, "engine=vllm", "--yes")
    restart(host, kind)
    seen = look(host)
    assert_tuned(seen, titles=["VLLM::Worker_TP0", "VLLM::Worker_TP1"])
    assert len(seen["processes"]) == 4
    # Nothing of the old server is left outside the unit.
    alive = host.run("pgrep -f '^VLLM::|standin.py -m|resource_tracker'").stdout.split()
    assert sorted(alive) == sorted(seen["processes"])


def test_a_power_cut_brings_the_tuned_server_back(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.power_cut()
    host.boot()
    assert_tuned(wait_for(host, "active"))


BROKEN = {
    "truncated": (f"for f in {ENV}; do head -c 40 $f > /tmp/x; cat /tmp/x > $f; done", "NCCL_ALGO is missing"),
    "emptied": (f"for f in {ENV}; do : > $f; done", "NCCL_ALGO is missing"),
    "open quote": (f"sed -i \"s/^NCCL_ALGO='Ring'/NCCL_ALGO='Ring/\" {ENV}", 'NCCL_ALGO is "Ring\\nNCCL_BUFFSIZE='),
    "one value": (f"sed -i s/16777216/4194304/ {ENV}", 'NCCL_BUFFSIZE is "4194304" (should be "16777216")'),
    "one line less": (f"sed -i /NCCL_PROTO/d {ENV}", "NCCL_PROTO is missing"),
    "one line more": (f"echo NCCL_P2P_DISABLE=1 >> {ENV}", "NCCL_P2P_DISABLE is set"),
    "deleted": (f"rm {ENV}", "asserts failed"),
    "manifest changed": ("sed -i s/Ring/Tree/g /etc/launch/*/*.json", "was changed after it was written"),
    "manifest deleted": ("rm /etc/launch/*/*.json", "cannot be read"),
    "drop-in file": (
        f"echo NCCL_ALGO=Tree > /etc/other.env; echo '[Service]\nEnvironmentFile=/etc/other.env' | ({DROP_IN})",
        'NCCL_ALGO is "Tree" (should be "Ring")',
    ),
    "drop-in reset": (
        f"echo A=b > /etc/other.env; echo '[Service]\nEnvironmentFile=\nEnvironmentFile=/etc/other.env' | ({DROP_IN})",
        "NCCL_ALGO is missing",
    ),
    "drop-in unset": (f"echo '[Service]\nUnsetEnvironment=NCCL_PROTO' | ({DROP_IN})", "NCCL_PROTO is missing"),
    "manager": ("systemctl set-environment NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE is set"),
    "argument": (
        f"sed -i \"s/'--tp-size' '8'/'--tp-size' '4'/\" /etc/systemd/system/{UNIT}; systemctl daemon-reload",
        "argument 7 of the command is '4' (should be '8')",
    ),
}


@pytest.mark.parametrize(("breakage", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_by_hand_it_does_not_come_up(launch: Launch, host: FleetHost, breakage: str, words: str) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run(breakage)
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    host.run("sleep 3")  # longer than RestartSec=1: an automatic restart must not succeed either
    seen = look(host)
    assert seen["ActiveState"] != "active"
    assert seen["processes"] == {}
    assert words in journal(host)
    host.run(
        "rm -rf /etc/systemd/system/*.service.d; systemctl unset-environment NCCL_P2P_DISABLE; systemctl daemon-reload"
    )
    launch("up", *REFERENCE, "--yes")
    assert_tuned(look(host))


def test_a_refusal_is_final(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run(f"sed -i s/Ring/Tree/ {ENV}")
    host.run(f"systemctl restart {UNIT}", check=False)
    host.run("sleep 3")
    seen = look(host)
    assert (seen["ActiveState"], seen["NRestarts"], seen["ExecMainStatus"]) == ("failed", "0", "78")


def test_a_refusal_by_the_waiter_is_final_after_one_more_start(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    # Workers that change the set, switched on behind our back: the stand-in reads its faults from a file too.
    host.run("touch /opt/standin/fault && echo override_env > /opt/standin/fault")
    try:
        host.run(f"systemctl restart {UNIT}", check=False)
        host.run("sleep 5")
        seen = look(host)
        assert (seen["ActiveState"], seen["NRestarts"], seen["ExecMainStatus"]) == ("failed", "1", "78")
        assert "refused after the server had come up" in journal(host)
    finally:
        host.run("rm /opt/standin/fault")
    host.run(f"systemctl restart {UNIT}")
    assert_tuned(look(host))


def test_a_stray_on_the_port_is_named(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    host.run(f"systemctl stop {UNIT}")
    host.run("setsid python3 -m http.server 8000 >/dev/null 2>&1 < /dev/null & sleep 1")
    try:
        host.run(f"systemctl restart --no-block {UNIT}; sleep 13")
        assert "port 8000 is still taken by a process of user root" in journal(host)
        assert look(host)["ActiveState"] != "active"
    finally:
        host.run("pkill -f http.server", check=False)
    assert_tuned(wait_for(host, "active"))


@pytest.mark.soak
def test_a_hundred_restarts_in_a_row(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes")
    for number in range(100):
        host.run(f"systemctl reset-failed {UNIT}; true")
        restart(host, KINDS[number % len(KINDS)])
        assert_tuned(look(host))
