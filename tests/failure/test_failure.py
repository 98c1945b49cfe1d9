"""Failures are classed by the line that caused them; living servers, prompts and junk have no class."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import failure
from launcher.agent.failure import ADVICE, UNKNOWN, classify

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = json.loads((HERE / "cases.json").read_text())
DEAD = {
    "shm_tree_bare": "NCCL: invalid usage",
    "warn_shm_tree_bare": "NCCL: no algorithm",
    "vllm_shm_tree_bare": "NCCL: no algorithm",
}
HEALTHY = [path for path in sorted((HERE / "logs").glob("*.txt")) if path.stem not in DEAD]
ENDED = {"Result": "exit-code", "ExecMainCode": 1, "ExecMainStatus": 1}
KILLED = {"Result": "signal", "ExecMainCode": 2, "ExecMainStatus": 9}
NO_MODULE = "ModuleNotFoundError: No module named 'helion'"


def test_every_kind_has_cases_of_both_sorts() -> None:
    assert {kind for kind, number in Counter(case["kind"] for case in CASES).items() if number >= 2} == set(ADVICE)
    sets = Counter(case["set"] for case in CASES)
    assert sets["first"] >= 45
    assert sets["held out"] * 3 >= sets["first"]
    assert sum("gives" in case for case in CASES) <= 2


@pytest.mark.parametrize("case", CASES, ids=[f"{n} {case['source']}" for n, case in enumerate(CASES)])
def test_case(case: dict[str, Any]) -> None:
    found = classify(case["lines"], case["result"])
    assert found.kind == case.get("gives", case["kind"])
    assert case.get("quote", "") in found.line
    assert found.advice == ADVICE[found.kind]


@pytest.mark.parametrize(
    "prefix", ["Nov 29 17:07:29 gpu1 python3[4851]: ", "(Worker_TP0 pid=4340) ", "[rank0]: ", "+  26.24 "]
)
def test_exceptions_are_found_behind_prefixes(prefix: str) -> None:
    assert classify([prefix + NO_MODULE], ENDED)[:2] == ("module missing", NO_MODULE)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_living_servers_have_no_failure(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert classify(lines, {})[:2] == (UNKNOWN, "")
    assert classify(lines, KILLED).kind == "killed"


@pytest.mark.parametrize("name", DEAD)
def test_recorded_deaths(name: str) -> None:
    found = classify((HERE / "logs" / f"{name}.txt").read_text().splitlines(), KILLED)
    assert found.kind == DEAD[name]
    assert ("NCCL WARN" in found.line) == (DEAD[name] == "NCCL: no algorithm")


def test_what_is_only_mentioned_is_no_cause() -> None:
    lines = [
        f"[2026-11-29 18:00:48 TP0] Ignore import error when loading sglang.srt.models.inkling: {NO_MODULE[21:]}",
        f"[2026-11-29 18:00:51] disabled: OpenAIServingResponses init failed ({NO_MODULE})",
        "INFO 11-29 18:00:52 [logger.py:41] Received request: prompt: 'why CUDA out of memory? PermissionError: x'",
        "[2026-11-29 18:00:53] Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory')",
        "WARNING 11-29 18:00:54 [a.py:1] can cause errors like `OSError: [Errno 24] Too many open files`",
        '  File "a.py", line 1, in f',
        '    raise RuntimeError("CUDA out of memory")',
    ]
    assert classify(lines, {})[:2] == (UNKNOWN, "")


def test_the_first_cause_wins_over_consequences_and_a_warning_over_nothing() -> None:
    late = ["RuntimeError: Engine core initialization failed. See root cause above.", "ValueError: other"]
    assert classify([*late, "torch.OutOfMemoryError: CUDA out of memory."], ENDED).kind == "GPU memory"
    assert (
        classify(["OSError: [Errno 28] No space left on device", "torch.OutOfMemoryError: x"], {}).kind == "disk full"
    )
    assert classify(late, ENDED)[:2] == (UNKNOWN, "ValueError: other")
    warning = (
        "a.py:1: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12080)."
    )
    assert classify([warning], ENDED).kind == "driver"
    assert classify([warning, NO_MODULE], ENDED).kind == "module missing"


def test_of_several_starts_the_newest_that_explains_itself_counts() -> None:
    start = "launch: guard: release abc complete, 3 variables; starting python"
    first = [start, NO_MODULE, start, "OSError: [Errno 98] Address already in use"]
    assert classify(first, ENDED).kind == "port in use"
    assert classify([*first[:2], start, "[10:00] loading"], ENDED).kind == "module missing"


def test_after_it_served_the_newest_traceback_is_quoted() -> None:
    lines = ["KeyError: 'a'", "INFO:     Application startup complete.", "ValueError: bad request", "ValueError: last"]
    assert classify(lines, ENDED).line == "ValueError: last"


@pytest.mark.parametrize(
    "survived", [["INFO:     Application startup complete."], ["[10:00 TP0] Decode batch. #running-req: 1"] * 5]
)
def test_what_the_server_survived_is_forgotten(survived: list[str]) -> None:
    lines = ["PermissionError: [Errno 13] Permission denied: '/x'", *survived]
    assert classify(lines, KILLED).kind == "killed"
    assert classify([*lines, "[10:01 TP0] Watchdog timeout (self.watchdog_timeout=300)"], KILLED).kind == "NCCL hang"
    assert classify([lines[0], survived[0].replace("Application startup complete.", "x")], KILLED).kind == "permission"


def test_an_engine_cannot_speak_for_the_guard() -> None:
    lines = ["[10:00] text='launch: REFUSED to start the server:'", "launch of a kernel: REFUSED after the start:"]
    assert classify(lines, {})[:2] == (UNKNOWN, "")
    journal = ["Nov 29 17:07:29 gpu1 launch[1]: launch: REFUSED to start the server:", "<3>launch: NCCL_ALGO is 'x'"]
    assert classify(journal, {})[:2] == ("refused by the guard", "launch: NCCL_ALGO is 'x'")


@pytest.mark.parametrize(
    "result", [{"Result": None}, {"ExecMainStatus": "x", "ExecMainCode": []}, {"Result": "resources"}]
)
def test_odd_results_are_not_judged(result: dict[str, Any]) -> None:
    assert classify([], result)[:2] == (UNKNOWN, "")


def test_junk_takes_bounded_time() -> None:
    noise = random.Random(1)
    words = [
        "Error: ",
        "a.",
        "] ",
        ": ",
        "NCCL WARN ",
        "No space left ",
        '  File "x", line 1, in f',
        "\x00\ud800",
        "\x1b[3",
        " ",
    ]
    lines = [word * (200_000 // len(word)) for word in words]
    lines += ["".join(noise.choices(words, k=400)) for _ in range(2000)]
    lines += ["".join(chr(noise.randrange(256)) for _ in range(300)) for _ in range(500)]
    begin = time.process_time()
    found = classify(lines, {})
    assert time.process_time() - begin < 10
    assert len(found.line) <= 500


def test_many_lines_are_read_fast() -> None:
    lines = HEALTHY[0].read_text().splitlines()
    begin = time.process_time()
    classify((line for _ in range(20_000 // len(lines)) for line in lines), {})
    assert time.process_time() - begin < 5


def test_patterns_and_advice_belong_to_kinds() -> None:
    assert {kind for kind, _, _, _ in failure._RULES} | {kind for kind, _ in failure._NCCL.values()} <= set(ADVICE)
    assert {frames for _, _, _, frames in failure._RULES} - {""} == set(failure._INSIDE)
