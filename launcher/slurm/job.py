"""What runs in a job of Slurm: its part of the sweep, on the node that it got, as with ``target=process``."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, NoReturn

from launcher.bench import alone
from launcher.errors import LaunchError
from launcher.slurm import spool
from launcher.sweep import current, journal, session

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.sweep.points import Points
    from launcher.sweep.record import Point, Sweep, Trial
    from launcher.sweep.session import Measure


def work(points: Points, folder: Path, until: float) -> None:
    """Measure the part of a sweep whose folder this is; called by submitit in the job.

    Args:
        points: of the whole sweep.
        folder: of `launcher.slurm.spool`.
        until: seconds since 1970, when no further start begins; 0: no such limit.
    """
    signal.signal(signal.SIGTERM, _interrupt)  # submitit passes over it, and the server would outlive its grace
    sweep, now = journal.load(folder, _say), time.time()
    sweep = dataclasses.replace(sweep, since=now if sweep.trials else 0.0)
    if until:
        left = max(0.0, until - now) / 60
        sweep = dataclasses.replace(sweep, settings=dataclasses.replace(sweep.settings, minutes=round(left, 2)))
    try:
        if until and now >= until:
            ended = spool.Ended("its time was over before it began")
        else:
            with alone.measuring(points, folder, _say) as measure:
                here = _Here(folder, sweep, measure)
                _, why = session.run(sweep, folder, here, here)
            ended = spool.Ended(why)
    except LaunchError as error:
        ended = spool.Ended("", str(error))
    except KeyboardInterrupt:
        _say("ended by SIGTERM")
        raise SystemExit(1) from None
    _say(ended.why or ended.error)
    spool.end(folder, ended)


class _Here:
    """Measures on this node, and marks in the folder what goes on."""

    def __init__(self, folder: Path, sweep: Sweep, measure: Measure) -> None:
        self._folder, self._name, self._measure = folder, sweep.target, measure
        self._order = max((trial.order for trial in (*sweep.trials, *sweep.past)), default=0)
        self._id = os.environ.get("SLURM_JOB_ID", "")
        self._node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002
        """Measure a start. Its node counts as a version: starts of two nodes are never compared."""
        self._order += 1
        trial = self._measure(point, self._order, upcoming)
        return placed(trial, self._name, self._id, self._node)

    def begins(self, _: Sweep, point: Point) -> None:
        """See `launcher.sweep.session.Watcher`."""
        _say(f"{point.label} begins")
        spool.begins(self._folder, point)

    def ended(self, sweep: Sweep, trial: Trial) -> None:
        """See `launcher.sweep.session.Watcher`."""
        spool.is_over(self._folder)
        _say(f"trial {trial.order}: {trial.failure or 'measured'} ({trial.seconds:.1f} s)")
        for line in current.told(sweep):
            _say(line)


def placed(trial: Trial, name: str, id_: str, node: str) -> Trial:
    """Return a trial with where it ran: the job of the sweep, Slurm's id of it, and the node."""
    versions = {**trial.facts.get("versions", {}), **({"node": node} if node else {})}
    return dataclasses.replace(trial, host=name, facts={**trial.facts, "versions": versions, "slurm job": id_})


def _interrupt(*_: object) -> NoReturn:
    """End like Ctrl-C: the server is ended first."""
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"launch: {text}", flush=True)  # noqa: T201 - the output of the job
