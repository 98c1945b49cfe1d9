"""One cluster for all tests here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.slurm.cluster import Cluster, obstacle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := obstacle():
        if os.environ.get("LAUNCH_REQUIRE_FLEET") == "1":
            pytest.fail(f"LAUNCH_REQUIRE_FLEET=1, but {reason}", pytrace=False)
        pytest.skip(reason)
    with Cluster() as made:
        yield made
