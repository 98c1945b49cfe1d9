"""What beats what: by the means while a search goes on, by the intervals at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.search import front
from launcher.sweep.record import Point, Reading, Sweep, Trial, Workload
from launcher.sweep.statistics import judge


def a_sweep(*values: tuple[float, float], starts: int = 3) -> Sweep:
    """Return a sweep with a baseline of 100 us and 100 tok/s, and a point for each pair."""
    works = (
        Workload("decode-1", "decode", "", "us"),
        Workload("decode-8", "decode", "", "tok/s", lower_is_better=False),
    )
    every = [(100.0, 100.0), *values]
    trials = [
        Trial(f"p{n}", 0, float(start * len(every) + n), 1.0, tuple(
            Reading(w.name, v * (1 + 0.001 * (start % 3)), v, v) for w, v in zip(works, pair, strict=True)
        ))
        for start in range(starts)
        for n, pair in enumerate(every)
    ]  # fmt: skip
    points = tuple(Point(f"p{n}", f"p{n}" if n else "baseline") for n in range(len(every)))
    trials = [replace(trial, order=n) for n, trial in enumerate(trials, 1)]
    return Sweep("llm", "id", "", "here", {}, works, points, trials=tuple(trials), search=len(values))


FRONTS = {
    "one is best": ([(80, 120), (90, 110), (120, 80)], ["p1"], ["p1"]),
    "a trade": ([(80, 90), (120, 130), (130, 80)], ["p1", "p2"], ["p2", "p1", "baseline"]),
    "nothing gains": ([(120, 80), (130, 70)], [], ["baseline"]),
    "hardly anything": ([(99, 101), (130, 70)], ["p1"], ["p1"]),
}


@pytest.mark.parametrize(("values", "contenders", "wanted"), FRONTS.values(), ids=FRONTS.keys())
def test_what_is_on_the_front(values: list[tuple[float, float]], contenders: list[str], wanted: list[str]) -> None:
    sweep = a_sweep(*values)
    assert [point.label for point in front.contenders(sweep)] == contenders
    assert sorted(point.label for point in front.front(sweep, judge(sweep))) == sorted(wanted)


def test_what_was_started_too_seldom_is_on_no_front() -> None:
    sweep = a_sweep((80, 120), (79, 121))
    once = replace(sweep, trials=tuple(t for t in sweep.trials if t.point != "p2" or t.order < 4))
    assert [point.label for point in front.front(once, judge(once))] == ["p1"]
    assert [point.label for point in front.contenders(once)] == ["p1", "p2"]


def test_values_are_against_the_baseline_and_smaller_is_better() -> None:
    found = front.values(a_sweep((50, 200)))
    assert found["p0"] == {"decode-1": 0, "decode-8": 0}
    assert found["p1"] == pytest.approx({"decode-1": -0.693, "decode-8": -0.693}, abs=1e-3)


def test_what_the_baseline_cannot_do_is_no_objective() -> None:
    sweep = a_sweep((50, 200))
    trials = tuple(
        replace(t, readings=(t.readings[0], replace(t.readings[1], invalid=("no",)))) if t.point == "p0" else t
        for t in sweep.trials
    )
    assert list(front.values(replace(sweep, trials=trials))["p1"]) == ["decode-1"]
    assert front.values(replace(sweep, trials=())) == {}
