"""Rows of measured collectives, and the files that hold them; the legend is in this folder's README.md."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.catalogue import nccl_sets
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_COLLECTIVES = ("all_gather", "all_reduce")
_INTERCONNECTS = ("nvlink", "pcie")
_BASES = frozenset(
    nccl_sets.written({name: value for name, value in zip(nccl_sets.BASE, values, strict=True) if value})
    for values in itertools.product(("", "0", "1"), repeat=2)
)
_VERSION, _DATE = re.compile(r"\d+\.\d+(\.\d+)*"), re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Measured:
    """One row; the fields are its columns, in their order.

    Attributes:
        gpu: as nvidia-smi prints it.
        gpus: ranks of the communicator, one a GPU, all in one host.
        interconnect: pcie or nvlink.
        p2p: "on", or "off" where all traffic goes through host memory.
        nccl_version: of the library.
        base: CUMEM_ENABLE and NVLS_ENABLE as they were set, which engines add by themselves.
        set: the other variables that can change the speed, as `nccl_sets` writes them; empty: NCCL's default.
        collective: all_reduce or all_gather.
        bytes: of the message; of an all_gather the whole result.
        us: microseconds of one collective; of several starts the median of their medians.
        us_low: the lowest within a start, of all starts.
        us_high: the highest.
        starts: of the processes that were measured.
        date: of the newest start, as 2026-11-29.
        source: who measured how. Only rows of one source are compared with each other.
    """

    gpu: str
    gpus: int
    interconnect: str
    p2p: str
    nccl_version: str
    base: str
    set: str
    collective: str
    bytes: int
    us: float
    us_low: float
    us_high: float
    starts: int
    date: str
    source: str

    @property
    def campaign(self) -> tuple[str | int, ...]:
        """What two rows must share to be compared: all but set, size and outcome."""
        return (
            *(self.gpu, self.gpus, self.interconnect, self.p2p, self.nccl_version, self.base),
            *(self.collective, self.source),
        )

    @property
    def key(self) -> tuple[str | int, ...]:
        """What a newer row must share with an older one to replace it."""
        return (*self.campaign, self.set, self.bytes)


COLUMNS = tuple(field.name for field in dataclasses.fields(Measured))


def text(rows: Iterable[Measured]) -> str:
    """Return the content of a file with these rows, sorted."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=lambda row: row.key):
        values = dataclasses.asdict(row).values()
        writer.writerow(f"{v:.2f}".rstrip("0").rstrip(".") if isinstance(v, float) else v for v in values)
    return stream.getvalue()


def read(path: Path) -> tuple[Measured, ...]:
    """Return the rows of a file.

    Raises:
        ConfigError: it cannot be read, or a line of it; the message names file and line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file, strict=True)
            if tuple(table.fieldnames or ()) != COLUMNS:
                message = f"{path}: the first line has to be {','.join(COLUMNS)}"
                raise ConfigError(message)
            return tuple(_row(f"{path}:{table.line_num}", cells) for cells in table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        message = f"{path}: cannot be read ({error})"
        raise ConfigError(message) from error


def _row(place: str, cells: dict[str, str]) -> Measured:
    try:
        if None in cells or None in cells.values():
            raise ValueError("has another number of columns than the first line")  # noqa: TRY301
        whole = {name: int(cells[name]) for name in ("gpus", "bytes", "starts")}
        times = {name: float(cells[name]) for name in ("us", "us_low", "us_high")}
        row = Measured(**{**cells, **whole, **times})  # type: ignore[arg-type]
        _check(row)
    except ValueError as error:
        message = f"{place}: {error}"
        raise ConfigError(message) from None
    return row


def _check(row: Measured) -> None:
    """Refuse a row that would never be found, or found wrongly."""
    proper = {
        "gpu": bool(row.gpu),
        "gpus": row.gpus > 0,
        "interconnect": row.interconnect in _INTERCONNECTS,
        "p2p": row.p2p in ("on", "off"),
        "nccl_version": bool(_VERSION.fullmatch(row.nccl_version)),
        "base": row.base in _BASES,
        "collective": row.collective in _COLLECTIVES,
        "bytes": row.bytes > 0,
        "us": 0 < row.us_low <= row.us <= row.us_high < float("inf"),
        "starts": row.starts > 0,
        "date": bool(_DATE.fullmatch(row.date)),
        "source": bool(row.source),
    }
    if not all(proper.values()):
        wrong = ", ".join(f"{name}={getattr(row, name)}" for name, is_proper in proper.items() if not is_proper)
        message = f"cannot be: {wrong}"
        raise ValueError(message)
    if row.set != (spelled := _spelled(row.set, row.p2p, row.collective)):
        message = f"set={row.set} would never be found; write '{spelled}'"
        raise ValueError(message)


@functools.cache
def _spelled(text: str, p2p: str, collective: str) -> str:
    """Return how a set has to be written; a file has few sets with many sizes each."""
    return nccl_sets.written(nccl_sets.canonical(nccl_sets.read(text), p2p=p2p == "on", collective=collective))
