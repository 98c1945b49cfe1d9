"""Leave out what the collectives alone showed to be worse: seconds of `bench=allreduce` spare minutes of a server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from launcher.catalogue import nccl_measured_rules, nccl_sets
from launcher.errors import ConfigError
from launcher.sweep.record import LeftOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.catalogue.measured import Measured
    from launcher.sweep.points import Points


def without(points: Points, rows: Sequence[Measured]) -> Points:
    """Return the points without those whose set was measured slower than NCCL's default somewhere and faster nowhere.

    A set that was faster at some size stays: whether the trade pays off is the server's to say. The baseline's own set
    stays, whatever it is: a point that differs in something else would go with it.

    Args:
        points: of a sweep.
        rows: of earlier measurements, on whatever hardware; equal hardware counts.

    Raises:
        ConfigError: nothing is left to compare with the baseline.
    """
    baseline, *others = points.candidates
    usual = nccl_sets.given(baseline.deployment)
    found = {
        c.point.label: nccl_measured_rules.worse(c.deployment, rows) if nccl_sets.given(c.deployment) != usual else ""
        for c in others
    }
    left_out = tuple(LeftOut(label, (f"{reason} [sweep.prune]",)) for label, reason in found.items() if reason)
    if others and len(left_out) == len(others):
        raise ConfigError(
            "sweep.prune leaves no point out of which to choose: all sets were measured slower than NCCL's default on"
            " equal hardware, and faster nowhere; measure them all the same with sweep.prune=false"
        )
    kept = (baseline, *(c for c in others if not found[c.point.label]))
    return dataclasses.replace(points, candidates=kept, left_out=(*points.left_out, *left_out))
