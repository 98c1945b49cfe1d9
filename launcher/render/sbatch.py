"""The batch script that serves a release under Slurm: one text that needs nothing of ours on the nodes.

The environment does not travel with the submission, which Slurm fills from wherever it likes; it is set by the very
command of each task, and what arrives is compared with the release by a program that the script carries
(`launcher.agent.task`). Tried with Slurm 22.05.8 as Debian 12 packages it:

- ``--export=NIL`` leaves out all variables of the shell; later versions document that it leaves out the login profile
  too, which ``NONE`` reads. 22.05 does not know the word yet and does what it does with ``NONE``: NCCL variables of
  ``~/.bash_profile`` reach the job, and the task refuses.
- Both leave ``SLURM_EXPORT_ENV`` behind, with which ``srun`` in the script starts tasks without ``PATH``; hence
  ``srun --export=ALL``. ``SBATCH_EXPORT=ALL`` of the submitting shell beats the line in the script.
- ``srun`` hands its standard input to every task.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from launcher.errors import RenderError
from launcher.render import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.render.release import Release
    from launcher.schema import Deployment, Slurm

_WORD = re.compile(r"[A-Za-z0-9_.,@+-]+")
_GPUS = re.compile(r"([A-Za-z0-9_.-]+:)?[1-9][0-9]*")
#: sbatch takes quotes, backslashes and ``#`` in such a line for its own.
_EXTRA = re.compile(r"--([a-z][a-z0-9-]*)(=[A-Za-z0-9_.,:@%/+*\[\]&|()=-]+)?")
#: What the script says by itself, and what would undo it.
OWN = {
    "partition": "slurm.partition",
    "account": "slurm.account",
    "time": "slurm.minutes",
    "nodes": "slurm.nodes",
    "gpus-per-node": "slurm.gpus",
    "cpus-per-task": "slurm.cpus",
    "job-name": "name",
    "output": "unit.log_file",
    **dict.fromkeys(("export", "export-file", "get-user-env", "propagate"), ""),
    **dict.fromkeys(("ntasks", "ntasks-per-node", "wrap", "array", "signal"), ""),
}
#: Ends the program in the script; no line of Python is this word.
_END = "LAUNCH_PROGRAM"
#: Largest script that Slurm takes unless told otherwise (slurm.conf, max_script_size), in bytes.
_LONGEST = 4 * 1024 * 1024
_HEAD = """\
#!/bin/bash
# Release {digest} of {name}, written by launch: sbatch {name}.sbatch
# Each task compares its own environment with the release before it starts the server, and every process of the server
# after it; a task that differs in anything exits {refused} and says in what. Change the configuration, not this file.
"""
#: Comes back after the failure of a node or a preemption, as the unit's Restart=always; a refusal is final in both.
_ALWAYS = ("--ntasks-per-node=1", "--export=NIL", "--propagate=NONE", "--requeue", "--open-mode=append")
_REFUSED = 78


def script(deployment: Deployment, release: Release, program: Callable[[str], str]) -> str:
    """Return the batch script of a release; the same release gives the same text.

    Args:
        deployment: that the release is of.
        release: to serve.
        program: gives the program of each task, for the text of a manifest; ASCII (`bundle.task_program`).

    Raises:
        RenderError: Slurm cannot serve it so, or a value of ``slurm`` cannot be written.
    """
    python = encode.plain_path("target.python", deployment.target.python)
    if problems := [*_unfit(deployment), *malformed(deployment.slurm)]:
        raise RenderError(*problems)
    cpus = deployment.slurm.cpus
    srun = ["exec srun --export=ALL --mpi=none --cpu-bind=none --kill-on-bad-exit=0"]
    srun += [f"    --cpus-per-task={cpus}"] if cpus else []  # 22.05 and later do not take it over from sbatch
    task = [
        "    /usr/bin/env",
        *(f"    {encode.environment_file({name: value}).removesuffix(chr(10))}" for name, value in _sorted(release)),
        f"    {python} -I -X utf8 -",
        *(f"    {shlex.quote(word)}" for word in release.argv),
        f"    <<'{_END}'",
    ]
    lines = [f"#SBATCH {option}" for option in options(deployment, release)]
    head = _HEAD.format(name=release.name, digest=release.digest, refused=_REFUSED)
    text = head + "\n".join([*lines, "", " \\\n".join([*srun, *task]), program(release.manifest.text)]) + f"\n{_END}\n"
    if len(text.encode()) > _LONGEST:
        raise RenderError(f"the batch script has more than the {_LONGEST} bytes that Slurm takes")
    return text


def options(deployment: Deployment, release: Release) -> list[str]:
    """Return what is asked of sbatch, one option each."""
    slurm, unit = deployment.slurm, deployment.unit
    each = gpus(deployment)
    return [
        f"--job-name=launch-{release.name}",
        f"--nodes={slurm.nodes}",
        *([f"--gpus-per-node={each}"] if each else []),
        f"--cpus-per-task={slurm.cpus}" if slurm.cpus else "--exclusive",
        *([f"--partition={slurm.partition}"] if slurm.partition else []),
        *([f"--account={slurm.account}"] if slurm.account else []),
        # The server gets as long to end before the limit as it gets from systemd.
        *([f"--time={slurm.minutes}", f"--signal=TERM@{unit.stop_timeout}"] if slurm.minutes else []),
        *([f"--output={unit.log_file}"] if unit.log_file else []),
        *_ALWAYS,
        *slurm.extra,
    ]


def gpus(deployment: Deployment) -> str:
    """Return how many GPUs of a node are asked for, as Slurm writes it; empty: it is not asked."""
    asked = deployment.slurm.gpus
    return "" if asked == "none" else asked or str(deployment.engine.tensor_parallel)


def option(text: str) -> tuple[str, str] | None:
    """Return name and value of a further option of sbatch; None where it is not written as one."""
    match = _EXTRA.fullmatch(text)
    return (match[1], (match[2] or "")[1:]) if match else None


def _sorted(release: Release) -> list[tuple[str, str]]:
    return sorted(release.env.items())


def _unfit(deployment: Deployment) -> list[str]:
    """Return what of a deployment no batch script can carry."""
    problems = gpus_named(deployment)
    if deployment.runtime.kind != "venv":
        problems.append("runtime=podman: its container lives in a unit of systemd, which a batch job is none")
    if deployment.secrets.env or deployment.secrets.args:
        problems.append(
            "secrets do not go into a batch script, which Slurm keeps and shows (scontrol write batch_script): call"
            " launch run in a job, which reads them there"
        )
    if str(deployment.engine.args.get("nnodes") or "1") != "1":
        problems.append(
            "engine.args.nnodes: a server over several nodes has another command on each; a script carries one"
        )
    return problems


def gpus_named(deployment: Deployment) -> list[str]:
    """Return a problem where a deployment says which GPUs, for Slurm does that."""
    named = list(deployment.engine.gpus)
    return [f"engine.gpus={named}: Slurm chooses the GPUs of a job: leave it empty"] if named else []


def malformed(slurm: Slurm, own: Mapping[str, str] = OWN) -> list[str]:
    """Return what of the settings cannot be asked of sbatch.

    Args:
        slurm: the settings.
        own: options that launch gives by itself, with the key that sets each.
    """
    problems = [
        f"slurm.{key}={value!r} must be letters, digits and _.,@+-"
        for key, value in (("partition", slurm.partition), ("account", slurm.account))
        if value and not _WORD.fullmatch(value)
    ]
    if slurm.gpus not in ("", "none") and not _GPUS.fullmatch(slurm.gpus):
        problems.append(f"slurm.gpus={slurm.gpus!r} must be a number, TYPE:NUMBER, or none")
    if slurm.nodes < 1:
        problems.append(f"slurm.nodes={slurm.nodes} must be 1 or more")
    for text in slurm.extra:
        found = option(text)
        if not found:
            problems.append(f"slurm.extra: {text!r} must be --NAME or --NAME=VALUE, without blanks and quotes")
        elif found[0] in own:
            where = f": set {own[found[0]]}" if own[found[0]] else ""
            problems.append(f"slurm.extra: {text} is this script's own{where}")
    return problems
