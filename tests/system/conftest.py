"""Fixtures of the system tests: clean hosts and the command aimed at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.tool import WIPE, Launch

if TYPE_CHECKING:
    from tests.fleet import Fleet, FleetHost


@pytest.fixture
def launch(fleet: Fleet) -> Launch:
    """The command, aimed at the fleet."""
    return Launch(fleet)


@pytest.fixture
def host(fleet: Fleet) -> FleetHost:
    """A host that nothing of ours was ever on."""
    fleet.hosts[0].run(WIPE)
    return fleet.hosts[0]


@pytest.fixture
def hosts(fleet: Fleet) -> list[FleetHost]:
    """All three hosts, clean."""
    for one in fleet.hosts:
        one.run(WIPE)
    return fleet.hosts
