"""A sweep's session on real hosts: points are served in place of a deployment, which comes back however it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.bench.hosts import OnHost
from launcher.compose import compose_sweep
from launcher.errors import HostError
from launcher.host import secret_values
from launcher.host.requests import Limits
from launcher.host.ssh import SshTransport
from launcher.render.intent import intent
from launcher.sweep.points import Points, build
from tests.composing import packaged
from tests.fleet import Fleet
from tests.system.change_tool import wait_until_over
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch, assert_tuned, journal, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

#: Everything that a sweep may leave on a host: files, what starts at boot, and leases.
LEFT = "find /etc/launch /etc/systemd/system /etc/nccl.conf -printf '%p %s %m\\n' | sort; cat /etc/nccl.conf"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """A host of its own, with a deployment that also keeps its variables in /etc/nccl.conf."""
    with Fleet.boot(1) as booted:
        yield booted


@pytest.fixture
def host(fleet: Fleet) -> FleetHost:
    """That host, with the deployment served."""
    found = fleet.hosts[0]
    found.run(WIPE + "rm -f /etc/nccl.conf")
    Launch(fleet)("up", *REFERENCE, "unit.nccl_conf=true", "--yes")
    return found


def points(fleet: Fleet, *axes: str) -> Points:
    """Return the points of a sweep over the deployment."""
    words = [*REFERENCE, "unit.nccl_conf=true", *Launch(fleet).aim(("h1",)), *axes]
    return build(compose_sweep(words, packaged()), (), lambda _, release: release.digest)


def opened(found: Points, emit: Any = lambda _: None, **limits: int) -> OnHost:
    """Take the host for a sweep."""
    baseline = found.candidates[0]
    target = baseline.deployment.target
    session = OnHost(SshTransport(target.hosts[0], target), secret_values.read(baseline.deployment), emit)
    session.open(baseline, intent(baseline.deployment, baseline.words, "a test"), Limits(**{"seconds": 120, **limits}))
    return session


def test_points_are_served_and_the_deployment_comes_back(fleet: Fleet, host: FleetHost) -> None:
    before, left = look(host), host.run(LEFT).stdout
    found = points(fleet, "nccl.algo=Tree", "nccl.max_nchannels=2,4")
    session = opened(found)
    assert look(host)["MainPID"] == before["MainPID"]  # nothing happens before the first point
    for candidate in found.candidates[1:]:
        life = session.start(candidate)
        assert life.serving, life
        assert life.proof["digest"] == candidate.release.digest
        assert any("NCCL_MAX_NCHANNELS set by environment" in line for line in life.lines)
        seen = look(host)
        for process in seen["processes"].values():
            assert process["env"]["NCCL_MAX_NCHANNELS"] == candidate.deployment.nccl["max_nchannels"]
        assert host.run(f"systemctl show -P Restart {UNIT}").stdout.strip() == "no"
        assert "NCCL" not in host.run("cat /etc/nccl.conf 2>/dev/null; true").stdout  # it would reach servers by hand
    assert "proven in 4 processes" in session.close()
    after = look(host)
    assert after["MainPID"] != before["MainPID"]
    assert_tuned(after)
    assert host.run(LEFT).stdout == left
    assert Launch(fleet)("drift", *REFERENCE, "unit.nccl_conf=true").returncode == 0
    assert "sweep by a test: restored" in journal(host)


def test_a_point_that_dies_is_told_and_the_next_one_is_served(fleet: Fleet, host: FleetHost) -> None:
    found = points(fleet, "engine.args.standin_fault=no_algorithm,null")
    bad, good = found.candidates[1:] if len(found.candidates) == 3 else (found.candidates[1], found.candidates[0])
    session = opened(found)
    life = session.start(bad)
    assert not life.serving
    assert any("no algorithm/protocol available" in line for line in life.evidence)
    assert look(host)["processes"] == {}
    assert session.start(good).serving
    session.close()
    assert_tuned(look(host))


def test_a_client_that_comes_too_late_is_told_why(fleet: Fleet, host: FleetHost) -> None:
    """Nothing was replaced yet, and the host is free again."""
    found = points(fleet, "nccl.max_nchannels=4")
    session = opened(found, silence=1)
    time.sleep(1.5)
    wait_until_over(host)
    with pytest.raises(HostError, match="the session ended: nobody gave an order for 1 s; what was there before"):
        session.start(found.candidates[0])
    assert session.close() == "what was there before; nothing was replaced"


def test_another_one_is_kept_away_and_status_tells_who_it_is(fleet: Fleet, host: FleetHost) -> None:
    session = opened(points(fleet, "nccl.algo=Tree"))
    try:
        done = Launch(fleet)("up", *REFERENCE, "nccl.max_nchannels=8", "--yes", check=6)
        assert "a test is changing this host (sweep" in done.stdout + done.stderr
        with pytest.raises(HostError, match="sweep"):
            opened(points(fleet, "nccl.algo=Tree"))
    finally:
        session.close()


def test_a_host_that_is_not_ready_refuses_and_nothing_is_touched(fleet: Fleet, host: FleetHost) -> None:
    before = look(host)
    with pytest.raises(HostError, match=r"model\.path"):
        opened(points(fleet, "model.path=/mnt/models/nowhere", "nccl.algo=Tree"))
    assert look(host) == before


#: A client of its own process: opens a session, starts a point, says so, and waits to be killed.
CLIENT = """
import sys, time
sys.path.insert(0, {root!r})
from tests.fleet import Fleet
from tests.system import test_session as t
class Stub:
    ssh_config = {ssh_config!r}
found = t.points(Stub(), "nccl.algo=Ring,Tree")
session = t.opened(found, silence={silence}, seconds={seconds})
assert session.start(found.candidates[1]).serving
print("serving", flush=True)
{then}
"""


def client(fleet: Fleet, then: str = "time.sleep(100)", silence: int = 3, seconds: int = 100) -> subprocess.Popen[str]:
    """Start a client that holds a session with a point served."""
    text = textwrap.dedent(CLIENT).format(
        root=str(Path.cwd()), ssh_config=str(fleet.ssh_config), then=then, silence=silence, seconds=seconds
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill a client, without a last word to anybody."""
    process.kill()
    process.communicate()


def assert_back(host: FleetHost, left: str) -> None:
    wait_until_over(host)
    assert_tuned(wait_for(host, "active"))
    assert host.run(LEFT).stdout == left


def test_a_client_that_is_killed(fleet: Fleet, host: FleetHost) -> None:
    left = host.run(LEFT).stdout
    process = client(fleet)
    seen = look(host)
    assert all(p["env"]["NCCL_ALGO"] != "Ring" for p in seen["processes"].values())
    begin = time.monotonic()
    end(process)
    assert_back(host, left)
    assert time.monotonic() - begin < 20
    assert "sweep by a test: restored" in journal(host)


def test_a_session_out_of_time(fleet: Fleet, host: FleetHost) -> None:
    left = host.run(LEFT).stdout
    process = client(fleet, silence=100, seconds=8)
    assert_back(host, left)
    assert "a change was ended from outside: rolled back" in journal(host)
    end(process)


def test_a_session_that_is_killed(fleet: Fleet, host: FleetHost) -> None:
    left = host.run(LEFT).stdout
    process = client(fleet, silence=100)
    host.run("systemctl kill -s KILL 'launch-change-*'")
    assert_back(host, left)
    end(process)


def test_a_reboot_in_the_middle(fleet: Fleet, host: FleetHost) -> None:
    left = host.run(LEFT).stdout
    process = client(fleet, silence=100)
    end(process)
    host.power_cut()
    host.boot()
    assert_tuned(wait_for(host, "active"))
    # The files of the point's release are in nobody's way, and go with the next change.
    assert set(left.splitlines()) <= set(host.run(LEFT).stdout.splitlines())


def test_the_record_tells_nothing_of_points(fleet: Fleet, host: FleetHost) -> None:
    history = json.loads(Launch(fleet)("history", *REFERENCE, "--json").stdout)
    session = opened(points(fleet, "nccl.algo=Tree"))
    session.close()
    assert json.loads(Launch(fleet)("history", *REFERENCE, "--json").stdout) == history
