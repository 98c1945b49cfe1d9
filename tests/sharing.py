"""Which tests stay together when several workers share them: ``pytest -n 3``.

A file's tests stay together, so that what a fixture of the file makes is made once. Those of the files below need only
what each test makes and the fleet, which every worker boots once; each goes wherever there is room.
"""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from xdist.remote import Producer

SPREAD = (
    *("tests/cli/test_search.py", "tests/cli/test_sweep.py"),
    *(f"tests/system/test_{name}.py" for name in ("attacks", "deploy", "neighbours", "restarts", "secrets")),
    *(f"tests/system/test_{name}.py" for name in ("transactions", "watch", "ways")),
)
#: One after another, also from file to file: each fills two cores and takes gigabytes.
ENGINES = ("tests/bench/test_serve_vllm.py", "tests/engines/")


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out the tests in their order."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """Return the name under which tests stay together."""
        file = nodeid.partition("::")[0]
        if file.startswith(ENGINES):
            return "engines"
        return nodeid if file in SPREAD else file


def arrange(items: list[pytest.Item]) -> None:
    """Put the tests on the fleet first: they wait for most of their time, and the short ones fill up the end."""
    items.sort(key=lambda item: item.get_closest_marker("fleet") is None)


@contextlib.contextmanager
def room(folder: Path, *, alone: bool) -> Iterator[None]:
    """Run a test beside those of other workers, or while no other runs; who waits to be alone holds the door."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as inside:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
