"""`vllm bench serve`, against either engine's completions.

Source: vLLM 0.32.0, benchmarks/serve.py, and its output on vLLM's CPU build (tests/bench/data). Why these flags:

- ``--ready-check-timeout-sec 0`` (also the default from 0.12 on) and no warm-ups of its own: both send the first prompt
  of the run beforehand, whose answer then comes from the prefix cache.
- ``--temperature 0``: without it none is sent, and the server's own default counts.
- ``e2el`` is not among the percentile metrics unless it is asked for.
- ``--random-range-ratio 0``: all prompts and answers have the same length.
"""

from __future__ import annotations

import math

from launcher.agent.load import FOLDER
from launcher.bench.clients.ask import Ask, Client, count, load_json, version_of
from launcher.bench.result import ClientResult, figure

_FILE = "result.json"
_NEEDED = ("duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput")


def command(ask: Ask) -> list[str]:
    """Return the command of one run."""
    return [
        *(ask.python, "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
        *("--backend", "openai", "--base-url", ask.url, "--model", ask.model, "--tokenizer", ask.tokenizer),
        *(["--trust-remote-code"] if ask.trust_remote_code else []),
        *("--dataset-name", "random", "--random-input-len", str(ask.input_tokens)),
        *("--random-output-len", str(ask.output_tokens), "--random-range-ratio", "0"),
        *("--num-prompts", str(ask.requests), "--max-concurrency", str(ask.concurrency), "--seed", str(ask.seed)),
        *("--ignore-eos", "--temperature", "0", "--ready-check-timeout-sec", "0", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", FOLDER, "--result-filename", _FILE),
    ]


def read(text: str, _: Ask) -> ClientResult:
    """Return what a result file says.

    Raises:
        ResultError: it is none.
    """
    found = load_json(text, _NEEDED, CLIENT.name)
    length = figure(found.get("spec_decode_acceptance_length"))
    return ClientResult(
        completed=count(found, "completed", CLIENT.name),
        failed=count(found, "failed", CLIENT.name) if "failed" in found else -1,
        duration_s=figure(found["duration"]),
        input_tokens=figure(found["total_input_tokens"]),
        output_tokens=figure(found["total_output_tokens"]),
        output_tokens_per_s=figure(found["output_throughput"]),
        total_tokens_per_s=figure(found.get("total_token_throughput")),
        requests_per_s=figure(found.get("request_throughput")),
        **{
            f"{ours}_ms_{stat}": figure(found.get(f"{stat}_{theirs}_ms"))
            for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2el"))
            for stat in ("mean", "median", "p99")
        },
        acceptance_length=length if length > 0 else math.nan,
        # In percent there.
        acceptance_rate=figure(found.get("spec_decode_acceptance_rate")) / 100,
    )


CLIENT = Client("vllm bench serve", version_of("vllm"), command, read, result=_FILE)
