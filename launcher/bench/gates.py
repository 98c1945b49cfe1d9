"""Whether a measured load counts: each gate gives the reasons why it does not, in words. Pure.

A row that fails a gate is invalid, not slow: what it measured was something else than what was asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher.agent import nccl_log
from launcher.agent.readings import lasting
from launcher.bench.counters import Counted
from launcher.bench.result import ClientResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Part of the output tokens by which a client that counts text may differ from the server.
_TOKENS = 0.01
#: Parts by which a server may count more answers, and more prompts, than were asked for: clients make text of random
#: tokens, from which the server may read many more.
_MORE, _MORE_PROMPTS = 0.10, 1.0
_NOTHING = ClientResult(0, -1, math.nan)


@dataclass(frozen=True)
class Wanted:
    """What a load has to show to count.

    Attributes:
        requests: that were sent.
        input_tokens: of each prompt.
        output_tokens: of each answer.
        cache_hits: part of the prompt tokens that may come from the cache; 1: all of them.
        acceptance_low: tokens a verify step, at least; 0: any.
        acceptance_high: at most; 0: any.
        speculation: whether the point speculates.
        nccl: NCCL's variables of its release.
        evidence: ``log_evidence`` of the catalogue by variable.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    cache_hits: float = 1.0
    acceptance_low: float = 0.0
    acceptance_high: float = 0.0
    speculation: bool = False
    nccl: Mapping[str, str] | None = None
    evidence: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Seen:
    """What a load showed: the answer of `launcher.agent.load.run`, the client's result, the server's counters."""

    answer: Mapping[str, Any]
    result: ClientResult = _NOTHING
    counted: Counted = field(default_factory=Counted)


def reasons(wanted: Wanted, seen: Seen) -> tuple[str, ...]:
    """Return why a load does not count, nothing when it does; what the client did not end to tell is not judged."""
    if seen.answer["outcome"] != "measured":
        return tuple(_client(seen))
    return tuple(reason for gate in GATES.values() for reason in gate(wanted, seen))


def _client(seen: Seen) -> list[str]:
    """Return how the client ended, when not well: with the last line that it printed."""
    said = [line.strip() for line in (seen.answer["stderr"] or seen.answer["stdout"]).splitlines() if line.strip()]
    last = f": {said[-1][:300]}" if said and seen.answer["outcome"] == "failed" else ""
    return [f"{seen.answer['message']}{last}"]


def _completed(wanted: Wanted, seen: Seen) -> list[str]:
    result = seen.result
    failed = f", {result.failed} failed" if result.failed > 0 else ""
    if result.completed != wanted.requests or failed:
        return [f"{result.completed} of {wanted.requests} requests were answered{failed}"]
    return []


def _duration(_: Wanted, seen: Seen) -> list[str]:
    return [] if seen.result.duration_s > 0 else [f"the client says that it took {seen.result.duration_s:g} s"]


def _tokens(wanted: Wanted, seen: Seen) -> list[str]:
    """Return what speaks against the lengths that were asked for: an answer cut short makes a server look fast."""
    asked = wanted.requests * wanted.output_tokens
    found = []
    got = seen.result.output_tokens
    if not math.isfinite(got):
        found.append("the client does not say how many tokens it got")
    elif abs(got - asked) > _TOKENS * asked:
        found.append(f"{got:.0f} tokens were answered, {asked} were asked for ({wanted.output_tokens} a request)")
    counted = seen.counted.output_tokens
    # With speculation a server may count what it threw away at the end of an answer.
    if math.isfinite(counted) and counted < (1 - _TOKENS) * asked:
        found.append(f"the server counted {counted:.0f} tokens of answers, {asked} were asked for")
    prompts = wanted.requests * wanted.input_tokens
    if math.isfinite(counted) and counted > (1 + _MORE) * asked + 1:
        found.append(f"the server answered {counted:.0f} tokens, {asked} were asked for: somebody else used it")
    elif seen.counted.prompt_tokens > (1 + _MORE_PROMPTS) * prompts + 8 * wanted.requests:
        found.append(
            f"the server read {seen.counted.prompt_tokens:.0f} tokens of prompts, {prompts} were sent: somebody else"
            " used it, or the tokenizer is another one"
        )
    return found


def _cache(wanted: Wanted, seen: Seen) -> list[str]:
    hits = seen.counted.cache_hits
    if not math.isfinite(hits) and seen.result.input_tokens > 0:
        hits = seen.result.cached_tokens / seen.result.input_tokens
    if hits > wanted.cache_hits:
        part = f"{100 * hits:.1f} % of the prompt tokens came from the prefix cache"
        return [f"{part}, {100 * wanted.cache_hits:g} % may (bench.cache_hits)"]
    return []


def _acceptance(wanted: Wanted, seen: Seen) -> list[str]:
    low, high = wanted.acceptance_low, wanted.acceptance_high
    if not wanted.speculation or not (low or high):
        return []
    length = acceptance_length(seen)
    band = f"{low:g} to {high:g}" if high else f"at least {low:g}"
    if not math.isfinite(length):
        return [f"nobody says how many tokens a verify step gave, it has to be {band} (bench.acceptance_low, _high)"]
    if length < low or (high and length > high):
        return [f"a verify step gave {length:.2f} tokens, it has to be {band} (bench.acceptance_low, _high)"]
    return []


def _speculation(wanted: Wanted, seen: Seen) -> list[str]:
    """Return that speculation does not run where it should, or runs where it should not."""
    if not wanted.speculation and seen.counted.drafts > 0:
        return [f"the server speculates ({seen.counted.drafts:.0f} verify steps), this point does not"]
    if wanted.speculation and seen.counted.drafts == 0 and wanted.output_tokens > 1:
        return ["the server did not speculate at all, this point does"]
    return []


def _processes(_: Wanted, seen: Seen) -> list[str]:
    """Return which processes of the server did not live through the load."""
    answer = seen.answer
    after = {(process["pid"], process["start"]) for process in answer["processes_after"]}
    gone = [
        f"process {process['pid']} of the server ({process['title'][:60] or 'no title'}) ended during the load"
        for process in lasting(answer["processes_before"])
        if (process["pid"], process["start"]) not in after
    ]
    return gone if answer["alive"] else [*gone, "the server ended during the load"]


def _environment(_: Wanted, seen: Seen) -> list[str]:
    return [f"the environment of a process: {line}" for line in seen.answer["contradictions"]]


def _nccl(wanted: Wanted, seen: Seen) -> list[str]:
    """Return what NCCL's lines during the load contradict, and what it gave up over."""
    lines = seen.answer["log"]["nccl"]
    log = nccl_log.read(lines)
    verdicts = nccl_log.verdicts(log, wanted.nccl or {}, wanted.evidence or {})
    found = [f"{n} is contradicted by NCCL: {v.quote}" for n, v in verdicts.items() if v.word == nccl_log.CONTRADICTED]
    cause = log.cause
    if cause and cause.kind not in ("not completed", "other"):
        found.append(f"NCCL reports {cause.kind} during the load: {cause.line.strip()[:300]}")
    return found


def _preempted(_: Wanted, seen: Seen) -> list[str]:
    if seen.counted.preemptions > 0:
        thrown = f"the server threw {seen.counted.preemptions:.0f} requests out of its full cache and began them again"
        return [f"{thrown}: fewer in flight, or more memory for the cache"]
    return []


def _counters(_: Wanted, seen: Seen) -> list[str]:
    return list(seen.counted.odd)


#: By name, in the order in which their reasons stand.
GATES: dict[str, Callable[[Wanted, Seen], list[str]]] = {
    "processes": _processes,
    "environment": _environment,
    "nccl": _nccl,
    "completed": _completed,
    "duration": _duration,
    "tokens": _tokens,
    "cache": _cache,
    "speculation": _speculation,
    "acceptance": _acceptance,
    "preempted": _preempted,
    "counters": _counters,
}


def acceptance_length(seen: Seen) -> float:
    """Return the tokens that a verify step gave, by the server's counters, else by the client; NaN: nobody says."""
    length = seen.counted.acceptance_length
    return length if math.isfinite(length) else seen.result.acceptance_length


def unknown(wanted: Wanted, seen: Seen, flushed: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what nobody told, so that it could not be judged; one line each.

    Args:
        wanted: of the load.
        seen: of it.
        flushed: how the server answered when its cache was to be emptied.
    """
    hits = math.isfinite(seen.counted.cache_hits) or math.isfinite(seen.result.cached_tokens)
    refused = [f"{item['path']} answered {item['status']}" for item in flushed if item["status"] != 200]
    found = [] if hits else ["prefix cache hits" + (f" ({refused[0]})" if refused else "")]
    if not math.isfinite(seen.counted.preemptions):
        found.append("preemptions")
    if wanted.speculation and not math.isfinite(acceptance_length(seen)):
        found.append("acceptance")
    return (*found, *seen.answer["unknown"])
