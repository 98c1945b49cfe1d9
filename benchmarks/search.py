"""How often a search finds the best point of a known law, beside random choice and the whole grid.

usage: python -m benchmarks.search [SEEDS]

Each seed is a law, its noise (2 % from start to start) and a choice of its own. The last line: of searches among equal
points, how many called one of them better.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from launcher.search import order, study
from launcher.sweep.statistics import judge
from tests.search import law

if TYPE_CHECKING:
    from launcher.search.order import Ask

#: Away from those that the sampler was tuned with.
FIRST = 1000
#: What chooses, and how many of 36 points; 0: there is no choice.
WAYS: tuple[tuple[str, int, Ask], ...] = (
    ("Optuna", 12, study.ask),
    ("at random", 12, law.at_random),
    ("Optuna", 18, study.ask),
    ("at random", 18, law.at_random),
    ("whole grid", 0, law.at_random),
)
#: Spread of what one value does and of what two do together, on the logarithm.
LAWS = {"steep": (0.15, 0.03), "flat": (0.05, 0.01)}


def main(seeds: int) -> None:
    """Print a line for each law and choice."""
    for name, (spread, together) in LAWS.items():
        for what, most, ask in WAYS:
            found = [_one(seed, spread, together, most, ask) for seed in range(FIRST, FIRST + seeds)]
            met, best, starts = (sum(column) for column in zip(*found, strict=True))
            print(
                f"{name:6} {what:10} {most or 36} points: measured {met}, called best {best} of {seeds};"
                f" {starts / seeds:.1f} starts",
                flush=True,
            )
    wrong = sum(_is_wrong(seed) for seed in range(FIRST, FIRST + 10 * seeds))
    print(f"equal points: a false 'better' in {wrong} of {10 * seeds} searches")


def _one(seed: int, spread: float, together: float, most: int, ask: Ask) -> tuple[bool, bool, int]:
    """Return whether one of the best was measured, whether one was called best, and the starts."""
    sweep = law.grid(f"search {seed}", search=most)
    logs = law.product(sweep, seed, spread, together)
    ended = law.run(sweep, [logs], seed, ask)
    near = min(logs.values()) + math.log1p(sweep.settings.effect)
    met = any(logs[point.digest] <= near for point in order.chosen(ended))
    return met, law.is_best(ended, logs), len(ended.trials)


def _is_wrong(seed: int) -> bool:
    sweep = law.grid(f"equal {seed}", search=18)
    ended = law.run(sweep, [dict.fromkeys((point.digest for point in sweep.points), 0.0)], seed, study.ask)
    return any(verdict.word == "better" for verdict in judge(ended).verdicts)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
