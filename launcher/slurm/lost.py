"""The start in which a job of Slurm ended, as a trial that failed: Slurm's word, the job, and where its output lies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launcher.slurm import spool, states
from launcher.slurm.job import placed
from launcher.sweep import schedule, shares
from launcher.sweep.record import Trial
from launcher.sweep.statistics import judge

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.slurm.states import State
    from launcher.sweep.record import Sweep

#: Ends of a job that has run: it should have left its output.
_SILENT = ("FAILED", "COMPLETED", states.GONE)
#: Last lines of a job's output that are kept.
_EVIDENCE = 12


def trial(sweep: Sweep, name: str, folder: Path, id_: str, state: State) -> Trial:
    """Return the trial of the start that ran, else of the one that would have been next.

    Args:
        sweep: all of it.
        name: of the job in the sweep.
        folder: of the job.
        id_: of the job in Slurm.
        state: that it ended in.
    """
    begun = spool.begun(folder) or _next(sweep, name)
    log = spool.log(folder, id_)
    message, lines = f"{state}; {states.advice(state.word)}", []
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
    except OSError:
        if state.word in _SILENT:
            message += "; its output is not here: sweep.out has to be a folder that all nodes see"
    failed = Trial(
        begun.point,
        0,
        begun.at,
        round(max(0.0, time.time() - begun.at), 2),
        failure=f"Slurm: {state.word}",
        message=f"Slurm job {id_}{f' on {state.node}' if state.node else ''}: {message}",
        evidence=(f"log: {log}", *lines[-_EVIDENCE:]),
        facts={"log": str(log)},
    )
    return placed(failed, name, id_, state.node)


def _next(sweep: Sweep, name: str) -> spool.Begun:
    part, now = shares.part(sweep, name), time.time()
    point = schedule.step(part, judge(part, sweep), now)
    return spool.Begun(part.baseline.digest if isinstance(point, str) else point.digest, now)
