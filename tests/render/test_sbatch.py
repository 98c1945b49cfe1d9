"""The batch script: what it asks of Slurm, what it hands to a task, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.errors import RenderError
from launcher.host import bundle
from launcher.render import render, sbatch
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from launcher.schema import Deployment

BASE = ("model=tiny", "engine=vllm", "engine.tensor_parallel=2", "name=batch")
#: Writes down its arguments and what it reads.
SRUN = '#!/bin/sh\nprintf \'%s\\0\' "$@" > "$0.words"\ncat > "$0.program"\n'


def composed(*words: str, **env: str) -> Deployment:
    return compose([*BASE, *words], env)


def text(*words: str, **env: str) -> str:
    deployment = composed(*words, **env)
    return sbatch.script(deployment, render(deployment), bundle.task_program)


def asked(*words: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text(*words).splitlines() if line.startswith("#SBATCH ")]


def run(folder: Path, script: str) -> tuple[list[str], str]:
    """Run a script by bash; return the words of srun and what it is given to read."""
    srun = folder / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    path = folder / "script"
    path.write_text(script)
    subprocess.run(["bash", path], env={"PATH": f"{folder}:{os.environ['PATH']}", "NCCL_LEAK": "1"}, check=True)
    return (folder / "srun.words").read_text().split("\0")[:-1], (folder / "srun.program").read_text()


ALWAYS = ["--ntasks-per-node=1", "--export=NIL", "--propagate=NONE", "--requeue", "--open-mode=append"]
OPTIONS: dict[str, tuple[list[str], list[str]]] = {
    "as it is": ([], ["--nodes=1", "--gpus-per-node=2", "--exclusive"]),
    "other GPUs": (["slurm.gpus='h200:8'"], ["--nodes=1", "--gpus-per-node=h200:8", "--exclusive"]),
    "no GPUs": (["slurm.gpus=none"], ["--nodes=1", "--exclusive"]),
    "a part of three nodes": (
        ["slurm.nodes=3", "slurm.cpus=16"],
        ["--nodes=3", "--gpus-per-node=2", "--cpus-per-task=16"],
    ),
    "who and how long": (
        ["slurm.partition=gpu", "slurm.account=llm", "slurm.minutes=90"],
        [
            *("--nodes=1", "--gpus-per-node=2", "--exclusive", "--partition=gpu", "--account=llm"),
            *("--time=90", "--signal=TERM@120"),
        ],
    ),
    "a log file": (
        ["unit.log_file=/var/log/batch.log"],
        ["--nodes=1", "--gpus-per-node=2", "--exclusive", "--output=/var/log/batch.log"],
    ),
}


@pytest.mark.parametrize(("words", "wanted"), OPTIONS.values(), ids=OPTIONS)
def test_what_is_asked_of_slurm(words: list[str], wanted: list[str]) -> None:
    assert asked(*words) == ["--job-name=launch-batch", *wanted, *ALWAYS]


def test_further_options_come_last() -> None:
    extra = ["--constraint=h200&nvlink", "--reservation=llm", "--oversubscribe"]
    assert asked(f"slurm.extra=[{','.join(repr(word) for word in extra)}]")[-3:] == extra


def test_the_same_release_gives_the_same_script_and_the_questions_to_slurm_change_no_digest() -> None:
    assert text() == text()
    assert render(composed()).digest == render(composed("slurm.partition=gpu", "slurm.minutes=5")).digest


VALUES = {
    "quotes": 'it\'s "so"',
    "a shell's characters": "$HOME ${X} `id` $(id) \\ \\\\ ! * ? ~ & ; | < > ( ) { } [ ] # %",
    "blanks": "  two  \t tab ",
    "lines": "one\n#SBATCH --export=ALL\nLAUNCH_PROGRAM\n",
    "unicode": "Größe 模型 🚀",
    "empty": "",
    "an option": "--export=ALL",
    "commas and signs": "a=b,c=d",
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_any_value_arrives_as_it_is(tmp_path: Path, value: str) -> None:
    deployment = composed(STANDIN_X=value)
    assert_arrives(tmp_path, deployment)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"], include_characters="\n\t"), max_size=30))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_values_arrive_as_they_are(tmp_path: Path, value: str) -> None:
    assert_arrives(tmp_path, composed(STANDIN_X=value))


def test_any_argument_arrives_as_it_is(tmp_path: Path) -> None:
    assert_arrives(tmp_path, composed(r"engine.args.chat_template='{{ \$x }} `id` \"é\" #'", "slurm.cpus=4"))


def assert_arrives(folder: Path, deployment: Deployment) -> None:
    release = render(deployment)
    words, program = run(folder, sbatch.script(deployment, release, bundle.task_program))
    begin, python = words.index("/usr/bin/env"), words.index("/usr/bin/python3")
    assert dict(word.split("=", 1) for word in words[begin + 1 : python]) == dict(release.env)
    assert words[python:] == ["/usr/bin/python3", "-I", "-X", "utf8", "-", *release.argv]
    assert words[0] == "--export=ALL"
    assert ("--cpus-per-task=4" in words[:begin]) == (deployment.slurm.cpus == 4)
    assert program == bundle.task_program(release.manifest.text) + "\n"


REFUSED: dict[str, tuple[list[str], str]] = {
    "secrets": (["secrets.env.HF_TOKEN='file:/x'"], "secrets do not go into a batch script"),
    "GPUs by index": (["engine.gpus=['0','1']"], "Slurm chooses the GPUs of a job"),
    "one server on several nodes": (["engine.args.nnodes=2"], "has another command on each"),
    "a partition of two words": (["slurm.partition='a b'"], "slurm.partition='a b' must be letters"),
    "no number of GPUs": (["slurm.gpus=many"], "slurm.gpus='many' must be a number"),
    "no nodes": (["slurm.nodes=0"], "slurm.nodes=0 must be 1 or more"),
    "a line more": (["slurm.extra=['--qos=a\n#SBATCH --export=ALL']"], "must be --NAME or --NAME=VALUE"),
    "a comment": (["slurm.extra=['--qos=a#b']"], "must be --NAME or --NAME=VALUE"),
    "the environment back": (["slurm.extra=['--export=ALL']"], "--export=ALL is this script's own"),
    "another time": (["slurm.extra=['--time=5']"], "--time=5 is this script's own: set slurm.minutes"),
}


@pytest.mark.parametrize(("words", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(RenderError) as caught:
        text(*words)
    assert reason in str(caught.value)


# --- the program of a task, without Slurm


def task(deployment: Deployment, env: Mapping[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    release = render(deployment)
    return subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-", *release.argv, *more],
        input=bundle.task_program(release.manifest.text),
        env={**release.env, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


WRONG: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "another value": ({"NCCL_DEBUG": "WARN"}, (), 'NCCL_DEBUG is "WARN" (should be "INFO")'),
    "a foreign setting": ({"NCCL_CUMEM_ENABLE": "0"}, (), "NCCL_CUMEM_ENABLE is set, but the release does not set it"),
    "a name of NCCL's family": ({"NCCL_NO_SUCH": "0"}, (), "NCCL_NO_SUCH is set, but the release does not set it"),
    "a word more": ({}, ("--seed",), "arguments"),
}


@pytest.mark.parametrize(("env", "more", "reason"), WRONG.values(), ids=WRONG)
def test_a_task_refuses(env: dict[str, str], more: tuple[str, ...], reason: str) -> None:
    done = task(composed(), env, *more)
    assert done.returncode == 78
    assert "REFUSED to start the server:" in done.stderr
    assert reason in done.stderr


def test_a_task_says_what_cannot_be_started() -> None:
    done = task(composed("engine.python=/no/such/python"), {"CUDA_VISIBLE_DEVICES": "3", "VLLM_NO_SUCH": "secret"})
    assert done.returncode == 78
    assert "/no/such/python cannot be started: No such file or directory" in done.stderr
    assert "warning: VLLM_NO_SUCH is in the environment and not from the release" in done.stderr
    assert "secret" not in done.stderr
