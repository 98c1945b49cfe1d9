"""`bench=allreduce` with nccl-tests in place of torch, from the command to the report; a stand-in is what runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from launcher.cli import main
from tests.agent.nccl_tests_build import build

if TYPE_CHECKING:
    from pathlib import Path

TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce", "bench.batches=[1,8]", "bench.prefill_tokens=[64]")
#: With known links everything that torch measures would be remembered.
KNOWN = ("hw.interconnect=pcie",)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    return [*TINY, *KNOWN, "target=process", f"bench.nccl_tests={build(tmp_path / 'build')}"]


def standin(**asked: Any) -> list[str]:
    return ["-e", f"STANDIN={json.dumps(asked)}"]


def test_one_configuration(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words, "nccl.algo=Ring", "--json"]) == 0, capsys.readouterr().err
    record = json.loads(capsys.readouterr().out)
    (trial,) = record["trials"]
    # 2 layers x 2 all-reduces in place, and the logits, gathered into another place.
    assert [(r["workload"], r["value"], r["invalid"]) for r in trial["readings"]] == [
        (name, 4 * 12.25 + 22.5, []) for name in ("decode-1", "decode-8", "prefill-64")
    ]
    facts = trial["facts"]
    assert facts["versions"] == {"nccl-tests": "2.19.1", "nccl": "2.28.9", "gpu": "NVIDIA Stand-in"}
    assert "threads of one process" in facts["note"]
    assert set(facts["seconds"]) == {"start", "join the communicator", "measure"}
    assert trial["proof"]["NCCL_ALGO"]["word"] == "proved"
    details = trial["readings"][0]["details"]
    assert (details["graph"], details["replays"], details["algorithm"], details["protocol"]) == (20, 5, "RING", "LL")
    assert list(folder.rglob("measured.csv")) == []


def test_a_sweep(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once = ("sweep.repeats=1", "sweep.max_repeats=1", "sweep.baseline_every=5")
    assert main(["-m", "nccl.algo=Ring,PAT", *words, *once]) == 0
    said = capsys.readouterr()
    assert "(nccl-tests: ranks are threads)" in said.out
    assert "Traceback" not in said.err
    (journal,) = folder.glob("results/*/journal.jsonl")
    assert len(journal.read_text().splitlines()) == 4
    assert list(folder.rglob("measured.csv")) == []


def test_wrong_numbers_are_no_success(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words, *standin(wrong=9), "--json"]) == 1
    trial = json.loads(capsys.readouterr().out)["trials"][0]
    assert all("9 numbers of the all_reduce of" in " ".join(r["invalid"]) for r in trial["readings"])


def test_a_failure_is_classed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words, *standin(fault="nccl", where="measure"), "--json"]) == 1
    trial = json.loads(capsys.readouterr().out)["trials"][0]
    assert trial["failure"] == "NCCL: no algorithm"
    assert trial["message"].startswith("all_reduce_perf ended with exit code 3 in: measure all_reduce of ")
    assert "no algorithm/protocol available" in trial["evidence"][0]


def test_a_hang_is_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    hanging = (*standin(fault="hang", where="measure"), "bench.deadline=1")
    assert main(["bench", *words, *hanging, "--json"]) == 1
    trial = json.loads(capsys.readouterr().out)["trials"][0]
    assert trial["failure"] == "hang"
    assert trial["message"].startswith("no sign of life for 1 s: all_reduce_perf in: measure all_reduce of ")


def test_a_missing_program_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words[:-1], "bench.nccl_tests=/none"]) == 1
    assert (
        "/none/all_reduce_perf cannot be started: it is not there; set bench.nccl_tests=PATH" in capsys.readouterr().err
    )


REFUSED = {
    "gloo": (("bench", "bench.backend=gloo"), "measures with NCCL: leave out bench.backend=gloo"),
    "relative": (("bench", "bench.nccl_tests=build"), "is no absolute path"),
    "an axis": (("-m", "bench.nccl_tests='',/opt/build"), "says how is measured, so it is one for all points"),
}


@pytest.mark.parametrize(("more", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(
    more: tuple[str, ...], part: str, words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words[:-1] if "bench.nccl_tests" in more[1] else words
    assert main([*more, *given]) == 2
    assert part in capsys.readouterr().err
    assert list(folder.iterdir()) == []
