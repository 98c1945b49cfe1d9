"""When speculation pays: a cycle of draft and verification against plain steps. Pure."""

from __future__ import annotations

import math


def break_even(step_ms_with: float, step_ms_without: float) -> float:
    """Return the acceptance length from which speculation pays, NaN where a time is missing.

    A cycle (draft steps and one verify step) has to give as many tokens as plain steps would in its time.

    Args:
        step_ms_with: milliseconds of a whole cycle; acceptance length x TPOT, measured with speculation.
        step_ms_without: of a plain step; TPOT, measured without speculation under the same load.
    """
    if not (step_ms_with > 0 and step_ms_without > 0):
        return math.nan
    return step_ms_with / step_ms_without


def cycle_ms(tpot_ms: float, acceptance: float) -> float:
    """Return the milliseconds of a cycle of draft and verification, from the time per output token of a request."""
    return tpot_ms * acceptance if tpot_ms > 0 and acceptance > 0 else math.nan
