"""A sweep that goes on: which trials count, what is refused, and that a kill loses and repeats nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.findings import iso
from launcher.errors import ConfigError, LaunchError
from launcher.sweep import current, journal, lock, resume, schedule, session, shelf
from launcher.sweep.record import Settings
from launcher.sweep.statistics import judge
from tests.sweep import cases, resume_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.sweep.record import Point, Sweep, Trial

BASE, ONE, TWO, *_ = resume_child.POINTS
NOW = cases.BEGIN + 1e6


def trials(*ran: tuple[Point, dict[str, Any]], **fields: Any) -> tuple[Trial, ...]:
    readings = [cases.reading(workload, 20.0) for workload in (cases.DECODE, cases.VERIFY, cases.PREFILL)]
    return tuple(cases.trial(of, n, readings, facts=facts, **fields) for n, (of, facts) in enumerate(ran, 1))


def ran(**versions: str) -> dict[str, Any]:
    return {"versions": versions}


# --- which trials count

OLD, NEW = ran(nccl="2.27", driver="580"), ran(nccl="2.28", driver="580")
DRIVER = ran(nccl="2.27", driver="590")
COUNTED: dict[str, tuple[list[tuple[Point, dict[str, Any]]], list[int]]] = {
    "all equal": ([(BASE, OLD), (ONE, OLD), (BASE, OLD)], [1, 2, 3]),
    "another NCCL": ([(BASE, OLD), (ONE, OLD), (BASE, NEW)], [3]),
    "another driver": ([(BASE, OLD), (ONE, OLD), (TWO, DRIVER), (BASE, DRIVER)], [3, 4]),
    "a point with versions of its own": ([(BASE, OLD), (ONE, NEW), (BASE, OLD), (ONE, NEW)], [1, 2, 3, 4]),
    "one of two engines is new": (
        [(BASE, OLD), (ONE, ran(nccl="2.30")), (TWO, OLD), (BASE, NEW)], [2, 4],
    ),
    "there and back": ([(BASE, OLD), (BASE, NEW), (BASE, OLD)], [3]),
    "not known": ([(BASE, {}), (ONE, {}), (BASE, {})], [1, 2, 3]),
    "not known before a change": ([(BASE, OLD), (ONE, {}), (BASE, NEW), (TWO, {})], [3, 4]),
    "a version that nobody told before": ([(BASE, ran(nccl="2.27")), (BASE, OLD)], [1, 2]),
    "another client": ([(BASE, {"client": {"digest": "a"}}), (BASE, {"client": {"digest": "b"}})], [2]),
    "another client by name": ([(BASE, {"client": "vllm 0.25"}), (BASE, {"client": "vllm 0.26"})], [2]),
}  # fmt: skip


@pytest.mark.parametrize(("given", "count"), COUNTED.values(), ids=COUNTED.keys())
def test_only_trials_of_equal_keys_count(
    given: list[tuple[Point, dict[str, Any]]], count: list[int], tmp_path: Path
) -> None:
    every = trials(*given)
    sweep = current.counted(resume_child.sweep(trials=every))
    assert [trial.order for trial in sweep.trials] == count
    assert sorted(trial.order for trial in (*sweep.trials, *sweep.past)) == [trial.order for trial in every]
    assert bool(current.told(sweep)) == bool(sweep.past)
    assert current.counted(sweep) == sweep
    # One after the other, and read from the disk, they are the same.
    grown, folder = resume_child.sweep(), journal.create(tmp_path, resume_child.sweep())
    for trial in every:
        journal.append(folder, trial)
        grown = current.counted(replace(grown, trials=(*grown.trials, trial)))
    assert (grown, journal.load(folder)) == (sweep, sweep)


def test_what_does_not_count_is_told() -> None:
    sweep = current.counted(resume_child.sweep(trials=trials((BASE, OLD), (ONE, OLD), (TWO, {}), (BASE, NEW))))
    assert current.told(sweep) == [
        "2 trials count for nothing any more: nccl 2.27 -> 2.28",
        "1 trial counts for nothing any more: versions are not known",
    ]
    assert "nccl 2.27 -> 2.28" in current.facts(sweep)["not counted"]
    assert current.facts(resume_child.sweep()) == {}


# --- merging


def old(**fields: Any) -> Sweep:
    return resume_child.sweep(trials=trials((BASE, OLD), (ONE, OLD)), **fields)


def new(**fields: Any) -> Sweep:
    return resume_child.sweep(**{"id": "20270101-000000-kimi-k2-allreduce", **fields})


def test_a_sweep_goes_on_as_it_is() -> None:
    merged = resume.merge(old(), new(command="again"), NOW)
    assert (merged.id, merged.command, merged.since) == (old().id, "again", NOW)
    assert merged.trials == old().trials
    assert merged.gone == ()
    assert merged.facts["resumed"] == [iso(NOW)]
    assert resume.merge(merged, new(), NOW + 5).facts["resumed"] == [iso(NOW), iso(NOW + 5)]


def test_points_come_and_go(tmp_path: Path) -> None:
    three = cases.point(9, {"nccl.nthreads": "9"})
    merged = resume.merge(old(), new(points=(BASE, TWO, three)), NOW)
    assert [point.digest for point in merged.points] == [BASE.digest, TWO.digest, three.digest]
    assert ONE in merged.gone
    assert [trial.order for trial in merged.trials] == [1]
    assert current.told(merged) == ["1 trial counts for nothing any more: their point is not asked for any more"]
    folder = journal.create(tmp_path, old())
    journal.replan(folder, merged)
    assert journal.load(folder) == merged
    back = resume.merge(journal.load(folder), new(), NOW)
    assert (back.trials, back.gone) == (old().trials, (three,))


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "deployment": ({"name": "other"}, "deployment was kimi-k2 and is other"),
    "bench": ({"id": "20270101-000000-kimi-k2-serve"}, "bench was allreduce and is serve"),
    "target": ({"target": "gpu2"}, "target was gpu1.rack4.example.net and is gpu2"),
    "hardware": ({"facts": {"hardware": "h200x8"}}, "hardware was rtx and is h200x8"),
    "client": ({"facts": {"client": "sglang"}}, "client was vllm and is sglang"),
    "workloads": ({"workloads": (cases.DECODE, cases.VERIFY)}, "prefill-2048 and is decode-1, verify-3"),
    "one workload": (
        {"workloads": (replace(cases.DECODE, details={"tokens": 1, "bytes": 5}), cases.VERIFY, cases.PREFILL)},
        "workload decode-1 details.bytes was 14336 and is 5",
    ),
    "unit": (
        {"workloads": (replace(cases.DECODE, unit="ms"), cases.VERIFY, cases.PREFILL)},
        "workload decode-1 unit was us and is ms",
    ),
    "baseline": ({"points": (ONE, BASE)}, "variable NCCL_X of the baseline was 1 and is 2"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "told"), OTHERS.values(), ids=OTHERS.keys())
def test_what_would_not_be_comparable_is_refused(fields: dict[str, Any], told: str) -> None:
    was = old(points=(replace(BASE, env={"NCCL_X": "1"}), ONE), facts={"hardware": "rtx", "client": "vllm"})
    if "points" in fields:
        fields = {"points": (replace(ONE, env={"NCCL_X": "2"}), BASE)}
    with pytest.raises(ConfigError) as caught:
        resume.merge(was, new(**{"facts": was.facts, **fields}), NOW)
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"sweep {was.id} cannot be resumed: ")


def test_the_settings_may_change_and_what_is_told_of_a_workload() -> None:
    details = {**cases.DECODE.details, "step_ms": 20.0, "yields": 2.0}
    known = (replace(cases.DECODE, details=details), cases.VERIFY, cases.PREFILL)
    merged = resume.merge(old(), new(settings=Settings(effect=0.01, max_repeats=9), workloads=known), NOW)
    assert (merged.settings.max_repeats, merged.workloads) == (9, known)


# --- the schedule


def step(sweep: Sweep, now: float = NOW) -> Point | str:
    return schedule.next_point(sweep, judge(sweep), now) or schedule.why_over(sweep, judge(sweep), now)


def test_the_baseline_comes_first_to_see_what_has_changed() -> None:
    merged = resume.merge(old(), new(), NOW)
    assert step(merged) == BASE
    seen = replace(merged, trials=(*merged.trials, replace(merged.trials[0], order=3, at=NOW)))
    assert step(seen) == TWO


def test_minutes_count_from_the_resume() -> None:
    minutes = replace(resume_child.sweep().settings, minutes=60)
    was = replace(old(), settings=minutes)
    assert step(was, NOW) == "the 60 minutes are over"
    assert step(resume.merge(was, new(settings=minutes), NOW), NOW) == BASE


def failed(*points: Point) -> Sweep:
    many = [(BASE, OLD), *[(point, OLD) for point in points]]
    base, *rest = trials(*many)
    bad = [replace(trial, readings=(), failure="hang") for trial in rest]
    return resume_child.sweep(points=(BASE, ONE), trials=(base, *bad))


def test_failed_points_are_measured_again_on_request_only() -> None:
    was = failed(ONE, ONE)
    merged = resume.merge(was, new(points=(BASE, ONE)), NOW)
    seen = (*merged.trials, replace(was.trials[0], order=4, at=NOW), replace(was.trials[0], order=5, at=NOW + 1))
    assert step(replace(merged, trials=seen)) == "1 point given up after failing the same way twice"
    forgiven = replace(resume.forgive(merged), trials=seen)
    assert forgiven.forgiven == (2, 3)
    assert step(forgiven) == ONE
    assert judge(forgiven).overall[ONE.digest] == "failed"
    told = resume._told(was, merged, failed=False)
    assert told[-1] == "left alone, for it failed: 'nccl.nthreads=1'; --resume-failed measures them again"
    # Failing the same way again, it is left alone again.
    bad = [replace(was.trials[1], order=n, at=NOW + n) for n in (6, 7)]
    closing = replace(was.trials[0], order=8, at=NOW + 9)
    assert "given up" in str(step(replace(forgiven, trials=(*seen, *bad, closing))))


def test_a_baseline_that_failed_is_tried_again() -> None:
    base, *_ = trials((BASE, OLD))
    dead = tuple(replace(base, order=n, readings=(), failure="hang") for n in (1, 2))
    merged = resume.merge(resume_child.sweep(trials=dead), new(), NOW)
    assert "the baseline failed twice" in str(step(merged))
    assert step(resume.forgive(merged)) == BASE


# --- folders


def opened(out: Path, wanted: str = "", told: list[str] | None = None, **fields: Any) -> Any:
    made = new(**fields) if wanted else resume_child.sweep(**fields)
    return resume.opened(out, made, resume.Wanted(wanted), "me", (told if told is not None else []).append)


def test_the_newest_of_the_same_kind(tmp_path: Path) -> None:
    for id_ in ("1130-000000-kimi-k2-allreduce", "1201-000000-kimi-k2-allreduce", "1202-000000-kimi-k2-serve",
                "1203-000000-other-allreduce"):  # fmt: skip
        id_ = f"2026{id_}"
        journal.create(tmp_path, resume_child.sweep(id=id_, name="other" if "other" in id_ else "kimi-k2"))
    with opened(tmp_path, "newest") as (sweep, folder):
        assert sweep.id == folder.name == "20261201-000000-kimi-k2-allreduce"
    with opened(tmp_path, "20261130") as (sweep, _):
        assert sweep.id == "20261130-000000-kimi-k2-allreduce"
    for wanted, told in (
        ("20261203", "deployment was other"),
        ("2026", "is the begin of several"),
        ("20290101", "no sweep '20290101'"),
    ):
        with pytest.raises(ConfigError, match=told), opened(tmp_path, wanted):
            pass
    with pytest.raises(ConfigError, match="leave --resume out"), opened(tmp_path / "none", "newest"):
        pass


def test_what_is_reused_is_told(tmp_path: Path) -> None:
    journal.create(tmp_path, old())
    told: list[str] = []
    three = cases.point(9, {"nccl.nthreads": "9"})
    with opened(tmp_path, "newest", told, points=(BASE, ONE, three), settings=Settings(repeats=3)):
        pass
    assert told[0] == f"going on with sweep {old().id}: 2 trials of it count"
    assert "new: 'nccl.nthreads=9'" in told
    assert "not asked for any more: 'nccl.nthreads=2', 'nccl.nthreads=3', 'nccl.nthreads=4'" in told
    assert "sweep.repeats was 2 and is 3" in told


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, folder):
        assert lock.running(folder)
        with (
            pytest.raises(lock.RunningError, match=f"being run by me, process {os.getpid()}") as caught,
            opened(tmp_path, "newest"),
        ):
            pass
        assert caught.value.exit_code == 6
    assert not lock.running(folder)
    with opened(tmp_path, "newest"):
        assert lock.running(folder)


def test_a_refused_resume_changes_nothing(tmp_path: Path) -> None:
    folder = journal.create(tmp_path, old())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError), opened(tmp_path, "2026", target="elsewhere"):
        pass
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != lock.LOCK} == before


def test_a_new_version_in_the_middle_measures_again(tmp_path: Path) -> None:
    version = ["1"]

    def measure(point: Point, order: int, upcoming: Point | None) -> Trial:
        version[0] = "2" if order > 6 else "1"
        found = [cases.reading(w, 20.0) for w in (cases.DECODE, cases.VERIFY, cases.PREFILL)]
        return cases.trial(point, order, found, facts=ran(driver=version[0]))

    with opened(tmp_path) as (sweep, folder):
        done, why = session.run(sweep, folder, measure, resume_child.Silent(), lambda: NOW)
    assert why == "every point is decided"
    assert {current.versions(trial)["driver"] for trial in done.trials} == {"2"}
    assert done.past
    assert Counter(trial.point for trial in done.trials)[ONE.digest] == 2
    assert journal.load(folder) == done


# --- kills


def child(out: Path, starts: Path, *, seconds: float = 0.05, id_: str = "") -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sweep.resume_child", str(out), str(starts), str(seconds), id_],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])},
    )  # fmt: skip


def lines(path: Path) -> Sequence[str]:
    return path.read_text().split() if path.exists() else ()


@pytest.mark.parametrize("kills", [[1], [3], [6], [2, 5, 9]], ids=str)
def test_a_kill_in_the_middle_repeats_nothing(kills: list[int], tmp_path: Path) -> None:
    starts, out = tmp_path / "starts", tmp_path / "out"
    id_ = ""
    for number in kills:
        with child(out, starts, id_=id_) as process:
            while len(lines(starts)) < number:
                assert process.poll() is None, process.stdout.read() if process.stdout else ""
                time.sleep(0.005)
            process.kill()
        id_ = "2026"
    (folder,) = shelf.folders(out)
    before = journal.load(folder, lambda _: None).trials
    with child(out, starts, id_=id_) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "ended: every point is decided" in said
    done = journal.load(folder)
    assert done.trials[: len(before)] == before
    assert len({trial.order for trial in done.trials}) == len(done.trials)
    counts = Counter(trial.point for trial in done.trials)
    assert all(counts[point.digest] == 2 for point in resume_child.POINTS[1:])
    # What was running when it was killed is lost, and nothing else.
    assert len(lines(starts)) <= len(done.trials) + len(kills)
    assert not done.past


def test_a_finished_sweep_is_not_measured_again(tmp_path: Path) -> None:
    starts, out = tmp_path / "starts", tmp_path / "out"
    counts: list[Counter[str]] = []
    for id_ in ("", "2026"):
        with child(out, starts, seconds=0.001, id_=id_) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        counts.append(Counter(lines(starts)))
    assert counts[1] == counts[0]


def test_two_processes_at_once(tmp_path: Path) -> None:
    starts, out = tmp_path / "starts", tmp_path / "out"
    with child(out, starts, seconds=30) as first:  # so that it still runs when the second asks
        while not lines(starts):
            time.sleep(0.01)
        with child(out, starts, id_="2026") as second:
            said, _ = second.communicate(timeout=60)
        first.kill()
    assert second.returncode == 1
    assert f"is being run by a test, process {first.pid}" in said


def test_a_folder_that_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="the sweep is not run"), lock.held(tmp_path / "none", "me"):
        pass
    assert not lock.running(tmp_path)


def test_another_experiment_is_no_resumption() -> None:
    was, now = (
        old(axes={"env.A": ("a", "b")}),
        new(points=(BASE, cases.point(77, {"env.Z": "1"})), axes={"env.Z": ("1",)}),
    )
    with pytest.raises(
        ConfigError, match=r"none of its points is asked for: it swept env\.A=a,b, and this is env\.Z=1"
    ):
        resume.merge(was, now, NOW)


def test_a_report_tells_what_a_start_of_the_server_spent() -> None:
    spent = [{"start": 30.0, "client": 8.0, "other": 0.1}, {"start": 32.0, "client": 8.0, "stop": 2.0, "other": 0.3}]
    sweep = replace(old(), trials=trials((BASE, {"seconds": spent[0]}), (ONE, {"seconds": spent[1]})))
    assert current.facts(sweep)["seconds a start"] == "start 31.0, client 8.0, other 0.2, stop 1.0"
    assert current.facts(replace(sweep, trials=trials((BASE, {"seconds": {"check": 1.0}})))) == {}


def test_sweeps_that_begin_in_the_same_second_get_ids_of_their_own(tmp_path: Path) -> None:
    sweep = replace(cases.sweep(), id="20261231-235959-kimi-k2-serve")
    ids = []
    for _ in range(3):
        with resume.opened(tmp_path, sweep, resume.Wanted(), "me", print) as (begun, folder):
            assert journal.load(folder).id == begun.id == folder.name
            ids.append(begun.id)
    assert ids == [f"{moment}-kimi-k2-serve" for moment in ("20261231-235959", "20270101-000000", "20270101-000001")]
