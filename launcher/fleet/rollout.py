"""Look at all hosts at the same time, with a bound; what becomes of them, and the exit code that follows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from launcher.errors import ConfigError, HostError, UnreachableError
from launcher.fleet.plan import HostPlan, plan_host
from launcher.host.requests import probe_request
from launcher.host.transport import AgentBugError, LocalTransport, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from launcher.host.secret_values import SecretValues
    from launcher.render import Release
    from launcher.schema import Deployment, Target

    #: Called with a host's name and a line of progress.
    Progress = Callable[[str, str], None]

T = TypeVar("T")

Outcome = Literal["unchanged", "pending", "done", "refused", "locked", "rolled back", "failed", "unreachable"]

#: Exit code of each outcome, and which of several wins.
CODES: dict[Outcome, int] = {
    "unchanged": 0,
    "done": 0,
    "pending": 3,
    "refused": 1,
    "failed": 1,
    "locked": 6,
    "rolled back": 7,
    "unreachable": 5,
}
PENDING = 3
BUG = "a bug of launch; please report it with these lines"
_ORDER = (8, 7, 1, 6, 5, 4, 3, 0)


@dataclass(frozen=True)
class HostResult:
    """What became of one host."""

    host: str
    outcome: Outcome
    plan: HostPlan | None = None
    message: str = ""
    evidence: tuple[str, ...] = ()
    serves: str = ""
    proof: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0


@dataclass(frozen=True)
class Result:
    """What became of a deployment; the exit code is computed from it."""

    deployment: str
    digest: str
    hosts: tuple[HostResult, ...]

    @property
    def exit_code(self) -> int:
        """8 when hosts were left in different states, else the first that applies of 7, 1, 6, 5, 4, 3, 0."""
        outcomes = {host.outcome for host in self.hosts}
        failed = outcomes & {"rolled back", "failed"}
        if ("done" in outcomes and outcomes & {"refused", "locked", "unreachable"}) or (
            failed and outcomes & {"done", "unchanged"}
        ):
            return 8
        return worst(CODES[outcome] for outcome in outcomes)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that wins where several apply, 0 for none."""
    given = set(codes)
    return next((code for code in _ORDER if code in given), 0)


def transports(target: Target) -> list[Transport]:
    """Return a way to reach each host of a target.

    Raises:
        ConfigError: no host is named, or one twice.
    """
    if target.kind == "local":
        return [LocalTransport(target.python, target.sudo_password_file)]
    if not target.hosts:
        raise ConfigError("target.hosts is empty: name the hosts, as in 'target.hosts=[gpu1,gpu2]'")
    if target.parallel < 1:
        raise ConfigError("target.parallel must be 1 or more")
    from launcher.host.ssh import SshTransport
    from launcher.host.ssh_route import check_hosts

    check_hosts(target)
    return [SshTransport(host, target) for host in target.hosts]


def look(
    deployment: Deployment,
    release: Release,
    ways: Sequence[Transport],
    secrets: SecretValues,
    progress: Progress,
) -> tuple[HostResult, ...]:
    """Probe every host at the same time and plan; one round trip a host, nothing is changed."""
    request = probe_request(release, deployment, secrets)

    def one(way: Transport) -> HostResult:
        try:
            observation = way.call(request, lambda text: progress(way.host, text))
        except UnreachableError as error:
            return HostResult(way.host, "unreachable", message=error.message)
        except HostError as error:
            return HostResult(way.host, "refused", message=error.message)
        except AgentBugError as error:
            return HostResult(way.host, "refused", message=BUG, evidence=tuple(str(error).splitlines()))
        plan = plan_host(way.host, release, deployment, observation, secrets.fingerprints)
        if plan.problems:
            return HostResult(way.host, "refused", plan, "the host is not ready", plan.problems)
        if plan.in_sync:
            return HostResult(way.host, "unchanged", plan, proof=_proof(observation))
        return HostResult(way.host, "pending", plan)

    return parallel(one, ways, deployment.target.parallel)


def blocked(seen: Sequence[HostResult]) -> bool:
    """Return whether a host stops the whole deployment before any change: unreachable, or not ready."""
    return any(result.outcome not in {"pending", "unchanged"} for result in seen)


def parallel(work: Callable[[Transport], T], ways: Sequence[Transport], bound: int) -> tuple[T, ...]:
    """Do the same on every host at the same time, at most so many at once; results in the hosts' order."""
    pool = ThreadPoolExecutor(max_workers=min(bound, len(ways)))
    try:
        return tuple(pool.map(work, ways))
    finally:
        # After Ctrl-C nobody waits for hosts: what was begun there goes on there.
        pool.shutdown(wait=False, cancel_futures=True)


def _proof(observation: dict[str, Any]) -> dict[str, Any]:
    running = observation["running"]
    kept = {key: running[key] for key in ("digest", "main", "nccl")}
    return {**kept, **running["verdict"]}
