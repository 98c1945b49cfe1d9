"""`target=slurm` without a cluster: the plan, what is refused, what submitit is told."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from launcher.cli import main
from launcher.slurm import cluster
from launcher.slurm.states import State
from tests.composing import compose

if TYPE_CHECKING:
    from pathlib import Path

AXES = ("nccl.max_nchannels=2,4,8",)
TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce", "bench.batches=[1]", "bench.prefill_tokens=[64]")
SLURM = (*AXES, *TINY, "target=slurm")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plan_tells_jobs_and_what_they_ask_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("slurm.partition=gpu", "slurm.minutes=60", "slurm.extra=['--constraint=h200']")
    assert main(["plan", "-m", *SLURM, *asked]) == 0
    out = capsys.readouterr().out
    assert "3 jobs of Slurm, each on one node with a baseline of its own: 5 starts in a job\n" in out
    assert "each asks for: a whole node, GPUs 2, partition gpu, 60 min, --constraint=h200; waiting in the" in out
    assert main(["plan", "-m", *SLURM, "slurm.jobs=2", "slurm.cpus=8", "slurm.gpus=none", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [one["starts"] for one in record["hosts"].values()] == [7, 5]
    assert record["each_job"] == "8 CPUs of a node, the partition's time limit"
    assert list(folder.iterdir()) == []


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "one configuration": (("bench", *TINY, "target=slurm"), "target=slurm shares points among jobs"),
    "a deploy": (("up", "model=tiny", "target=slurm"), "to serve in a job: launch render --format sbatch"),
    "several nodes": (("-m", *SLURM, "slurm.nodes=2"), "a point is measured on one node"),
    "named GPUs": (("-m", *SLURM, "engine.gpus=[0,1]"), "Slurm chooses the GPUs of a job"),
    "its own option": (("-m", *SLURM, "slurm.extra=['--requeue']"), "slurm.extra: --requeue is this script's own"),
    "no option": (("-m", *SLURM, "slurm.extra=['a b']"), "must be --NAME or --NAME=VALUE"),
    "a search": (("plan", "-m", "--search", *SLURM), "--search chooses one point after the other"),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG.keys())
def test_refused(words: tuple[str, ...], told: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    assert told in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_without_submitit(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "submitit" else find(name))
    assert main(["-m", *SLURM]) == 2
    assert "pip install 'launch-llm[slurm]'" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_without_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setenv("PATH", str(folder))
    assert main(["-m", *SLURM]) == 2
    assert "sbatch, srun, squeue, scancel is not on PATH: start this on a login node" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


ALWAYS = {"export": "NIL", "propagate": "NONE", "no-requeue": True}
TOLD: dict[str, tuple[tuple[str, ...], str, dict[str, Any]]] = {
    "nothing is said": (
        (), "",
        {"time": None, "partition": None, "exclusive": True, "cpus_per_task": None, "gpus_per_node": "2",
         "exclude": None, "additional_parameters": ALWAYS},
    ),
    "all is said": (
        ("slurm.partition=gpu", "slurm.account=llm", "slurm.minutes=60", "slurm.cpus=8", "slurm.gpus='h200:2'"), "",
        {"time": 60, "partition": "gpu", "account": "llm", "exclusive": None, "cpus_per_task": 8,
         "gpus_per_node": "h200:2"},
    ),
    "no GPUs": (("slurm.gpus=none",), "", {"gpus_per_node": None}),
    "further options": (
        ("slurm.extra=['--constraint=h200','--spread-job']",), "",
        {"additional_parameters": {**ALWAYS, "constraint": "h200", "spread-job": True}},
    ),
    "not there again": (("slurm.extra=['--exclude=n7']",), "n1", {"exclude": "n7,n1", "additional_parameters": ALWAYS}),
}  # fmt: skip


@pytest.mark.parametrize(("words", "exclude", "expected"), TOLD.values(), ids=TOLD.keys())
def test_what_submitit_is_told(words: tuple[str, ...], exclude: str, expected: dict[str, Any]) -> None:
    told = cluster.parameters(compose([*TINY, "target=slurm", *words]), "launch-s-job-1", exclude)
    assert {key: told[key] for key in expected} == expected
    assert (told["job_name"], told["nodes"], told["use_srun"]) == ("launch-s-job-1", 1, False)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "echo '7|a|RUNNING|None|n1'": {"7": State("RUNNING", "", "n1", "a"), "8": State("GONE")},
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1": {"7": State("GONE"), "8": State("GONE")},
    }.items(),
)
def test_what_squeue_answers(
    text: str, expected: dict[str, State], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(folder, "squeue", text)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    assert cluster.Cluster(compose([*TINY, "target=slurm"]), "s").states(["7", "8"]) == expected


def test_a_controller_that_is_away_is_no_end_of_a_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    with pytest.raises(Exception, match="squeue does not answer: slurm_load_jobs error: Unable to contact"):
        cluster.Cluster(compose([*TINY, "target=slurm"]), "s").states(["7"])


def test_what_sbatch_refuses_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    program(folder, "srun", "")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    there = cluster.Cluster(compose([*TINY, "target=slurm"]), "s")
    with pytest.raises(Exception, match=r"^Slurm does not take the job: sbatch: error: invalid partition"):
        there.submit("job-1", folder / "jobs", "", print)


def test_the_output_of_jobs_stays_also_where_nothing_was_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine is missing on the node; a program plays sbatch, and the job runs before it has answered."""
    run_script = f"{sys.executable} -m submitit.core._submit {folder}/results/*/jobs/job-1.1"
    program(folder, "sbatch", "echo Submitted batch job 7")
    program(
        folder, "squeue", f"[ -e {folder}/ran ] || {{ touch {folder}/ran; SLURM_JOB_ID=7 {run_script}; }} >/dev/null"
    )
    for name in ("srun", "scancel"):
        program(folder, name, "")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    words = ("model=tiny", "engine=vllm", "engine.python=/no/python", "bench=serve", "target=slurm")
    assert main(["-m", "engine.args.max_num_seqs=1,8", *words, "slurm.jobs=1"]) == 1
    said = capsys.readouterr()
    assert "job-1: Slurm job 7: engine.python=/no/python is not there, or cannot be executed" in said.err
    assert "To finish them: launch -m … --resume=" in said.out
    assert list(folder.glob("results/*/jobs/job-1.1/ended.json"))
