"""A server's own counters over one load: which pages are asked for, and what their difference says. Pure.

Names: vLLM 0.25 and 0.32 (``/metrics``, always there), SGLang 0.5.17 and 0.5.23 (``/metrics`` with ``--enable-metrics``
alone; ``/server_info`` always). Only counters are subtracted: SGLang's gauges of acceptance show the last window of its
log. Its mean acceptance in ``/server_info`` goes back to the last flush of the cache, which is done just before.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|Inf))(?: \d+)?$")
_METRICS, _INFO = "/metrics", "/server_info"
_GAUGE = "sglang:num_retracted_reqs"
_ACCEPTANCE = ("internal_states", 0, "avg_spec_accept_length")
_LINES = {
    "vllm": [
        "vllm:prefix_cache_queries",
        "vllm:prefix_cache_hits",
        "vllm:external_prefix_cache_hits",
        "vllm:num_preemptions",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:request_success",
        "vllm:spec_decode_num",
    ],
    "sglang": [
        "sglang:cached_tokens",
        "sglang:prompt_tokens_total",
        "sglang:generation_tokens_total",
        "sglang:num_requests_total",
        "sglang:num_retracted_requests",
        "sglang:num_retracted_reqs",
        "sglang:spec_verify_calls",
    ],
}
#: What is posted to empty the prefix cache: vLLM has it in its development mode alone, and answers 404 else.
FLUSH = {"vllm": ["/reset_prefix_cache"], "sglang": ["/flush_cache?timeout=5"]}


@dataclass(frozen=True)
class Counted:
    """What the server itself counted during a load; NaN where it does not tell.

    Attributes:
        prompt_tokens: that it was asked.
        output_tokens: that it gave.
        cached_tokens: of the prompts, from the prefix cache.
        preemptions: requests that were thrown out and begun again.
        drafts: verify steps, of all requests together.
        accepted: drafted tokens that were taken.
        drafted: that were proposed.
        acceptance_length: tokens that a verify step gave, the one that is always given included.
        odd: why a figure cannot be right, one line each.
    """

    prompt_tokens: float = math.nan
    output_tokens: float = math.nan
    cached_tokens: float = math.nan
    preemptions: float = math.nan
    drafts: float = math.nan
    accepted: float = math.nan
    drafted: float = math.nan
    acceptance_length: float = math.nan
    odd: tuple[str, ...] = ()

    @property
    def cache_hits(self) -> float:
        """The part of the prompt tokens that came from the cache; NaN where that is not known."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens > 0 else math.nan

    @property
    def acceptance_rate(self) -> float:
        """The part of the drafted tokens that was taken."""
        return self.accepted / self.drafted if self.drafted > 0 else math.nan


def pages(engine: str) -> list[dict[str, Any]]:
    """Return what `launcher.agent.readings.pages` asks a server for before and after a load."""
    found: list[dict[str, Any]] = [{"path": _METRICS, "lines": _LINES[engine]}]
    if engine == "sglang":
        found.append({"path": _INFO, "keys": [list(_ACCEPTANCE), ["version"]]})
    return found


def counted(engine: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Counted:
    """Return the difference of two readings of the pages."""
    first, last = (sums(page.get(_METRICS, {}).get("lines", ())) for page in (before, after))
    back = (name for name in first if name.endswith("_total") and last.get(name, 0) < first[name])
    odd = tuple(f"the counter {name} went back during the load" for name in back) if last else ()
    # A series comes to be with its first event. The gauge, of older ones, tells of the last moments.
    delta = {name: value - (0 if name == _GAUGE else first.get(name, 0)) for name, value in last.items()}
    return _vllm(delta, odd) if engine == "vllm" else _sglang(delta, after, odd)


def _vllm(delta: Mapping[str, float], odd: tuple[str, ...]) -> Counted:
    words = ("drafts", "accepted_tokens", "draft_tokens")
    drafts, accepted, drafted = (delta.get(f"vllm:spec_decode_num_{word}_total", math.nan) for word in words)
    return Counted(
        prompt_tokens=delta.get("vllm:prompt_tokens_total", math.nan),
        output_tokens=delta.get("vllm:generation_tokens_total", math.nan),
        cached_tokens=delta.get("vllm:prefix_cache_hits_total", math.nan)
        + delta.get("vllm:external_prefix_cache_hits_total", 0),
        preemptions=delta.get("vllm:num_preemptions_total", math.nan),
        drafts=drafts,
        accepted=accepted,
        drafted=drafted,
        acceptance_length=1 + accepted / drafts if drafts > 0 else math.nan,
        odd=odd,
    )


def _sglang(delta: Mapping[str, float], after: Mapping[str, Any], odd: tuple[str, ...]) -> Counted:
    prompts, output = (delta.get(f"sglang:{kind}_tokens_total", math.nan) for kind in ("prompt", "generation"))
    told = after.get(_INFO, {}).get("values", {}).get(".".join(map(str, _ACCEPTANCE)), math.nan)
    drafts = delta.get("sglang:spec_verify_calls_total", math.nan)
    requests = delta.get("sglang:num_requests_total", math.nan)
    # The first token of an answer comes from its prefill.
    worked_out = (output - requests) / drafts if drafts > 0 else math.nan
    none = 0.0 if math.isfinite(prompts) else math.nan
    return Counted(
        prompt_tokens=prompts,
        output_tokens=output,
        cached_tokens=delta.get("sglang:cached_tokens_total", none),
        preemptions=delta.get("sglang:num_retracted_requests_total", delta.get(_GAUGE, none)),
        drafts=drafts,
        acceptance_length=float(told) if math.isfinite(told) and told > 0 else worked_out,
        odd=odd,
    )


def sums(lines: Sequence[str]) -> dict[str, float]:
    """Return the value of each counter, all its series added up; what ends in ``_created`` is a time."""
    found: dict[str, float] = {}
    for line in lines:
        sample = _SAMPLE.fullmatch(line.strip())
        if not sample or sample[1].endswith(("_created", "_bucket")):
            continue
        found[sample[1]] = found.get(sample[1], 0.0) + float(sample[3])
    return found
