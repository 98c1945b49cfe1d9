"""One start of a point under loads, with servers that are none: trials, failures, what is kept, when it stops."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import load as agent
from launcher.bench.loads import loads
from launcher.bench.serve import Serve
from launcher.bench.served import Life, Servers
from launcher.errors import HostError
from launcher.render import render
from launcher.sweep.plain import from_plain, to_plain
from launcher.sweep.points import Candidate
from launcher.sweep.record import Point, Trial
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parent.parent / "nccl_log" / "logs"
LOADS = "bench.loads={one: {input_tokens: 32, output_tokens: 16}, two: {concurrency: 2, input_tokens: 32, output_tokens: 16, metric: tpot_ms}}"  # noqa: E501
POINT = Point("d" * 16, "nccl.algo=Ring")
#: A process of a server.
PROCESS = {"pid": 7, "start": "1", "title": "x"}
SMI = "0, NVIDIA H200, 1980 MHz, 2619 MHz, 300.5 W, 40, 0x0, 5, 16, 570.1"


def candidate(*words: str) -> Candidate:
    deployment = compose(["model=tiny", "engine=vllm", "bench=serve", LOADS, *words])
    return Candidate(POINT, (), deployment, render(deployment))


def good(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in which everything went well."""
    if not request["client"]:
        return {**agent.EMPTY, "outcome": "measured", "version": "0.32.0"}
    before = {"/metrics": {"status": 200, "lines": ["vllm:generation_tokens_total 0", "vllm:prompt_tokens_total 0"]}}
    after = {"/metrics": {"status": 200, "lines": ["vllm:generation_tokens_total 256", "vllm:prompt_tokens_total 512"]}}
    return copy.deepcopy(
        {
            **agent.EMPTY,
            "outcome": "measured",
            "result": (DATA / "vllm_0.32.0.json").read_text(),
            "before": before,
            "after": after,
            "processes_before": [PROCESS],
            "processes_after": [PROCESS],
            "seconds": {"client": 10.0, **({"warm-up": 5.0} if request["warmup"] else {}), "all": 16.0},
            "gpus": [SMI],
        }
    )


class Fake:
    """Servers that only say what they are told to; see `launcher.bench.served.Servers`."""

    name = "h1"

    def __init__(self, life: Life | Exception | None = None, answers: dict[int, Any] | None = None) -> None:
        facts = {"versions": {"engine": "0.32.0"}}
        self._life = life or Life(serving=True, seconds=20.0, proof={"main": 7}, facts=facts)
        self._answers = answers or {}
        self.did: list[str] = []
        self.asked: list[Mapping[str, Any]] = []

    def start(self, candidate: Candidate) -> Life:  # noqa: ARG002
        self.did.append("start")
        if isinstance(self._life, Exception):
            raise self._life
        return self._life

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        json.dumps(request)
        self.did.append("load" if request["client"] else "version")
        self.asked.append(request)
        changes = self._answers.get(len(self.asked), {})
        if isinstance(changes, BaseException):
            raise changes
        return {**good(request), **changes}

    def stop(self) -> None:
        self.did.append("stop")

    def close(self) -> str:
        return "nothing serves"


class Kept(dict[str, str]):
    def __call__(self, name: str, text: str) -> None:
        assert "/" not in name
        self[name] = text


def measured(servers: Fake, *words: str) -> tuple[Trial, Kept]:
    one: Servers = servers
    kept, point = Kept(), candidate(*words)
    trial = Serve({POINT.digest: point}, one, loads(point.deployment), kept, lambda _: None)(POINT, 3, None)
    # It can be written down.
    assert from_plain(Trial, json.loads(json.dumps(to_plain(trial), allow_nan=False))) == trial
    return trial, kept


def test_a_trial() -> None:
    servers = Fake()
    trial, kept = measured(servers)
    assert servers.did == ["start", "version", "load", "load", "stop"]
    assert (trial.point, trial.order, trial.failure) == (POINT.digest, 3, "")
    one, two = trial.readings
    assert (one.workload, two.workload, one.invalid, two.invalid) == ("one", "two", (), ())
    told = json.loads((DATA / "vllm_0.32.0.json").read_text())
    assert one.value == one.low == one.high == round(told["output_throughput"], 4)
    assert (two.value, two.high) == (round(told["median_tpot_ms"], 4), round(told["p99_tpot_ms"], 4))
    assert one.details["ttft_ms_mean"] == round(told["mean_ttft_ms"], 4)
    assert trial.facts["client"] == {"name": "vllm", "version": "0.32.0"}
    assert trial.facts["versions"] == {"engine": "0.32.0", "driver": "570.1"}
    assert trial.facts["gpus"] == [SMI]
    parts = trial.facts["seconds"]
    assert (parts["start"], parts["warm-up"], parts["client"]) == (20, 10, 20)
    assert sorted(kept) == ["003-dddddddddddddddd-one-1.json", "003-dddddddddddddddd-two-1.json"]


def test_the_version_is_asked_once() -> None:
    servers, point = Fake(), candidate()
    serve = Serve({POINT.digest: point}, servers, loads(point.deployment), Kept(), lambda _: None)
    serve(POINT, 1, None)
    serve(POINT, 2, None)
    assert servers.did.count("version") == 1


def test_runs_are_warmed_up_once() -> None:
    servers = Fake()
    trial, kept = measured(servers, "bench.runs=3")
    asked = [request for request in servers.asked if request["client"]]
    assert [bool(request["warmup"]) for request in asked] == 2 * [True, False, False]
    seeds = [request["client"]["argv"][request["client"]["argv"].index("--seed") + 1] for request in asked]
    assert len(set(seeds)) == 6
    assert len(kept) == 6
    assert len(trial.readings[0].details["runs"]) == 3


def test_ncclS_account_is_the_proof() -> None:  # noqa: N802 - a variable's name
    lines = tuple((LOGS / "log_bad_buff.txt").read_text().splitlines())
    servers = Fake(Life(serving=True, lines=lines))
    trial, _ = measured(servers, "nccl.buffsize=65536")
    assert trial.proof["NCCL_BUFFSIZE"]["word"] == "contradicted"
    assert all("NCCL_BUFFSIZE is contradicted by NCCL" in reading.invalid[0] for reading in trial.readings)


# --- failures


def test_a_start_that_does_not_serve() -> None:
    lines = (
        "ValueError: nothing",
        "h:1:1 [0] NCCL WARN Error : no algorithm/protocol available for function AllGather.",
    )
    servers = Fake(Life(serving=False, message="the server did not start", evidence=("exit code 1",), lines=lines))
    trial, _ = measured(servers)
    assert servers.did == ["start", "stop"]
    assert (trial.failure, trial.message) == ("NCCL: no algorithm", "the server did not start")
    assert "no algorithm/protocol available" in trial.evidence[0]
    assert trial.evidence[-1] == "exit code 1"
    assert trial.readings == ()


def test_a_start_that_nobody_can_explain() -> None:
    trial, _ = measured(Fake(Life(serving=False, message="no answer in time", evidence=("h1: waited 30 s",))))
    assert (trial.failure, trial.evidence) == ("no start", ("h1: waited 30 s",))


def test_a_server_that_dies_is_a_failed_trial() -> None:
    death = ["INFO fine", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]
    gone = {
        "outcome": "dead",
        "message": "the server (process 7) ended during the client",
        "death": death,
        "result": "",
    }
    servers = Fake(answers={3: gone})
    trial, kept = measured(servers)
    assert servers.did == ["start", "version", "load", "load", "stop"]
    assert (trial.failure, trial.readings) == ("GPU memory", ())
    assert trial.message == "the server (process 7) ended during the client (load two)"
    assert trial.evidence == tuple(death)
    assert sorted(kept) == ["003-dddddddddddddddd-one-1.json", "003-dddddddddddddddd-two-1.txt"]


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_a_client_that_fails_is_an_invalid_reading(outcome: str) -> None:
    bad = {"outcome": outcome, "message": "the client did not work", "result": "", "stderr": "a\nValueError: no\n"}
    servers = Fake(answers={2: bad})
    trial, kept = measured(servers)
    assert trial.failure == ""
    one, two = trial.readings
    assert (one.value, two.invalid) == (0, ())
    assert one.invalid == ("the client did not work" + (": ValueError: no" if outcome == "failed" else ""),)
    assert "ValueError: no" in kept["003-dddddddddddddddd-one-1.txt"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_client_that_is_not_there_ends_the_sweep(number: int) -> None:
    servers = Fake(answers={number: {"outcome": "lacking", "message": "No module named vllm"}})
    with pytest.raises(
        HostError, match=r"bench\.client=vllm cannot be run: No module named vllm; set bench\.client_python"
    ):
        measured(servers)
    assert servers.did[-1] == "stop"


def test_it_stops_whatever_happens() -> None:
    for servers in (Fake(HostError("h1", "busy")), Fake(answers={2: HostError("h1", "gone")})):
        with pytest.raises(HostError):
            measured(servers)
        assert servers.did[-1] == "stop"
    servers = Fake(answers={2: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        measured(servers)
    assert servers.did[-1] == "stop"


def test_speculation_is_judged_by_the_point() -> None:
    speculates = {"vllm:spec_decode_num_drafts_total": 73, "vllm:spec_decode_num_accepted_tokens_total": 128}
    lines = good({"client": True, "warmup": []})["after"]["/metrics"]["lines"]
    after = {"/metrics": {"status": 200, "lines": [*lines, *(f"{name} {value}" for name, value in speculates.items())]}}
    trial, _ = measured(Fake(answers={2: {"after": after}}))
    assert "the server speculates" in trial.readings[0].invalid[0]
    trial, _ = measured(Fake(answers={2: {"after": after}}), "spec=ngram", "bench.acceptance_low=2")
    assert trial.readings[0].invalid == ()
    assert trial.readings[0].details["acceptance_length"] == round(1 + 128 / 73, 4)
    assert "nobody says" in trial.readings[1].invalid[0]


def test_loads_are_the_baselines() -> None:
    point = candidate()
    other = dataclasses.replace(point, deployment=compose(["model=tiny", "engine=vllm", "bench=serve"]))
    trial = Serve({POINT.digest: other}, Fake(), loads(point.deployment), Kept(), lambda _: None)(POINT, 1, None)
    assert [reading.workload for reading in trial.readings] == ["one", "two"]
