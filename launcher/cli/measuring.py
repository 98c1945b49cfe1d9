"""With what the points of a sweep are measured, by the kind of its bench: the workloads, and who measures them."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from launcher.bench.steps import steps
from launcher.cli.tell import confirmed, who
from launcher.errors import ConfigError, HostError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from launcher.cli.parser import CommandLine
    from launcher.host.secret_values import SecretValues
    from launcher.host.transport import Transport
    from launcher.schema import Deployment, Load
    from launcher.sweep.points import Points
    from launcher.sweep.record import Sweep, Workload
    from launcher.sweep.shared import Host

    Tell = Callable[[str], None]

#: Seconds that a session may hold a host beside its starts and loads, and at most.
_SLACK, _LONGEST = 1800, 7 * 24 * 3600


def workloads(points: Points) -> tuple[Workload, ...]:
    """Return what is measured of every point.

    Raises:
        ConfigError: it cannot be measured, or points could not be compared.
    """
    deployment = points.candidates[0].deployment
    if deployment.bench.kind == "serve":
        from launcher.bench import loads

        return loads.workloads(loads.loads(deployment))
    first = steps(deployment)
    for candidate in points.candidates[1:]:
        if steps(candidate.deployment) != first:
            raise ConfigError(
                f"point '{candidate.point.label}' has messages of other sizes than the baseline: with bench=allreduce"
                " points differ in NCCL's variables and the environment; measure models, speculation and"
                " engine.tensor_parallel one at a time"
            )
    return tuple(step.workload for step in first)


def agreed(line: CommandLine, points: Points, sweep: Sweep) -> bool:
    """Ask for the down time where a server makes room for the points; without a terminal ``--yes`` is the answer."""
    deployment = points.candidates[0].deployment
    if deployment.bench.kind != "serve" or deployment.target.kind in ("process", "slurm") or line.yes:
        return True
    unit = f"launch-{deployment.name}.service"
    print(f"{sweep.target}: {unit}, if it runs there, makes room for the points, and comes back at the end.")
    return confirmed(line, "Begin? [y/N] ")


@contextlib.contextmanager
def measuring(points: Points, sweep: Sweep, folder: Path, emit: Callable[[str], None]) -> Iterator[Host]:
    """Give what measures the points, open; leaving the context puts everything back.

    Raises:
        LaunchError: nothing can be measured there.
    """
    from launcher.sweep.shared import Host

    deployment = points.candidates[0].deployment
    if deployment.target.kind == "process":
        from launcher.bench import alone

        with alone.measuring(points, folder, emit) as measure:
            yield Host("this machine", lambda: None, measure, lambda: None)
        return
    if deployment.bench.kind == "serve":
        with _serving(points, sweep, folder, emit) as host:
            yield host
        return
    from launcher.bench.measure import AllReduce, place

    where = place(deployment, who())
    deployments = {c.point.digest: c.deployment for c in points.candidates}
    try:
        yield Host(where.name, lambda: None, AllReduce(deployments, where, lambda _: None), where.close)
    finally:
        where.close()


@contextlib.contextmanager
def _serving(points: Points, sweep: Sweep, folder: Path, emit: Tell) -> Iterator[Host]:
    from launcher.fleet.rollout import transports
    from launcher.host import secret_values

    deployment = points.candidates[0].deployment
    way = transports(deployment.target)[0]
    host = server(points, sweep, folder, way, secret_values.read(deployment), emit)
    try:
        host.open()
        yield host
    finally:
        host.close()


def server(points: Points, sweep: Sweep, folder: Path, way: Transport, secrets: SecretValues, emit: Tell) -> Host:
    """Return a host that serves the points of a sweep."""
    from launcher.bench import alone, loads
    from launcher.bench.closing import Closing
    from launcher.bench.hosts import OnHost
    from launcher.bench.serve import Serve
    from launcher.host.requests import Limits
    from launcher.render.intent import intent
    from launcher.sweep.shared import Host, once

    baseline = points.candidates[0]
    deployment, wanted = baseline.deployment, loads.loads(baseline.deployment)
    host = OnHost(way, secrets, emit)
    limits = Limits(_seconds(deployment, sweep, wanted), deployment.sweep.silence)
    candidates = {candidate.point.digest: candidate for candidate in points.candidates}
    serve, lost = Serve(candidates, host, wanted, alone.keeper(folder / "raw"), emit), list[LaunchError]()
    return Host(
        way.host,
        lambda: host.open(baseline, intent(deployment, baseline.words, who()), limits),
        serve,
        once(lambda: _put_back(host.name, host.close, limits.silence, lost)),
        Closing(baseline, host, serve),
        lost,
    )


def _put_back(name: str, close: Callable[[], str], silence: int, lost: list[LaunchError]) -> None:
    """End a session and tell what serves now; a host that cannot be told ends it by itself, and is ``lost``."""
    try:
        print(f"launch: {name}: serves {close()}", file=sys.stderr)
    except (HostError, KeyboardInterrupt) as error:
        print(f"launch: {str(error) or f'{name}: interrupted again, so nobody waits for it'}", file=sys.stderr)
        print(
            f"launch: {name}: a session that hears nothing for {silence} s puts back what was served before, by"
            " itself: launch status",
            file=sys.stderr,
        )
        if isinstance(error, KeyboardInterrupt):
            raise
        lost.append(error)


def _seconds(deployment: Deployment, sweep: Sweep, wanted: dict[str, Load]) -> int:
    """Return how long a sweep may hold a host at most: when all of its starts take as long as they may."""
    bench, unit, settings = deployment.bench, deployment.unit, sweep.settings
    each = unit.start_timeout + unit.stop_timeout + len(wanted) * (bench.runs + 1) * bench.client_timeout
    if settings.minutes:
        return int(settings.minutes * 60) + each * (2 if settings.closing else 1) + _SLACK
    starts = len(sweep.points) * settings.max_repeats * 2
    return min(_LONGEST, starts * each + _SLACK)
