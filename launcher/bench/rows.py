"""From the answers of a load to the reading of a trial: figures, gates, and what else a reader may ask for. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher.bench import counters, gates
from launcher.bench.result import ResultError
from launcher.sweep import speculation
from launcher.sweep.record import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.bench.clients.ask import Ask, Client
    from launcher.bench.gates import Wanted
    from launcher.schema import Load


@dataclass(frozen=True)
class Row:
    """One run of a load.

    Attributes:
        value: of the figure that decides; NaN when there is none.
        invalid: why it counts for nothing.
        figures: of client and server, by name with their units.
        high: the 99th percentile of a latency; NaN of a rate.
        unknown: what could not be judged.
    """

    value: float
    invalid: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    high: float = math.nan
    unknown: tuple[str, ...] = ()


def row(client: Client, ask: Ask, wanted: Wanted, load: Load, answer: Mapping[str, Any]) -> Row:
    """Return what one answer of `launcher.agent.load.run` says."""
    counted = counters.counted(ask.engine, answer["before"], answer["after"])
    if answer["outcome"] != "measured":
        return Row(math.nan, gates.reasons(wanted, gates.Seen(answer, counted=counted)))
    try:
        result = client.read(answer["result"], ask)
    except ResultError as error:
        return Row(math.nan, (str(error),))
    seen = gates.Seen(answer, result, counted)
    value = result.metric(load.metric)
    invalid = gates.reasons(wanted, seen)
    if not math.isfinite(value) or value <= 0:
        invalid = (*invalid, f"{client.name} gives no {load.metric}")
    high = getattr(result, f"{load.metric}_p99", math.nan)
    unknown = gates.unknown(wanted, seen, answer["flushed"])
    return Row(value, invalid, _figures(seen, load), high, unknown)


def reading(name: str, load: Load, runs: Sequence[Row], gpus: int, against: Sequence[str]) -> Reading:
    """Return the mean of the runs of one load; one that is invalid makes the reading so.

    Args:
        name: of the load.
        load: that was run.
        runs: one at least.
        gpus: that serve.
        against: what speaks against the whole start.
    """
    several = len(runs) > 1
    invalid = [
        f"run {number}: {reason}" if several else reason
        for number, run in enumerate(runs, start=1)
        for reason in run.invalid
    ]
    values = [run.value for run in runs if math.isfinite(run.value) and run.value > 0]
    value = statistics.mean(values) if values else 0.0
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    if len(values) == 1 and math.isfinite(runs[0].high):
        high = max(high, runs[0].high)
    names = dict.fromkeys(name for run in runs for name in run.figures)
    details: dict[str, Any] = {
        figure: round(statistics.mean(run.figures[figure] for run in runs if figure in run.figures), 4)
        for figure in names
    }
    if details.get("output_tokens_per_s"):
        details["output_tokens_per_s_per_gpu"] = round(details["output_tokens_per_s"] / gpus, 4)
    details |= {"metric": load.metric, "runs": [round(value, 4) for value in values]}
    if unknown := list(dict.fromkeys(text for run in runs for text in run.unknown)):
        details["unknown"] = unknown
    return Reading(name, round(value, 4), round(low, 4), round(high, 4), (*against, *invalid), details)


def _figures(seen: gates.Seen, load: Load) -> dict[str, float]:
    """Return everything that is known of one run."""
    counted, found = seen.counted, dict(seen.result.known())
    tpot = found.get("tpot_ms_median", found.get("tpot_ms_mean", math.nan))
    length = gates.acceptance_length(seen)
    rate = counted.acceptance_rate
    rest = {
        # What one of the clients gets, once its answer has begun.
        "output_tokens_per_s_per_user": 1000 / tpot
        if tpot > 0
        else found.get("output_tokens_per_s", math.nan) / load.concurrency,
        "cache_hits": counted.cache_hits,
        "preemptions": counted.preemptions,
        "acceptance_length": length,
        "acceptance_rate": rate if math.isfinite(rate) else seen.result.acceptance_rate,
        "verify_steps": counted.drafts,
        "cycle_ms": speculation.cycle_ms(tpot, length),
        "client_s": seen.answer["seconds"].get("client", math.nan),
        # On average while the load ran: neither the server's nor its client's.
        "other_processors": seen.answer["cpu"].get("others", math.nan),
        "processors": seen.answer["cpu"].get("processors", math.nan),
    }
    found |= {name: value for name, value in rest.items() if math.isfinite(value)}
    found |= {f"log_{name}": told["mean"] for name, told in seen.answer["log"]["patterns"].items()}
    return found
