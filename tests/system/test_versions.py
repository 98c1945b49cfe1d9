"""The oldest and the newest systemd that are supported: the promise holds there too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet import Fleet
from tests.system.test_restarts import BROKEN, KINDS, restart
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch, assert_tuned, journal, look

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.fleet

VERSIONS = {"bullseye": "247", "trixie": "257"}


@pytest.fixture(scope="module", params=VERSIONS)
def other(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Fleet.boot(1, suite=request.param) as fleet:
        assert VERSIONS[request.param] in fleet.hosts[0].run("systemctl --version").stdout.splitlines()[0]
        yield fleet


def test_restarts_of_each_kind(other: Fleet) -> None:
    launch, (host,) = Launch(other), other.hosts
    host.run(WIPE)
    assert "proven in 4 processes" in launch("up", *REFERENCE, "--yes").stdout
    for kind in KINDS:
        restart(host, kind)
        assert_tuned(look(host))
    assert "nothing to change" in launch("plan", *REFERENCE).stdout


@pytest.mark.parametrize("name", ["one value", "open quote", "deleted", "drop-in file", "manager"])
def test_broken_by_hand(other: Fleet, name: str) -> None:
    launch, (host,) = Launch(other), other.hosts
    breakage, words = BROKEN[name]
    host.run(WIPE)
    launch("up", *REFERENCE, "--yes")
    host.run(breakage)
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    host.run("sleep 2")
    assert look(host)["processes"] == {}
    assert words in journal(host)


def test_secrets(other: Fleet) -> None:
    launch, (host,) = Launch(other), other.hosts
    host.run(WIPE)
    words = [*REFERENCE, "secrets.env.HF_TOKEN='command:echo hf_x'", "secrets.args.api_key='command:echo sk_y'"]
    launch("up", *words, "--yes")
    assert {p["env"]["HF_TOKEN"] for p in look(host)["processes"].values()} == {"hf_x"}
    restart(host, "kill main")
    assert {p["env"]["HF_TOKEN"] for p in look(host)["processes"].values()} == {"hf_x"}


@pytest.mark.soak
@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie"])
def test_a_third_of_a_thousand_restarts(suite: str) -> None:
    with Fleet.boot(1, suite=suite) as fleet:
        launch, (host,) = Launch(fleet), fleet.hosts
        launch("up", *REFERENCE, "--yes")
        for number in range(334):
            host.run(f"systemctl reset-failed {UNIT}; true")
            restart(host, KINDS[number % len(KINDS)])
            assert_tuned(look(host))
