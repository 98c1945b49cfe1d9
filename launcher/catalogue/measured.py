"""The memory of measurements: what NCCL took for a collective with which set of variables, on which hardware.

``allreduce.csv`` ships with the tool; ``measured.csv`` of the same form, in the folder of results, is a user's own. A
set counts against NCCL's default only where both were measured in one campaign.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.catalogue import nccl, nccl_sets
from launcher.catalogue.measured_rows import COLUMNS, Measured, read, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from launcher.schema import Deployment

__all__ = ["COLUMNS", "OWN", "SHIPPED", "Comparison", "Measured", "add", "compare", "own", "shipped", "text"]

SHIPPED = Path(__file__).with_name("allreduce.csv")
#: A user's own, in the folder of the results (``sweep.out``).
OWN = "measured.csv"
#: Up to this factor a measured size speaks for another one.
_REACH = 2.0
_BySize = dict[int, Measured]


@dataclass(frozen=True)
class Comparison:
    """A set against NCCL's default, measured on equal hardware.

    Attributes:
        workload: the name that was asked for.
        asked: bytes that were asked for; what was measured is in the rows.
        row: of the set.
        default: beside it.
        unmeasured: variables of the deployment that the measured set lacks, such as ``MIN_NCHANNELS=8``.
    """

    workload: str
    asked: int
    row: Measured
    default: Measured
    unmeasured: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The set's time over the default's: above 1 it is slower."""
        return self.row.us / self.default.us

    @property
    def clear(self) -> bool:
        """Whether all runs of the one were faster than all of the other."""
        return self.row.us_low > self.default.us_high or self.row.us_high < self.default.us_low


@functools.cache
def shipped() -> tuple[Measured, ...]:
    """Return the rows that ship with the tool."""
    return read(SHIPPED)


def own(folder: Path) -> tuple[Measured, ...]:
    """Return a user's rows in the folder of the results; none where there is no file.

    Raises:
        ConfigError: a line cannot be read; it names file and line.
    """
    path = folder / OWN
    return read(path) if path.exists() else ()


def add(rows: Iterable[Measured], folder: Path) -> Path:
    """Write rows into the user's file, in place of older ones of the same campaign, set and size; return its path.

    Raises:
        ConfigError: the file that is there cannot be read.
    """
    path = folder / OWN
    merged = {row.key: row for row in (*own(folder), *rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(text(merged.values()), encoding="utf-8")
    draft.replace(path)
    return path


def compare(
    deployment: Deployment, rows: Iterable[Measured], sizes: Sequence[tuple[str, int]], collective: str = "all_reduce"
) -> list[Comparison]:
    """Return how a deployment's set did against NCCL's default on equal hardware, by size.

    Equal are the GPU, the number in use, the interconnect, P2P, and whether NVLS may be used. Of several campaigns the
    one counts that measured exactly this set, then the engine's NCCL version, then the newest. A part of the set speaks
    for it when it holds the same ALGO and PROTO; what it lacks is in ``unmeasured``. Nothing is interpolated: a size
    near which nothing was measured is left out.

    Args:
        deployment: whose ``nccl``, and NCCL variables of ``env``, are looked up.
        rows: such as `shipped()`.
        sizes: pairs of a workload's name and bytes.
        collective: all_reduce or all_gather.
    """
    variables = nccl_sets.given(deployment)
    p2p = nccl_sets.has_p2p(deployment, variables)
    wanted = nccl_sets.canonical(variables, p2p=p2p, collective=collective)
    if not wanted or deployment.engine.tensor_parallel < 2 or _hosts(deployment) > 1:
        return []
    nvls = p2p and nccl_sets.has_nvls(variables, deployment.engine.name)
    equal = [r for r in rows if r.collective == collective and _same_hardware(deployment, r, p2p=p2p, nvls=nvls)]
    best = max(_candidates(deployment, wanted, equal), key=lambda candidate: candidate[0], default=None)
    if best is None:
        return []
    _, measured, default = best
    covered = nccl_sets.read(next(iter(measured.values())).set)
    unmeasured = tuple(f"{name}={value}" for name, value in wanted.items() if name not in covered)
    near = [(workload, size, _nearest(size, measured.keys() & default.keys())) for workload, size in sizes]
    return [Comparison(workload, size, measured[n], default[n], unmeasured) for workload, size, n in near if n]


def _hosts(deployment: Deployment) -> int:
    """Return how many hosts share the communicator, as the engine's flag says."""
    value = str(deployment.engine.args.get("nnodes", "1"))
    return int(value) if value.isdigit() else 1


def _same_hardware(deployment: Deployment, row: Measured, *, p2p: bool, nvls: bool) -> bool:
    """Return whether a row was measured on what the deployment runs on; ``hw.gpu`` may leave the edition out."""
    gpu = deployment.hw.gpu
    return (
        bool(gpu)
        and (row.gpu == gpu or row.gpu.startswith(f"{gpu} "))
        and row.gpus == deployment.engine.tensor_parallel
        and row.interconnect == deployment.hw.interconnect
        and (row.p2p == "on") == p2p
        and (p2p and nccl_sets.has_nvls(nccl_sets.read(row.base))) == nvls
    )


def _candidates(
    deployment: Deployment, wanted: Mapping[str, str], rows: Iterable[Measured]
) -> list[tuple[tuple[Any, ...], _BySize, _BySize]]:
    """Return rank, rows of the set and rows of the default, by size, for each measured set that speaks for this one."""
    campaigns: dict[tuple[str | int, ...], dict[str, _BySize]] = {}
    for row in rows:
        campaigns.setdefault(row.campaign, {}).setdefault(row.set, {})[row.bytes] = row
    found: list[tuple[tuple[Any, ...], _BySize, _BySize]] = []
    for sets in campaigns.values():
        for name, by_size in sets.items():
            part = nccl_sets.read(name)
            if not part or "" not in sets or not _speaks_for(part, wanted):
                continue
            one = next(iter(by_size.values()))
            rank = (
                part == wanted,
                one.gpu == deployment.hw.gpu,
                one.nccl_version == deployment.engine.nccl_version,
                len(part),
                nccl.version_of(one.nccl_version),
                max(row.date for row in by_size.values()),
                name,
            )
            found.append((rank, by_size, sets[""]))
    return found


def _speaks_for(part: Mapping[str, str], whole: Mapping[str, str]) -> bool:
    """Return whether a measured set is the wanted one, or a part of it with the same algorithm and protocol."""
    return part.items() <= whole.items() and all(part.get(name) == whole.get(name) for name in ("ALGO", "PROTO"))


def _nearest(size: int, measured: Collection[int]) -> int:
    """Return the measured size next to one, 0 where none is near."""
    distance, best = min(((max(size / m, m / size), m) for m in measured), default=(float("inf"), 0))
    return best if distance <= _REACH else 0
