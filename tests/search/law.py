"""A measuring program that only reckons: the time of a point is a product over its choices, with noise of 2 %."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.search import front, order, study
from launcher.sweep import schedule
from launcher.sweep.record import Point, Reading, Settings, Sweep, Trial, Workload
from launcher.sweep.statistics import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.search.order import Ask

#: Of the logarithm, from one start to the next.
NOISE = 0.02
AXES = {
    "nccl.algo": ("Ring", "Tree", "PAT"),
    "nccl.proto": ("LL", "LL128", "Simple"),
    "nccl.max_nchannels": ("2", "4", "8", "16"),
}


def grid(id_: str, axes: Mapping[str, Sequence[str]] = AXES, workloads: int = 1, **fields: Any) -> Sweep:
    """Return a search of a third of all points of some axes, without trials."""
    points = [
        Point(f"{n:016x}", " ".join(chosen), dict(zip(axes, chosen, strict=True)))
        for n, chosen in enumerate(itertools.product(*axes.values()))
    ]
    works = tuple(Workload(f"decode-{n}", "decode", "", "us") for n in range(workloads))
    told: dict[str, Any] = {"search": math.ceil(len(points) / 3), "settings": Settings(), **fields}
    return Sweep("llm", id_, "launch -m --search", "here", {k: tuple(v) for k, v in axes.items()}, works,
                 (Point("b" * 16, "baseline"), *points), **told)  # fmt: skip


def product(sweep: Sweep, seed: int, spread: float = 0.15, together: float = 0.03) -> dict[str, float]:
    """Return a law: the logarithm of the time by digest.

    Args:
        sweep: with its points; the baseline takes as long as the middle one of them.
        seed: of the law.
        spread: sd of what a value of an axis does.
        together: sd of what two values of two axes do together.
    """
    chance = random.Random(seed)
    factors: dict[tuple[str, ...], float] = {}
    logs: dict[str, float] = {}
    for point in sweep.points[1:]:
        pairs = [f"{key}={value}" for key, value in point.choices.items()]
        terms = [(one,) for one in pairs] + list(itertools.combinations(pairs, 2))
        for term in terms:
            factors.setdefault(term, chance.gauss(0, spread if len(term) == 1 else together))
        logs[point.digest] = sum(factors[term] for term in terms)
    return {sweep.baseline.digest: sorted(logs.values())[len(logs) // 2], **logs}


def run(sweep: Sweep, laws: Sequence[Mapping[str, float]], seed: int, ask: Ask = study.ask, most: int = 10**6) -> Sweep:
    """Run a search to its end, or to so many trials; one law a workload."""
    chance = random.Random(f"noise {seed}")
    step = partial(order.step, ask=ask) if sweep.search else schedule.step
    while len(sweep.trials) < most:
        now = 60.0 * len(sweep.trials)
        point = step(sweep, judge(sweep), now)
        if isinstance(point, str):
            return sweep
        sweep = replace(sweep, trials=(*sweep.trials, trial(sweep, point, laws, chance)))
    return sweep


def trial(sweep: Sweep, point: Point, laws: Sequence[Mapping[str, float]], chance: random.Random) -> Trial:
    """Return one start of a point."""
    took = [100 * math.exp(law[point.digest] + chance.gauss(0, NOISE)) for law in laws]
    readings = tuple(Reading(w.name, one, one, one) for w, one in zip(sweep.workloads, took, strict=True))
    return Trial(point.digest, len(sweep.trials) + 1, 60.0 * len(sweep.trials), 50.0, readings)


def at_random(sweep: Sweep, points: Sequence[Point]) -> Point:
    """Choose as one who knows nothing."""
    return random.Random(f"{sweep.id} {len(order.chosen(sweep))}").choice(list(points))


def is_best(sweep: Sweep, law: Mapping[str, float]) -> bool:
    """Return whether what a search calls best is so, up to the smallest effect that matters."""
    found = front.front(sweep, judge(sweep))
    return bool(found) and law[found[0].digest] - min(law.values()) <= math.log1p(sweep.settings.effect)
