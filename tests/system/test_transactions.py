"""Changes as transactions, on real hosts: whatever is broken in whatever phase, one release serves completely."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.change_tool import (
    COMMON_DISK,
    FAULTS,
    NEW,
    PATIENCE,
    PHASES,
    RELEASE,
    assert_whole,
    begin,
    inside,
    settled,
    state,
    wait_until_over,
)
from tests.system.tool import REFERENCE

if TYPE_CHECKING:
    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet


def deployed(launch: Launch, *hosts: str) -> str:
    """Deploy the old release, and return its digest."""
    done = launch("up", *REFERENCE, "--yes", "--json", hosts=hosts or ("h1",))
    digest: str = json.loads(done.stdout)["deployments"][0]["digest"]
    return digest


# --- faults in every phase ---


def cell(launch: Launch, host: FleetHost, phase: str, fault: str) -> str:
    """Break one thing in one phase of a change; return what the host serves then, and assert that all of it does."""
    at, breaks, name = PHASES[phase], FAULTS[fault], host.name
    old = deployed(launch, name)
    host.run(f"{breaks.prepare}\n{at.prepare}")
    words = ("up", *NEW, *at.words, f"target.confirm_timeout={PATIENCE}", "--yes")
    running = begin(launch, *words, hosts=[name])
    at.reached(host, running)
    breaks.strike(host, running)
    if host.is_on():
        inside(host, RELEASE, check=False)
    else:
        breaks.mend(host)
        host.run(RELEASE)
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGCONT)
    code = running.end()
    wait_until_over(host)
    if fault == "power cut":
        return judge(launch, host, old, settled(host), code, running.said())
    if fault == "cable unplugged":
        breaks.mend(host)
    seen = settled(host)
    if fault != "cable unplugged":
        breaks.mend(host)
    return judge(launch, host, old, seen, code, running.said())


def judge(launch: Launch, host: FleetHost, old: str, seen: dict[str, Any], code: int, said: str) -> str:
    """Assert that a host is whole after a fault, boots what it serves, and takes the change then."""
    word = "put back at boot"
    if seen["pending"]:  # nothing could be written, not even the old unit: it is told, and kept for later
        assert (code, "failed too" in said) == (1, True), said
        assert len(seen["running"]) <= 1, seen
    else:
        word = "old" if seen["running"] == {old} else "new"
        assert_whole(seen, old if word == "old" else next(iter(seen["running"])))
        assert launch("drift", *NEW, hosts=[host.name], check=None).returncode == (3 if word == "old" else 0)
    host.run(COMMON_DISK)
    host.power_cut()
    host.boot()
    after = settled(host)
    assert_whole(after, old if seen["pending"] else next(iter(seen["running"])))
    launch("up", *NEW, "--yes", hosts=[host.name])
    assert "nothing to change" in launch("plan", *NEW, hosts=[host.name]).stdout
    final = state(host)
    assert_whole(final, final["unit"])
    assert final["unit"] != old
    return f"{word}, exit {code}" if code >= 0 else word


CELLS = [
    ("stopped", "client killed"),
    ("starting", "change killed"),
    ("stopped", "change stopped"),
    ("starting", "power cut"),
    ("switched", "cable unplugged"),
    ("proven", "disk full"),
    ("starting", "read-only"),
    ("looking", "disk full"),
]


@pytest.mark.parametrize(("phase", "fault"), CELLS, ids=[f"{p}-{f}" for p, f in CELLS])
def test_a_fault_in_a_phase(launch: Launch, host: FleetHost, phase: str, fault: str) -> None:
    cell(launch, host, phase, fault)
