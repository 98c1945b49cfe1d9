"""GuideLLM, against the completions of either engine.

Source: GuideLLM 0.8.1, its command line and its output against vLLM's CPU build (tests/bench/data), schema version 2.

- ``time_per_output_token_ms`` is the whole request over all its tokens; ``inter_token_latency_ms``, over the tokens
  after the first, is what the others call TPOT. It has nothing like their ITL.
- rates are worked out from its totals and its duration, as the others do it.
- a comma ends a setting in its ``kind=…`` arguments, so that none may stand in a value.
- a key would have to stand on its command line, for everybody on the host to read.
"""

from __future__ import annotations

from typing import Any

from launcher.agent.load import FOLDER
from launcher.bench.clients.ask import Ask, Client, load_json, version_of
from launcher.bench.result import ClientResult, ResultError, figure
from launcher.errors import ConfigError

_FILE = "guidellm.json"
_LATENCIES = {"ttft": "time_to_first_token_ms", "tpot": "inter_token_latency_ms"}


def command(ask: Ask) -> list[str]:
    """Return the command of one run.

    Raises:
        ConfigError: a name cannot be told to it.
    """
    for word in (ask.model, ask.tokenizer, ask.url):
        if "," in word:
            raise ConfigError(f"bench.client=guidellm cannot be told {word!r}: a comma ends a setting there")
    backend = f"kind=openai_http,target={ask.url},model={ask.model},request_format=/v1/completions"
    return [
        *(ask.python, "-m", "guidellm", "run", "--backend", backend + ',extras={"body":{"temperature":0}}'),
        *("--tokenizer", f"kind=huggingface_auto,model={ask.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={ask.input_tokens},output_tokens={ask.output_tokens}"),
        *("--profile", f"kind=concurrent,streams={ask.concurrency}"),
        *("--constraint", f"kind=max_requests,count={ask.requests}", "--seed", f"kind=static,value={ask.seed}"),
        *("--metrics", "kind=generative,sample_size=0"),
        *("--output", f"kind=json,path={FOLDER}/{_FILE}", "--disable-console"),
    ]


def read(text: str, _: Ask) -> ClientResult:
    """Return what a report says of its one benchmark.

    Raises:
        ResultError: it is none, or holds several.
    """
    found = load_json(text, ("benchmarks",), CLIENT.name)
    try:
        (benchmark,) = found["benchmarks"]
        metrics, totals = benchmark["metrics"], benchmark["metrics"]["request_totals"]
        duration = figure(benchmark["duration"])
        completed, failed = int(totals["successful"]), int(totals["errored"]) + int(totals["incomplete"])
        tokens = {name: _of(metrics, f"{name}_token_count", "total_sum") for name in ("prompt", "output")}
    except (KeyError, TypeError, ValueError) as error:
        raise ResultError(f"the result of {CLIENT.name} is no report of one benchmark: {error!r}") from error
    rate = 1 / duration if duration > 0 else figure(None)
    return ClientResult(
        completed=completed,
        failed=failed,
        duration_s=duration,
        input_tokens=tokens["prompt"],
        output_tokens=tokens["output"],
        output_tokens_per_s=tokens["output"] * rate,
        total_tokens_per_s=(tokens["prompt"] + tokens["output"]) * rate,
        requests_per_s=completed * rate,
        **{
            f"{ours}_ms_{stat}": _of(metrics, theirs, stat)
            for ours, theirs in _LATENCIES.items()
            for stat in ("mean", "median", "p99")
        },
        # In seconds there.
        **{f"e2e_ms_{stat}": 1000 * _of(metrics, "request_latency", stat) for stat in ("mean", "median", "p99")},
    )


def _of(metrics: dict[str, Any], key: str, stat: str) -> float:
    """Return a figure of the requests that went well."""
    found = (metrics.get(key) or {}).get("successful") or {}
    return figure((found.get("percentiles") or {}).get(stat) if stat.startswith("p9") else found.get(stat))


CLIENT = Client("guidellm", version_of("guidellm"), command, read, result=_FILE, takes_key=False)
