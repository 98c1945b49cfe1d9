"""Which loads a served model is measured with: the configured ones, or those that make winners of one kind show.

Without `bench.loads`: one request at a time; as many as production has in flight, which is the engine's own limit
(`engine.args.max_running_requests`, `engine.args.max_num_seqs`) or 8; eight times that, 64 at most but at least twice
it, since settings that are level in small batches can differ by a third in large ones (two H200, NCCL_PROTO=LL: 0 % at
8 requests in flight, -26 % tokens a second at 64); and a long prompt with one token of answer, which is prefill alone:
8192 tokens, or as many as the context length leaves. Above the engine's limit requests wait for a place: that is
production's behaviour at a rush, and it shows in the time to the first token.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from launcher.bench.clients.known import CLIENTS
from launcher.bench.steps import read_tokens
from launcher.errors import ConfigError
from launcher.schema import Load
from launcher.sweep.record import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.schema import Deployment

#: Requests in flight where nobody limits them; and of the load above production, times and at most.
_USUAL, _TIMES, _MOST = 8, 8, 64
_PREFILL = 8192
#: Tokens that a prompt may get longer by: clients make text of random tokens, and the server reads it anew.
_SLACK = 64
#: Requests for each one in flight, and at least.
_EACH, _FEWEST = 8, 16
_USUAL_LOAD = Load(concurrency=1, input_tokens=512, output_tokens=128, metric="output_tokens_per_s")
_LIMITS = {"sglang": "max_running_requests", "vllm": "max_num_seqs"}
_CONTEXTS = {"sglang": "context_length", "vllm": "max_model_len"}
_UNITS = {"output_tokens_per_s": "tok/s", "tpot_ms": "ms", "ttft_ms": "ms", "e2e_ms": "ms"}
_METRICS = {
    "output_tokens_per_s": "tokens a second",
    "tpot_ms": "time per output token",
    "ttft_ms": "time to the first token",
    "e2e_ms": "time of a request",
}


def loads(deployment: Deployment) -> dict[str, Load]:
    """Return the loads by name, with their numbers of requests; those of the baseline hold for every point.

    Raises:
        ConfigError: a load cannot be run, or does not fit into the context length.
    """
    _check(deployment)
    found = _meant(deployment.bench.loads, _default(deployment))
    problems = [problem for name, load in found.items() for problem in _problems(deployment, name, load)]
    if problems:
        raise ConfigError(*problems)
    return {name: _counted(load) for name, load in found.items()}


def _meant(own: Mapping[str, Load], usual: Mapping[str, Load]) -> dict[str, Load]:
    """Return the loads of a configuration, whole: its own alone, or the default ones as far as it only changes those.

    A variant of a default load, as an axis of the client makes it (``decode-1-input_tokens-64``), takes its place.
    """
    of = {name: _origin(name, usual) for name in own}
    found: dict[str, Load] = {}
    for name, load in usual.items() if all(of.values()) else ():
        changed = [one for one, origin in of.items() if origin == name]
        found |= {one: _filled(own[one], load) for one in changed} or {name: load}
    return found or {name: _filled(load, usual.get(of[name], _USUAL_LOAD)) for name, load in own.items()}


def _origin(name: str, usual: Mapping[str, Load]) -> str:
    """Return the default load that a name means, or is a variant of; nothing for one of its own."""
    fields = "|".join(field.name for field in dataclasses.fields(Load))
    return next((one for one in usual if re.fullmatch(rf"{re.escape(one)}(-({fields})-.+)?", name)), "")


def _filled(load: Load, base: Load) -> Load:
    given = {field.name: getattr(load, field.name) for field in dataclasses.fields(Load)}
    return dataclasses.replace(base, **{name: value for name, value in given.items() if value})


def workloads(found: Mapping[str, Load]) -> tuple[Workload, ...]:
    """Return how a sweep sees loads."""
    return tuple(
        Workload(
            name,
            name.partition("-")[0],
            f"{_METRICS[load.metric]}, {load.concurrency} in flight, {load.input_tokens} + {load.output_tokens} tokens",
            _UNITS[load.metric],
            lower_is_better=load.metric != "output_tokens_per_s",
            details={
                "metric": load.metric,
                "concurrency": load.concurrency,
                "requests": load.requests,
                "input_tokens": load.input_tokens,
                "output_tokens": load.output_tokens,
            },
        )
        for name, load in found.items()
    )


def context_length(deployment: Deployment) -> int:
    """Return the context length that the engine is told, 0 where it is told none."""
    return read_tokens(str(deployment.engine.args.get(_CONTEXTS[deployment.engine.name]) or ""))


def _default(deployment: Deployment) -> dict[str, Load]:
    context = context_length(deployment)
    told = deployment.engine.args.get(_LIMITS[deployment.engine.name])
    production = read_tokens(str(told or "")) or _USUAL
    high = min(_TIMES * production, max(_MOST, 2 * production))
    usual = _USUAL_LOAD
    room = context - usual.output_tokens - _SLACK if context else usual.input_tokens
    short = Load(input_tokens=min(usual.input_tokens, room), output_tokens=usual.output_tokens)
    long = min(_PREFILL, context - 1 - _SLACK) if context else _PREFILL
    found = {"decode-1": _like(short, 1, "tpot_ms")}
    found |= {f"decode-{n}": _like(short, n, "output_tokens_per_s") for n in (production, high) if n > 1}
    found[f"prefill-{long}"] = Load(concurrency=1, input_tokens=long, output_tokens=1, metric="ttft_ms")
    return found


def _like(load: Load, concurrency: int, metric: str) -> Load:
    return dataclasses.replace(load, concurrency=concurrency, metric=metric)  # type: ignore[arg-type]


def _counted(load: Load) -> Load:
    return dataclasses.replace(load, requests=load.requests or max(_FEWEST, _EACH * load.concurrency))


def _check(deployment: Deployment) -> None:
    bench = deployment.bench
    problems = []
    if bench.client == "command" and not bench.command.strip():
        problems.append("bench.client=command needs bench.command: a shell command that prints JSON")
    if bench.command and bench.client != "command":
        problems.append(f"bench.command is not used by bench.client={bench.client}: set bench.client=command")
    other = bench.client not in (deployment.engine.name, "command")
    if other and not bench.client_python:
        problems.append(
            f"bench.client={bench.client} is not part of {deployment.engine.name}: set bench.client_python to an"
            " interpreter on the host that has it"
        )
    if not CLIENTS[bench.client].takes_key and _asks_for_key(deployment):
        problems.append(
            f"bench.client={bench.client} takes a key on its command line alone, where everybody on the host can read"
            " it: the server asks for one, so take the engine's own client"
        )
    if bench.runs < 1:
        problems.append("bench.runs=0: a load has to run once at least")
    if bench.client_timeout < 1:
        problems.append("bench.client_timeout=0: a client needs some seconds")
    if bench.cache_hits > 1:
        problems.append(f"bench.cache_hits={bench.cache_hits:g} is a part of all prompt tokens, from 0 to 1")
    if bench.acceptance_high and bench.acceptance_low > bench.acceptance_high:
        problems.append("bench.acceptance_low is above bench.acceptance_high: no row could be valid")
    if deployment.engine.args.get("ssl_certfile"):
        problems.append("bench=serve does not speak TLS: measure without engine.args.ssl_certfile")
    if problems:
        raise ConfigError(*problems)


def _asks_for_key(deployment: Deployment) -> bool:
    return "api_key" in deployment.secrets.args or "VLLM_API_KEY" in deployment.secrets.env


def _problems(deployment: Deployment, name: str, load: Load) -> list[str]:
    """Return what is wrong with one load."""
    key = f"bench.loads.{name}"
    context = context_length(deployment)
    found = []
    if load.requests and load.requests < load.concurrency:
        found.append(f"{key}.requests={load.requests} never has {load.concurrency} in flight (concurrency)")
    if context and load.input_tokens + load.output_tokens > context:
        argument = _CONTEXTS[deployment.engine.name]
        found.append(
            f"{key}: {load.input_tokens} + {load.output_tokens} tokens do not fit into engine.args.{argument}={context}"
        )
    if load.metric == "tpot_ms" and load.output_tokens == 1:
        found.append(f"{key}.metric=tpot_ms: with one token of answer there is no time between tokens; take ttft_ms")
    return found
