from __future__ import annotations

import csv
from pathlib import Path

import pytest

from launcher.catalogue import environment, nccl
from launcher.errors import ConfigError

FOLDER = Path(environment.__file__).parent


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["nccl.csv", "others.csv", "engine_additions.csv"])
def test_file_is_tidy(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"\n")
    table = rows(name)
    assert all(None not in row and None not in row.values() for row in table)
    texts = [tuple(row.values()) for row in table]
    assert texts == sorted(set(texts))


@pytest.mark.parametrize("row", rows("others.csv"), ids=lambda r: r["name"])
def test_other(row: dict[str, str]) -> None:
    assert row["name"].startswith(environment.watched_prefixes())
    assert row["name"] not in nccl.settings()
    assert row["reader"]
    assert row["note"]
    assert row["source"]


@pytest.mark.parametrize("row", rows("engine_additions.csv"), ids=lambda r: f"{r['engine']}:{r['name']}={r['value']}")
def test_addition(row: dict[str, str]) -> None:
    assert row["engine"] in {"sglang", "vllm"}
    assert row["value"]
    assert row["when"]
    assert row["source"]
    allowed = environment.additions(row["engine"])[row["name"]]
    assert allowed is None or row["value"] in allowed
    if row["name"].startswith("NCCL_"):
        assert row["name"].removeprefix("NCCL_").lower() in nccl.variables()


def test_settings_are_nccls_and_the_others() -> None:
    known = environment.settings()
    assert nccl.settings() < known
    assert {"CUDA_VISIBLE_DEVICES", "EAGLE3_PROFILE", "GLOO_SOCKET_IFNAME", "UCX_TLS"} <= known
    assert not {"CUDA_HOME", "CUDA_VERSION", "NCCL_MIN_CHANNELS", "VLLM_API_KEY"} & known


# What two recorded servers showed in their workers and not in their main process.
SGLANG_WORKER = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    "CUDA_MODULE_LOADING": "AUTO",
    "NCCL_CUMEM_ENABLE": "0",
    "SGLANG_DISABLE_OUTLINES_DISK_CACHE": "0",
    "SGLANG_ENABLE_DETERMINISTIC_INFERENCE": "0",
    "SGLANG_ENABLE_TORCH_COMPILE": "0",
    "SGLANG_OPT_FP8_WO_A_GEMM": "False",
    "SGLANG_RUN_ID": "sglang-run-1795974695.3817036-36703190",
    "SGLANG_USE_CUDA_IPC_TRANSPORT": "1",
}


@pytest.mark.parametrize(
    ("engine", "seen"), [("sglang", SGLANG_WORKER), ("vllm", {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"})]
)
def test_recorded_workers_are_explained(engine: str, seen: dict[str, str]) -> None:
    known = environment.additions(engine)
    for name, value in seen.items():
        allowed = known[name]
        assert allowed is None or value in allowed


def test_unknown_engine() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sglang'"):
        environment.additions("sglangg")
