"""Which loads count: the server's counters as recorded, and planted faults that each make a row invalid."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import load as agent
from launcher.bench import counters, gates, rows
from launcher.bench.clients.ask import Ask
from launcher.bench.clients.known import CLIENTS
from launcher.schema import Load
from launcher.sweep import speculation

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent / "data"
ASK = Ask("/p", "vllm", "http://127.0.0.1:8000", "tiny", "/models/tiny", 2, 16, 32, 16, 5)
WANTED = gates.Wanted(requests=16, input_tokens=32, output_tokens=16, cache_hits=0.01, speculation=True)
LOAD = Load(concurrency=2, requests=16, input_tokens=32, output_tokens=16, metric="output_tokens_per_s")


def page(name: str) -> dict[str, Any]:
    lines = (DATA / f"vllm_0.32.0_metrics_{name}.txt").read_text().splitlines()
    return {"/metrics": {"status": 200, "lines": lines}}


# --- counters


def test_counters_of_a_recorded_load() -> None:
    found = counters.counted("vllm", page("spec_0"), page("spec_1"))
    assert (found.output_tokens, found.cached_tokens, found.preemptions, found.odd) == (256, 0, 0, ())
    assert (found.drafts, found.accepted, found.drafted) == (73, 128, 146)
    assert found.acceptance_length == pytest.approx(1 + 128 / 73)
    assert found.acceptance_rate == pytest.approx(128 / 146)
    # As the client, which looks at the same counters by itself, has it.
    said = json.loads((DATA / "vllm_0.32.0_ngram.json").read_text())
    assert found.acceptance_length == pytest.approx(said["spec_decode_acceptance_length"])


def test_the_same_prompts_again_come_from_the_cache() -> None:
    cold, warm = (counters.counted("vllm", page(f"cache_{n}"), page(f"cache_{n + 1}")) for n in (0, 1))
    assert cold.cache_hits == pytest.approx(512 / 4812)
    assert warm.cache_hits == pytest.approx(4096 / 4812)
    assert math.isnan(warm.acceptance_length)
    assert math.isnan(warm.drafts)


def sglang(*lines: str, length: float | None = None) -> dict[str, Any]:
    values = {"version": "0.5.23"} | ({} if length is None else {"internal_states.0.avg_spec_accept_length": length})
    return {"/metrics": {"status": 200, "lines": list(lines)}, "/server_info": {"status": 200, "values": values}}


def test_counters_of_sglang() -> None:
    before = sglang('sglang:prompt_tokens_total{is_streaming="true"} 100.0', "sglang:num_requests_total 3.0")
    after = sglang(
        'sglang:prompt_tokens_total{is_streaming="true"} 600.0',
        'sglang:prompt_tokens_total{is_streaming="false"} 12.0',
        "sglang:num_requests_total 19.0",
        "sglang:generation_tokens_total 256.0",
        'sglang:cached_tokens_total{cache_source="device"} 8.0',
        "sglang:spec_verify_calls_total 100.0",
        "sglang:num_retracted_reqs 0.0",
    )
    found = counters.counted("sglang", before, after)
    assert (found.prompt_tokens, found.cached_tokens, found.preemptions) == (512, 8, 0)
    assert found.acceptance_length == pytest.approx((256 - 16) / 100)
    after = sglang(*after["/metrics"]["lines"], "sglang:num_retracted_requests_total 2.0", length=2.41)
    found = counters.counted("sglang", before, after)
    assert (found.acceptance_length, found.preemptions) == (2.41, 2)


def test_without_its_metrics_sglang_leaves_most_unknown() -> None:
    silent = {"/metrics": {"status": 404}, "/server_info": {"status": 200, "values": {}}}
    found = counters.counted("sglang", silent, silent)
    assert all(math.isnan(value) for value in dataclasses.astuple(found)[:-1])
    assert found.odd == ()


# --- gates


def answer(**fields: Any) -> dict[str, Any]:
    """Return an answer in which everything went well: the recorded run with speculation."""
    process = {"pid": 10, "start": "100", "title": "python -m vllm serve"}
    worker = {"pid": 11, "start": "101", "title": "VLLM::Worker_TP0"}
    return copy.deepcopy(
        {
            **agent.EMPTY,
            "outcome": "measured",
            "exit": "exit code 0",
            "result": (DATA / "vllm_0.32.0_ngram.json").read_text(),
            "before": page("spec_0"),
            "after": page("spec_1"),
            "processes_before": [process, worker],
            "processes_after": [dict(process), dict(worker)],
            "proven": 2,
            "seconds": {"client": 11.5},
            "flushed": [{"path": "/reset_prefix_cache", "status": 404}],
            **fields,
        }
    )


def judged(given: dict[str, Any], wanted: gates.Wanted = WANTED, load: Load = LOAD) -> rows.Row:
    return rows.row(CLIENTS["vllm"], ASK, wanted, load, given)


def test_a_good_row_counts() -> None:
    found = judged(answer())
    assert found.invalid == ()
    assert found.value == pytest.approx(json.loads(answer()["result"])["output_throughput"])
    assert found.unknown == ()
    assert found.figures["acceptance_length"] == pytest.approx(2.7534, rel=1e-4)
    assert found.figures["cycle_ms"] == pytest.approx(2.7534 * found.figures["tpot_ms_median"], rel=1e-4)
    assert found.figures["output_tokens_per_s_per_user"] == pytest.approx(1000 / found.figures["tpot_ms_median"])
    assert found.figures["cache_hits"] == 0


def said(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Return what changes the client's result."""

    def change(given: dict[str, Any]) -> None:
        given["result"] = json.dumps({**json.loads(given["result"]), **fields})

    return change


def put(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda given: given.update(fields)


def count(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    """Return what changes a counter after the load."""

    def change(given: dict[str, Any]) -> None:
        lines = given["after"]["/metrics"]["lines"]
        (number,) = [n for n, line in enumerate(lines) if line.startswith(f"vllm:{name}_total{{")]
        lines[number] = f"{lines[number].rpartition(' ')[0]} {value}"

    return change


def loses_a_worker(given: dict[str, Any]) -> None:
    del given["processes_after"][1]


def restarted(given: dict[str, Any]) -> None:
    given["processes_after"][0]["start"] = "999"


def went_back(given: dict[str, Any]) -> None:
    given["before"]["/metrics"]["lines"].append("vllm:prefix_cache_queries_total 1e6")


def warned(given: dict[str, Any]) -> None:
    given["log"]["nccl"] = ["h:11:11 [0] misc/socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer x"]


def contradicted(given: dict[str, Any]) -> None:
    given["log"]["nccl"] = ["h:11:11 [0] NCCL INFO NCCL_PROTO set by environment to Simple."]


#: What goes wrong, and the reason that is told.
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "requests fail": (said(completed=14, failed=2), "14 of 16 requests were answered, 2 failed"),
    "requests vanish": (said(completed=15, failed=0), "15 of 16 requests were answered"),
    "no time": (said(duration=0), "the client says that it took 0 s"),
    "answers are cut": (said(total_output_tokens=131), "131 tokens were answered, 256 were asked for (16 a request)"),
    "the server counts fewer": (count("generation_tokens", 44), "the server counted 44 tokens of answers"),
    "somebody else": (count("generation_tokens", 900), "somebody else used it"),
    "somebody else's prompt": (count("prompt_tokens", 5000), "tokens of prompts, 512 were sent"),
    "the cache answers": (
        count("prefix_cache_hits", 300),
        "% of the prompt tokens came from the prefix cache, 1 % may",
    ),
    "accepts too little": (count("spec_decode_num_accepted_tokens", 22), "gave 1.30 tokens, it has to be 2 to 2.9"),
    "accepts too much": (count("spec_decode_num_accepted_tokens", 146), "gave 3.00 tokens, it has to be 2 to 2.9"),
    "does not speculate": (count("spec_decode_num_drafts", 0), "did not speculate at all, this point does"),
    "a worker dies": (loses_a_worker, "process 11 of the server (VLLM::Worker_TP0) ended during the load"),
    "another server": (restarted, "process 10 of the server (python -m vllm serve) ended during the load"),
    "the environment": (put(contradictions=["process 11: NCCL_PROTO is missing"]), "NCCL_PROTO is missing"),
    "NCCL warns": (warned, "NCCL reports other side ended during the load"),
    "NCCL took another value": (contradicted, "NCCL_PROTO is contradicted by NCCL"),
    "preempted": (count("num_preemptions", 3), "threw 3 requests out of its full cache"),
    "a counter goes back": (went_back, "vllm:prefix_cache_queries_total went back during the load"),
    "no figure": (said(output_throughput=None), "vllm bench serve gives no output_tokens_per_s"),
    "no result": (put(result="Traceback"), "the result of vllm bench serve is no JSON"),
    "timeout": (
        put(outcome="timeout", message="the client took longer than 900 s and was ended"),
        "the client took longer than 900 s and was ended",
    ),
    "exit code": (
        put(outcome="failed", message="the client ended with exit code 1", stderr="x\nValueError: no tokens\n"),
        "the client ended with exit code 1: ValueError: no tokens",
    ),
}


@pytest.mark.parametrize(("plant", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_a_planted_fault_makes_the_row_invalid(plant: Callable[[dict[str, Any]], None], reason: str) -> None:
    given = answer()
    plant(given)
    band = dataclasses.replace(
        WANTED, acceptance_low=2, acceptance_high=2.9, nccl={"NCCL_PROTO": "LL"}, evidence={"NCCL_PROTO": "env"}
    )
    (told, *rest) = judged(given, band).invalid
    assert reason in told
    assert [text for text in rest if "a verify step" not in text and "nobody says" not in text] == []


def test_speculation_where_there_should_be_none() -> None:
    (told,) = judged(answer(), dataclasses.replace(WANTED, speculation=False)).invalid
    assert told == "the server speculates (73 verify steps), this point does not"


def test_a_band_that_nobody_can_judge() -> None:
    given = answer(before={}, after={})
    said(spec_decode_acceptance_length=None)(given)
    (told,) = judged(given, dataclasses.replace(WANTED, acceptance_low=2)).invalid
    assert told.startswith("nobody says how many tokens a verify step gave, it has to be at least 2")


def test_what_could_not_be_judged_is_told() -> None:
    found = judged(answer(before={}, after={}, unknown=["process 9: its environment was overwritten"]))
    assert found.invalid == ()
    assert found.unknown == (
        "prefix cache hits (/reset_prefix_cache answered 404)", "preemptions",
        "process 9: its environment was overwritten",
    )  # fmt: skip


def test_helpers_of_the_compiler_may_go() -> None:
    helper = {"pid": 12, "start": "102", "title": "python torch/_inductor/compile_worker/__main__.py --workers=8"}
    given = answer()
    given["processes_before"].append(helper)
    assert judged(given).invalid == ()


# --- readings


def test_runs_are_averaged_and_one_invalid_run_spoils_the_reading() -> None:
    runs = [rows.Row(10.0, (), {"ttft_ms_mean": 4, "output_tokens_per_s": 10}), rows.Row(12.0, (), {"ttft_ms_mean": 6})]
    found = rows.reading("chat", LOAD, runs, 2, [])
    assert (found.workload, found.value, found.low, found.high, found.invalid) == ("chat", 11, 10, 12, ())
    assert (found.details["ttft_ms_mean"], found.details["output_tokens_per_s_per_gpu"]) == (5, 5)
    runs[1] = dataclasses.replace(runs[1], invalid=("1 of 2 requests were answered",))
    found = rows.reading("chat", LOAD, runs, 2, ["NCCL_ALGO is contradicted by NCCL: x"])
    assert found.invalid == ("NCCL_ALGO is contradicted by NCCL: x", "run 2: 1 of 2 requests were answered")


def test_a_reading_without_figures_can_be_written_down() -> None:
    found = rows.reading("chat", LOAD, [judged(answer(result=""))], 1, [])
    assert found.value == found.low == found.high == 0
    json.dumps(dataclasses.asdict(found), allow_nan=False)
    json.dumps(dataclasses.asdict(rows.reading("chat", LOAD, [judged(answer())], 1, [])), allow_nan=False)


def test_the_deciding_figure_is_the_loads() -> None:
    found = judged(answer(), load=dataclasses.replace(LOAD, metric="ttft_ms"))
    told = json.loads(answer()["result"])
    assert (found.value, found.high) == (told["median_ttft_ms"], told["p99_ttft_ms"])
    reading = rows.reading("chat", LOAD, [found], 1, [])
    assert (reading.low, reading.high) == (round(told["median_ttft_ms"], 4), round(told["p99_ttft_ms"], 4))


# --- break-even


def test_break_even_of_the_reference_case() -> None:
    # 88.8 tok/s without speculation; a cycle of 22.7 ms pays from 2.02 tokens on.
    assert speculation.break_even(22.7, 1000 / 88.8) == pytest.approx(2.016, abs=0.001)
    assert speculation.cycle_ms(1000 / 94, 2.1) == pytest.approx(22.34, abs=0.01)
    for pair in ((0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.nan)):
        assert math.isnan(speculation.break_even(*pair))
        assert math.isnan(speculation.cycle_ms(*pair))
