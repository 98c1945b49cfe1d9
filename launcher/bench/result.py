"""What a measuring program found, in one form for all of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

_NONE = math.nan


class ResultError(ValueError):
    """The result is not what the client writes, or was cut off; says what is wrong with it."""


@dataclass(frozen=True)
class ClientResult:
    """One run of a client; a figure that it does not give is NaN, so that nothing is compared with it.

    Attributes:
        completed: requests that were answered.
        failed: requests that were not, -1 where the client does not count them.
        duration_s: from the first request to the last answer.
        input_tokens: of all prompts.
        output_tokens: of all answers.
        output_tokens_per_s: of all requests together.
        total_tokens_per_s: prompts as well.
        requests_per_s: answered.
        ttft_ms_mean: until the first token; likewise the median and the 99th percentile.
        tpot_ms_mean: from token to token after the first, each request's mean.
        itl_ms_mean: between two pieces of an answer as they arrive; speculation brings several tokens in one.
        e2e_ms_mean: of a whole request.
        acceptance_length: tokens a verify step gives, the one that is always given included.
        acceptance_rate: accepted part of the drafted tokens, 0 to 1.
        cached_tokens: of the prompts, taken from the prefix cache.
    """

    completed: int
    failed: int
    duration_s: float
    input_tokens: float = _NONE
    output_tokens: float = _NONE
    output_tokens_per_s: float = _NONE
    total_tokens_per_s: float = _NONE
    requests_per_s: float = _NONE
    ttft_ms_mean: float = _NONE
    ttft_ms_median: float = _NONE
    ttft_ms_p99: float = _NONE
    tpot_ms_mean: float = _NONE
    tpot_ms_median: float = _NONE
    tpot_ms_p99: float = _NONE
    itl_ms_mean: float = _NONE
    itl_ms_median: float = _NONE
    itl_ms_p99: float = _NONE
    e2e_ms_mean: float = _NONE
    e2e_ms_median: float = _NONE
    e2e_ms_p99: float = _NONE
    acceptance_length: float = _NONE
    acceptance_rate: float = _NONE
    cached_tokens: float = _NONE

    def known(self) -> dict[str, float]:
        """Return every figure that the client gave, by name."""
        found = dataclasses.asdict(self)
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def metric(self, name: str) -> float:
        """Return a load's deciding figure: a rate as it is, of a latency the median, else its mean; NaN: not given."""
        if hasattr(self, name):
            return float(getattr(self, name))
        median: float = getattr(self, f"{name}_median")
        return median if math.isfinite(median) else float(getattr(self, f"{name}_mean"))


def figure(value: object) -> float:
    """Return a number of a result; NaN for what is none, as null and text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NONE
    return float(value)
