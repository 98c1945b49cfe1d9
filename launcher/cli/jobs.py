"""A sweep with ``target=slurm``: which jobs share its points, what they ask for, and the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from launcher.cli.show_sweep import note
from launcher.errors import ConfigError
from launcher.render import sbatch

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.schema import Deployment
    from launcher.sweep.points import Points
    from launcher.sweep.record import Sweep
    from launcher.sweep.session import Watcher
    from launcher.sweep.shared import Ended

#: What a job gets beside the settings, and what would undo it.
_OWN = {
    "partition": "slurm.partition",
    "account": "slurm.account",
    "time": "slurm.minutes",
    "gpus-per-node": "slurm.gpus",
    "cpus-per-task": "slurm.cpus",
    **dict.fromkeys(("nodes", "job-name", "output", "error", "open-mode", "chdir", "dependency"), ""),
    **dict.fromkeys(("export", "export-file", "get-user-env", "propagate", "requeue", "no-requeue"), ""),
    **dict.fromkeys(("ntasks", "ntasks-per-node", "wrap", "array", "signal"), ""),
}


def names(points: Points) -> tuple[str, ...]:
    """Return the names of the jobs that share the points.

    Raises:
        ConfigError: they cannot be measured so; says everything that is in the way.
    """
    deployment, many = points.candidates[0].deployment, len(points.candidates) - 1
    slurm = deployment.slurm
    problems = [*sbatch.gpus_named(deployment), *sbatch.malformed(slurm, _OWN)]
    if slurm.nodes > 1 or str(deployment.engine.args.get("nnodes") or "1") != "1":
        problems.append("a point is measured on one node: leave slurm.nodes and engine.args.nnodes at 1")
    if not many:
        problems.append(
            "target=slurm shares points among jobs, and here is one configuration: launch bench … target=process in a"
            " job of yours measures it"
        )
    if problems:
        raise ConfigError(*problems)
    return tuple(f"job-{number}" for number in range(1, 1 + min(slurm.jobs or many, many)))


def asked(deployment: Deployment) -> str:
    """Return what each job asks for, for people."""
    slurm, gpus = deployment.slurm, sbatch.gpus(deployment)
    return ", ".join(
        [
            f"{slurm.cpus} CPUs of a node" if slurm.cpus else "a whole node",
            *([f"GPUs {gpus}"] if gpus else []),
            *([f"partition {slurm.partition}"] if slurm.partition else []),
            *([f"account {slurm.account}"] if slurm.account else []),
            f"{slurm.minutes} min" if slurm.minutes else "the partition's time limit",
            *slurm.extra,
        ]
    )


def run(points: Points, sweep: Sweep, folder: Path, watcher: Watcher) -> Ended:
    """Run a sweep as jobs; whatever ends this, no job goes on, unless this program itself is killed.

    Raises:
        LaunchError: Slurm takes no job.
    """
    from launcher.slurm.cluster import Cluster
    from launcher.slurm.run import Run

    cluster = Cluster(points.candidates[0].deployment, sweep.id)
    return Run(points, sweep, folder, cluster, watcher, _tell).run()


def _tell(text: str) -> None:
    """Tell of the jobs, in a line of its own where a terminal shows which point is started."""
    print("\r\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr)
    note(text)
