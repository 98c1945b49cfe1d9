"""What a difference means for a server: milliseconds of a step, and tokens per second.

Only communication was measured; the rest of a step stays as it is. Tokens per second need the time of a whole step of
the baseline (``step_ms`` of the workload) and, with speculation, the tokens that a step yields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.sweep import shares
from launcher.sweep.figures import level
from launcher.sweep.tables import valid

if TYPE_CHECKING:
    from launcher.sweep.record import Judgement, Sweep, Verdict, Workload


@dataclass(frozen=True)
class Effect:
    """The effect of a point on one step.

    Attributes:
        point: digest.
        workload: its name.
        step_ms: more milliseconds a step; negative is faster.
        each_us: of it each all-reduce, in microseconds.
        tokens_before: per second, of the baseline; 0: not known.
        tokens_after: likewise, of the point.
    """

    point: str
    workload: str
    step_ms: float
    each_us: float
    tokens_before: float = 0.0
    tokens_after: float = 0.0


def effects(sweep: Sweep, judgement: Judgement) -> list[Effect]:
    """Return the effects of every verdict on communication that says better or worse, in their order."""
    workloads = {workload.name: workload for workload in sweep.workloads}
    base = {
        (workload, host): level([reading.value for _, reading in shares.on_host(found, host)])
        for (point, workload), found in valid(sweep).items()
        for host in shares.where(sweep, sweep.baseline)
        if point == sweep.baseline.digest
    }
    return [
        _effect(verdict, workloads[verdict.workload], base[verdict.workload, sweep.homes.get(verdict.point, "")])
        for verdict in judgement.verdicts
        if verdict.word in ("better", "worse")
        and math.isfinite(verdict.difference)
        and workloads[verdict.workload].unit == "us"
    ]


def _effect(verdict: Verdict, workload: Workload, base: float) -> Effect:
    details = workload.details
    more_ms = base * verdict.difference / 1000
    count = details.get("allreduces", 0)
    each = more_ms * 1000 / count if count else 0.0
    whole, yields = details.get("step_ms", 0.0), details.get("yields", 0.0)
    if not whole or not yields or whole + more_ms <= 0:
        return Effect(verdict.point, workload.name, more_ms, each)
    return Effect(verdict.point, workload.name, more_ms, each, yields / whole * 1000, yields / (whole + more_ms) * 1000)


def text(sweep: Sweep, judgement: Judgement) -> list[str]:
    """Return the effects as lines for people."""
    labels = {point.digest: point.label for point in sweep.points}
    counts = {workload.name: workload.details.get("allreduces", 0) for workload in sweep.workloads}
    lines = []
    for effect in effects(sweep, judgement):
        each = f" ({counts[effect.workload]} x {effect.each_us:+.1f} us)" if counts[effect.workload] else ""
        tokens = f"; {effect.tokens_before:.1f} -> {effect.tokens_after:.1f} tok/s" if effect.tokens_before else ""
        lines.append(f"{labels[effect.point]}, {effect.workload}: {effect.step_ms:+.2f} ms a step{each}{tokens}")
    return lines
