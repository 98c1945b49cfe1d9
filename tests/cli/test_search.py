"""`-m --search`: the plan, what is refused, and a search of real ranks without GPUs, from command to report."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

from launcher.cli import main
from tests.cli.test_sweep import TINY, launch, planned, trials, words

if TYPE_CHECKING:
    from pathlib import Path

AXES = ("nccl.proto=LL,LL128,Simple", "nccl.max_nchannels=2,4")
#: Where sets were measured before: launcher/catalogue/allreduce.csv.
H200 = ("model=kimi_k2_5_int4", "+hw=h200x2", "engine.tensor_parallel=2", "bench=allreduce", "target=process")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plan_says_how_many_points_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-m", "--search", *AXES, *TINY, "target=process"]) == 0
    out = capsys.readouterr().out
    assert "search: Optuna chooses at most 3 of the 6 points, each started once\n" in out
    assert "9 fresh starts at most where nothing is undecided: about 1 min (9 s each" in out
    record = planned(capsys, "plan", "-m", "--search=4", *AXES, *TINY, "target=process")
    assert (record["search"], record["starts"]) == ({"most": 4, "late": {}}, 11)
    assert planned(capsys, "plan", "-m", "--search=40", *AXES, *TINY)["search"]["most"] == 6
    assert "search" not in planned(capsys, "plan", "-m", *AXES, *TINY)


def test_the_next_command_searches_too(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--search", "--search=4"):
        assert main(["-m", flag, *AXES, *TINY]) == 0
        assert f"  launch -m {flag} nccl.proto" in capsys.readouterr().out


def test_what_the_memory_knows_to_be_slow_is_left_to_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "-m", "--search", "nccl.algo=Ring", "nccl.proto=LL,Simple", "nccl.max_nchannels=2,16", *H200)
    record = planned(capsys, *words)
    labels = {point["digest"]: point["label"] for point in record["points"]}
    late = {labels[digest]: why for digest, why in record["search"]["late"].items()}
    assert list(late) == ["nccl.proto=Simple nccl.max_nchannels=2", "nccl.proto=Simple nccl.max_nchannels=16"]
    assert all(why.startswith("measured slower than NCCL's default at every size: decode 1.") for why in late.values())
    assert main(list(words)) == 0
    assert "left to the last: nccl.proto=Simple nccl.max_nchannels=2: measured slower" in capsys.readouterr().out
    # On other hardware nothing is known.
    assert planned(capsys, *(w.replace("h200x2", "h100x8") for w in words))["search"]["late"] == {}


WRONG = {
    "no sweep": (("--search", "model=tiny"), "--search goes with a sweep"),
    "another verb": (("bench", "--search", *TINY), "--search goes with a sweep"),
    "no number": (("-m", "--search=many", *AXES, *TINY), "--search=many: write how many points"),
    "none": (("-m", "--search=0", *AXES, *TINY), "--search=0: write how many points"),
    "empty": (("-m", "--search=", *AXES, *TINY), "--search=: write how many points"),
    "several hosts": (
        ("plan", "-m", "--search", *AXES, *TINY, "target=ssh", "target.hosts=[a,b]"),
        "--search chooses one point after the other, on one host",
    ),
    "nothing to choose": (("-m", "--search", "engine.args.seed=1,2", *TINY), "--search has nothing to choose from"),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG.keys())
def test_refused(arguments: tuple[str, ...], told: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(arguments)) == 2
    assert told in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_without_optuna(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "optuna" else find(name, *a))
    assert main(["plan", "-m", "--search", *AXES, *TINY]) == 2
    assert "pip install 'launch-llm[search]'" in capsys.readouterr().err
    assert main(["plan", "-m", *AXES, *TINY]) == 0


@pytest.mark.fleet
def test_a_search_from_the_command_to_the_report(folder: Path) -> None:
    once = ("sweep.repeats=1", "sweep.max_repeats=1", "sweep.baseline_every=3")
    with launch("-m", "--search=4", *AXES, *words(*once)) as process:
        out, err = process.communicate(timeout=180)
    assert (process.returncode, "Traceback" in err) == (0, False), err
    ran = [trial["point"] for trial in trials(folder)]
    assert (len(ran), len(set(ran)), ran[0] == ran[4] == ran[-1]) == (7, 5, True)
    assert "4 of 6 points were chosen; of the other 2 nothing is known." in out
    assert "On the front, not shown to be beaten by any measured point: " in out
    (report,) = folder.glob("results/*/report.html")
    assert "On the front, not shown to be beaten by any measured point: " in report.read_text()
    with launch("results", next(folder.glob("results/*/")).name, "--json") as process:
        record = json.loads(process.communicate(timeout=60)[0])
    assert (record["search"]["most"], sorted(record["search"]["chosen"])) == (4, sorted({*ran} - {ran[0]}))
    assert record["ended"].startswith("4 of 6 points were chosen")
