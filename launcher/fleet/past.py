"""Older generations of a deployment on its hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.errors import HostError, LaunchError, UnreachableError
from launcher.fleet.change import Flight, Why, roll
from launcher.fleet.plan import HostPlan, manifest_changes
from launcher.fleet.rollout import CODES, HostResult, Result, parallel, worst
from launcher.host.requests import history_request, rollback_request, uninstall_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.fleet.rollout import Progress
    from launcher.host.requests import Change
    from launcher.host.transport import Transport
    from launcher.schema import Deployment


@dataclass(frozen=True)
class Plan:
    """What a rollback would do: a result to show, and the generation's number on each host."""

    result: Result
    numbers: Mapping[str, int]


def histories(deployment: Deployment, ways: Sequence[Transport]) -> dict[str, dict[str, Any]]:
    """Return what each host tells of its generations.

    Raises:
        HostError: a host cannot be asked.
    """
    request = history_request(deployment.name)
    told = parallel(lambda way: way.call(request, lambda _: None), ways, deployment.target.parallel)
    for way, answer in zip(ways, told, strict=True):
        if answer["problems"]:
            raise HostError(way.host, "; ".join(answer["problems"]))
    return {way.host: answer for way, answer in zip(ways, told, strict=True)}


def plan(deployment: Deployment, ways: Sequence[Transport], number: int | None) -> Plan:
    """Find the generation to return to on every host, and what it changes.

    Args:
        deployment: its name and hosts.
        ways: to the hosts.
        number: of the generation; None for the last one of another release.

    Raises:
        LaunchError: a host has no such generation, or the hosts would run different releases.
        HostError: a host cannot be asked.
    """
    told = histories(deployment, ways)
    numbers = {host: _number(host, answer, number) for host, answer in told.items()}
    manifests = {host: told[host]["kept"][str(numbers[host])] for host in told}
    digests = {manifest["digest"] for manifest in manifests.values()}
    if len(digests) > 1:
        shown = "; ".join(f"{host}: {manifest['digest']}" for host, manifest in manifests.items())
        raise LaunchError(f"the hosts would return to different releases ({shown}): name hosts with target.hosts=[…]")
    (digest,) = digests
    hosts = tuple(_host(host, told[host], manifests[host]) for host in told)
    return Plan(Result(deployment.name, digest, hosts), numbers)


def _number(host: str, told: Mapping[str, Any], number: int | None) -> int:
    kept = {int(key): manifest["digest"] for key, manifest in told["kept"].items()}
    if number is None:
        others = [n for n in sorted(kept) if kept[n] != told["applied"]]
        if not others:
            raise LaunchError(f"{host} has no older release to return to: launch history")
        return others[-1]
    if number == 0:
        raise LaunchError("generation 0 is what was there before launch: launch uninstall returns to it")
    if number not in kept:
        known = ", ".join(map(str, sorted(kept))) or "none"
        raise LaunchError(f"{host} has no generation {number} to return to; it has {known}: launch history")
    return number


def _host(host: str, told: Mapping[str, Any], manifest: Mapping[str, Any]) -> HostResult:
    applied = next((m for m in told["kept"].values() if m["digest"] == told["applied"]), None)
    changes = manifest_changes(applied, manifest)
    restart = f"restart: release {told['applied'] or 'unknown'} was applied last"
    return HostResult(host, "pending", HostPlan(host, manifest["digest"], tuple(changes), restart))


def rollback(
    deployment: Deployment, ways: Sequence[Transport], plan: Plan, flight: Flight, progress: Progress, by: str
) -> Result:
    """Apply the generations of a plan, as any other change."""

    def begin(before: HostResult, change: Change) -> Mapping[str, Any]:
        return rollback_request(deployment, plan.numbers[before.host], change, by)

    done = roll(ways, plan.result.hosts, deployment.target, begin, flight, progress, Why("rollback"))
    return Result(deployment.name, plan.result.digest, done)


def uninstall(
    deployment: Deployment, ways: Sequence[Transport], progress: Progress, by: str
) -> dict[str, dict[str, Any]]:
    """Take a deployment off its hosts; return each host's answer."""
    request = uninstall_request(deployment.name, by)

    def one(way: Transport) -> dict[str, Any]:
        try:
            answer = way.call(request, lambda text: progress(way.host, text))
        except UnreachableError as error:
            return {"outcome": "unreachable", "message": error.message}
        except HostError as error:
            return {"outcome": "failed", "message": error.message}
        if answer["problems"]:
            return {"outcome": "refused", "message": "; ".join(answer["problems"])}
        return {key: answer[key] for key in ("outcome", "message", "did")}

    done = parallel(one, ways, deployment.target.parallel)
    return {way.host: answer for way, answer in zip(ways, done, strict=True)}


def worst_of(answers: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the exit code of several hosts' answers."""
    return worst(CODES[answer["outcome"]] for answer in answers.values())
