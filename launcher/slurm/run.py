"""Run a sweep as jobs of Slurm: submit, look, bring what they measured into the one journal, say what became of them.

A job has the baseline and its points, on one node, so that a point is never compared with a baseline of another node
(`launcher.sweep.shares`: to the statistics a job is a host). A job that is lost with its node, or to another job, is
submitted once more; on another node all of its points begin again, for the node counts as a version of every start.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from launcher.errors import LaunchError
from launcher.slurm import job as in_job
from launcher.slurm import lost, spool, states
from launcher.slurm.jobs import Job, JobError
from launcher.sweep import current, journal, shares
from launcher.sweep.shared import Ended
from launcher.sweep.statistics import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.slurm.jobs import Cluster, Key
    from launcher.sweep.points import Points
    from launcher.sweep.record import Sweep, Trial
    from launcher.sweep.session import Watcher

    Tell = Callable[[str], None]

#: Seconds between looks at what the jobs have measured, and between questions to Slurm.
LOOK, ASK = 1.0, 5.0
#: Seconds in which what a job wrote last becomes visible on a shared file system.
LAG = 60.0
#: Submissions of a job that is lost through no fault of its own.
_TRIES = 2


class Run:
    """A sweep as jobs, from wherever it stands to its end."""

    def __init__(
        self, points: Points, sweep: Sweep, folder: Path, cluster: Cluster, watcher: Watcher, tell: Tell
    ) -> None:
        """Prepare; nothing is submitted yet.

        Args:
            points: all of them.
            sweep: with a job for every point.
            folder: of it.
            cluster: that it runs on.
            watcher: told of starts and trials.
            tell: told of the jobs, a line each.
        """
        self._points, self._sweep, self._folder = points, sweep, folder.absolute()
        self._cluster, self._watcher, self._tell = cluster, watcher, tell
        minutes = sweep.settings.minutes
        self._until = time.time() + minutes * 60 if minutes else 0.0
        self._jobs: list[Job] = []
        self._why: dict[str, str] = {}
        self._dropped: dict[str, LaunchError] = {}
        self._last = ""
        self._asked = 0.0

    def run(self) -> Ended:
        """Submit what is left to measure, and return when every job has ended.

        Raises:
            LaunchError: Slurm takes no job, or the journal cannot be written; no job goes on.
            KeyboardInterrupt: no job goes on.
        """
        try:
            self._take_over()
            for name in shares.running(self._sweep, judge(self._sweep)):
                if name not in [job.name for job in self._jobs]:
                    self._submit(Job(name, spool.make(self._folder, shares.part(self._sweep, name))))
            while self._jobs:
                self._look()
                if self._jobs:
                    time.sleep(LOOK)
        except BaseException:
            self._cancel()
            raise
        if not self._why:
            return Ended(shares.why_over(dataclasses.replace(self._sweep, since=0.0), judge(self._sweep), 0.0))
        return Ended(shares.told(self._why), self._dropped)

    # --- begin

    def _take_over(self) -> None:
        """Take what jobs of an earlier run measured, and those that run on; one that has another plan is ended."""
        left = {name: path for name, path in spool.latest(self._folder).items() if spool.id_of(path)}
        found = self._cluster.states([spool.id_of(path) for path in left.values()]) if left else {}
        for name, path in left.items():
            job = Job(name, path, spool.id_of(path), known=self._known())
            job.state = found[job.id]
            if not self._collect(job):
                raise LaunchError(f"{path}: what an earlier run measured cannot be read")
            if job.state.ended or job.state.name != self._cluster.name(name):
                continue
            if not (name in shares.hosts_of(self._sweep) and spool.fits(path, shares.part(self._sweep, name))):
                self._cluster.cancel([job.id])
                self._tell(f"{job.name}: {job.told()} of an earlier run is cancelled: it has another plan")
                continue
            self._tell(f"{job.name}: {job.told()} of an earlier run goes on")
            self._jobs.append(job)

    def _submit(self, job: Job, exclude: str = "") -> None:
        job.known = self._known()
        self._jobs.append(job)
        job.id = self._cluster.submit(job.name, job.folder, exclude, in_job.work, self._points, job.folder, self._until)

    # --- look

    def _look(self) -> None:
        """Take what is new of every job."""
        for job in list(self._jobs):
            self._collect(job)
            # Once more: what it wrote before it said so.
            if (ended := spool.ended(job.folder)) and self._collect(job):
                self._jobs.remove(job)
                self._over(job, ended)
        if self._jobs and time.monotonic() - self._asked >= ASK:
            self._asked = time.monotonic()
            self._ask()

    def _ask(self) -> None:
        try:
            found = self._cluster.states([job.id for job in self._jobs])
        except LaunchError as error:  # it comes back, or somebody ends this
            self._told(str(error))
            return
        for job in list(self._jobs):
            job.state = found[job.id]
            if job.state.ended:
                self._lost(job)
        if summary := states.summary(job.state for job in self._jobs):
            self._told(f"jobs: {summary}")
        waiting = [job for job in self._jobs if job.state.word == "PENDING"]
        if self._until and time.time() > self._until and waiting:
            self._cluster.cancel([job.id for job in waiting])
            for job in waiting:
                self._jobs.remove(job)
                self._why[job.name] = f"the {self._sweep.settings.minutes:g} minutes were over before it began"
                self._tell(f"{job.name}: {job.told()} is cancelled: {self._why[job.name]}")

    def _told(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._tell(text)

    def _collect(self, job: Job) -> bool:
        """Bring the new trials of a job into the journal, and return whether its folder could be read."""
        digests = {point.digest for point in (*self._sweep.points, *self._sweep.gone)}
        try:
            found = spool.trials(job.folder)
        except LaunchError as error:  # a shared file system has its moments
            self._told(str(error))
            return False
        for trial in found:
            if _key(trial) not in job.known and trial.point in digests:
                job.known.add(_key(trial))
                self._add(trial)
        begun = spool.begun(job.folder)
        if begun and begun != job.begun:
            job.begun = begun
            for point in (one for one in self._sweep.points if one.digest == begun.point):
                named = dataclasses.replace(point, label=shares.on(point.label, job.name))
                self._watcher.begins(self._sweep, named)
        return True

    def _add(self, trial: Trial) -> Trial:
        """Bring a trial into the journal, and return it with its place in the sweep."""
        trial = dataclasses.replace(trial, order=self._order())
        journal.append(self._folder, trial, self._tell)
        self._sweep = current.counted(dataclasses.replace(self._sweep, trials=(*self._sweep.trials, trial)))
        self._watcher.ended(self._sweep, trial)
        return trial

    def _order(self) -> int:
        return 1 + max((trial.order for trial in (*self._sweep.trials, *self._sweep.past)), default=0)

    def _known(self) -> set[Key]:
        return {_key(trial) for trial in (*self._sweep.trials, *self._sweep.past)}

    # --- end

    def _over(self, job: Job, ended: spool.Ended) -> None:
        """Take the end that a job says itself."""
        self._why[job.name] = ended.why or "dropped out"
        if ended.error:
            self._drop(job, f"{job.told()}: {ended.error}")

    def _lost(self, job: Job) -> None:
        """Take the end of a job that Slurm tells of and the job itself does not; what it says may come late."""
        is_read = self._collect(job)
        if spool.ended(job.folder):
            return
        job.silent = job.silent or time.monotonic()
        late = job.state.word in ("COMPLETED", states.GONE) or not is_read
        if late and time.monotonic() - job.silent < LAG:
            return
        self._jobs.remove(job)
        trial = self._add(lost.trial(self._sweep, job.name, job.folder, job.id, job.state))
        again = job.state.word in states.AGAIN and job.tries < _TRIES
        if again:  # the start that was lost keeps no point from being started
            self._sweep = dataclasses.replace(self._sweep, forgiven=(*self._sweep.forgiven, trial.order))
            journal.replan(self._folder, self._sweep)
        if not (again and self._again(job)):
            self._why[job.name] = job.state.word
            self._drop(job, f"{trial.message}; log: {spool.log(job.folder, job.id)}")

    def _drop(self, job: Job, message: str) -> None:
        self._dropped[job.name] = error = JobError(message)
        self._tell(f"{job.name}: {error}; this job drops out")

    def _again(self, job: Job) -> bool:
        """Submit a job once more, and return whether its points are taken care of."""
        if job.name not in shares.running(self._sweep, judge(self._sweep)):
            self._why[job.name] = f"{job.state.word}, when nothing was left but a last look at the baseline"
            self._tell(f"{job.name}: {job.told()}: {self._why[job.name]}")
            return True
        exclude = job.state.node if job.state.word in states.ELSEWHERE else ""
        where = f", not on {exclude}" if exclude else ""
        what = f"{job.state}, {states.advice(job.state.word)}"
        self._tell(f"{job.name}: {job.told()}: {what}; submitted once more{where}")
        new = Job(job.name, spool.make(self._folder, shares.part(self._sweep, job.name)), tries=job.tries + 1)
        try:
            self._submit(new, exclude)
        except LaunchError as error:
            self._jobs.remove(new)
            self._tell(str(error))
            return False
        return True

    def _cancel(self) -> None:
        """End every job, and keep what they have measured."""
        ids = [id_ for job in self._jobs if (id_ := job.id or spool.id_of(job.folder))]
        self._cluster.cancel(ids)
        if ids:
            self._tell(f"cancelled: Slurm job{'s'[: len(ids) > 1]} {', '.join(ids)}")
        for job in self._jobs:
            self._collect(job)


def _key(trial: Trial) -> Key:
    """Return what tells a trial apart from all others; its order is another one in the folder of its job."""
    return trial.host, trial.point, trial.at
