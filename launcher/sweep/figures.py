"""Numbers of a sweep as people read them."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .record import Verdict

#: From which difference on a factor says more than percent; what would round to 50 % is one.
_FACTOR = 0.4995
#: An interval that goes beyond its middle by this factor either way says nothing.
_UNKNOWN = 10.0
#: From here on a factor is told in whole numbers.
_WHOLE = 99.5


def relative(difference: float) -> str:
    """Return a relative difference for people: "+2.4 %", or a factor such as "2.5 x" where it is large."""
    if not math.isfinite(difference):
        return "?"
    if abs(difference) < _FACTOR:
        text = f"{difference * 100:+.1f} %"
        return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text
    factor = 1 + difference
    return f"{factor:.{0 if factor >= 9.95 else 1 if factor >= 1 else 2}f} x"


def interval(verdict: Verdict) -> str:
    """Return the interval around a difference, in the unit that `relative` gives that; empty when there is none.

    "±0.6", or both ends where it is lopsided.
    """
    low, high, middle = verdict.low, verdict.high, verdict.difference
    if not all(map(math.isfinite, (low, high, middle))):
        return ""
    if middle <= -1 or (1 + low) * _UNKNOWN < 1 + middle or 1 + high > (1 + middle) * _UNKNOWN:
        return "not known yet"
    half = (high - low) / 2
    if abs(middle) < _FACTOR:
        even = abs((low + high) / 2 - middle) <= max(0.001, 0.1 * half)
        return f"±{half * 100:.1f}" if even else f"{_percent(low)} to {_percent(high)} %"
    return f"{_factor(1 + low)} to {_factor(1 + high)} x"


def _percent(difference: float) -> str:
    return f"{difference * 100:+.{0 if abs(difference) >= 1 else 1}f}"


def _factor(factor: float) -> str:
    return f"{factor:.3g}" if factor < _WHOLE else f"{factor:.0f}"


def figure(value: float) -> str:
    """Return a measured value with about four digits."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def level(values: Sequence[float]) -> float:
    """Return the geometric mean; not a number without values or with one that is not positive."""
    if not values or min(values) <= 0:
        return math.nan
    return math.exp(sum(map(math.log, values)) / len(values))


def is_number(value: object) -> bool:
    """Return whether a detail of a reading can be counted with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def middle(details: Iterable[Mapping[str, Any]], *keys: str) -> float:
    """Return the median of a detail over all that have it; the first key that one has counts, NaN: none has any."""
    values = []
    for one in details:
        found = [float(one[key]) for key in keys if is_number(one.get(key))]
        values += found[:1]
    return statistics.median(values) if values else math.nan


def unit(name: str) -> str:
    """Return a unit as people write it."""
    return "µs" if name == "us" else name


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 point", "2 points"."""
    return f"{number:,} {what}{'s'[: number != 1]}"
