"""The order of a search: what is measured, how often, and that the journal alone decides it."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from launcher.errors import ConfigError
from launcher.search import front, order, study
from launcher.sweep import journal, schedule, session, shares, tables
from launcher.sweep.record import Settings
from launcher.sweep.resume import merge
from launcher.sweep.statistics import judge
from tests.search import law
from tests.sweep import resume_child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.sweep.record import Point, Sweep, Trial

AXES = {"nccl.algo": ("Ring", "Tree"), "nccl.proto": ("LL", "LL128", "Simple")}


def names(sweep: Sweep) -> list[str]:
    labels = {point.digest: point.label for point in sweep.points}
    return [labels[trial.point] for trial in sweep.trials]


def first(sweep: Sweep, points: Sequence[Point]) -> Point:
    return points[0]


def searched(logs: Sequence[float]) -> Sweep:
    """Search among the six points, the first one first, and return the sweep at its end; logs are of their times."""
    sweep = law.grid("searched", AXES, search=4, settings=Settings(baseline_every=3))
    laws = dict(zip((point.digest for point in sweep.points), (0.0, *logs), strict=True))
    return law.run(sweep, [laws], 1, first)


def test_all_once_then_what_may_be_best() -> None:
    sweep = searched([0.5, -0.5, 0.5, 0.5, 0.0, 0.0])
    ran = names(sweep)
    assert ran[:6] == ["baseline", "Ring LL", "Ring LL128", "Ring Simple", "baseline", "Tree LL"]
    assert ran[-1] == "baseline"
    assert set(ran[6:]) == {"Ring LL128", "baseline"}
    assert ran.count("Ring LL128") >= sweep.settings.repeats
    judgement = judge(sweep)
    assert judgement.overall[sweep.points[2].digest] == "better"
    assert judgement.overall[sweep.points[1].digest] == "undecided"  # worse by far, but seen once
    assert "4 of 6 points were chosen; of those that may be best: every point is decided" in order.why_over(
        sweep, judgement, 1e6
    )
    assert shares.why_over(sweep, judgement, 1e6) == order.why_over(sweep, judgement, 1e6)


def test_where_nothing_beats_the_baseline_nothing_is_repeated() -> None:
    ran = names(searched([0.5] * 6))
    assert [ran.count(name) for name in dict.fromkeys(ran)] == [3, 1, 1, 1, 1]


def test_intervals_hold_over_all_points_that_could_have_been_chosen() -> None:
    sweep = searched([-0.5] + [0.5] * 5)
    measured = replace(sweep, points=(sweep.baseline, *order.chosen(sweep)))
    whole, part = ({v.point: v for v in judge(one).verdicts}[sweep.points[1].digest] for one in (sweep, measured))
    assert whole.low < part.low < part.high < whole.high


def test_what_is_shown_are_the_chosen_points() -> None:
    sweep = searched([0.5, -0.5, 0.5, 0.5, 0.0, 0.0])
    judgement = judge(sweep)
    assert [row[0] for row in tables.table(sweep, judgement)[1:]][:2] == ["baseline", "Ring LL128"]
    assert len(tables.table(sweep, judgement)) == 6
    told = tables.summary(sweep, judgement)
    assert "Not shown to be beaten by any measured point: Ring LL128." in told
    assert "4 of 6 points were chosen; of the other 2 nothing is known. The intervals hold over all of them." in told
    assert schedule.expected(sweep) == 1 + 2 * (4 + 2)


def test_late_points_come_last() -> None:
    sweep = law.grid("late", AXES, search=6)
    late = replace(sweep, late={point.digest: "slow" for point in sweep.points[1:4]})
    ended = law.run(late, [dict.fromkeys((p.digest for p in sweep.points), 0.0)], 1, first)
    ran = [name for name in dict.fromkeys(names(ended)) if name != "baseline"]
    assert ran == ["Tree LL", "Tree LL128", "Tree Simple", "Ring LL", "Ring LL128", "Ring Simple"]


def test_a_failed_point_is_no_value_and_not_tried_twice() -> None:
    sweep = law.grid("failed", AXES, search=4)
    laws = [dict.fromkeys((point.digest for point in sweep.points), 0.0)]
    chance = random.Random(1)
    while not isinstance(point := order.step(sweep, judge(sweep), 60.0 * len(sweep.trials), study.ask), str):
        one = law.trial(sweep, point, laws, chance)
        if point.choices.get("nccl.algo") == "Tree":
            one = replace(one, failure="hang", readings=())
        elif point.choices.get("nccl.proto") == "LL":
            one = replace(one, readings=tuple(replace(r, value=1.0, invalid=("wrong sums",)) for r in one.readings))
        sweep = replace(sweep, trials=(*sweep.trials, one))
    bad = [p for p in order.chosen(sweep) if p.choices["nccl.algo"] == "Tree" or p.choices["nccl.proto"] == "LL"]
    assert len(order.chosen(sweep)) == 4
    assert bad
    assert not {point.digest for point in bad} & front.values(sweep).keys()
    assert [names(sweep).count(point.label) for point in bad] == [1] * len(bad)
    told = study._study(sweep, study._axes(sweep), order.chosen(sweep), 1).trials
    assert {t.state.name for t in told} == {"COMPLETE", "PRUNED"}
    # What is forgiven may be chosen again.
    assert len(order.chosen(replace(sweep, forgiven=tuple(t.order for t in sweep.trials if t.failure)))) < 4


class Reckoning:
    """Measures by a law without noise, and is interrupted at a trial."""

    def __init__(self, sweep: Sweep, at: int) -> None:
        self.sweep, self.at = sweep, at
        self.laws = [law.product(sweep, number) for number in range(2)]

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002
        if order == self.at:
            raise KeyboardInterrupt
        one = law.trial(replace(self.sweep, trials=()), point, self.laws, random.Random(order))
        return replace(one, order=order, at=60.0 * order)


@pytest.mark.parametrize("cut", [3, 7, 11])
def test_a_search_that_is_resumed_goes_on_as_it_would_have(cut: int, tmp_path: Path) -> None:
    """For two workloads; the journal is all there is, and the trial of the baseline after a break changes nothing."""
    sweep = law.grid("20261130-021500-llm-serve", workloads=2, settings=Settings(max_repeats=2))
    step = partial(order.step, ask=study.ask)
    folder = journal.create(tmp_path / "whole", sweep)
    whole, _ = session.run(sweep, folder, Reckoning(sweep, 0), resume_child.Silent(), lambda: 1e4, step=step)
    folder = journal.create(tmp_path / "cut", sweep)
    with pytest.raises(KeyboardInterrupt):
        session.run(sweep, folder, Reckoning(sweep, cut), resume_child.Silent(), lambda: 1e4, step=step)
    old = journal.load(folder)
    assert (old.search, len(old.trials)) == (12, cut - 1)
    merged = replace(merge(old, replace(sweep, id="20261130-999999-llm-serve"), 60.0 * cut), since=0.0)
    ended, _ = session.run(merged, folder, Reckoning(sweep, 0), resume_child.Silent(), lambda: 1e4, step=step)
    assert names(ended) == names(whole)
    assert len(order.chosen(journal.load(folder))) == 12


def test_what_hosts_share_is_not_resumed_as_a_search() -> None:
    old = law.grid("20261130-021500-llm-serve", AXES, search=0)
    old = replace(old, hosts=("a",), homes=dict.fromkeys((p.digest for p in old.points[1:]), "a"), target="a")
    new = replace(law.grid("20261130-021600-llm-serve", AXES), target="a")
    with pytest.raises(ConfigError, match="several hosts share it: leave --search out"):
        merge(old, new, 1.0)


def test_a_resumed_search_keeps_what_is_late_and_tells_another_number() -> None:
    from launcher.sweep import resume

    old = replace(law.grid("20261130-021500-llm-serve", AXES), late={"x": "slow"})
    new = replace(law.grid("20261130-021600-llm-serve", AXES), late={"y": "slow"}, search=0)
    assert merge(old, replace(new, search=4), 1.0).late == {"x": "slow"}
    merged = merge(old, new, 1.0)
    assert "it was at most 2 points chosen, and is every point measured from now on" in resume._told(
        old, merged, failed=False
    )
