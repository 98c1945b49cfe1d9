"""Slurm's own commands, and submitit to submit: the only place that talks to the cluster.

Of submitit (tried with 1.5.4) is used what submits a function. Its watcher asks sacct, its handlers pass over SIGTERM,
and it asks for five minutes unless told otherwise; see `launcher.slurm.states` and `launcher.slurm.job`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from launcher.errors import ConfigError, LaunchError
from launcher.render import sbatch
from launcher.slurm import spool, states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from launcher.schema import Deployment
    from launcher.slurm.states import State

_COMMANDS = ("sbatch", "srun", "squeue", "scancel")
#: These variables of the shell beat the line of the script that keeps its environment out.
_BEATS = ("SBATCH_EXPORT", "SBATCH_GET_USER_ENV")
_PATIENCE = 60


def need() -> None:
    """Check that jobs can be submitted here, without importing submitit.

    Raises:
        ConfigError: they cannot; says what to do.
    """
    if importlib.util.find_spec("submitit") is None:
        raise ConfigError("target=slurm needs submitit, which is not installed here: pip install 'launch-llm[slurm]'")
    if missing := [name for name in _COMMANDS if shutil.which(name) is None]:
        raise ConfigError(
            f"target=slurm needs Slurm's commands, and {', '.join(missing)} is not on PATH: start this on a login node,"
            " or measure here with target=process"
        )


class Cluster:
    """The cluster of this machine, as a sweep uses it."""

    def __init__(self, deployment: Deployment, sweep: str) -> None:
        """Prepare; nothing is submitted yet.

        Args:
            deployment: the baseline; what it asks Slurm for holds for every point.
            sweep: id of it; jobs are named after it.
        """
        self._deployment, self._sweep = deployment, sweep

    def name(self, job: str) -> str:
        """Return what a job of the sweep is called in Slurm."""
        return f"launch-{self._sweep}-{job}"

    def submit(self, job: str, folder: Path, exclude: str, work: Callable[..., None], *given: object) -> str:
        """Submit a function; the id of its job is returned, and kept in the folder before Ctrl-C can come in between.

        Args:
            job: name of it in the sweep.
            folder: for what submitit writes; all nodes see it.
            exclude: nodes that it must not get, as Slurm writes them.
            work: runs in the job.
            given: to it.

        Raises:
            LaunchError: Slurm refuses it.
        """
        from submitit import SlurmExecutor

        asked = parameters(self._deployment, self.name(job), exclude)
        with _unbroken(), _without(_BEATS):
            try:
                # bash in between would end at once when the job is cancelled, and with it the job.
                executor = SlurmExecutor(folder, python=f"exec {shlex.quote(sys.executable)}")
                executor.update_parameters(**asked)
                id_ = str(executor.submit(work, *given).job_id)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                told = [line.strip() for line in str(error).splitlines() if "sbatch: " in line] or [str(error).strip()]
                raise LaunchError(f"Slurm does not take the job: {'; '.join(told)}") from error
            spool.keep_id(folder, id_)
            return id_

    def states(self, ids: Sequence[str]) -> dict[str, State]:
        """Return the state of every job.

        Raises:
            LaunchError: Slurm does not answer now.
        """
        words = ("squeue", "--noheader", "--states=all", f"--format={states.FORMAT}", f"--jobs={','.join(ids)}")
        done = _ask(words)
        if done.returncode and "Invalid job id" not in done.stderr:
            raise LaunchError(f"squeue does not answer: {done.stderr.strip() or f'exit code {done.returncode}'}")
        found = states.read(done.stdout)
        return {id_: found.get(id_, states.State(states.GONE)) for id_ in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended are none of its business."""
        if ids:
            _ask(("scancel", "--quiet", *ids))


def parameters(deployment: Deployment, name: str, exclude: str) -> dict[str, Any]:
    """Return what submitit is told of a job; None is what the cluster says by itself."""
    slurm = deployment.slurm
    further = {option[0]: option[1] or True for text in slurm.extra if (option := sbatch.option(text))}
    nodes = ",".join(text for text in (further.pop("exclude", ""), exclude) if isinstance(text, str) and text)
    return {
        "job_name": name,
        "time": slurm.minutes or None,
        "partition": slurm.partition or None,
        "account": slurm.account or None,
        "nodes": 1,
        "ntasks_per_node": 1,
        "gpus_per_node": sbatch.gpus(deployment) or None,
        "cpus_per_task": slurm.cpus or None,
        "exclusive": None if slurm.cpus else True,
        "exclude": nodes or None,
        "wckey": None,
        "stderr_to_stdout": True,
        # Without srun the job is one process of ours and its children, as with a script that calls launch.
        "use_srun": False,
        "additional_parameters": {"export": "NIL", "propagate": "NONE", "no-requeue": True, **further},
    }


def _ask(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: no answer within {_PATIENCE} s")
    except OSError as error:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]}: {error.strerror}")


@contextlib.contextmanager
def _unbroken() -> Iterator[None]:
    """Keep signals waiting, for Ctrl-C between sbatch and its answer would leave a job that nobody knows of."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextlib.contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Leave variables out of the environment meanwhile."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
