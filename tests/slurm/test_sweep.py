"""A sweep in an allocation: cancelled, it keeps what was measured, and the next job goes on with it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.served import QUICK, free_port, standin
from tests.slurm.cluster import until

if TYPE_CHECKING:
    from tests.slurm.cluster import Cluster

ROOT = Path(__file__).parents[2]
LOAD = {"concurrency": 1, "requests": 4, "input_tokens": 1, "output_tokens": 10, "metric": "tpot_ms"}


def job(folder: Path, name: str, port: int, *more: str) -> Path:
    """Write a batch script that runs a sweep, as a user does."""
    words = [
        *("-m", "nccl.max_nchannels=2,4", "model=tiny", "engine=vllm", "engine.tensor_parallel=2", "nccl=pcie_ll_ring"),
        *(f"engine.python={standin(folder / 'engine')}", f"engine.port={port}", "engine.host=127.0.0.1"),
        *(word for variable in QUICK.items() for word in ("-e", "=".join(variable))),
        *("target=process", "bench=serve", "bench.client=command"),
        f"bench.command={sys.executable} {ROOT / 'tests' / 'standin' / 'client.py'}",
        *(f"bench.loads.decode.{key}={value}" for key, value in LOAD.items()),
        *(f"sweep.out={folder / 'results'}", "sweep.repeats=1", "sweep.max_repeats=1", *more),
    ]
    path = folder / name
    run = f"exec {sys.executable} -m launcher {shlex.join(words)}"
    path.write_text(f"#!/bin/bash\n#SBATCH --export=NIL\nexport PYTHONPATH={ROOT}\n{run}\n")
    return path


def test_a_cancelled_sweep_goes_on_in_the_next_job(cluster: Cluster, tmp_path: Path) -> None:
    told, port = tmp_path / "told", free_port()
    first = cluster.submit(job(tmp_path, "first", port), f"--error={told}")
    until(lambda: told.exists() and "baseline: decode" in told.read_text(), first.told)
    first.cancel()
    assert first.ended()[0] == "CANCELLED"
    until(lambda: "interrupted; what was measured is kept" in told.read_text(), first.told)
    second = cluster.submit(job(tmp_path, "second", port, "--resume", "--json"), f"--error={told}")
    assert second.ended() == ("COMPLETED", "0:0")
    record = json.loads((tmp_path / "out").read_text())
    assert len(list((tmp_path / "results").glob("*-tiny-serve"))) == 1
    assert {trial["point"] for trial in record["trials"]} == {point["digest"] for point in record["points"]}
    for trial in record["trials"]:
        assert trial["proof"]["NCCL_MAX_NCHANNELS"]["word"] == "proved"
        assert not any(reading["invalid"] for reading in trial["readings"])
