"""Which loads a server is measured with, and what of the configuration is refused."""

from __future__ import annotations

import dataclasses

import pytest

from launcher.bench import asking
from launcher.bench.loads import loads, workloads
from launcher.bench.log_patterns import UNVERIFIED, patterns
from launcher.errors import ConfigError
from tests.composing import compose

SERVE = ("model=tiny", "bench=serve")
CHAT = "bench.loads={chat: {concurrency: 4, input_tokens: 100, output_tokens: 20, metric: tpot_ms}}"

DEFAULTS = {
    "nothing said": ((), ["decode-1", "decode-8", "decode-64", "prefill-8192"]),
    "sglang's limit": (
        ("engine.args.max_running_requests=32",), ["decode-1", "decode-32", "decode-64", "prefill-8192"],
    ),
    "vllm's limit": (
        ("engine=vllm", "engine.args.max_num_seqs=4"), ["decode-1", "decode-4", "decode-32", "prefill-8192"],
    ),
    "a high limit": (
        ("engine.args.max_running_requests=100",), ["decode-1", "decode-100", "decode-200", "prefill-8192"],
    ),
    "one at a time": (("engine.args.max_running_requests=1",), ["decode-1", "decode-8", "prefill-8192"]),
    "a short context": (
        ("engine=vllm", "engine.args.max_model_len=1024"), ["decode-1", "decode-8", "decode-64", "prefill-959"],
    ),
    "written short": (("engine.args.context_length=4K",), ["decode-1", "decode-8", "decode-64", "prefill-4031"]),
}  # fmt: skip


@pytest.mark.parametrize(("words", "names"), DEFAULTS.values(), ids=DEFAULTS.keys())
def test_default_loads(words: tuple[str, ...], names: list[str]) -> None:
    found = loads(compose([*SERVE, *words]))
    assert list(found) == names
    assert all(load.requests >= 16 and load.requests >= 8 * load.concurrency for load in found.values())
    prefill = found[names[-1]]
    assert (prefill.output_tokens, prefill.metric) == (1, "ttft_ms")


def test_the_engines_own_client_is_the_default() -> None:
    assert [compose([*SERVE, f"engine={name}"]).bench.client for name in ("sglang", "vllm")] == ["sglang", "vllm"]


def test_workloads_say_what_is_better() -> None:
    single, many, _, prefill = workloads(loads(compose([*SERVE])))
    assert (single.unit, single.lower_is_better) == ("ms", True)
    assert (many.unit, many.lower_is_better, many.details["requests"]) == ("tok/s", False, 64)
    assert (prefill.kind, prefill.details["metric"], prefill.details["input_tokens"]) == ("prefill", "ttft_ms", 8192)
    assert many.text == "tokens a second, 8 in flight, 512 + 128 tokens"


def test_own_loads_replace_the_defaults() -> None:
    (load,) = loads(compose([*SERVE, CHAT])).values()
    assert (load.concurrency, load.requests, load.input_tokens, load.metric) == (4, 32, 100, "tpot_ms")


def test_a_default_load_can_be_changed_and_the_others_stay() -> None:
    plain = loads(compose([*SERVE]))
    found = loads(compose([*SERVE, "bench.loads.decode-8.output_tokens=64", "bench.loads.decode-1.metric=e2e_ms"]))
    assert list(found) == list(plain)
    changed = {
        "decode-8": dataclasses.replace(plain["decode-8"], output_tokens=64),
        "decode-1": dataclasses.replace(plain["decode-1"], metric="e2e_ms"),
    }
    assert found == {**plain, **changed}


def test_a_varied_default_load_is_replaced_by_its_variants() -> None:
    plain = loads(compose([*SERVE]))
    words = ["bench.loads.decode-1-concurrency-2.concurrency=2", "bench.loads.decode-1-concurrency-4.concurrency=4"]
    found = loads(compose([*SERVE, *words]))
    assert list(found) == ["decode-1-concurrency-2", "decode-1-concurrency-4", "decode-8", "decode-64", "prefill-8192"]
    assert found["decode-1-concurrency-2"] == dataclasses.replace(plain["decode-1"], concurrency=2)


def test_beside_a_load_of_ones_own_a_default_one_has_to_be_named() -> None:
    found = loads(compose([*SERVE, CHAT, "bench.loads.decode-64.requests=200"]))
    assert list(found) == ["chat", "decode-64"]
    assert (found["decode-64"].concurrency, found["decode-64"].requests) == (64, 200)


REFUSED = {
    "another engine's client": (("bench.client=vllm",), "bench.client=vllm is not part of sglang: set"),
    "no client": (("bench.client=aiperf",), "set bench.client_python"),
    "no command": (("bench.client=command",), "needs bench.command"),
    "unused command": (("bench.command=x",), "is not used by bench.client=sglang"),
    "no runs": (("bench.runs=0",), "bench.runs=0: a load has to run once at least"),
    "no time": (("bench.client_timeout=0",), "bench.client_timeout=0"),
    "hits": (("bench.cache_hits=5",), "a part of all prompt tokens, from 0 to 1"),
    "band": (("bench.acceptance_low=3", "bench.acceptance_high=2"), "no row could be valid"),
    "TLS": (("engine.args.ssl_certfile=/x",), "does not speak TLS"),
    "few requests": (
        ("bench.loads.a.concurrency=9", "bench.loads.a.requests=3"), "bench.loads.a.requests=3 never has 9 in flight",
    ),
    "too long": (
        ("bench.loads.a.input_tokens=1000", "engine.args.context_length=1024"),
        "bench.loads.a: 1000 + 128 tokens do not fit into engine.args.context_length=1024",
    ),
    "no time between": (("bench.loads.a.output_tokens=1", "bench.loads.a.metric=tpot_ms"), "take ttft_ms"),
    "a key for all to read": (
        ("bench.client=aiperf", "bench.client_python=/x", "secrets.args.api_key=file:/k"), "on its command line alone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_run_is_refused(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=r"^bench[.=]") as caught:
        loads(compose([*SERVE, *words]))
    assert text in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(compose([*SERVE, "bench.runs=0", "bench.client=command"]))
    assert len(caught.value.problems) == 2


# --- patterns


def test_patterns_of_the_log() -> None:
    plain = compose([*SERVE, "bench.log_patterns={gen: 'throughput: ([0-9.]+)'}"])
    assert patterns(plain) == {"gen": "throughput: ([0-9.]+)"}
    profiled = compose(
        [*SERVE, "spec=eagle3_2step", "spec.profile=true", "bench.log_patterns={unverified_cycle_ms: '(1)'}"]
    )
    assert patterns(profiled) == {**UNVERIFIED, "unverified_cycle_ms": "(1)"}


@pytest.mark.parametrize(
    ("text", "problem"), [("(", "no regular expression"), ("x", "0 groups"), ("(a)(b)", "2 groups")]
)
def test_a_pattern_that_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        patterns(compose([*SERVE, f"bench.log_patterns={{gen: '{text}'}}"]))


# --- what the host is asked


def test_each_run_has_prompts_of_its_own() -> None:
    deployment = compose([*SERVE, CHAT, "engine.python=/opt/s/bin/python", "engine.host=0.0.0.0", "engine.port=31000"])
    (load,) = loads(deployment).values()
    seeds = {asking.ask(deployment, load, number, run).seed for number in range(3) for run in range(3)}
    assert len(seeds) == 9
    asked = asking.ask(deployment, load, 0, 0, "0.5.23")
    assert (asked.url, asked.python, asked.version) == ("http://127.0.0.1:31000", "/opt/s/bin/python", "0.5.23")
    request = asking.request(deployment, asked, warm=True)
    seed = request["warmup"].index("--seed") + 1
    assert request["warmup"][seed] != request["client"]["argv"][seed]
    number = request["warmup"].index("--num-prompts") + 1
    assert (request["warmup"][number], request["client"]["argv"][number]) == ("8", "32")
    assert asking.request(deployment, asked, warm=False)["warmup"] == []


def test_a_request_holds_what_the_client_needs_and_no_more() -> None:
    deployment = compose([*SERVE], {"HF_HUB_OFFLINE": "1", "OTHER": "x"})
    request = asking.version_request(deployment)
    assert request["env"] == {"HF_HUB_OFFLINE": "1"}
    assert request["client"] == {}
    assert "server" not in request


def test_an_address_of_ipv6() -> None:
    deployment = compose([*SERVE, "engine.host='::'"])
    assert asking.ask(deployment, next(iter(loads(deployment).values())), 0, 0).url == "http://[::1]:8000"
