"""`-m` and `bench`: what is planned and refused, and sweeps of real ranks without GPUs, from command to report."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from launcher.sweep import journal
from launcher.sweep.record import Point, Sweep, Trial, Workload
from tests.agent import gloo

fleet = pytest.mark.fleet

ALGORITHMS = "nccl.algo=Ring,Tree"
#: Two ranks of a model with messages of a few bytes.
TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce", "bench.batches=[1,8]", "bench.prefill_tokens=[64]")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the record of a plan; nothing is written for it."""
    assert main([*words, "--json"]) == 0
    assert list(Path.cwd().iterdir()) == []
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def labels(record: dict[str, Any]) -> list[str]:
    return [point["label"] for point in record["points"]]


# --- plans


def test_the_second_command_says_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", ALGORITHMS]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sweep of 3 points\n")
    assert [line.split()[1] for line in out.splitlines()[1:4]] == ["baseline", "nccl.algo=Ring", "nccl.algo=Tree"]
    assert "nccl.algo=Tree is rendered as NCCL_ALGO=Ring,Tree;allreduce:Tree. [nccl-bare-tree]" in out
    assert "Nothing was measured. Missing is what to measure: bench=allreduce" in out
    assert list(folder.iterdir()) == []


CHAIN = ("-m", ALGORITHMS, "model=tiny", "engine.tensor_parallel=2", "-e", "ODD=a b", "--allow", "nccl-bare-tree")


def test_the_next_command_is_the_whole_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = folder / "own"
    (own / "deployment").mkdir(parents=True)
    (own / "deployment/mine.yaml").write_text("# @package _global_\nmodel:\n  layers: 3\n")
    assert main(["up", "mine", *CHAIN, "--config-dir", str(own)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    words = shlex.split(line)
    assert words[0] == "launch"
    assert main(["plan", *(word for word in words[1:] if word != "up")]) == 0
    out = capsys.readouterr().out
    assert "6 all-reduces" in out  # three layers
    assert "Missing" not in out


def test_what_would_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", ALGORITHMS, *TINY]) == 0
    out = capsys.readouterr().out
    assert "decode-8       decode, batch 8: 4 all-reduces of 2 KiB" in out
    assert "Missing is where: target=process (here), or target=ssh" in out
    assert out.splitlines()[-1].endswith(" target=process")
    assert main(["plan", "-m", ALGORITHMS, *TINY, "target=process"]) == 0
    out = capsys.readouterr().out
    assert "fresh starts at least" in out
    assert "Missing" not in out
    assert list(Path.cwd().iterdir()) == []


def test_the_record_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    record = planned(capsys, "-m", ALGORITHMS, *TINY)
    assert record["axes"] == {"nccl.algo": ["Ring", "Tree"]}
    assert labels(record) == ["baseline", "nccl.algo=Ring", "nccl.algo=Tree"]
    assert [point["env"].get("NCCL_ALGO") for point in record["points"]] == [None, "Ring", "Ring,Tree;allreduce:Tree"]
    assert [workload["name"] for workload in record["workloads"]] == ["decode-1", "decode-8", "prefill-64"]
    assert (record["exit_code"], record["left_out"]) == (0, [])
    assert record["missing"].startswith("where: ")


def test_a_deployment_is_named_behind_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    record = planned(capsys, "up", "reference", "-m", "nccl.proto=LL,Simple")
    assert "--speculative-algorithm" in record["points"][0]["argv"]


# --- points

PROTO = "nccl.proto=LL,Simple"
POINTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "product": (
        ("nccl.algo=Ring,PAT", PROTO),
        ["nccl.algo=Ring nccl.proto=LL", "nccl.algo=Ring nccl.proto=Simple",
         "nccl.algo=PAT nccl.proto=LL", "nccl.algo=PAT nccl.proto=Simple"],
    ),
    "range": (("nccl.min_nchannels=range(1,4)",), [f"nccl.min_nchannels={number}" for number in (1, 2, 3)]),
    "choice": (("nccl.proto=choice(LL,Simple)",), ["nccl.proto=LL", "nccl.proto=Simple"]),
    "sets": (("+nccl=default,pcie_ll_ring",), ["nccl=pcie_ll_ring"]),
    "a list that is one value": (("nccl.algo='Ring,Tree',PAT",), ["nccl.algo='Ring,Tree'", "nccl.algo=PAT"]),
    "twice the same": (("nccl.proto=LL,LL",), ["nccl.proto=LL"]),
    "equal ones": (("nccl.buffsize=16MiB,16777216",), ["nccl.buffsize=16MiB"]),
    "environment": (("env.MY_OWN=a,b",), ["env.MY_OWN=a", "env.MY_OWN=b"]),
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), POINTS.values(), ids=POINTS.keys())
def test_points(words: tuple[str, ...], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert labels(planned(capsys, "-m", *words)) == ["baseline", *expected]


def test_equal_points_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    record = planned(capsys, "-m", "nccl.buffsize=16MiB,16777216")
    assert record["points"][1]["aliases"] == ["nccl.buffsize=16777216"]
    # What changes no measurement is no point of one.
    record = planned(capsys, "-m", "engine.args.seed=1,2", *TINY)
    assert [point["aliases"] for point in record["points"]] == [["engine.args.seed=1", "engine.args.seed=2"]]
    assert len(planned(capsys, "-m", "engine.args.seed=1,2")["points"]) == 3


def test_a_point_that_is_the_baseline_is_not_measured_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "nccl.proto=LL,Simple", "-e", "NCCL_PROTO=LL", *TINY]) in (0, 2)
    capsys.readouterr()
    record = planned(capsys, "-m", "unit.stop_timeout=60,30", *TINY)
    assert labels(record) == ["baseline"]
    assert record["points"][0]["aliases"] == ["unit.stop_timeout=60", "unit.stop_timeout=30"]


def test_refused_points_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-m", "nccl.min_nchannels=2,32", "nccl.max_nchannels=4")
    record = planned(capsys, *words)
    assert labels(record) == ["baseline", "nccl.min_nchannels=2"]
    (out,) = record["left_out"]
    assert out["label"] == "nccl.min_nchannels=32"
    assert "[nccl-min-above-max-channels]" in out["reasons"][0]
    assert main(list(words)) == 0
    assert "left out  nccl.min_nchannels=32\n      nccl.min_nchannels=32 is above" in capsys.readouterr().out
    record = planned(capsys, *words, "--allow", "nccl-min-above-max-channels")
    assert labels(record) == ["baseline", "nccl.min_nchannels=2", "nccl.min_nchannels=32"]
    assert "[nccl-min-above-max-channels]" in record["points"][2]["notes"][0]


def test_inert_points_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    flag = "engine.args.num_continuous_decode_steps"
    words = ("-m", f"{flag}=4,8,16", "nccl.algo=Ring,PAT")
    record = planned(capsys, *words)
    assert labels(record) == ["baseline", f"{flag}=4 nccl.algo=Ring", f"{flag}=4 nccl.algo=PAT"]
    assert len(record["left_out"]) == 4
    assert main(list(words)) == 0
    out = capsys.readouterr().out
    assert f"left out  {flag}=8 nccl.algo=Ring  and 3 more for the same\n" in out
    assert out.count("[engine-flag-inert]. To measure it: --allow engine-flag-inert") == 1
    assert len(planned(capsys, *words, "--allow", "engine-flag-inert")["points"]) == 7


def test_a_whole_sweep_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-m", "+hw=rtx6000x8", "+spec=eagle3_2step", "+experiment=nccl_pcie", "nccl.nthreads=512")
    record = planned(capsys, *words)
    assert (len(record["points"]), len(record["left_out"])) == (45, 9)
    assert record["points"][0]["aliases"] == ["nccl.algo=Ring nccl.proto=LL nccl.max_nchannels=16 nccl.buffsize=16MiB"]
    assert record["workloads"][3]["name"] == "verify-1"
    assert main(["up", "-m", *words[1:]]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) < 70
    assert "filter 1 leaves out nccl.proto=LL with nccl.buffsize=4MiB" in out
    for wrong in (["plan"], []):
        assert main([*wrong, "experiment=nccl_pcie"]) == 2
        assert "'experiment=nccl_pcie' is a whole sweep: add -m" in capsys.readouterr().err


def test_a_plan_of_many_points_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "-m",
        "env.A=range(0,40)",
        "nccl.min_nchannels=range(1,11)",
        "nccl.max_nchannels=5",
        *TINY,
        "target=process",
    )
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sweep of 201 points\n")
    assert len(out.splitlines()) < 35
    assert "  … and 189 more, the last axis fastest; --json lists all\n" in out
    assert "  axes: env.A = 0, 1, 2, … 39 (40)\n" in out
    assert "left out  env.A=0 nccl.min_nchannels=6  and 199 more for the same\n" in out
    assert "the baseline again after every 6; the next round backwards" in out
    assert "469 fresh starts at least: about 70 min (9 s each, a guess, none was measured here yet)" in out
    assert len(planned(capsys, "plan", *words)["points"]) == 201


def test_the_time_is_that_of_earlier_sweeps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "-m", ALGORITHMS, *TINY, "target=process"]
    record = planned(capsys, *words)
    assert (record["starts"], record["seconds_each"], record["seconds"]) == (7, 9.0, 63.0)
    points = tuple(Point(point["digest"], point["label"]) for point in record["points"])
    took = [Trial(points[0].digest, n, 0.0, seconds) for n, seconds in enumerate((20.0, 30.0), 1)]
    failed = Trial(points[0].digest, 3, 0.0, 600.0, failure="hang")
    facts = {
        "model": "tiny",
        "hardware": "unknown",
        "engine": "sglang",
        "ranks": 2,
        "backend": "nccl",
        "program": "torch",
    }
    workload = Workload("decode-1", "decode", "decode, batch 1", "us")
    here = Sweep("tiny", "2026-tiny-allreduce", "", "this machine", {}, (workload,), points, facts=facts)
    for sweep in (
        replace(here, name="other", id="2026-other-allreduce", trials=tuple(took[:1])),
        replace(here, trials=(*took, failed)),
        replace(here, id="2026a-tiny-allreduce", target="gpu1", trials=(replace(took[0], seconds=99.0),)),
        replace(here, id="2026b-tiny-allreduce", facts={**facts, "hardware": "rtx"}, trials=tuple(took)),
    ):
        journal.create(folder / "results", sweep)
    (folder / "results/2027-tiny-allreduce").mkdir()
    (folder / "results/2027-tiny-allreduce/sweep.json").write_text("broken")
    assert main(words) == 0
    assert "7 fresh starts at least: about 3 min (25 s each, as 2 earlier ones)" in capsys.readouterr().out
    assert main([*words, "name=third", "sweep.minutes=1"]) == 0
    out = capsys.readouterr().out
    assert "about 1 min (23.3 s each, as 3 earlier ones)" in out
    assert "ended after 1 min" in out


def test_loads_of_the_client_are_no_points(capsys: pytest.CaptureFixture[str]) -> None:
    record = planned(capsys, "-m", "bench.loads.a.concurrency=1,8", "nccl.algo=Ring,PAT")
    assert list(record["axes"]) == ["bench.loads.a.concurrency", "nccl.algo"]  # nothing is served here


# --- refusals

BASELINE = "the baseline, without the swept keys: "
WRONG: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "all refused": (
        ("-m", "nccl.min_nchannels=16,32", "nccl.max_nchannels=4"),
        ["point 'nccl.min_nchannels=16': ", "point 'nccl.min_nchannels=32': ", "[nccl-min-above-max-channels]"],
    ),
    "a typo": (("-m", "nccl.algo=Ring,Tre"), ["point 'nccl.algo=Tre': ", "did you mean 'Tree'?"]),
    "a typo in an option": (("-m", "+nccl=pcie_ll_rng,default"), ["point 'nccl=pcie_ll_rng': ", "pcie_ll_ring"]),
    "a typo in the key": (("-m", "ncl.algo=Ring,Tree"), ["point 'ncl.algo=Ring': ", "'ncl'"]),
    "a typo in the baseline": (("-m", ALGORITHMS, "nccl.prto=LL"), [BASELINE, "nccl.prto"]),
    "a baseline that nobody wants": (
        ("-m", "model=tiny", "engine.tensor_parallel=2,4", "bench=allreduce"),
        [BASELINE + "engine.tensor_parallel=1"],
    ),
    "no list": (("-m", "nccl.algo=Ring"), ["-m without a list of values"]),
    "nothing": (("-m",), ["-m without a list of values"]),
    "an empty range": (("-m", "nccl.min_nchannels=range(1,1)"), ["names no values to try"]),
    "an interval": (("-m", "nccl.nthreads=interval(64,512)"), ["interval() names no values", "nccl.nthreads=A,B"]),
    "a pattern of nothing": (("-m", "nccl=glob(x*)"), ["names no values to try: the group has default, "]),
    "a pattern of values": (("-m", "engine.port=glob(*)"), ["glob() picks options of a group", "'engine.port'"]),
    "too many": (("-m", "env.A=range(0,100)", "env.B=range(0,51)"), ["a sweep of 5,100 points (100 x 51): 5,000"]),
    "far too many": (("-m", "env.A=range(0,1000000000)"), ["a range of 1,000,000,000 values"]),
    "how it is run": (("-m", "sweep.repeats=1,2"), ["sweep.repeats says how a sweep is run"]),
    "two lists": (("-m", ALGORITHMS, "nccl.algo=PAT,NVLS"), ["nccl.algo is swept twice"]),
    "a list and a value": (("-m", ALGORITHMS, "nccl.algo=PAT"), ["contradicts 'nccl.algo=PAT'"]),
    "a secret": (("-m", "secrets.env.HF_TOKEN=hf_REAL,hf_OTHER"), ["secrets.env.HF_TOKEN: a secret is no axis"]),
    "other messages": (
        ("-m", "bench.batches=[1],[2]", "model=tiny", "engine.tensor_parallel=2", "bench=allreduce"),
        ["bench.batches says how is measured, so it is one for all points"],
    ),
    "other places": (
        ("-m", "target.hosts=[a],[b]", "model=tiny", "bench=serve"),
        ["target.hosts says where is measured", "several equal hosts share the points"],
    ),
    "another name": (("-m", "name=a,b", "model=tiny", "bench=serve"), ["name says where is measured"]),
    "no starts": (("bench", *TINY, "sweep.repeats=0"), ["sweep.repeats=0 has to be 1 at least"]),
    "fewer at most": (
        ("bench", *TINY, "sweep.repeats=3", "sweep.max_repeats=2"),
        ["max_repeats=2 is below sweep.repeats=3"],
    ),
    "no time": (
        ("bench", *TINY, "bench.deadline=0", "bench.seconds=0"),
        ["bench.deadline=0 has", "bench.seconds=0 has"],
    ),
    "several deployments": (("up", "reference", "other", "-m", ALGORITHMS), ["takes one deployment"]),
    "other verbs": (("render", "-m", ALGORITHMS), ["-m does not go with render"]),
    "run": (("run", "-m", ALGORITHMS), ["-m does not go with run"]),
    "a list for bench": (("bench", ALGORITHMS, *TINY), ["bench takes one configuration; for several: launch -m"]),
    "-m for bench": (("bench", "-m", ALGORITHMS, *TINY), ["-m does not go with bench"]),
    "nothing to measure": (("bench",), ["add bench=allreduce"]),
    "one GPU": (("bench", "model=tiny", "bench=allreduce", "target=process"), ["one GPU talks to nobody"]),
    "closing without production": (
        ("plan", "-m", ALGORITHMS, "model=tiny", "bench=serve", "target=process", "sweep.closing=true"),
        ["with target=process there is none"],
    ),
    "several hosts": (
        ("bench", *TINY, "target=ssh", "target.hosts=[127.0.0.1,127.0.0.2]"),
        ["here is one configuration: name one host in target.hosts"],
    ),
}


@pytest.mark.parametrize(("words", "parts"), WRONG.values(), ids=WRONG.keys())
def test_refused(words: tuple[str, ...], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert [part for part in parts if part not in said] == []
    assert "hf_REAL" not in said
    assert list(folder.iterdir()) == []


def test_what_cannot_be_measured_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gloo_without_torch = ("bench", *TINY, "target=process", "bench.backend=gloo", "engine.python=/none/python")
    assert main(list(gloo_without_torch)) == 1
    assert "/none/python cannot be started: it is not there; set engine.python=PATH" in capsys.readouterr().err
    assert [path for path in folder.rglob("*") if path.name != "results"] == []


# --- with real ranks


def words(*more: str) -> list[str]:
    """Return overrides for two ranks of gloo, some 2 s a start."""
    own = ("bench.backend=gloo", "target=process", "bench.seconds=0.01", f"engine.python={gloo.PYTHON}")
    return [*TINY, *own, "-e", f"PYTHONPATH={gloo.site()}", "-e", "OMP_NUM_THREADS=1", *more]


def launch(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "launcher", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "NCCL_ALGO": "Tree"},
    )


def trials(folder: Path) -> list[dict[str, Any]]:
    """Return what the journal of the only sweep has; nothing before there is one."""
    found = [path.read_text() for path in folder.glob("results/*/journal.jsonl")]
    return [json.loads(line) for text in found for line in text.splitlines()]


@fleet
def test_a_sweep_from_the_command_to_the_report(folder: Path) -> None:
    once = ("sweep.repeats=1", "sweep.max_repeats=1", "sweep.baseline_every=2")
    with launch("-m", "nccl.algo=Ring,PAT", *words(*once)) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert "sweep of 3 points" in out
    assert [line.split()[0] for line in err.splitlines()] == ["1/4", "2/4", "3/4", "4/4"]
    ran = trials(folder)
    assert [trial["order"] for trial in ran] == [1, 2, 3, 4]
    assert ran[0]["point"] == ran[-1]["point"]
    assert len({trial["point"] for trial in ran}) == 3
    for trial in ran:
        assert trial["failure"] == ""
        assert [(r["workload"], r["invalid"]) for r in trial["readings"]] == [
            ("decode-1", []), ("decode-8", []), ("prefill-64", []),
        ]  # fmt: skip
    (report,) = folder.glob("results/*/report.html")
    assert f"report: {report.relative_to(folder)}" in out
    assert "nccl.algo=PAT" in report.read_text()
    assert "Ended: " in out


@fleet
def test_one_configuration(folder: Path) -> None:
    with launch("bench", *words("--json")) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    record = json.loads(out)
    assert [json.loads(line)["trial"] for line in err.splitlines()] == [1]
    (trial,) = record["trials"]
    assert [reading["workload"] for reading in trial["readings"]] == ["decode-1", "decode-8", "prefill-64"]
    assert all(Path(path).is_file() for path in record["files"])
    assert [trial["order"] for trial in trials(folder)] == [1]


@fleet
def test_wrong_sums_are_no_success(folder: Path, tmp_path: Path) -> None:
    code = "import torch.distributed as dist\nright = dist.all_reduce\n"
    code += (
        "def all_reduce(tensor, *a, **k):\n    right(tensor, *a, **k)\n    tensor += 1\ndist.all_reduce = all_reduce\n"
    )
    site = gloo.custom(tmp_path / "site", code)
    path = [f"PYTHONPATH={site}:{gloo.site()}" if w.startswith("PYTHONPATH=") else w for w in words()]
    with launch("bench", *path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "INVALID: 256 numbers of the all_reduce of 256 bytes are wrong" in out.replace("512 numbers", "256 numbers")


@fleet
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_was_measured_before_an_interrupt_is_kept(number: signal.Signals, folder: Path) -> None:
    with launch("-m", ALGORITHMS, *words()) as process:
        gloo.wait(lambda: trials(folder), 60)
        gloo.wait(lambda: len(gloo.ranks(process.pid)) == 2)
        pids = list(gloo.ranks(process.pid).values())
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert "launch: interrupted; what was measured is kept" in err
    assert gloo.alive(pids) == []
    assert "Ended: interrupted." in out
    assert len(trials(folder)) >= 1
    (report,) = folder.glob("results/*/report.html")
    assert "baseline" in report.read_text()


@fleet
def test_an_interrupt_before_anything_was_measured(folder: Path) -> None:
    with launch("-m", ALGORITHMS, *words()) as process:
        gloo.wait(lambda: len(gloo.ranks(process.pid)) == 2)
        pids = list(gloo.ranks(process.pid).values())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert "launch: interrupted; nothing was measured yet" in err
    assert gloo.alive(pids) == []
    assert list(folder.glob("results/*")) == []


def test_the_second_half_of_the_reference_campaign_leaves_out_what_the_first_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("+hw=rtx6000x8", "+spec=eagle3_2step", "+experiment=nccl_pcie_serve")
    assert main(["plan", "-m", *words]) == 0
    assert "sweep of 9 points" in capsys.readouterr().out
    head = "gpu,gpus,interconnect,p2p,nccl_version,base,set,collective,bytes,us,us_low,us_high,starts,date,source"
    gpu = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    row = gpu + ",8,pcie,on,2.28.9,NVLS_ENABLE=0,{},all_reduce,14336,{},2,2026-11-30,sweep"
    (tmp_path / "results").mkdir()
    rows = [row.format("", "50,49,51"), row.format("MAX_NCHANNELS=2", "80,79,81"), row.format("ALGO=Ring", "40,39,41")]
    (tmp_path / "results" / "measured.csv").write_text("\n".join([head, *rows]) + "\n")
    assert main(["plan", "-m", *words]) == 0
    out = capsys.readouterr().out
    assert "sweep of 8 points" in out
    assert (
        "left out  nccl.max_nchannels=2\n      nccl.max_nchannels=2: measured 1.6 x slower than NCCL's default" in out
    )
    assert main(["plan", "-m", *words, "bench=allreduce"]) == 2
    assert "sweep.prune=true goes by what bench=allreduce has measured" in capsys.readouterr().err


def test_the_next_command_names_one_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", ALGORITHMS, *TINY, "target=render"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.count("target=") == 1
    assert line.endswith(" target=process")
    assert main(["-m", ALGORITHMS, "model=tiny", "bench=serve", "target=render", "sweep.closing=true"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" target=ssh 'target.hosts=[HOST]'")


def test_the_plan_of_one_configuration_is_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "bench.loads.decode-1.input_tokens=64,128", "model=tiny", "bench=serve"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sweep of 1 point\n")
    assert "  1 start of the server at least" in out
