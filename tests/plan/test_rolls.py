"""Worlds switch together or not at all: which words the hosts hear, and what becomes of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent.transaction import GOING_BACK
from launcher.errors import HostError, UnreachableError
from launcher.fleet.change import Flight, Why, roll
from launcher.fleet.plan import HostPlan
from launcher.fleet.rollout import HostResult, Result
from launcher.schema import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.host.requests import Change

DONE = {"outcome": "done", "message": "", "evidence": [], "proof": {"digest": "d"}, "generation": 2}
BACK = {"outcome": "rolled back", "message": "why", "evidence": ["line"], "serves": "the old release again"}
REFUSED = {"outcome": "refused", "message": "not ready", "evidence": ["no disk"]}


def waits(phase: str) -> dict[str, Any]:
    return {"outcome": "waits", "phase": phase, "message": "", "evidence": []}


@dataclass
class Host:
    """A host that goes through phases, one an answer, and notes the words that it hears."""

    host: str
    phases: tuple[str, ...] = ("staged", "stopped", "proven")
    fails_after: int = 99
    fails_with: Any = field(default_factory=lambda: dict(BACK))
    lost: int = 0
    heard: list[str] = field(default_factory=list)
    at: int = -1

    def call(self, request: Mapping[str, Any], _: Any) -> dict[str, Any]:
        word = request.get("word", request["verb"])
        self.heard.append(word)
        if self.lost and len(self.heard) > 1:
            self.lost -= 1
            raise HostError(self.host, "the connection broke")
        if word in {"look", "follow"}:
            return waits(self.phases[self.at])
        if word == "revert":
            return dict(BACK, message=request["why"])
        self.at += 1
        if self.at >= self.fails_after:
            if isinstance(self.fails_with, Exception):
                raise self.fails_with
            return dict(self.fails_with)
        return waits(self.phases[self.at]) if self.at < len(self.phases) else dict(DONE)


def rolled(hosts: list[Host], outcomes: Mapping[str, str] | None = None, **target: int) -> Result:
    plan = HostPlan("h", "d", restart="restart: x", seen={"unit": "u"})
    outcome = dict.fromkeys([h.host for h in hosts], "pending") | dict(outcomes or {})
    seen = [HostResult(h.host, outcome[h.host], plan) for h in hosts]  # type: ignore[arg-type]
    made: list[Change] = []

    def begin(_: HostResult, change: Change) -> Mapping[str, Any]:
        made.append(change)
        for host in hosts:
            host.phases = change.waits
        return {"verb": "apply"}

    done = roll(hosts, seen, Target(**target), begin, Flight(), lambda _h, _t: None, Why("up"))  # type: ignore[arg-type]
    assert all(change.seen == {"unit": "u"} and change.restart for change in made)
    return Result("x", "d", done)


def outcomes(result: Result) -> list[str]:
    return [host.outcome for host in result.hosts]


def test_one_host_waits_for_a_second_connection_after_its_proof() -> None:
    host = Host("a")
    result = rolled([host])
    assert host.heard == ["apply", "go"]
    assert (outcomes(result), result.exit_code, result.hosts[0].generation) == (["done"], 0, 2)


def test_the_hosts_of_a_world_wait_for_one_another() -> None:
    hosts = [Host("a"), Host("b")]
    assert outcomes(rolled(hosts)) == ["done", "done"]
    assert hosts[0].heard == hosts[1].heard == ["apply", "go", "go", "look", "go"]


@pytest.mark.parametrize("after", [1, 2])
def test_one_that_fails_takes_the_others_back(after: int) -> None:
    hosts = [Host("a"), Host("b", fails_after=after), Host("c")]
    result = rolled(hosts)
    assert outcomes(result) == ["rolled back"] * 3
    assert result.exit_code == 7
    assert hosts[0].heard[-1] == hosts[2].heard[-1] == "revert"
    assert "revert" not in hosts[1].heard
    assert result.hosts[0].message == "b could not go on"


def test_the_others_are_told_as_soon_as_one_goes_back() -> None:
    """They may be in the middle of a start that takes minutes; its answer comes only when its old server is back."""
    told = threading.Event()

    class Slow(Host):
        def call(self, request: Mapping[str, Any], tell: Any) -> dict[str, Any]:
            if request.get("word") == "revert":
                told.set()
            if self.host == "b" and self.at == 1:
                tell(GOING_BACK)
                assert told.wait(5), "the others wait for the answer of the one that failed"
            return super().call(request, tell)

    hosts: list[Host] = [Slow("a"), Slow("b", fails_after=2), Slow("c")]
    assert outcomes(rolled(hosts)) == ["rolled back"] * 3


def test_one_that_is_refused_stops_the_world_before_anything_is_switched() -> None:
    hosts = [Host("a"), Host("b", fails_after=0, fails_with=REFUSED)]
    result = rolled(hosts)
    assert hosts[0].heard == ["apply", "revert"]
    assert outcomes(result) == ["rolled back", "refused"]


def test_one_that_cannot_be_reached_stops_the_world() -> None:
    hosts = [Host("a"), Host("b", fails_after=0, fails_with=UnreachableError("b", "no route"))]
    result = rolled(hosts)
    assert hosts[0].heard == ["apply", "revert"]
    assert outcomes(result)[1] == "unreachable"


def test_a_broken_connection_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.fleet.change._RETRY_SECONDS", 0)
    host = Host("a", lost=2)
    assert outcomes(rolled([host])) == ["done"]
    assert host.heard == ["apply", "go", "follow", "follow", "go"]


def test_a_connection_that_stays_broken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.fleet.change._RETRY_SECONDS", 0.01)
    result = rolled([Host("a", lost=10_000)], confirm_timeout=0)
    assert (outcomes(result), result.exit_code) == (["failed"], 1)


def test_worlds_follow_one_another_and_stop_at_a_failure() -> None:
    hosts = [Host(name, fails_after=0 if name == "c" else 99) for name in "abcdefgh"]
    result = rolled(hosts, hosts_per_world=2)
    assert outcomes(result) == ["done", "done", "rolled back", "rolled back", *["pending"] * 4]
    assert [host.heard for host in hosts[4:]] == [[]] * 4
    assert result.exit_code == 8
    assert "a world before it failed" in result.hosts[4].message


def test_a_failing_canary_leaves_the_rest_as_it_was() -> None:
    hosts = [Host(name, fails_after=0 if name == "a" else 99) for name in "abc"]
    result = rolled(hosts, hosts_per_world=1)
    assert outcomes(result) == ["rolled back", "pending", "pending"]
    assert result.exit_code == 7


def test_some_worlds_may_fail() -> None:
    hosts = [Host(name, fails_after=0 if name in "ab" else 99) for name in "abcd"]
    assert outcomes(rolled(hosts, hosts_per_world=1, max_failures=1)) == [
        "rolled back",
        "rolled back",
        "pending",
        "pending",
    ]
    hosts = [Host(name, fails_after=0 if name == "a" else 99) for name in "abcd"]
    assert outcomes(rolled(hosts, hosts_per_world=1, max_failures=1)) == ["rolled back", "done", "done", "done"]


def test_hosts_in_sync_are_left_alone() -> None:
    hosts = [Host("a"), Host("b")]
    assert outcomes(rolled(hosts, {"a": "unchanged"})) == ["unchanged", "done"]
    assert hosts[0].heard == []
    assert hosts[1].heard == ["apply", "go"]


def test_ctrl_c_reaches_every_change_under_way() -> None:
    hosts = [Host("a"), Host("b")]
    flight = Flight({host.host: (host, "id") for host in hosts})
    assert flight.say("detach") == ["a", "b"]
    assert [host.heard for host in hosts] == [["detach"], ["detach"]]
    assert Flight().say("detach") == []
