"""Observation and release to plan, and outcomes to exit codes; no host."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.manifest import parse
from launcher.errors import RenderError
from launcher.fleet.interfaces import chosen, no_interface
from launcher.fleet.plan import HostPlan, arguments, plan_host
from launcher.fleet.rollout import HostResult, Outcome, Result
from launcher.host.requests import loaded_commands, sha256, shared_files
from launcher.render import Release, render
from launcher.render.intent import intent
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Callable

DEPLOYMENT = compose(["+hw=rtx6000x8"])
RELEASE = render(DEPLOYMENT)
OTHER = render(compose(["+hw=rtx6000x8", "nccl.algo=Tree", "~nccl.nthreads", "engine.port=8001"]))


COMMANDS = loaded_commands(RELEASE, DEPLOYMENT)


def observed(release: Release = RELEASE) -> dict[str, Any]:
    """What a probe sees where a release is in service."""
    manifest = parse(release.manifest.text, "x")
    files = {
        f.path: {"sha256": sha256(f), "mode": f.mode, "owner": "0:0"}
        for f in (*RELEASE.files, *release.files, *shared_files(DEPLOYMENT.target.python))
    }
    if release is not RELEASE:
        for path in (RELEASE.env_file.path, RELEASE.manifest.path):
            files[path] = {"sha256": "", "mode": 0, "owner": ""}
    return {
        "files": files,
        "unit": {
            "text": release.unit.text,
            "loaded": {
                "ActiveState": "active",
                "DropInPaths": [],
                "UnitFileState": "enabled",
                "NeedDaemonReload": False,
                "FragmentPath": release.unit.path,
                "EnvironmentFiles": [[release.env_file.path, False]],
                "ExecStart": [["", words] for words in COMMANDS[0]],
                "ExecStartPost": [["", words] for words in COMMANDS[1]],
            },
        },
        "applied": {"digest": release.digest, "manifest": manifest},
        "record": {"digest": release.digest, "intent": intent(DEPLOYMENT, ["+hw=rtx6000x8"], "anna@laptop")},
        "nccl_conf": None,
        "seen": {"unit": "x", "applied": release.digest},
        "foreign": [],
        "stray": {"told": [], "notes": [], "problems": []},
        "running": {
            "main": 7,
            "digest": release.digest,
            "manifest": manifest,
            "verdict": {"contradictions": []},
            "secrets": {},
        },
        "problems": [],
        "facts": {"nccl_files": {}, "unknown": {}, "engine": {"versions": {}}},
        "secrets": {},
    }


def plan(change: Callable[[dict[str, Any]], object] = lambda _: None, base: Release = RELEASE) -> HostPlan:
    seen = deepcopy(observed(base))
    change(seen)
    return plan_host("h", RELEASE, DEPLOYMENT, seen)


def lines(result: HostPlan) -> list[tuple[str, str, str | None, str | None]]:
    return [(c.kind, c.name, c.old, c.new) for c in result.changes]


def test_in_sync() -> None:
    assert plan().in_sync


def test_another_release_is_told_by_variable_and_argument() -> None:
    result = plan(base=OTHER)
    assert ("variable", "NCCL_ALGO", "Ring,Tree;allreduce:Tree", "Ring") in lines(result)
    assert ("variable", "NCCL_NTHREADS", None, "512") in lines(result)
    assert ("argument", "--port", "8001", "8000") in lines(result)
    assert result.restart == f"restart: release {OTHER.digest} is running"


def test_what_runs_is_compared_and_not_what_lies_on_disk() -> None:
    def restart_pending(seen: dict[str, Any]) -> None:
        seen["running"] = observed(OTHER)["running"]

    result = plan(restart_pending)
    assert ("variable", "NCCL_ALGO", "Ring,Tree;allreduce:Tree", "Ring") in lines(result)
    assert result.restart


FILE_ONLY: dict[str, Callable[[dict[str, Any]], object]] = {
    "environment file changed": lambda s: s["files"][RELEASE.env_file.path].update(sha256="0"),
    "environment file gone": lambda s: s["files"][RELEASE.env_file.path].update(sha256=""),
    "mode": lambda s: s["files"][RELEASE.env_file.path].update(mode=0o644),
    "owner": lambda s: s["files"][RELEASE.env_file.path].update(owner="1000:0"),
    "unit changed": lambda s: s["files"][RELEASE.unit.path].update(sha256="0"),
    "agent": lambda s: s["files"]["/usr/local/lib/launch/agent.py"].update(sha256="0"),
    "no record": lambda s: s.update(record=None),
    "other hardware expected": lambda s: s["record"]["intent"]["hw"].update(gpu_count=4),
    "disabled": lambda s: s["unit"]["loaded"].update(UnitFileState="disabled"),
    "not reloaded": lambda s: s["unit"]["loaded"].update(NeedDaemonReload=True),
    "command replaced": lambda s: s["unit"]["loaded"].update(ExecStart=[["", ["/bin/sleep", "1"]]]),
    "waiter taken out": lambda s: s["unit"]["loaded"].update(ExecStartPost=[]),
    "other file loaded": lambda s: s["unit"]["loaded"].update(EnvironmentFiles=[["/etc/x", False]]),
}


@pytest.mark.parametrize("change", FILE_ONLY.values(), ids=FILE_ONLY.keys())
def test_repairs_without_a_restart(change: Callable[[dict[str, Any]], object]) -> None:
    result = plan(change)
    assert len(result.changes) == 1
    assert not result.restart


RESTARTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "not running": lambda s: s.update(running=None),
    "no release": lambda s: s["running"].update(digest="", manifest=None, verdict=None),
    "worker differs": lambda s: s["running"]["verdict"].update(contradictions=["process 9: NCCL_ALGO is missing"]),
    "manifest gone": lambda s: s["running"].update(manifest=None, verdict=None),
    "stopping": lambda s: (s["unit"]["loaded"].update(ActiveState="deactivating"), s["running"].update(verdict=None)),
}


@pytest.mark.parametrize("change", RESTARTS.values(), ids=RESTARTS.keys())
def test_reasons_to_restart(change: Callable[[dict[str, Any]], object]) -> None:
    assert plan(change).restart


def test_a_loading_server_is_waited_for_and_not_started_over() -> None:
    def loading(seen: dict[str, Any]) -> None:
        seen["unit"]["loaded"].update(ActiveState="activating")
        seen["running"].update(verdict=None)

    result = plan(loading)
    assert (result.restart, result.waits, result.in_sync) == ("", True, False)


def test_a_host_that_cannot_be_looked_at() -> None:
    result = plan_host("h", RELEASE, DEPLOYMENT, {"problems": ["systemd does not run here"]})
    assert result.problems == ("systemd does not run here",)


def test_files_of_nccl_are_a_note() -> None:
    result = plan(lambda s: s["facts"].update(nccl_files={"/etc/nccl.conf": ["NCCL_P2P_DISABLE"]}))
    assert "NCCL also reads /etc/nccl.conf: NCCL_P2P_DISABLE" in result.notes


def test_a_host_that_is_not_what_the_configuration_expects() -> None:
    words = "bus driver virtualization pcie_generation pcie_generation_max pcie_width pcie_width_max power_limit_w"
    words += " power_default_w power_max_w sm_mhz sm_max_mhz load_percent persistence ecc mig pids"
    gpu = {**dict.fromkeys(words.split()), "name": "NVIDIA H200", "memory_mib": 143771}
    result = plan(lambda s: s["facts"].update(gpus=[{**gpu, "index": i} for i in range(2)]))
    assert any("[hw-gpu-count]" in note for note in result.notes)
    assert any("NVIDIA H200" in note for note in result.notes)
    assert result.in_sync


def test_rules_are_applied_again_with_the_versions_installed() -> None:
    deployment = compose(["+hw=rtx6000x8", "engine.args.cuda_graph_max_bs=8"])
    release = render(deployment)
    seen = observed(release)
    seen["facts"]["engine"]["versions"] = {"sglang": "0.5.23"}
    assert "[engine-flag-missing]" in plan_host("h", release, deployment, seen).problems[0]
    seen["facts"]["engine"]["versions"] = {"sglang": "0.5.17"}
    assert plan_host("h", release, deployment, seen).problems == ()
    allowed = compose(["+hw=rtx6000x8", "engine.args.cuda_graph_max_bs=8", "allow=[engine-flag-missing]"])
    seen["facts"]["engine"]["versions"] = {"sglang": "0.5.23"}
    assert plan_host("h", release, allowed, seen).problems == ()
    stated = compose(["+hw=rtx6000x8", "engine.version=0.5.17"])
    assert any("0.5.23 is installed" in note for note in plan_host("h", release, stated, seen).notes)


def test_a_server_that_is_taken_over_is_told_with_how_long_nobody_serves() -> None:
    def taken(seen: dict[str, Any]) -> None:
        seen.update(running=None, stray={"told": ["take over process 7", "for 9 s"], "notes": ["n"], "problems": []})

    result = plan(taken)
    assert (result.restart, result.takes_over) == ("take over process 7", ("for 9 s",))
    assert "n" in result.notes
    refused = plan(lambda seen: seen.update(stray={"told": [], "notes": [], "problems": ["in a container"]}))
    assert refused.problems == ("in a container",)


def test_what_is_taken_over_is_in_no_digest() -> None:
    taking = compose(["+hw=rtx6000x8", "takes_over=" + "0f" * 32])
    assert render(taking).digest == RELEASE.digest
    with pytest.raises(RenderError, match="takes_over='0f' is no SHA-256"):
        render(compose(["+hw=rtx6000x8", "takes_over=0f"]))


def test_a_drop_in_is_a_note() -> None:
    result = plan(lambda s: s["unit"]["loaded"].update(DropInPaths=["/etc/x.conf"]))
    assert result.in_sync
    assert "drop-in of somebody else: /etc/x.conf" in result.notes


INTERFACES = {
    "beginning": ("eth", ["eth0", "eth1"]),
    "whole name": ("=eth0", ["eth0"]),
    "whole name of nobody": ("=eth", []),
    "nobody": ("ib", []),
    "list": ("ib,eth1", ["eth1"]),
    "with a port": ("eth1:2", ["eth1"]),
    "all others": ("^lo,docker", ["eth0", "eth1"]),
    "all others of nothing": ("^lo,docker,eth", []),
    "all others by whole name": ("^=eth0", ["docker0", "eth1", "lo"]),
}


@pytest.mark.parametrize(("value", "left"), INTERFACES.values(), ids=INTERFACES.keys())
def test_interfaces_that_nccl_would_use(value: str, left: list[str]) -> None:
    here = ["docker0", "eth0", "eth1", "lo"]
    assert chosen(value, here) == left
    deployment = compose(["+hw=rtx6000x8"], {"NCCL_SOCKET_IFNAME": value})
    assert bool(no_interface(deployment, {"interfaces": here})) == (not left)
    assert no_interface(deployment, {"interfaces": None}) == []


def test_arguments_by_flag() -> None:
    argv = ["python", "-m", "x", "--a", "1", "--b", "--c", "2", "3", "--a", "4 5"]
    assert arguments(argv) == {"command": "python -m x", "--a": "1 '4 5'", "--b": "", "--c": "2 3"}


CODES: dict[str, tuple[list[Outcome], int]] = {
    "in sync": (["unchanged"], 0),
    "done": (["done", "unchanged"], 0),
    "pending": (["pending", "unchanged"], 3),
    "unreachable before any change": (["pending", "unreachable"], 5),
    "refused beats unreachable": (["refused", "unreachable"], 1),
    "rolled back": (["rolled back"], 7),
    "rolled back beats failed": (["rolled back", "failed"], 7),
    "one serves the new release already": (["unchanged", "rolled back"], 8),
    "in sync beside one that cannot be reached": (["unchanged", "unreachable"], 5),
    "locked": (["locked", "unchanged"], 6),
    "mixed": (["done", "rolled back"], 8),
    "mixed by loss": (["done", "unreachable"], 8),
}


@pytest.mark.parametrize(("outcomes", "code"), CODES.values(), ids=CODES.keys())
def test_exit_codes(outcomes: list[Outcome], code: int) -> None:
    assert Result("d", "x", tuple(HostResult(str(i), o) for i, o in enumerate(outcomes))).exit_code == code


def test_what_somebody_else_wrote_is_kept_and_said() -> None:
    result = plan(lambda s: s.update(foreign=[RELEASE.unit.path]))
    assert any("it is kept as generation 0" in note for note in result.notes)
    assert result.seen == {"unit": "x", "applied": RELEASE.digest}
