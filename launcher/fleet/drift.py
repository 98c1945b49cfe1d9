"""Live against last applied on every host of a deployment, and against one another; one round trip a host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from launcher.agent.findings import Finding, counts
from launcher.errors import HostError, UnreachableError
from launcher.fleet.plan import Change, release_changes
from launcher.fleet.rollout import BUG, parallel, worst
from launcher.host.requests import drift_request, fix_request
from launcher.host.transport import AgentBugError, Transport
from launcher.render.intent import LASTING, lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from launcher.fleet.rollout import Progress
    from launcher.render import Release
    from launcher.schema import Deployment, Target

Outcome = Literal[
    "in sync",
    "pending",
    "drift",
    "drift and pending",
    "not deployed",
    "changing",
    "unreachable",
    "refused",
    "failed",
    "locked",
]

_CODES: dict[Outcome, int] = {
    "in sync": 0,
    "pending": 3,
    "not deployed": 3,
    "drift": 4,
    "drift and pending": 4,
    "unreachable": 5,
    "changing": 6,
    "locked": 6,
    "refused": 1,
    "failed": 1,
}


@dataclass(frozen=True)
class HostCheck:
    """What one host says of a deployment.

    Attributes:
        host: its name.
        outcome: in one word.
        message: why it could not be looked at or mended.
        evidence: lines of it.
        check: the host's report, see docs/drift.md; None where there is none.
        pending: what the configuration would change of what was applied; no drift.
        did: what ``--fix`` did.
    """

    host: str
    outcome: Outcome
    message: str = ""
    evidence: tuple[str, ...] = ()
    check: Mapping[str, Any] | None = None
    pending: tuple[Change, ...] = ()
    did: tuple[str, ...] = ()

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        """All findings of the host, accepted ones too."""
        return self.check["findings"] if self.check else ()


@dataclass(frozen=True)
class Checked:
    """What all hosts of a deployment say; the exit code is computed from it."""

    deployment: str
    digest: str
    hosts: tuple[HostCheck, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """The first that applies of 1, 6, 5, 4, 3, 0."""
        return worst(_CODES[host.outcome] for host in self.hosts)


def look(deployment: Deployment, release: Release, ways: Sequence[Transport], progress: Progress) -> Checked:
    """Check a deployment on every host at the same time; nothing is changed."""
    request = drift_request(deployment)

    def one(way: Transport) -> HostCheck:
        return _call(way, request, progress, lambda answer: _judged(way.host, answer["check"], deployment, release))

    seen = parallel(one, ways, deployment.target.parallel)
    return Checked(release.name, release.digest, _compare_worlds(seen, deployment.target))


def follow(deployment: Deployment, ways: Sequence[Transport], progress: Progress) -> None:
    """Tell what a change that is under way does on each host, until it waits or ends."""
    request = {"verb": "follow", "name": deployment.name}

    def one(way: Transport) -> None:
        try:
            answer = way.call(request, lambda text: progress(way.host, text))
        except HostError as error:
            progress(way.host, error.message)
            return
        waits = answer["outcome"] == "waits"
        told = f"waits for its client after the phase {answer['phase']!r}" if waits else answer.get("message", "")
        progress(way.host, told or answer["outcome"])

    parallel(one, ways, deployment.target.parallel)


def fix(
    deployment: Deployment,
    release: Release,
    ways: Sequence[Transport],
    seen: Checked,
    progress: Progress,
    by: str,
    *,
    restart: bool,
) -> Checked:
    """Put last applied back on the hosts that have drifted.

    Args:
        deployment: with its accepted differences.
        release: what is wanted; it is not applied.
        ways: to the hosts.
        seen: the check before.
        progress: called with lines of progress.
        by: who asks.
        restart: whether servers may be restarted.
    """
    request = fix_request(deployment, by, restart=restart)
    before = {host.host: host for host in seen.hosts}

    def one(way: Transport) -> HostCheck:
        if before[way.host].outcome not in {"drift", "drift and pending"}:
            return before[way.host]
        return _call(way, request, progress, lambda answer: _fixed(way.host, answer, deployment, release))

    done = parallel(one, ways, deployment.target.parallel)
    return Checked(release.name, release.digest, _compare_worlds(done, deployment.target))


def restarts(seen: Checked) -> list[str]:
    """Return the hosts whose server would have to be restarted to carry what was applied."""
    return [host.host for host in seen.hosts if any(f["fix"] == "restart" and counts(f) for f in host.findings)]


def mendable(seen: Checked) -> bool:
    """Return whether there is anything that ``--fix`` may put back."""
    return any(f["fix"] and counts(f) for host in seen.hosts for f in host.findings)


def _call(
    way: Transport, request: Mapping[str, Any], progress: Progress, take: Callable[[Mapping[str, Any]], HostCheck]
) -> HostCheck:
    try:
        answer = way.call(request, lambda text: progress(way.host, text))
    except UnreachableError as error:
        return HostCheck(way.host, "unreachable", error.message)
    except HostError as error:
        return HostCheck(way.host, "refused", error.message)
    except AgentBugError as error:
        return HostCheck(way.host, "failed", BUG, tuple(str(error).splitlines()))
    if answer["problems"]:
        return HostCheck(way.host, "refused", "the host cannot be checked", tuple(answer["problems"]))
    return take(answer)


def _judged(host: str, report: Mapping[str, Any], deployment: Deployment, release: Release) -> HostCheck:
    """Add the layer above the host's: what the configuration wants otherwise."""
    kept = {key: value for key, value in report.items() if key not in {"manifest", "intent"}}
    pending = _pending(report, deployment, release)
    drifted = any(counts(f) for f in report["findings"])
    outcome: Outcome = "in sync"
    if report["change"]:
        outcome = "changing"  # what is seen in the middle of a change says nothing of either end
    elif report["applied"] is None and not drifted:
        outcome = "not deployed"
    elif drifted:
        outcome = "drift and pending" if pending else "drift"
    elif pending:
        outcome = "pending"
    return HostCheck(host, outcome, check=kept, pending=pending)


def _pending(report: Mapping[str, Any], deployment: Deployment, release: Release) -> tuple[Change, ...]:
    if report["applied"] is None:
        return ()
    changes = release_changes(report["manifest"], release)
    wanted = lasting(deployment)
    other = [word for key, word in LASTING.items() if report["intent"].get(key) != wanted[key]]
    return (*changes, *(Change("service", word, "as applied", "another") for word in other))


def _fixed(host: str, answer: Mapping[str, Any], deployment: Deployment, release: Release) -> HostCheck:
    message, evidence, did = answer["message"], tuple(answer["evidence"]), tuple(answer["did"])
    if answer["check"] is None:
        return HostCheck(host, "locked", message, evidence)
    after = replace(_judged(host, answer["check"], deployment, release), message=message, evidence=evidence, did=did)
    return replace(after, outcome="failed") if answer["outcome"] == "failed" else after


def _compare_worlds(hosts: Sequence[HostCheck], target: Target) -> tuple[HostCheck, ...]:
    size = target.hosts_per_world or len(hosts) or 1
    return tuple(host for i in range(0, len(hosts), size) for host in _compare(hosts[i : i + size]))


def _compare(hosts: Sequence[HostCheck]) -> tuple[HostCheck, ...]:
    """Add what only a look at all hosts shows: a world that mixes releases or versions of what talks NCCL."""
    applied = [host for host in hosts if host.check and host.check["applied"]]
    found: list[Finding] = []
    for id_, words, tell in _WORLD:
        values = {host.host: tell(host.check) for host in applied if host.check and tell(host.check)}
        if len(set(values.values())) > 1:
            told = "; ".join(f"{host}: {value}" for host, value in values.items())
            severity = "critical" if id_ == "world-mixed" else "warning"
            found.append(
                Finding(
                    id_,
                    "world",
                    severity,
                    words,
                    f"the hosts of this deployment differ in {words}",
                    told,
                    "the same on all",
                    tuple(values),
                    cause="a roll-out that reached some of them, or an update of one",
                    mend="launch up brings all of them to one release; launch plan shows the way",
                )
            )
    return tuple(_with(host, found) if host in applied else host for host in hosts)


#: What the hosts of a world have to have in common: finding, words, and where a report tells it.
_WORLD: tuple[tuple[str, str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("world-mixed", "the release applied", lambda check: str(check["applied"]["digest"])),
    ("world-running", "the release that runs", lambda check: str(check["running"])),
    ("world-nccl", "the version of NCCL", lambda check: ", ".join((check["nccl"] or {}).get("versions", []))),
    ("world-driver", "the driver", lambda check: str(check["about"].get("driver", ""))),
    ("world-engine", "the engine's packages", lambda check: str(check["about"].get("packages", ""))),
)


def _with(host: HostCheck, found: Sequence[Finding]) -> HostCheck:
    if not found or host.check is None:
        return host
    check = {**host.check, "findings": [*host.check["findings"], *(f._asdict() for f in found)]}
    if host.outcome == "changing":
        return host
    outcome: Outcome = "drift" if host.outcome == "in sync" else host.outcome
    outcome = "drift and pending" if outcome == "pending" else outcome
    return replace(host, check=check, outcome=outcome)
