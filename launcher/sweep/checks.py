"""Settings of a sweep that make no sense, before anything is planned with them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from launcher.schema import Deployment


def check(deployment: Deployment) -> None:
    """Refuse what no sweep could be run by.

    Raises:
        ConfigError: names every key with what it has to be.
    """
    sweep, bench = deployment.sweep, deployment.bench
    problems = [
        f"{key}={value:g} has to be {least} at least"
        for key, value, least in (
            ("sweep.repeats", sweep.repeats, 1),
            ("sweep.baseline_every", sweep.baseline_every, 1),
            ("sweep.silence", sweep.silence, 1),
            ("bench.deadline", bench.deadline, 1),
        )
        if value < least
    ]
    if sweep.max_repeats < sweep.repeats:
        problems.append(
            f"sweep.max_repeats={sweep.max_repeats} is below sweep.repeats={sweep.repeats}: points could not be judged"
        )
    if not 0 < sweep.effect < 1:
        problems.append(f"sweep.effect={sweep.effect:g} is a relative difference, above 0 and below 1")
    if not 0 < sweep.confidence < 1:
        problems.append(f"sweep.confidence={sweep.confidence:g} has to be above 0 and below 1")
    if sweep.closing and deployment.target.kind == "process":
        problems.append(
            "sweep.closing=true measures production once it is back, and with target=process there is none: leave it"
            " out, or name the host (target=ssh)"
        )
    if sweep.closing and bench.kind == "allreduce":
        problems.append(
            "sweep.closing=true measures the served model, and with bench=allreduce no server is touched: leave it out,"
            " or take bench=serve"
        )
    if bench.seconds <= 0:
        problems.append(f"bench.seconds={bench.seconds:g} has to be above 0")
    if problems:
        raise ConfigError(*problems)
