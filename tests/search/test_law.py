"""On a law that is known, a search finds the best of 36 points; `python -m benchmarks.search` has more of it."""

from __future__ import annotations

from launcher.search import order, study
from launcher.sweep.schedule import expected
from tests.search import law

SEEDS = range(1000, 1020)


def test_the_best_of_36_points_by_less_than_a_third_of_the_starts() -> None:
    right, at_random, starts = 0, 0, 0
    for seed in SEEDS:
        sweep = law.grid(f"search {seed}", search=18)
        logs = law.product(sweep, seed)
        ended = law.run(sweep, [logs], seed, study.ask)
        assert len(order.chosen(ended)) == 18
        right += law.is_best(ended, logs)
        at_random += law.is_best(law.run(sweep, [logs], seed, law.at_random), logs)
        starts += len(ended.trials)
    assert expected(law.grid("all", search=36)) == 85
    assert starts / len(SEEDS) < 85 / 3
    assert right >= 17 > at_random
