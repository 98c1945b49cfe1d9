"""Several deployments on one host: side by side, or refused before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.tool import assert_tuned, look

if TYPE_CHECKING:
    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

ONE = ("+hw=rtx6000x8", "name=one", "engine.gpus=[0,1,2,3]", "engine.tensor_parallel=4", "engine.port=8001")
TWO = ("+hw=rtx6000x8", "name=two", "engine.gpus=[4,5,6,7]", "engine.tensor_parallel=4", "engine.port=8002")


def test_two_side_by_side(launch: Launch, host: FleetHost) -> None:
    launch("up", *ONE, "--yes")
    launch("up", *TWO, "unit.slice=launch-batch.slice", "--yes")
    for name, gpus, slice_ in (("one", "0,1,2,3", "launch.slice"), ("two", "4,5,6,7", "launch-batch.slice")):
        seen = look(host, f"launch-{name}.service")
        assert_tuned(seen)
        assert {p["env"]["CUDA_VISIBLE_DEVICES"] for p in seen["processes"].values()} == {gpus}
        assert host.run(f"systemctl show -P Slice launch-{name}").stdout.strip() == slice_
    assert "nothing to change" in launch("plan", *ONE).stdout
    host.run("systemctl restart launch-one")
    assert look(host, "launch-two.service")["ActiveState"] == "active"


OVERLAPS = {
    "port": ("engine.port=8001", "port 8001 belongs to deployment one"),
    "gpu": ("engine.gpus=[3,4,5,6]", "GPUs 3 also belong to deployment one"),
    "all gpus": ("engine.gpus=[]", "GPUs 0, 1, 2, 3 also belong to deployment one"),
}


@pytest.mark.parametrize(("word", "part"), OVERLAPS.values(), ids=OVERLAPS.keys())
def test_overlaps_are_refused(launch: Launch, host: FleetHost, word: str, part: str) -> None:
    launch("up", *ONE, "--yes")
    before = look(host, "launch-one.service")
    words = [w for w in TWO if w.split("=")[0] != word.split("=")[0]]
    done = launch("up", *words, word, "--yes", check=1)
    assert part in done.stdout
    assert "No host was changed" in done.stdout
    assert host.run("ls -d /etc/launch/two", check=False).returncode != 0
    assert look(host, "launch-one.service")["MainPID"] == before["MainPID"]


def test_a_gpu_may_be_shared_where_the_memory_fits(launch: Launch, host: FleetHost) -> None:
    launch("up", *ONE, "engine.memory_fraction=0.5", "--yes")
    words = ["+hw=rtx6000x8", "name=two", "engine.tensor_parallel=1", "engine.port=8002"]
    done = launch("up", *words, "engine.gpus=[3]", "engine.memory_fraction=0.6", "--yes", check=1)
    assert "add up to 1.1" in done.stdout
    launch("up", *words, "engine.gpus=[3]", "engine.memory_fraction=0.4", "--yes")


def test_a_stopped_and_disabled_neighbour_does_not_count(launch: Launch, host: FleetHost) -> None:
    launch("up", *ONE, "--yes")
    host.run("systemctl disable --now launch-one")
    launch("up", *TWO[:-1], "engine.port=8001", "--yes")
