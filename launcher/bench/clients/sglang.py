"""SGLang's own client.

It has two names: ``sglang.benchmark.serving`` from 0.5.16 on, ``sglang.bench_serving`` before.

Source: SGLang 0.5.23, benchmark/serving.py and benchmark/datasets/random.py, and its output against vLLM's CPU build
(tests/bench/data). Why these flags:

- ``random-ids``: ``random`` cuts its prompts out of ShareGPT, which it downloads.
- ``--random-range-ratio 1``: 1 is a fixed length here, while 0, the default, is anything up to it.
- no warm-up of its own: it sends the first prompt of the run beforehand, and counts into the acceptance.
- ``--temperature`` is not known to older ones, which always send 0; it is the default of newer ones.
- ``accept_length`` is the mean since the cache was flushed the last time: of this run alone when that was just before.
- its result holds the whole of ``/server_info``, the API key included; it is left out.
- it counts no failed requests.
"""

from __future__ import annotations

import math

from launcher.agent.load import FOLDER
from launcher.bench.clients.ask import Ask, Client, count, load_json, release, version_of
from launcher.bench.result import ClientResult, ResultError, figure

_FILE = "result.jsonl"
_RENAMED = (0, 5, 16)
_NEEDED = ("duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput")


def module(version: str) -> str:
    """Return the name of the client's module; of an unknown version the older one, which newer ones still have."""
    return "sglang.benchmark.serving" if release(version) >= _RENAMED else "sglang.bench_serving"


def command(ask: Ask) -> list[str]:
    """Return the command of one run."""
    return [
        *(ask.python, "-m", module(ask.version), "--backend", ask.engine, "--base-url", ask.url),
        *("--model", ask.model, "--tokenizer", ask.tokenizer, "--dataset-name", "random-ids"),
        *("--random-input-len", str(ask.input_tokens), "--random-output-len", str(ask.output_tokens)),
        *("--random-range-ratio", "1", "--num-prompts", str(ask.requests)),
        *("--max-concurrency", str(ask.concurrency), "--seed", str(ask.seed), "--warmup-requests", "0"),
        *(["--cache-report"] if ask.engine == "sglang" and release(ask.version) >= _RENAMED else []),
        *("--disable-tqdm", "--output-file", f"{FOLDER}/{_FILE}"),
    ]


def read(text: str, ask: Ask) -> ClientResult:
    """Return what the last line of a result file says: each run adds one.

    Raises:
        ResultError: there is none.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ResultError(f"the result of {CLIENT.name} is empty")
    found = load_json(lines[-1], _NEEDED, CLIENT.name)
    completed = count(found, "completed", CLIENT.name)
    length = figure(found.get("accept_length"))
    return ClientResult(
        completed=completed,
        failed=ask.requests - completed,
        duration_s=figure(found["duration"]),
        input_tokens=figure(found["total_input_tokens"]),
        output_tokens=figure(found["total_output_tokens"]),
        output_tokens_per_s=figure(found["output_throughput"]),
        total_tokens_per_s=figure(found.get("total_throughput")),
        requests_per_s=figure(found.get("request_throughput")),
        **{
            f"{ours}_ms_{stat}": figure(found.get(f"{stat}_{theirs}_ms"))
            for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2e_latency"))
            for stat in ("mean", "median", "p99")
        },
        acceptance_length=length if length > 0 else math.nan,
        cached_tokens=figure((found.get("cache_report") or {}).get("total_cached_tokens")),
    )


CLIENT = Client("sglang bench_serving", version_of("sglang"), command, read, result=_FILE, drop=("server_info",))
