"""NVIDIA's AIPerf, against the completions of either engine.

Source: AIPerf 0.13.0, its command line and its output against vLLM's CPU build (tests/bench/data), schema 1.4.

- ``inter_token_latency`` is a request's time after its first token over its further tokens: what the others call TPOT;
  ``inter_chunk_latency`` is what they call ITL.
- an answer whose text is empty counts as an error: random tokens of a random model may decode to nothing.
- with HF_HUB_OFFLINE=1 it looks for a tokenizer in the hub's cache alone, so that a folder is not found.
- a key would have to stand on its command line, for everybody on the host to read.
"""

from __future__ import annotations

import math
from typing import Any

from launcher.agent.load import FOLDER
from launcher.bench.clients.ask import Ask, Client, load_json, version_of
from launcher.bench.result import ClientResult, ResultError, figure

_FILE = "profile_export_aiperf.json"
_NEEDED = ("benchmark_duration", "output_token_throughput")
_STATS = {"mean": "avg", "median": "p50", "p99": "p99"}
_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2e": "request_latency",
}


def command(ask: Ask) -> list[str]:
    """Return the command of one run."""
    return [
        *(ask.python, "-m", "aiperf", "profile", "--model", ask.model, "--url", ask.url),
        *("--endpoint-type", "completions", "--streaming", "--tokenizer", ask.tokenizer),
        *(["--tokenizer-trust-remote-code"] if ask.trust_remote_code else []),
        "--use-server-token-count",
        *("--prompt-input-tokens-mean", str(ask.input_tokens), "--prompt-input-tokens-stddev", "0"),
        *("--prompt-output-tokens-mean", str(ask.output_tokens), "--prompt-output-tokens-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"),
        *("--concurrency", str(ask.concurrency), "--request-count", str(ask.requests)),
        *("--num-dataset-entries", str(ask.requests), "--random-seed", str(ask.seed)),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir", FOLDER),
    ]


def environment(ask: Ask) -> dict[str, str]:
    """Return what it needs to find a tokenizer that is a folder."""
    return {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"} if ask.tokenizer.startswith("/") else {}


def read(text: str, _: Ask) -> ClientResult:
    """Return what a result file says.

    Raises:
        ResultError: it is none, or the run was cut short.
    """
    found = load_json(text, _NEEDED, CLIENT.name)
    if found.get("was_cancelled") or found.get("is_complete") is False:
        raise ResultError(f"{CLIENT.name} was cut short: {found.get('incomplete_reason') or 'cancelled'}")
    # Each is absent when there is none.
    completed, failed = (
        int(count) if math.isfinite(count := _stat(found, key, "avg")) else 0
        for key in ("request_count", "error_request_count")
    )
    return ClientResult(
        completed=completed,
        failed=failed,
        duration_s=_stat(found, "benchmark_duration", "avg"),
        input_tokens=_stat(found, "total_isl", "avg"),
        output_tokens=_stat(found, "total_osl", "avg"),
        output_tokens_per_s=_stat(found, "output_token_throughput", "avg"),
        total_tokens_per_s=_stat(found, "total_token_throughput", "avg"),
        requests_per_s=_stat(found, "request_throughput", "avg"),
        **{
            f"{ours}_ms_{stat}": _stat(found, theirs, name)
            for ours, theirs in _LATENCIES.items()
            for stat, name in _STATS.items()
        },
    )


def _stat(found: dict[str, Any], key: str, name: str) -> float:
    entry = found.get(key)
    return figure(entry.get(name) if isinstance(entry, dict) else None)


CLIENT = Client("aiperf", version_of("aiperf"), command, read, environment, result=_FILE, takes_key=False)
