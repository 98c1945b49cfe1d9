"""A sweep as jobs of a cluster that only plays one: what is submitted, taken over, tried again, dropped and told."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import LaunchError
from launcher.slurm import job as in_job
from launcher.slurm import lost, run, spool, states
from launcher.slurm.run import Run
from launcher.slurm.states import State
from launcher.sweep import journal, resume, session, shares
from launcher.sweep.points import Points
from launcher.sweep.record import Reading, Settings, Sweep, Trial
from launcher.sweep.statistics import judge
from tests.sweep.test_shares import a_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from launcher.sweep.record import Point

NO_POINTS = Points({}, (), ())


class _Stops(Exception):  # noqa: N818 - no error: the job is gone
    """A job ends in the middle of a start."""


@dataclass(frozen=True)
class Plays:
    """What a job does: so many starts (None: all of them) on a node, and the state that Slurm shows then."""

    starts: int | None = None
    word: str = "COMPLETED"
    node: str = "n1"
    error: str = ""


@dataclass
class Fake:
    """A cluster whose jobs have done everything as soon as they are submitted."""

    plays: list[Plays] = field(default_factory=list)
    submitted: list[tuple[str, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    shows: dict[str, State] = field(default_factory=dict)
    refuses: int = 0
    #: Raised by the questions to come, one each.
    trouble: list[BaseException] = field(default_factory=list)

    def name(self, job: str) -> str:
        return f"launch-s-{job}"

    def submit(self, job: str, folder: Path, exclude: str, work: Callable[..., None], *given: object) -> str:
        assert (work, given[:2]) == (in_job.work, (NO_POINTS, folder))
        if self.refuses and len(self.submitted) + 1 == self.refuses:
            raise LaunchError("Slurm does not take the job: sbatch: error: no such partition")
        self.submitted.append((job, exclude))
        id_ = str(len(self.submitted))
        spool.keep_id(folder, id_)
        plays = self.plays.pop(0) if self.plays else Plays()
        spool.log(folder, id_).write_text("first line\nlast line\n")
        self.shows[id_] = State(plays.word, "", plays.node, self.name(job))
        play(folder, plays)
        return id_

    def states(self, ids: Sequence[str]) -> dict[str, State]:
        if self.trouble:
            raise self.trouble.pop(0)
        return {id_: self.shows.get(id_, State(states.GONE)) for id_ in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        self.cancelled += ids


def play(folder: Path, plays: Plays) -> None:
    """Do what a job does in its folder."""
    made = 0

    def measure(point: Point, order: int, upcoming: Point | None) -> Trial:
        nonlocal made
        if plays.starts is not None and made == plays.starts:
            raise _Stops
        made += 1
        value = 100.0 + 0.05 * (made % 3)
        return Trial(point.digest, order, time.time(), 0.01, (Reading("decode-1", value, value, value),))

    if plays.word == "PENDING":
        return
    sweep = journal.load(folder)
    sweep = dataclasses.replace(sweep, since=time.time() if sweep.trials else 0.0)
    here = in_job._Here(folder, sweep, measure)
    here._node = plays.node
    try:
        if plays.error:
            spool.end(folder, spool.Ended("", plays.error))
        else:
            spool.end(folder, spool.Ended(session.run(sweep, folder, here, here)[1]))
    except _Stops:
        pass


class Watching:
    def __init__(self) -> None:
        self.last: Sweep | None = None

    def begins(self, _: Sweep, point: Point) -> None:
        assert " on job-" in point.label

    def ended(self, sweep: Sweep, _: Trial) -> None:
        self.last = sweep


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK", "ASK", "LAG"):
        monkeypatch.setattr(run, name, 0.0)


@pytest.fixture
def sweep() -> Sweep:
    once = Settings(repeats=1, max_repeats=1)
    return dataclasses.replace(a_sweep(2, ("job-1", "job-2"), settings=once), target=shares.SLURM)


@dataclass
class Ran:
    fake: Fake
    told: list[str]
    folder: Path
    runs: Run

    @property
    def sweep(self) -> Sweep:
        return journal.load(self.folder)

    def on(self, job: str) -> str:
        return "".join(trial.point for trial in self.sweep.trials if trial.host == job)


def prepared(tmp_path: Path, sweep: Sweep, fake: Fake) -> Ran:
    told: list[str] = []
    folder = tmp_path / sweep.id
    if not folder.exists():
        journal.create(tmp_path, sweep)
    return Ran(fake, told, folder, Run(NO_POINTS, sweep, folder, fake, Watching(), told.append))


def test_every_job_measures_its_point_beside_a_baseline(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake())
    ended = ran.runs.run()
    assert not ended.dropped
    assert (ran.on("job-1"), ran.on("job-2")) == ("BPB", "BQB")
    assert [trial.order for trial in ran.sweep.trials] == list(range(1, 7))
    assert ran.fake.submitted == [("job-1", ""), ("job-2", "")]
    assert {verdict.point for verdict in judge(ran.sweep).verdicts} == {"P", "Q"}


def test_a_job_that_had_to_give_way_goes_on_where_it_was(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(), Plays(1, "PREEMPTED"), Plays()]))
    assert not ran.runs.run().dropped
    assert ran.fake.submitted == [("job-1", ""), ("job-2", ""), ("job-2", "")]
    # The start that was lost, and the baseline anew, for time has passed; the point itself once.
    assert ran.on("job-2") == "BQBQB"
    lost = [trial for trial in ran.sweep.trials if trial.failure]
    assert [(trial.failure, trial.point) for trial in lost] == [("Slurm: PREEMPTED", "Q")]
    assert ran.sweep.forgiven == (lost[0].order,)


def test_on_another_node_a_job_begins_from_nothing(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(), Plays(1, "NODE_FAIL", "n1"), Plays(node="n2")]))
    assert not ran.runs.run().dropped
    assert ran.fake.submitted[2] == ("job-2", "n1")
    found = ran.sweep
    assert ran.on("job-2") == "BQB"
    assert {trial.facts["versions"]["node"] for trial in found.trials if trial.host == "job-2"} == {"n2"}
    assert len(found.past) == 2
    assert "job-2: Slurm job 2 on n1: NODE_FAIL, its node failed; submitted once more, not on n1" in ran.told


def test_a_job_that_is_lost_at_its_end_is_not_submitted_again(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(2, "NODE_FAIL"), Plays()]))
    ended = ran.runs.run()
    assert not ended.dropped
    assert len(ran.fake.submitted) == 2
    assert "job-1: NODE_FAIL, when nothing was left but a last look at the baseline" in ended.why
    assert [trial.failure for trial in ran.sweep.trials if trial.host == "job-1"] == ["", "", "Slurm: NODE_FAIL"]


def test_a_node_that_fails_twice_is_the_end(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(0, "NODE_FAIL"), Plays(), Plays(0, "BOOT_FAIL", "n2")]))
    ended = ran.runs.run()
    assert list(ended.dropped) == ["job-1"]
    assert len(ran.fake.submitted) == 3
    assert ran.on("job-2") == "BQB"


@pytest.mark.parametrize(
    ("word", "advice"),
    {
        "TIMEOUT": "raise slurm.minutes",
        "OUT_OF_MEMORY": "slurm.extra=['--mem=…']",
        "FAILED": "the log says why",
        "CANCELLED": "somebody ended it",
        "COMPLETED": "",
        states.GONE: "does not know it any more",
    }.items(),
)
def test_every_other_end_is_final_and_a_failure_of_the_start(
    word: str, advice: str, tmp_path: Path, sweep: Sweep
) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(1, word), Plays()]))
    ended = ran.runs.run()
    assert list(ended.dropped) == ["job-1"]
    assert len(ran.fake.submitted) == 2
    (trial,) = [trial for trial in ran.sweep.trials if trial.failure]
    assert (trial.point, trial.host, trial.failure) == ("P", "job-1", f"Slurm: {word}")
    assert trial.message.startswith(f"Slurm job 1 on n1: {word}; ")
    assert advice in trial.message
    assert trial.evidence == (f"log: {trial.facts['log']}", "first line", "last line")
    assert trial.facts["log"].endswith("/jobs/job-1.1/1_0_log.out")
    assert ended.dropped["job-1"].exit_code == 1
    assert any(told.startswith("job-1: Slurm job 1 on n1: ") and "drops out" in told for told in ran.told)


@pytest.mark.parametrize(("word", "expected"), [("FAILED", True), ("CANCELLED", False), ("TIMEOUT", False)])
def test_output_that_is_missing_shows_a_folder_that_is_not_shared(
    word: str, expected: bool, tmp_path: Path, sweep: Sweep
) -> None:
    path = spool.make(tmp_path, shares.part(sweep, "job-1"))
    trial = lost.trial(sweep, "job-1", path, "7", State(word))
    assert ("sweep.out has to be a folder that all nodes see" in trial.message) is expected
    assert (trial.point, trial.facts["versions"]) == ("B", {})


def test_where_nothing_can_be_measured_the_job_says_so(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(error="engine.python=/no is not there")]))
    ended = ran.runs.run()
    assert str(ended.dropped["job-1"]) == "Slurm job 1: engine.python=/no is not there"
    assert ran.on("job-1") == ""
    assert ran.on("job-2") == "BQB"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_whatever_ends_the_command_ends_the_jobs(error: BaseException, tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(1, "RUNNING"), Plays(0, "PENDING")], trouble=[error]))
    with pytest.raises(type(error)):
        ran.runs.run()
    assert ran.fake.cancelled == ["1", "2"]
    assert ran.on("job-1") == "B"  # what it measured is kept
    assert "cancelled: Slurm jobs 1, 2" in ran.told


def test_a_job_that_slurm_refuses_ends_all(tmp_path: Path, sweep: Sweep) -> None:
    ran = prepared(tmp_path, sweep, Fake([Plays(1, "RUNNING")], refuses=2))
    with pytest.raises(LaunchError, match="no such partition"):
        ran.runs.run()
    assert ran.fake.cancelled == ["1"]


def test_slurm_may_be_silent_for_a_while(tmp_path: Path, sweep: Sweep) -> None:
    silent: list[BaseException] = [LaunchError("squeue does not answer: slurm_load_jobs error")] * 3
    ran = prepared(tmp_path, sweep, Fake([Plays(1, "CANCELLED"), Plays(1, "CANCELLED")], trouble=silent))
    assert set(ran.runs.run().dropped) == {"job-1", "job-2"}
    assert ran.told.count("squeue does not answer: slurm_load_jobs error") == 1


def test_a_folder_that_cannot_be_read_for_a_moment(
    tmp_path: Path, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failing = spool.trials, [1, 2]

    def trials(path: Path) -> list[Trial]:
        if failing and (path / "ended.json").exists():
            failing.pop()
            raise LaunchError(f"{path}: Stale file handle")
        return read(path)

    monkeypatch.setattr(spool, "trials", trials)
    ran = prepared(tmp_path, sweep, Fake())
    assert not ran.runs.run().dropped
    assert (ran.on("job-1"), ran.on("job-2")) == ("BPB", "BQB")
    assert sum("Stale file handle" in told for told in ran.told) == 1


def test_the_minutes_hold_for_jobs_that_wait(tmp_path: Path, sweep: Sweep) -> None:
    short = dataclasses.replace(sweep, settings=dataclasses.replace(sweep.settings, minutes=0.0001))
    ran = prepared(tmp_path, short, Fake([Plays(0, "PENDING"), Plays(0, "PENDING")]))
    ended = ran.runs.run()
    assert ended.why == "the 0.0001 minutes were over before it began"
    assert ran.fake.cancelled == ["1", "2"]


def resumed(tmp_path: Path, ran: Ran, sweep: Sweep, fake: Fake) -> Ran:
    merged = resume.merge(journal.load(ran.folder), sweep, time.time())
    journal.replan(ran.folder, merged)
    return prepared(tmp_path, dataclasses.replace(merged, id=sweep.id), fake)


class Killed(BaseException):
    """The command is gone, and nothing of it could end the jobs."""


@pytest.fixture
def killed(tmp_path: Path, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """A sweep whose command was killed when the first job had measured once, which the journal does not have."""
    fake = Fake([Plays(0, "RUNNING"), Plays()], trouble=[Killed()])
    ran = prepared(tmp_path, sweep, fake)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_cancel", lambda _: None)
        with pytest.raises(Killed):
            ran.runs.run()
    play(ran.folder / "jobs" / "job-1.1", Plays(1))
    return ran


def test_a_later_command_takes_over_what_is_measured_and_what_still_runs(
    tmp_path: Path, sweep: Sweep, killed: Ran
) -> None:
    assert (killed.on("job-1"), killed.on("job-2")) == ("", "BQB")
    fake = Fake(shows=killed.fake.shows)
    ran = resumed(tmp_path, killed, sweep, fake)
    fake.trouble = []
    original = fake.states

    def goes_on(ids: Sequence[str]) -> dict[str, State]:
        found = original(ids)
        if len(ids) == 1:  # asked again: meanwhile the job has gone on
            play(ran.folder / "jobs" / "job-1.1", Plays())
        return found

    fake.states = goes_on  # type: ignore[method-assign]
    assert not ran.runs.run().dropped
    assert fake.submitted == []
    assert fake.cancelled == []
    assert Counter(ran.on("job-1"))["P"] == 1
    assert ran.on("job-2") == "BQB"
    assert "job-1: Slurm job 1 on n1 of an earlier run goes on" in ran.told


def test_a_running_job_with_another_plan_is_cancelled(tmp_path: Path, sweep: Sweep, killed: Ran) -> None:
    other = dataclasses.replace(sweep, settings=Settings(repeats=1, max_repeats=2))
    ran = resumed(tmp_path, killed, other, Fake(shows=dict(killed.fake.shows)))
    ran.runs.run()
    assert ran.fake.cancelled == ["1"]
    assert ran.fake.submitted[0] == ("job-1", "")
    assert (ran.folder / "jobs" / "job-1.2").is_dir()
    assert ran.on("job-1").startswith("B")  # taken over


def test_a_job_of_that_number_that_is_not_ours_is_left_alone(tmp_path: Path, sweep: Sweep, killed: Ran) -> None:
    ran = resumed(tmp_path, killed, sweep, Fake(shows={"1": State("RUNNING", "", "n1", "somebody's")}))
    ran.runs.run()
    assert ran.fake.cancelled == []
    assert ran.fake.submitted[0] == ("job-1", "")


def test_points_that_come_and_go_keep_their_jobs(sweep: Sweep) -> None:
    fewer = dataclasses.replace(
        sweep, points=(sweep.points[0], sweep.points[2]), hosts=("job-1",), homes={"Q": "job-1"}
    )
    merged = resume.merge(sweep, fewer, 1.0)
    assert (merged.homes, merged.target) == ({"Q": "job-2"}, shares.SLURM)
    for was, now in ((sweep, "this machine"), (dataclasses.replace(sweep, target="job-1, job-2"), shares.SLURM)):
        with pytest.raises(LaunchError, match="target was"):
            resume.merge(was, dataclasses.replace(sweep, target=now), 1.0)


def test_a_job_that_begins_too_late_measures_nothing(
    tmp_path: Path, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool.make(tmp_path, shares.part(sweep, "job-1"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    in_job.work(NO_POINTS, path, time.time() - 1)
    assert spool.ended(path) == spool.Ended("its time was over before it began")


ANSWERS: dict[str, tuple[str, dict[str, State]]] = {
    "runs": ("12|launch-a|RUNNING|None|n1\n", {"12": State("RUNNING", "", "n1", "launch-a")}),
    "waits": ("12|launch-a|PENDING|Resources|\n", {"12": State("PENDING", "Resources", "", "launch-a")}),
    "a name with the sign": ("3|a|b|NODE_FAIL|NodeDown|n1\n", {"3": State("NODE_FAIL", "NodeDown", "n1", "a|b")}),
    "two": ("1|a|FAILED|NonZeroExitCode|n1\n2|b|COMPLETED|None|n2\n", {
        "1": State("FAILED", "NonZeroExitCode", "n1", "a"), "2": State("COMPLETED", "", "n2", "b"),
    }),
    "no answer": ("", {}),
    "something else": ("slurm is being restarted\n", {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answers_of_squeue(text: str, expected: dict[str, State]) -> None:
    assert states.read(text) == expected


def test_the_line_about_the_queue() -> None:
    jobs: list[Any] = [State("RUNNING"), State("PENDING", "Priority"), State("RUNNING", "", "n1"), State("PENDING")]
    assert states.summary(jobs) == "2 RUNNING, 1 PENDING (Priority), 1 PENDING"
    ends = ("COMPLETED", "TIMEOUT", "GONE"), ("PENDING", "COMPLETING", "REQUEUED", "SUSPENDED")
    assert [[State(word).ended for word in words] for words in ends] == [[True] * 3, [False] * 4]
