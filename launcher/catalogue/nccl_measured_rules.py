"""The rule that remembers: a set of NCCL variables that was measured on equal hardware, slower than the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launcher.catalogue import measured, nccl_sets
from launcher.catalogue.nccl_rules import MIB
from launcher.catalogue.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from launcher.catalogue.measured import Comparison, Measured
    from launcher.schema import Deployment

#: From here on a set is called slower, and a ratio told with one digit.
_SLOWER, _COARSE = 1.1, 1.5
#: Below this ratio a set may be faster, within the noise or not: it is worth a start of the server.
_FASTER = 0.98
#: Tokens of a piece of prompt, and bytes of an activation (bf16).
_PREFILL, _WIDTH = 2048, 2


def slower(d: Deployment, rows: Iterable[Measured]) -> Iterator[str]:
    """Yield a text when the deployment's set was measured and is clearly slower somewhere."""
    found = measured.compare(d, rows, _sizes(d))
    if any(map(_is_slower, found)):
        yield _told(d, found)


def worse(d: Deployment, rows: Iterable[Measured]) -> str:
    """Return a text when the deployment's set was measured clearly slower somewhere and faster nowhere, or nothing.

    Looked at are the messages of all of ``bench.batches``, so that a set that helps large batches alone stays.
    """
    found = measured.compare(d, rows, _all_sizes(d))
    return _told(d, found) if any(map(_is_slower, found)) and all(c.ratio > _FASTER for c in found) else ""


def _is_slower(c: Comparison) -> bool:
    return c.clear and c.ratio >= _SLOWER


def _told(d: Deployment, found: Sequence[Comparison]) -> str:
    bad = [c for c in found if _is_slower(c)]
    first = max(bad, key=lambda c: c.ratio)
    alike = [c for c in bad if _times(c) == _times(first)]
    sizes = " and ".join(dict.fromkeys(_size(c.row.bytes) for c in alike))
    rest = _rest([c for c in found if c not in alike])
    return (
        f"{' '.join(map(_key, first.row.set.split()))}: measured {_times(first)} slower than NCCL's default"
        f" at {_names(alike)} sizes ({sizes} all-reduce, {_place(d, first.row)}){rest}"
        f"{_lacking(first)}."
    )


def everywhere(d: Deployment, rows: Iterable[Measured]) -> str:
    """Return how the deployment's whole set was measured clearly slower at every kind of size, empty when it was not.

    A step of decoding, of verification and of a prompt each have to be known, and decoding at every batch of
    ``bench.batches`` that is.
    """
    width = d.model.hidden_size * _WIDTH
    batches = [(f"decode-{batch}", batch * width) for batch in d.bench.batches if batch > 1 and width]
    kinds = _sizes(d)
    found = measured.compare(d, rows, [*kinds, *batches])
    known = {c.workload for c in found}
    if not kinds or any(name not in known for name, _ in kinds):
        return ""
    if any(c.unmeasured or not c.clear or c.ratio < _SLOWER for c in found):
        return ""
    times = ", ".join(f"{c.workload} {_times(c)}" for c in found)
    return f"measured slower than NCCL's default at every size: {times} ({_place(d, found[0].row)})"


def _sizes(d: Deployment) -> list[tuple[str, int]]:
    """Return what this deployment's all-reduces carry: name of the workload and bytes."""
    verify = d.spec.draft_tokens if d.spec.method != "off" else 0
    tokens = {"decode": 1, "verify": verify if verify > 1 else 0, "prefill": _PREFILL}
    return [(name, n * d.model.hidden_size * _WIDTH) for name, n in tokens.items() if n and d.model.hidden_size]


def _all_sizes(d: Deployment) -> list[tuple[str, int]]:
    """Return the same for every batch: those are told apart by their number of sequences."""
    batches = d.bench.batches or (1,)
    one = _sizes(d)
    several = [(f"{name}-{batch}", batch * size) for name, size in one if name != "prefill" for batch in batches]
    return [*several, *(pair for pair in one if pair[0] == "prefill")]


def _rest(found: Sequence[Comparison]) -> str:
    """Return the other sizes, those with the same ratio together."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in found:
        noise = " (within the noise)" if c.ratio >= _SLOWER and not c.clear else ""
        groups.setdefault((_times(c), noise), []).append(c)
    return "".join(f"; {times} at {_names(group)} sizes{noise}" for (times, noise), group in groups.items())


def _lacking(c: Comparison) -> str:
    keys = ", ".join(_key(pair).partition("=")[0] for pair in c.unmeasured)
    return f". Not measured beside it: {keys}" if keys else ""


def _times(c: Comparison) -> str:
    return f"{c.ratio:.2f} x" if c.ratio < _COARSE else f"{c.ratio:.1f} x"


def _names(found: Sequence[Comparison]) -> str:
    return " and ".join(c.workload for c in found)


def _key(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f"nccl.{name.lower()}={value}"


def _size(count: int) -> str:
    return f"{count / MIB:.0f} MiB" if count >= MIB else f"{count / 1024:.0f} KiB"


def _place(d: Deployment, row: Measured) -> str:
    """Return where and when a row was measured."""
    links = {"nvlink": "over NVLink", "pcie": "with P2P over PCIe"}
    link = links[row.interconnect] if row.p2p == "on" else "without P2P"
    wanted = d.engine.nccl_version
    other = f", not {wanted}" if wanted and wanted != row.nccl_version else ""
    return f"{row.gpus} x {row.gpu} {link}, NCCL {row.nccl_version}{other}, {row.date}"


def _remembered(d: Deployment) -> Iterator[str]:
    # Most deployments set nothing: they need not read the files.
    if nccl_sets.given(d):
        yield from slower(d, (*measured.shipped(), *measured.own(Path(d.sweep.out).expanduser())))


RULES = (
    Rule(
        "nccl-measured-slower",
        "warn",
        "On equal hardware this set was measured beside NCCL's own choice, and lost. The ranking of settings flips with"
        " the size of the message: what serves decode may ruin prefill.",
        "launcher/catalogue/allreduce.csv: medians of CUDA graph replays, own runs; measured.csv of your own sweeps",
        _remembered,
    ),
)
