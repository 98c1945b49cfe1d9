"""`launch up` with runtime=podman against a host: proof, drift, restarts, what an image brings, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.exports import podman
from tests.fleet import Fleet
from tests.system.tool import WIPE, Launch, journal, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fleet import FleetHost

pytestmark = [pytest.mark.fleet, pytest.mark.soak]

UNIT = "launch-boxed.service"
VALUE = '  it\'s $HOME ${X} %n "q" \\ # \n é  '
WORDS = ("model=tiny", "engine=vllm", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "name=boxed", "runtime=podman")
SECRETS = ("secrets.env.HF_TOKEN='command:echo hf_x'", "secrets.args.api_key='command:echo sk_y'")


class Boxed:
    """A host with podman, and the command aimed at it."""

    def __init__(self, fleet: Fleet) -> None:
        self.host: FleetHost = fleet.hosts[0]
        self._launch = Launch(fleet)

    def launch(self, verb: str, *words: str, image: str = podman.IMAGE, check: int | None = 0) -> str:
        given = ["-e", "STANDIN_LOAD_SECONDS=0.1", "-e", f"X={VALUE}", "unit.stop_timeout=10"]
        command = [verb, *WORDS, f"runtime.image={image}", *given, *SECRETS, *words]
        done = self._launch(*command, check=check, python=podman.PYTHON)
        return done.stdout + done.stderr

    def inside(self) -> list[dict[str, str]]:
        """Return the environments in the container, by other means than launch's."""
        found = look(self.host, UNIT)["processes"].values()
        return [p["env"] for p in found if p["title"][0] not in ("/usr/bin/podman", "/usr/bin/conmon")]


@pytest.fixture(scope="module")
def boxed() -> Iterator[Boxed]:
    with Fleet.boot(1, suite="trixie-containers") as fleet:
        podman.prepare(fleet.hosts[0])
        fleet.hosts[0].run(WIPE)
        made = Boxed(fleet)
        assert "proven in 5 processes" in made.launch("up", "--yes")
        yield made


def assert_carried(environments: Sequence[dict[str, str]], **more: str) -> None:
    assert len(environments) >= 4
    wanted = {
        "NCCL_ALGO": "Ring",
        "NCCL_NTHREADS": "512",
        "X": VALUE,
        "HF_TOKEN": "hf_x",
        "STANDIN_DEVICES": "all",
        **more,
    }
    for env in environments:
        assert {name: env.get(name) for name in wanted} == wanted


def test_every_process_in_the_container_carries_the_release(boxed: Boxed) -> None:
    assert_carried(boxed.inside())
    assert "in sync" in boxed.launch("drift")
    assert "nothing to change" in boxed.launch("plan")
    assert "warning" not in journal(boxed.host, UNIT)


WAYS = {
    "by hand": (f"systemctl restart {UNIT}", "0"),
    "podman is killed": (f"kill -9 $(systemctl show -P MainPID {UNIT})", "1"),
    "the container is killed": ("podman kill launch-boxed", "1"),
    "everything is killed": (f"systemctl kill --signal KILL {UNIT}", "1"),
}


@pytest.mark.parametrize(("way", "restarts"), WAYS.values(), ids=WAYS)
def test_a_restart_is_proven_again(boxed: Boxed, way: str, restarts: str) -> None:
    before = look(boxed.host, UNIT)["MainPID"]
    boxed.host.run(f"systemctl reset-failed {UNIT}; {way}")
    seen = wait_for(boxed.host, "active", other_than=before, unit=UNIT)
    # The first start that follows succeeds, whatever was left of the container.
    assert seen["NRestarts"] == restarts
    assert_carried(boxed.inside())
    assert boxed.host.run("podman ps --all --quiet").stdout.count("\n") == 1
    boxed.host.run(f"systemctl reset-failed {UNIT}")
    assert "in sync" in boxed.launch("drift")


def test_another_value_and_back(boxed: Boxed) -> None:
    assert "proven in 5 processes" in boxed.launch("up", "nccl.nthreads=256", "--yes")
    assert_carried(boxed.inside(), NCCL_NTHREADS="256")
    assert "proven in 5 processes" in boxed.launch("up", "--yes")
    assert_carried(boxed.inside())


def test_an_image_that_sets_something_is_taken_back(boxed: Boxed) -> None:
    podman.change(boxed.host, "localhost/standin:leak", "ENV NCCL_P2P_DISABLE=1")
    said = boxed.launch("up", "--yes", image="localhost/standin:leak", check=7)
    assert "NCCL_P2P_DISABLE is set, but the release does not set it" in said
    assert_carried(boxed.inside())
    assert "in sync" in boxed.launch("drift")


def test_an_image_that_is_not_there_stops_nothing(boxed: Boxed) -> None:
    before = look(boxed.host, UNIT)["MainPID"]
    said = boxed.launch("up", "--yes", image="localhost/standin:none", check=None)
    assert "podman pull localhost/standin:none" in said
    assert look(boxed.host, UNIT)["MainPID"] == before


def test_a_file_of_nccl_in_the_image_is_not_read(boxed: Boxed) -> None:
    inside = "podman exec launch-boxed /usr/bin/python3 -c 'print(len(open(\"/etc/nccl.conf\").read()))'"
    assert boxed.host.run(inside).stdout == "0\n"


def test_what_differs_is_refused(boxed: Boxed) -> None:
    boxed.host.run("sed -i s/Ring/Tree/ /etc/launch/boxed/*.env")
    assert boxed.host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    assert 'NCCL_ALGO is "Tree" (should be "Ring")' in journal(boxed.host, UNIT)
    boxed.launch("drift", "--fix", "--yes", check=None)
    assert "in sync" in boxed.launch("drift")
    boxed.launch("uninstall", "boxed", "--yes", check=None)
    boxed.host.run(WIPE)
