"""Several equal hosts, or jobs, share the points of a sweep: which ones, whether they are equal, and the run on all."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from launcher.cli import measuring
from launcher.cli.show_sweep import note
from launcher.cli.tell import who
from launcher.errors import ConfigError, HostError, LaunchError

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.cli.measuring import Tell
    from launcher.host.transport import Transport
    from launcher.sweep.points import Points
    from launcher.sweep.record import Sweep
    from launcher.sweep.shared import Ended, Host, Watcher


def hosts(points: Points) -> tuple[str, ...]:
    """Return the hosts that share the points; none where one machine measures them all.

    Raises:
        ConfigError: several hosts are named that cannot share them.
    """
    deployment = points.candidates[0].deployment
    target = deployment.target
    if target.kind == "slurm":
        from launcher.cli import jobs

        return jobs.names(points)
    if target.kind != "ssh":
        return ()
    from launcher.host.ssh_route import check_hosts

    check_hosts(target)
    if len(target.hosts) < 2:
        return ()
    if len(points.candidates) < 2:
        raise ConfigError("several hosts share points, and here is one configuration: name one host in target.hosts")
    if target.hosts_per_world > 1 or deployment.engine.args.get("nnodes", 1) not in (1, "1"):
        raise ConfigError("a point is measured on one host, not on a world of several: name one host in target.hosts")
    return target.hosts


def looked(points: Points, sweep: Sweep) -> Sweep:
    """Look at the hosts that will share a sweep, before anything is touched, and return it with what they are.

    Which nodes jobs get is known later; each of them has its own baseline, so that they need not be equal.

    Raises:
        UnreachableError: one of them cannot be reached.
        HostError: one of them is not ready.
        ConfigError: they are not equal; says in what. No job can be submitted here.
    """
    from launcher.fleet import equal
    from launcher.fleet.rollout import parallel, transports
    from launcher.host import secret_values
    from launcher.host.requests import probe_request
    from launcher.sweep import shared, shares

    baseline = points.candidates[0]
    target = baseline.deployment.target
    names = shares.hosts_of(sweep)
    if target.kind == "slurm":
        from launcher.slurm import cluster

        cluster.need()
        return sweep
    if not names:
        return sweep
    request = probe_request(baseline.release, baseline.deployment, secret_values.read(baseline.deployment))

    def one(way: Transport) -> dict[str, str] | LaunchError:
        try:
            seen = way.call(request, lambda _: None)
        except LaunchError as error:
            return error
        if seen["problems"]:
            return HostError(way.host, "; ".join(seen["problems"]))
        return equal.traits(seen["facts"], baseline.deployment.engine.gpus)

    ways = [way for way in transports(target) if way.host in names]
    found = dict(zip(names, parallel(one, ways, target.parallel), strict=True))
    errors = {name: error for name, error in found.items() if isinstance(error, LaunchError)}
    if errors:
        raise shared.gravest(errors, note)
    traits = {name: those for name, those in found.items() if not isinstance(those, LaunchError)}
    differences = equal.differences(traits)
    if differences:
        remedy = "the hosts are not equal, so their points would not be; sweep them one at a time, or make them equal"
        raise ConfigError(*differences, remedy)
    return dataclasses.replace(sweep, facts={**sweep.facts, "GPUs": traits[names[0]]["GPUs"]})


def run(points: Points, sweep: Sweep, folder: Path, watcher: Watcher, emit: Tell) -> Ended:
    """Run a sweep that several hosts share; every way out puts all of them back.

    Raises:
        LaunchError: one of them cannot be taken; nothing was started on any.
    """
    from launcher.fleet.rollout import transports
    from launcher.host import secret_values
    from launcher.sweep import shared, shares
    from launcher.sweep.statistics import judge

    deployment = points.candidates[0].deployment
    if deployment.target.kind == "slurm":
        from launcher.cli import jobs

        return jobs.run(points, sweep, folder, watcher)
    judgement, secrets = judge(sweep), secret_values.read(deployment)
    ways = {way.host: way for way in transports(deployment.target)}
    found: list[Host] = []
    for name in shares.running(sweep, judgement):
        way, part, tell = ways[name], shares.part(sweep, name), partial(_tell_of, emit, name)
        if deployment.bench.kind == "serve":
            found.append(measuring.server(points, part, folder, way, secrets, tell))
        else:
            found.append(_collectives(points, way))
    if not found:
        return shared.Ended(shares.why_over(dataclasses.replace(sweep, since=0.0), judgement, 0.0))
    return shared.run(sweep, folder, found, watcher, note)


def _collectives(points: Points, way: Transport) -> Host:
    """Return a host that measures the collectives of points; it holds nothing between two of them."""
    from launcher.bench.measure import AllReduce, There
    from launcher.sweep.shared import Host

    where = There(way, who())
    deployments = {candidate.point.digest: candidate.deployment for candidate in points.candidates}
    return Host(way.host, lambda: None, AllReduce(deployments, where, lambda _: None), where.close)


def _tell_of(emit: Tell, host: str, text: str) -> None:
    emit(f"{host}: {text}")
