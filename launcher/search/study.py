"""The choice of the next point by Optuna: a study of what the journal has, made anew for every choice.

Each key is a categorical axis. The sampler knows nothing of rules and of points that render to the same release, so
it is asked for many proposals at once, and of the points that are left that one is taken which has most values in
common with all of them: they are a vote. (The nearest point to one proposal found the best of 36 less often, see
`tests/search/test_law.py`.) Its seed is that of the sweep's id and of the number of points chosen so far.

The first points are not random: each takes the values that were seen least so far, until every value of every axis was
seen.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import random
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from launcher.errors import ConfigError
from launcher.search.front import values
from launcher.search.order import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from launcher.sweep.record import Point, Sweep

#: Proposals that vote, and samples that the sampler compares for each: few, so that they differ from each other.
PROPOSALS, CANDIDATES = 12, 4
#: More objectives than this are no guidance, for nearly nothing beats anything in all of them.
OBJECTIVES = 4

#: Values by key, as the points have them.
_Axes = dict[str, tuple[str, ...]]


def need() -> None:
    """Check that Optuna is there, without importing it.

    Raises:
        ConfigError: it is not, with the command that installs it.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("--search needs Optuna, which is not installed here: pip install 'launch-llm[search]'")


def ask(sweep: Sweep, points: Sequence[Point]) -> Point:
    """Return the point to measure next, out of these, see `launcher.search.order.Ask`.

    Raises:
        ConfigError: Optuna is not installed.
    """
    axes, tried = _axes(sweep), chosen(sweep)
    if len(points) == 1:
        return points[0]
    seed = int.from_bytes(hashlib.sha256(f"{sweep.id} {len(tried)}".encode()).digest()[:4], "big")
    if len(tried) < max(map(len, axes.values()), default=0):
        return _least_seen(axes, tried, points, random.Random(seed))  # noqa: S311 - no secret
    proposals = _proposals(_study(sweep, axes, tried, seed), axes)
    votes = Counter(pair for place in proposals for pair in zip(axes, place, strict=True))
    return max(points, key=lambda point: sum(votes[pair] for pair in zip(axes, _place(axes, point), strict=True)))


def _axes(sweep: Sweep) -> _Axes:
    keys = dict.fromkeys(key for point in sweep.points[1:] for key in point.choices)
    return {key: tuple(dict.fromkeys(point.choices.get(key, "") for point in sweep.points[1:])) for key in keys}


def _place(axes: _Axes, point: Point) -> tuple[str, ...]:
    return tuple(point.choices.get(key, "") for key in axes)


def _least_seen(axes: _Axes, tried: Sequence[Point], points: Sequence[Point], chance: random.Random) -> Point:
    """Return the point whose values were seen least; chance decides among equal ones."""
    seen = Counter(pair for point in tried for pair in zip(axes, _place(axes, point), strict=True))
    ties = {point.digest: chance.random() for point in points}

    def often(point: Point) -> tuple[int, float]:
        return sum(seen[pair] ** 2 for pair in zip(axes, _place(axes, point), strict=True)), ties[point.digest]

    return min(points, key=often)


def _proposals(study: Study, axes: _Axes) -> list[tuple[str, ...]]:
    from optuna.distributions import CategoricalDistribution

    space: dict[str, BaseDistribution] = {key: CategoricalDistribution(tried) for key, tried in axes.items()}
    return [tuple(study.ask(space).params[key] for key in axes) for _ in range(PROPOSALS)]


def _study(sweep: Sweep, axes: _Axes, tried: Sequence[Point], seed: int) -> Study:
    """Return a study that was told of every point that was started."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found = _objectives(sweep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            n_startup_trials=1,
            n_ei_candidates=CANDIDATES,
        )
    study = optuna.create_study(directions=["minimize"] * max(map(len, found.values()), default=1), sampler=sampler)
    study.add_trials([_trial(axes, point, found.get(point.digest)) for point in tried])
    return study


def _trial(axes: _Axes, point: Point, found: tuple[float, ...] | None) -> FrozenTrial:
    """Return what Optuna is told of a point: its values, or that it was pruned, for it failed or nothing was valid."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    return create_trial(
        state=TrialState.PRUNED if found is None else TrialState.COMPLETE,
        values=found,
        params=dict(zip(axes, _place(axes, point), strict=True)),
        distributions={key: CategoricalDistribution(tried) for key, tried in axes.items()},
    )


def _objectives(sweep: Sweep) -> dict[str, tuple[float, ...]]:
    """Return what is minimised, by digest: a value for each workload, of many the mean for each kind of them."""
    found, kinds = values(sweep), {workload.name: workload.kind for workload in sweep.workloads}
    if len(next(iter(found.values()), ())) <= OBJECTIVES:
        kinds = {name: name for name in kinds}
    return {digest: _by_kind(kinds, those) for digest, those in found.items()}


def _by_kind(kinds: Mapping[str, str], those: Mapping[str, float]) -> tuple[float, ...]:
    groups: dict[str, list[float]] = {}
    for name, value in those.items():
        groups.setdefault(kinds[name], []).append(value)
    return tuple(math.fsum(group) / len(group) for group in groups.values())
