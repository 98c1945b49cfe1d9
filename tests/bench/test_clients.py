"""What clients are asked, and what is read of their recorded results (tests/bench/data)."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.load import FOLDER
from launcher.bench.clients import sglang
from launcher.bench.clients.ask import Ask, release
from launcher.bench.clients.known import CLIENTS
from launcher.bench.result import ClientResult, ResultError
from launcher.errors import ConfigError

DATA = Path(__file__).parent / "data"
ASK = Ask("/opt/x/bin/python", "vllm", "http://127.0.0.1:8000", "tiny", "/models/tiny", 2, 16, 32, 16, 7)
RECORDED = {
    "vllm": "vllm_0.32.0.json",
    "sglang": "sglang_0.5.23.jsonl",
    "aiperf": "aiperf_0.13.0.json",
    "guidellm": "guidellm_0.8.1.json",
}


def recorded(name: str) -> str:
    return (DATA / RECORDED[name]).read_text()


def read(name: str) -> ClientResult:
    return CLIENTS[name].read(recorded(name), ASK)


# --- commands


def words(name: str, **fields: Any) -> str:
    return shlex.join(CLIENTS[name].command(dataclasses.replace(ASK, **fields)))


COMMANDS = {
    "vllm": [
        "/opt/x/bin/python -m vllm.entrypoints.cli.main bench serve --backend openai --base-url http://127.0.0.1:8000",
        "--model tiny --tokenizer /models/tiny --dataset-name random --random-input-len 32",
        "--random-output-len 16 --random-range-ratio 0 --num-prompts 16 --max-concurrency 2 --seed 7",
        "--ignore-eos --temperature 0 --ready-check-timeout-sec 0",
        "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,99",
        f"--save-result --result-dir {FOLDER} --result-filename result.json",
    ],
    "sglang": [
        "-m sglang.bench_serving --backend vllm --base-url http://127.0.0.1:8000 --model tiny",
        "--tokenizer /models/tiny --dataset-name random-ids --random-input-len 32 --random-output-len 16",
        "--random-range-ratio 1 --num-prompts 16 --max-concurrency 2 --seed 7 --warmup-requests 0",
        f"--output-file {FOLDER}/result.jsonl",
    ],
    "aiperf": [
        "-m aiperf profile --model tiny --url http://127.0.0.1:8000 --endpoint-type completions --streaming",
        "--prompt-input-tokens-mean 32 --prompt-input-tokens-stddev 0 --prompt-output-tokens-mean 16",
        "--extra-inputs ignore_eos:true --extra-inputs temperature:0 --concurrency 2 --request-count 16",
        f"--random-seed 7 --ui none --no-gpu-telemetry --no-server-metrics --output-artifact-dir {FOLDER}",
    ],
    "guidellm": [
        "-m guidellm run --backend",
        "kind=openai_http,target=http://127.0.0.1:8000,model=tiny,request_format=/v1/completions,",
        "kind=synthetic_text,prompt_tokens=32,output_tokens=16 --profile kind=concurrent,streams=2",
        "kind=max_requests,count=16 --seed kind=static,value=7",
        f"--output kind=json,path={FOLDER}/guidellm.json",
    ],
    "command": ["/bin/sh -c 'measure --it'"],
}


@pytest.mark.parametrize(("name", "parts"), COMMANDS.items())
def test_a_client_is_asked_for_exactly_this_load(name: str, parts: list[str]) -> None:
    command = words(name, command="measure --it")
    assert [part for part in parts if part not in command] == []
    assert len({*CLIENTS, *COMMANDS}) == len(COMMANDS)


@pytest.mark.parametrize(
    ("version", "module"),
    [
        ("0.5.16", "sglang.benchmark.serving"),
        ("0.5.23.post1", "sglang.benchmark.serving"),
        ("0.6", "sglang.benchmark.serving"),
        ("0.5.15", "sglang.bench_serving"),
        ("0.4.10", "sglang.bench_serving"),
        ("", "sglang.bench_serving"),
    ],
)
def test_the_name_of_sglangs_client_goes_by_its_version(version: str, module: str) -> None:
    assert sglang.module(version) == module


def test_only_a_client_that_can_reports_the_cache() -> None:
    assert "--cache-report" in words("sglang", engine="sglang", version="0.5.20")
    assert "--cache-report" not in words("sglang", engine="sglang", version="0.5.9")
    assert "--cache-report" not in words("sglang", engine="vllm", version="0.5.20")


def test_versions() -> None:
    assert [release(text) for text in ("0.5.16rc1", "1.2", "main", "")] == [(0, 5, 16), (1, 2), (), ()]
    assert CLIENTS["vllm"].version("/p")[:2] == ["/p", "-c"]
    assert CLIENTS["command"].version("/p") == []


def test_code_of_the_model_is_trusted_only_when_told() -> None:
    for name in ("vllm", "aiperf"):
        assert "trust-remote-code" not in words(name)
        assert "trust-remote-code" in words(name, trust_remote_code=True)


def test_a_name_that_guidellm_would_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="a comma ends a setting"):
        words("guidellm", tokenizer="/models/a,b")


def test_what_a_client_needs_of_its_environment() -> None:
    assert CLIENTS["aiperf"].environment(ASK)["HF_HUB_OFFLINE"] == "0"
    assert CLIENTS["aiperf"].environment(dataclasses.replace(ASK, tokenizer="org/name")) == {}
    told = CLIENTS["command"].environment(ASK)
    assert (told["LAUNCH_URL"], told["LAUNCH_REQUESTS"], told["LAUNCH_SEED"]) == (ASK.url, "16", "7")


# --- recorded results

#: completed, failed, seconds, prompt and answer tokens, tok/s, median TTFT, TPOT, ITL, E2E in ms
FIGURES = {
    "vllm": (16, 0, 0.5911, 521, 256, 433.08, 31.897, 2.7094, 0.8651, 64.778),
    "sglang": (16, 0, 0.3171, 512, 256, 807.26, 11.847, 1.8020, 3.0509, 39.131),
    "aiperf": (15, 1, 0.3649, 480, 240, 651.33, 11.081, 1.6378, 1.7664, 34.667),
}


@pytest.mark.parametrize(("name", "expected"), FIGURES.items())
def test_recorded_results(name: str, expected: tuple[float, ...]) -> None:
    found = read(name)
    figures = (
        *(found.completed, found.failed, found.duration_s, found.input_tokens, found.output_tokens),
        *(found.output_tokens_per_s, found.ttft_ms_median, found.tpot_ms_median, found.itl_ms_median),
        found.e2e_ms_median,
    )
    assert figures == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_results_agree_with_themselves(name: str) -> None:
    found = read(name)
    assert found.output_tokens_per_s == pytest.approx(found.output_tokens / found.duration_s, rel=0.02)
    assert found.requests_per_s == pytest.approx(found.completed / found.duration_s, rel=0.02)
    assert found.total_tokens_per_s > found.output_tokens_per_s
    # A request is its first token and fifteen further ones.
    whole = found.ttft_ms_mean + 15 * found.tpot_ms_mean
    assert found.e2e_ms_mean == pytest.approx(whole, rel=0.15)
    assert found.ttft_ms_median <= found.ttft_ms_p99
    assert math.isnan(found.acceptance_length)


def test_guidellm_counts_seconds_and_the_time_between_tokens() -> None:
    found = read("guidellm")
    assert (found.completed, found.failed, found.output_tokens) == (16, 0, 256)
    assert found.e2e_ms_mean > 10
    metrics = json.loads(recorded("guidellm"))["benchmarks"][0]["metrics"]
    assert found.tpot_ms_mean == metrics["inter_token_latency_ms"]["successful"]["mean"]
    assert math.isnan(found.itl_ms_mean)


def test_speculation_as_vllm_reports_it() -> None:
    found = CLIENTS["vllm"].read((DATA / "vllm_0.32.0_ngram.json").read_text(), ASK)
    assert found.acceptance_length == pytest.approx(1 + 128 / 73)
    assert found.acceptance_rate == pytest.approx(128 / 146)


def test_sglang_appends_and_the_last_line_counts() -> None:
    old = json.dumps({**json.loads(recorded("sglang")), "completed": 3})
    assert CLIENTS["sglang"].read(f"{old}\n{recorded('sglang')}\n", ASK) == read("sglang")


def test_sglang_tells_the_acceptance_and_the_cache() -> None:
    told = {**json.loads(recorded("sglang")), "accept_length": 2.4, "cache_report": {"total_cached_tokens": 40}}
    found = CLIENTS["sglang"].read(json.dumps(told), ASK)
    assert (found.acceptance_length, found.cached_tokens) == (2.4, 40)


def test_sglangs_client_and_its_own_server() -> None:
    """Its file holds the warm-up and the run, one line each."""
    asked = dataclasses.replace(ASK, requests=32, concurrency=8, input_tokens=32, output_tokens=256)
    found = CLIENTS["sglang"].read((DATA / "sglang_0.5.17_own_server.jsonl").read_text(), asked)
    assert (found.completed, found.failed, found.output_tokens, found.cached_tokens) == (32, 0, 8192, 0)
    assert (found.tpot_ms_mean, found.duration_s) == pytest.approx((3.767, 4.070), rel=1e-3)
    assert math.isnan(found.acceptance_length)


def test_failures_that_sglang_does_not_count_are_worked_out() -> None:
    told = {**json.loads(recorded("sglang")), "completed": 13}
    assert CLIENTS["sglang"].read(json.dumps(told), ASK).failed == 3


# --- a command of one's own

MINIMAL = '{"completed": 16, "duration_s": 2, "output_tokens": 256}'


def test_a_command_needs_three_figures() -> None:
    found = CLIENTS["command"].read(f"hello\n{MINIMAL}\nbye\n", ASK)
    assert found.known() == {
        "completed": 16, "failed": -1, "duration_s": 2, "output_tokens": 256, "output_tokens_per_s": 128,
        "requests_per_s": 8,
    }  # fmt: skip


def test_a_command_may_print_one_object_over_many_lines() -> None:
    text = "log line\n" + json.dumps({**json.loads(MINIMAL), "ttft_ms_mean": 5.5, "failed": 1, "other": "x"}, indent=1)
    found = CLIENTS["command"].read(text, ASK)
    assert (found.ttft_ms_mean, found.failed) == (5.5, 1)


# --- what is no result

BROKEN = {
    "empty": "",
    "text": "Traceback (most recent call last):\n",
    "cut": '{"duration": 1.5, "completed": 16, "total_in',
    "list": "[1, 2]",
    "nothing": "{}",
    "null": "null",
    "deep": '{"benchmarks": [{"metrics": 3}]}',
    "twice": '{"benchmarks": [{}, {}]}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_no_result_is_told(name: str, text: str) -> None:
    with pytest.raises(ResultError) as caught:
        CLIENTS[name].read(text, ASK)
    assert CLIENTS[name].name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["16", None, True, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_number_of_requests_is_one(name: str, value: object) -> None:
    text = json.dumps({**json.loads(recorded(name)), "completed": value})
    with pytest.raises(ResultError, match="no number of anything"):
        CLIENTS[name].read(text, ASK)


def test_figures_that_are_none_are_absent() -> None:
    text = json.dumps({**json.loads(recorded("vllm")), "mean_ttft_ms": None, "median_ttft_ms": "fast"})
    found = CLIENTS["vllm"].read(text, ASK)
    assert {"ttft_ms_mean", "ttft_ms_median"}.isdisjoint(found.known())
    assert math.isnan(found.metric("ttft_ms"))
    assert found.metric("output_tokens_per_s") == found.output_tokens_per_s


def test_a_run_that_aiperf_cut_short_is_no_result() -> None:
    text = json.dumps({**json.loads(recorded("aiperf")), "is_complete": False, "incomplete_reason": "SIGINT"})
    with pytest.raises(ResultError, match="cut short: SIGINT"):
        CLIENTS["aiperf"].read(text, ASK)


def test_without_errors_aiperf_names_none() -> None:
    told = json.loads(recorded("aiperf"))
    del told["error_request_count"]
    assert CLIENTS["aiperf"].read(json.dumps(told), ASK).failed == 0
