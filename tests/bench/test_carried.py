"""The environment of a measurement: what the unit carries, and what SGLang writes into that of its workers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import launcher.catalogue
from launcher.bench.carried import added, carried
from launcher.render.environment import environment
from tests.composing import compose

ADDITIONS = Path(launcher.catalogue.__file__).with_name("engine_additions.csv")
CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
USUAL = {**CONNECTIONS, "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
SYMMETRIC = "engine.args.enable_symm_mem=true"
MULTICAST = "engine.args.enable_nccl_nvls=true"

CASES: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "as it is": ((), {}, USUAL),
    "a flag that is off": (("engine.args.enable_symm_mem=false",), {}, USUAL),
    "one is set": ((), {"NCCL_CUMEM_ENABLE": "1"}, {**CONNECTIONS, "NCCL_NVLS_ENABLE": "0"}),
    "both are set": ((), {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"}, CONNECTIONS),
    "connections are forced": ((), {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, USUAL),
    "multicast": ((MULTICAST,), {}, {**USUAL, "NCCL_NVLS_ENABLE": "1"}),
    "multicast is forced": ((MULTICAST,), {"NCCL_NVLS_ENABLE": "0"}, {**USUAL, "NCCL_NVLS_ENABLE": "1"}),
    "symmetric": ((SYMMETRIC,), {}, {**CONNECTIONS, "NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"}),
    "symmetric is forced": (
        (SYMMETRIC, MULTICAST),
        {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"},
        {**CONNECTIONS, "NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"},
    ),
}


@pytest.mark.parametrize(("words", "env", "expected"), CASES.values(), ids=CASES.keys())
def test_what_sglang_adds(words: tuple[str, ...], env: dict[str, str], expected: dict[str, str]) -> None:
    deployment = compose(words, env)
    assert added(deployment, environment(deployment)) == expected
    whole = carried(deployment)
    assert {name: whole[name] for name in expected} == expected
    assert {name: whole[name] for name in env if name not in expected} == {
        name: value for name, value in env.items() if name not in expected
    }


@pytest.mark.parametrize("words", [(), (SYMMETRIC,), (MULTICAST,)])
def test_every_addition_stands_in_the_catalogue(words: tuple[str, ...]) -> None:
    with ADDITIONS.open(encoding="utf-8", newline="") as file:
        known = {(row["name"], row["value"]) for row in csv.DictReader(file) if row["engine"] == "sglang"}
    assert [item for item in added(compose(words), {}).items() if item not in known] == []


@pytest.mark.parametrize("flag", ["engine.args.enable_symm_mem=true", "engine.args.seed=1"])
def test_nothing_is_added_for_vllm(flag: str) -> None:
    deployment = compose(["engine=vllm", flag])
    assert added(deployment, {}) == {}
    expected = environment(deployment) | {"NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
    assert carried(deployment) == expected


SUBSYSTEMS = {"INIT,ENV": "INIT,ENV,TUNING", "INIT": "INIT", "ALL": "ALL", "INIT,ENV,GRAPH": "INIT,ENV,GRAPH"}


@pytest.mark.parametrize(("given", "found"), SUBSYSTEMS.items())
def test_subsystems_of_ones_own_are_kept(given: str, found: str) -> None:
    assert carried(compose([], {"NCCL_DEBUG_SUBSYS": given}))["NCCL_DEBUG_SUBSYS"] == found


def test_launchs_own_subsystems_get_tuning() -> None:
    assert carried(compose([]))["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,TUNING"


def test_no_release_is_named_and_no_secret_is_in_it() -> None:
    env = carried(compose(["secrets.env.HF_TOKEN='command:echo t0ken'"]))
    assert not [name for name in env if name.startswith("LAUNCH_") or name == "HF_TOKEN"]
    assert "t0ken" not in str(env)
