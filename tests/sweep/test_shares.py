"""Several hosts share a sweep: who has which point, what is compared with what, and how it goes on with other hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import ConfigError
from launcher.sweep import compare, current, effects, journal, report_plots, report_rows, report_view, resume, shares
from launcher.sweep.compare import Side
from launcher.sweep.record import Judgement, Point, Reading, Settings, Sweep, Trial, Workload
from launcher.sweep.statistics import judge
from launcher.sweep.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAMES = "BPQRSTUVW"
#: Of one host: about 100, small enough to decide everything.
QUIET = (99.9, 100.1, 100)
NOTHING = Judgement((), {})


def a_sweep(points: int = 4, hosts: Sequence[str] = ("h1", "h2"), **fields: Any) -> Sweep:
    """Return a sweep that hosts share: P and R on the first of two, Q and S on the second."""
    named = tuple(Point(name, "baseline" if name == "B" else f"x={name}") for name in NAMES[: points + 1])
    homes = shares.assign(named[1:], hosts, {}) if hosts else {}
    told: dict[str, Any] = {"target": ", ".join(hosts) or "h1", "axes": {}, "hosts": tuple(hosts), "homes": homes}
    workload = Workload("decode-1", "decode", "", "us")
    told |= {"workloads": (workload,), "points": named, **fields}
    return Sweep("llm", "20261130-021500-llm-allreduce", "launch", **told)


def with_trials(sweep: Sweep, values: Mapping[tuple[str, str], Sequence[float]], **facts: Any) -> Sweep:
    """Return a sweep with readings by point and host, dealt out in turns; 0 is a start that failed."""
    longest = max(map(len, values.values()))
    turns = [(key, many[turn]) for turn in range(longest) for key, many in values.items() if turn < len(many)]
    trials = [
        Trial(
            point, n, 60.0 * n, 50.0, (Reading("decode-1", v, v, v),) if v else (), "" if v else "hang",
            host=host, facts=facts,
        )
        for n, ((point, host), v) in enumerate(turns, 1)
    ]  # fmt: skip
    return current.counted(replace(sweep, trials=tuple(trials)))


def words(judgement: Judgement) -> str:
    return " ".join(f"{verdict.point}:{verdict.word}" for verdict in judgement.verdicts)


# --- who has which point


@pytest.mark.parametrize(
    ("points", "hosts", "expected"),
    [
        (4, ("h1", "h2"), "h1 h2 h1 h2"),
        (5, ("h1", "h2", "h3"), "h1 h2 h3 h1 h2"),
        (1, ("h1", "h2"), "h1"),
        (2, ("h2", "h1"), "h2 h1"),
    ],
)
def test_points_are_dealt_out_in_their_order(points: int, hosts: Sequence[str], expected: str) -> None:
    sweep = a_sweep(points, hosts)
    assert list(sweep.homes.values()) == expected.split()
    assert shares.hosts_of(sweep) == tuple(dict.fromkeys(expected.split()))
    assert a_sweep(points, hosts).homes == sweep.homes


def test_a_host_with_points_that_cost_time_gets_fewer_of_the_others() -> None:
    points = a_sweep(6).points[1:]
    homes = shares.assign(points, ("h1", "h2"), {"P": "h1", "Q": "h1", "R": "h1"})
    assert "".join(homes[name][-1] for name in "PQRSTU") == "111222"
    homes = shares.assign(points, ("h1", "h2"), {"P": "h1", "Q": "h1", "R": "h1"}, done="PQR")
    assert "".join(homes[name][-1] for name in "PQRSTU") == "111121"


def test_the_part_of_a_host_is_a_sweep_of_its_own() -> None:
    sweep = with_trials(a_sweep(), {("B", "h1"): QUIET, ("P", "h1"): QUIET, ("B", "h2"): QUIET, ("Q", "h2"): QUIET})
    one, two = shares.parts(sweep)
    assert ([p.digest for p in one.points], [p.digest for p in two.points]) == (list("BPR"), list("BQS"))
    assert {trial.host for trial in two.trials} == {"h2"}
    assert (two.target, two.hosts, two.homes) == ("h2", (), {})
    alone = a_sweep(hosts=())
    assert shares.parts(alone) == (alone,)


def test_the_plan_counts_the_starts_of_every_host() -> None:
    sweep = a_sweep(5)
    assert [shares.expected(part) for part in shares.parts(sweep)] == [9, 7]
    assert (shares.expected(sweep), shares.left(sweep)) == (16, 9)


# --- what is compared with what


def test_a_point_is_compared_with_the_baseline_of_its_own_host() -> None:
    """The second host is twice as slow: against the other baseline everything would be better or worse."""
    slow = [200.2, 199.8, 200]
    values = {("B", "h1"): QUIET, ("P", "h1"): QUIET, ("R", "h1"): [90, 90.1, 89.9]}
    values |= {("B", "h2"): slow, ("Q", "h2"): slow, ("S", "h2"): [220, 220.2, 219.8]}
    sweep = with_trials(a_sweep(), values)
    judgement = judge(sweep)
    assert words(judgement) == "P:no difference Q:no difference R:better S:worse"
    assert judgement.overall == {
        "B": "baseline", "P": "no difference", "Q": "no difference", "R": "better", "S": "worse",
    }  # fmt: skip
    assert [v.difference for v in judgement.verdicts] == pytest.approx([0, 0, -0.1, 0.1], abs=1e-3)
    assert [v.trials for v in judgement.verdicts] == [3, 3, 3, 3]


def test_a_host_without_its_baseline_judges_nothing() -> None:
    sweep = with_trials(a_sweep(2), {("B", "h1"): QUIET, ("P", "h1"): QUIET, ("Q", "h2"): QUIET})
    assert words(judge(sweep)) == "P:no difference Q:undecided"
    assert judge(sweep).verdicts[1].reason == "no valid start of the baseline"


def test_the_correction_is_for_the_points_of_all_hosts() -> None:
    values = {("B", "h1"): (98, 102, 100), ("P", "h1"): (99, 103, 101)}
    sweep = with_trials(a_sweep(8), values)
    part = shares.part(sweep, "h1")
    alone, together = judge(part).verdicts[0], judge(part, sweep).verdicts[0]
    assert judge(sweep).verdicts[0] == together
    assert together.high - together.low > alone.high - alone.low
    # As wide as in a sweep of eight points on one machine, of which the others have not run.
    one = replace(a_sweep(8, ()), trials=tuple(replace(trial, host="") for trial in part.trials))
    assert (judge(one).verdicts[0].low, judge(one).verdicts[0].high) == pytest.approx((together.low, together.high))


def test_drift_and_notes_are_told_by_host() -> None:
    values = {("B", "h1"): (*QUIET, 100), ("P", "h1"): QUIET}
    sweep = with_trials(a_sweep(2), {**values, ("B", "h2"): (100, 102, 104, 106), ("Q", "h2"): (100, 102, 0)})
    judgement = judge(sweep)
    assert list(judgement.drift) == ["decode-1 on h2"]
    assert judgement.drift["decode-1 on h2"] == pytest.approx(0.06, abs=0.002)
    assert all(note.startswith("h2: ") for note in judgement.notes)
    assert "h2: x=Q failed in 1 of 3 starts: hang" in judgement.notes
    drifts = {track.host: track.drift for track in report_plots.timeline(sweep, judgement)}
    assert drifts == {"h1": "", "h2": "+5.9 %"}


def test_versions_are_compared_within_a_host() -> None:
    values = {("B", "h1"): QUIET, ("P", "h1"): QUIET, ("B", "h2"): QUIET, ("Q", "h2"): QUIET}
    sweep = with_trials(a_sweep(2), values, versions={"driver": "1"})
    new = Trial("B", 13, 900.0, 50.0, (Reading("decode-1", 1, 1, 1),), facts={"versions": {"driver": "2"}}, host="h2")
    after = current.counted(replace(sweep, trials=(*sweep.trials, new)))
    assert {trial.host for trial in after.past} == {"h2"}
    assert len(after.past) == 6
    assert words(judge(after)) == "P:no difference Q:undecided"


def test_points_of_two_hosts_have_figures_and_no_verdict() -> None:
    slow = [200.2, 199.8, 200]
    values = {
        ("B", "h1"): QUIET,
        ("P", "h1"): QUIET,
        ("R", "h1"): (90, 90.1, 89.9),
        ("B", "h2"): slow,
        ("Q", "h2"): slow,
    }
    sweep = with_trials(a_sweep(), values)
    b, p, q, r = (Side(sweep, point) for point in sweep.points[:4])
    (figure,) = compare.figures(p, q)
    assert (round(figure.left), round(figure.right), figure.verdict) == (100, 200, None)
    for left, right, word, base in ((p, r, "better", 100), (b, q, "no difference", 200), (r, b, "worse", 90)):
        (figure,) = compare.figures(left, right)
        assert figure.verdict is not None
        assert (figure.verdict.word, round(figure.left)) == (word, base)


def test_the_report_tells_the_host_of_each_point() -> None:
    slow = [200.2, 199.8, 200]
    values = {("B", "h1"): QUIET, ("P", "h1"): QUIET, ("B", "h2"): slow, ("Q", "h2"): [100, 100.2, 99.8]}
    sweep = with_trials(a_sweep(2), values)
    judgement = judge(sweep)
    rows = table(sweep, judgement)
    assert [row[:3] for row in rows] == [
        ["point", "host", "overall"], ["baseline", "h1", "baseline"], ["baseline", "h2", "baseline"],
        ["x=Q", "h2", "better"], ["x=P", "h1", "no difference"],
    ]  # fmt: skip
    assert [row[3] for row in rows[1:3]] == ["100 us", "200 us"]
    assert [(row.point.digest, row.host) for row in report_view.rows(sweep, judgement)] == [
        ("B", "h1"), ("B", "h2"), ("Q", "h2"), ("P", "h1"),
    ]  # fmt: skip
    by_point = {row["digest"]: row for row in report_rows.verdicts(sweep, judgement)}
    assert (by_point["Q"]["host"], round(by_point["Q"]["baseline_value"])) == ("h2", 200)
    assert report_rows.verdicts_csv(sweep, judgement).startswith("point,digest,host,")
    assert report_rows.results_csv(sweep).startswith("order,at,seconds,point,digest,host,")
    assert {row["host"] for row in map(json.loads, report_rows.results_jsonl(sweep).splitlines())} == {"h1", "h2"}
    (effect,) = effects.effects(sweep, judgement)
    assert effect.step_ms == pytest.approx(-0.1, abs=1e-3)


# --- when it is over, and how it goes on


def test_a_sweep_is_over_when_it_is_on_every_host() -> None:
    done = {("B", "h1"): (*QUIET, 100), ("P", "h1"): QUIET}
    sweep = with_trials(a_sweep(2), {**done, ("B", "h2"): QUIET[:1]})
    assert shares.why_over(sweep, judge(sweep), 0) == ""
    assert shares.running(sweep, judge(sweep)) == ("h2",)
    assert [point.digest for point in shares.unfinished(shares.part(sweep, "h2"))] == ["Q"]
    sweep = with_trials(a_sweep(2), {**done, ("B", "h2"): QUIET, ("Q", "h2"): (0, 0)})
    assert shares.why_over(sweep, judge(sweep), 0) == (
        "h1: every point is decided; h2: 1 point given up after failing the same way twice"
    )
    assert shares.running(sweep, judge(sweep)) == ()


#: P is done on h1; Q is done on h2, S is not; R was never started.
HALF = {
    ("B", "h1"): QUIET, ("P", "h1"): QUIET, ("B", "h2"): QUIET, ("Q", "h2"): QUIET, ("S", "h2"): QUIET[:1],
}  # fmt: skip


def again(hosts: Sequence[str]) -> Sweep:
    new = a_sweep(4, hosts) if len(hosts) > 1 else a_sweep(4, (), target=hosts[0])
    return resume.merge(with_trials(a_sweep(), HALF), new, 1000.0)


def test_a_resumed_sweep_keeps_its_hosts() -> None:
    merged = again(("h1", "h2"))
    assert merged.homes == {"P": "h1", "Q": "h2", "R": "h1", "S": "h2"}
    assert (len(merged.trials), merged.past) == (13, ())
    assert again(("h2", "h1")).homes == merged.homes


def test_unfinished_points_of_a_host_that_is_not_named_go_to_another_one() -> None:
    merged = again(("h1",))
    assert merged.homes == {"P": "h1", "Q": "h2", "R": "h1", "S": "h1"}
    assert (merged.hosts, merged.target) == (("h1",), "h1, h2")
    (past,) = merged.past
    assert (past.point, past.host) == ("S", "h2")
    assert current.told(merged) == ["1 trial counts for nothing any more: another host measures their point now"]
    assert words(judge(merged)) == "P:no difference Q:no difference R:undecided S:undecided"
    assert shares.running(merged, judge(merged)) == ("h1",)
    # Back again: what was measured there counts as before.
    back = resume.merge(merged, a_sweep(), 2000.0)
    assert back.homes["S"] == "h1"


def test_a_new_host_takes_over() -> None:
    merged = again(("h3", "h2"))
    assert merged.homes == {"P": "h1", "Q": "h2", "R": "h3", "S": "h2"}
    merged = again(("h1", "h3"))
    assert merged.homes == {"P": "h1", "Q": "h2", "R": "h1", "S": "h3"}
    assert shares.hosts_of(merged) == ("h1", "h3", "h2")


def test_a_host_without_a_baseline_keeps_no_point() -> None:
    half = {key: values for key, values in HALF.items() if key != ("B", "h2")}
    merged = resume.merge(with_trials(a_sweep(), half), a_sweep(4, (), target="h1"), 1000.0)
    assert set(merged.homes.values()) == {"h1"}
    assert {(trial.point, trial.host) for trial in merged.past} == {("Q", "h2"), ("S", "h2")}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (a_sweep(4, (), target="h1"), a_sweep(), "target was h1 and is h1, h2"),
        (a_sweep(), a_sweep(4, (), target="this machine"), "target was h1, h2 and is this machine"),
        (a_sweep(facts={"GPUs": "8 x A"}), a_sweep(facts={"GPUs": "8 x B"}), "GPUs was 8 x A and is 8 x B"),
    ],
)
def test_other_surroundings_are_refused(old: Sweep, new: Sweep, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resume.merge(old, new, 0.0)


# --- on disk


def test_the_journal_of_a_shared_sweep(tmp_path: Path) -> None:
    sweep = with_trials(a_sweep(), HALF)
    folder = journal.create(tmp_path, sweep)
    assert json.loads((folder / journal.PLAN).read_text())["version"] == 2
    assert journal.load(folder) == sweep


def test_the_journal_of_one_machine_is_as_before(tmp_path: Path) -> None:
    sweep = with_trials(a_sweep(hosts=(), settings=Settings(repeats=1)), {("B", ""): QUIET, ("P", ""): QUIET})
    folder = journal.create(tmp_path, sweep)
    plan = json.loads((folder / journal.PLAN).read_text())
    assert plan["version"] == 1
    assert not {"hosts", "homes"} & plan.keys()
    assert "host" not in json.loads((folder / journal.JOURNAL).read_text().splitlines()[0])
    assert journal.load(folder) == sweep
