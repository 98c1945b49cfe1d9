"""Optuna's choice: always one of the points that are there, the same for the same trials; what it is told."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from launcher.errors import ConfigError
from launcher.search import order, study
from tests.search import law


def test_a_hole_in_the_grid_is_never_asked_for() -> None:
    sweep = law.grid("holes")
    holes = [point for point in sweep.points[1:] if point.choices["nccl.proto"] != "LL" or "Tree" in point.label]
    sweep = replace(sweep, points=(sweep.baseline, *holes), search=len(holes))
    ended = law.run(sweep, [law.product(sweep, 1)], 1)
    assert len(order.chosen(ended)) == len(holes)


def test_axes_that_only_some_points_have() -> None:
    sweep = law.grid("sparse")
    points = [replace(p, choices={k: v for k, v in p.choices.items() if v != "LL"}) for p in sweep.points]
    sweep = replace(sweep, points=tuple(points))
    assert len(order.chosen(law.run(sweep, [law.product(sweep, 1)], 1))) == 12


def test_every_value_is_seen_first() -> None:
    sweep = law.grid("values")
    ended = law.run(sweep, [law.product(sweep, 1)], 1, most=5)
    seen = {(key, value) for point in order.chosen(ended) for key, value in point.choices.items()}
    assert seen == {(key, value) for key, values in law.AXES.items() for value in values}


def test_many_workloads_are_objectives_by_their_kinds() -> None:
    sweep = law.grid("many", workloads=6)
    works = [replace(w, kind="decode" if n < 4 else "prefill") for n, w in enumerate(sweep.workloads)]
    sweep = law.run(replace(sweep, workloads=tuple(works)), [law.product(sweep, n) for n in range(6)], 1, most=10)
    made = study._study(sweep, study._axes(sweep), order.chosen(sweep), 1)
    assert len(made.directions) == 2
    few = law.run(law.grid("few", workloads=2), [law.product(sweep, n) for n in range(2)], 1, most=10)
    assert len(study._study(few, study._axes(few), order.chosen(few), 1).directions) == 2


def test_another_sweep_chooses_otherwise_and_the_same_one_alike() -> None:
    def chosen(id_: str) -> list[str]:
        sweep = law.grid(id_)
        return [trial.point for trial in law.run(sweep, [law.product(sweep, 1)], 1).trials]

    assert chosen("one") == chosen("one") != chosen("two")


def test_when_nothing_gave_a_value_the_choice_goes_on() -> None:
    sweep = law.grid("dead", search=8)
    chance = random.Random(1)
    laws = [law.product(sweep, 1)]
    for _ in range(6):
        point = study.ask(sweep, [p for p in sweep.points[1:] if p not in order.chosen(sweep)])
        failed = replace(law.trial(sweep, point, laws, chance), failure="hang", readings=())
        sweep = replace(sweep, trials=(*sweep.trials, failed))
    assert len(order.chosen(sweep)) == 6


def test_without_optuna_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    study.need()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'launch-llm\[search\]'"):
        study.need()


def test_optuna_is_imported_only_to_choose() -> None:
    code = (
        "import sys, launcher.cli.sweep, launcher.search.study, launcher.sweep.report; print('optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
