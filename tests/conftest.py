"""What all tests share: the fleet of real hosts, and which tests run where."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import sharing
from tests.fleet import Fleet, obstacle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background: what the tests start and interrupt would inherit that it ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-soak", action="store_true", help="also run the tests that take many minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    soak = {item for item in items if item.get_closest_marker("soak")}
    if soak and not config.getoption("--run-soak"):
        config.hook.pytest_deselected(items=list(soak))
        items[:] = [item for item in items if item not in soak]
    if os.environ.get("PYTEST_XDIST_WORKER"):
        sharing.arrange(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> sharing.Scheduler:
    """Several workers: ``pytest -n 3``."""
    return sharing.Scheduler(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a fleet where none can be; with LAUNCH_REQUIRE_FLEET=1 that is a failure."""
    if item.get_closest_marker("fleet") is None:
        return
    reason = obstacle()
    if reason and os.environ.get("LAUNCH_REQUIRE_FLEET") == "1":
        pytest.fail(f"LAUNCH_REQUIRE_FLEET=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """Three running Debian 12 hosts with a network each. A test leaves them on, plugged in and clean."""
    with Fleet.boot(3) as booted:
        yield booted


@pytest.fixture(autouse=True)
def beside_others(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let no other worker run a test beside one that is marked `alone`."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        yield
        return
    alone = request.node.get_closest_marker("alone") is not None
    with sharing.room(tmp_path_factory.getbasetemp().parent, alone=alone):
        yield
