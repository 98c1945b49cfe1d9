"""What a sweep has measured, as rows of the memory that `plan` warns from."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from launcher.bench.carried import carried
from launcher.catalogue import nccl_sets
from launcher.catalogue.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.schema import Deployment
    from launcher.sweep.record import Reading, Sweep, Trial

_Found = dict[tuple[str, int], list[tuple["Trial", "Reading"]]]


def rows(sweep: Sweep, deployments: Mapping[str, Deployment], source: str) -> list[Measured]:
    """Return a row for each point and size of message that has a valid reading.

    Args:
        sweep: of `bench=allreduce`.
        deployments: by digest of the point.
        source: who measured; only rows of one source are compared with each other.
    """
    found: _Found = {}
    sizes = {workload.name: int(workload.details["bytes"]) for workload in sweep.workloads}
    for trial in sweep.trials:
        for reading in trial.readings:
            if not reading.invalid:
                found.setdefault((trial.point, sizes[reading.workload]), []).append((trial, reading))
    made = [_row(deployments[point], bytes_, starts, source) for (point, bytes_), starts in found.items()]
    return [row for row in made if row]


def _row(d: Deployment, bytes_: int, found: Sequence[tuple[Trial, Reading]], source: str) -> Measured | None:
    versions: Mapping[str, Any] = found[-1][0].facts["versions"]
    # Rows of nccl-tests, where the ranks are threads, would stand beside those of ranks that are processes.
    if d.bench.backend != "nccl" or d.bench.nccl_tests or d.hw.interconnect == "unknown" or "nccl" not in versions:
        return None
    variables = {n.removeprefix("NCCL_"): v for n, v in carried(d).items() if n.startswith("NCCL_")}
    p2p = nccl_sets.has_p2p(d, variables)
    starts = {trial.order for trial, _ in found}
    return Measured(
        gpu=versions["gpu"],
        gpus=d.engine.tensor_parallel,
        interconnect=d.hw.interconnect,
        p2p="on" if p2p else "off",
        nccl_version=versions["nccl"],
        base=nccl_sets.written({name: variables[name] for name in nccl_sets.BASE if name in variables}),
        set=nccl_sets.written(nccl_sets.canonical(variables, p2p=p2p)),
        collective="all_reduce",
        bytes=bytes_,
        us=statistics.median(reading.details["us_per_allreduce"] for _, reading in found),
        us_low=min(reading.details["us_low"] for _, reading in found),
        us_high=max(reading.details["us_high"] for _, reading in found),
        starts=len(starts),
        date=time.strftime("%Y-%m-%d", time.gmtime(max(trial.at for trial, _ in found))),
        source=source,
    )
