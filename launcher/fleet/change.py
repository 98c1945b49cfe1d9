"""Change hosts: the hosts of a world switch together or not at all, worlds one after the other."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from launcher.agent.transaction import GOING_BACK
from launcher.errors import HostError, UnreachableError
from launcher.fleet.rollout import BUG, HostResult, parallel
from launcher.host.requests import Change, continue_request
from launcher.host.transport import AgentBugError, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from launcher.fleet.rollout import Progress
    from launcher.schema import Target

    #: Returns the request that begins a change of one host.
    Begin = Callable[[HostResult, Change], Mapping[str, Any]]
    Answer = Mapping[str, Any]

#: After these every host of a world waits for the others; one host alone waits for its client's second connection.
_TOGETHER = ("staged", "stopped", "proven")
_ALONE = ("proven",)
_RETRY_SECONDS = 1.0
_FAILED = frozenset({"refused", "locked", "rolled back", "failed", "unreachable"})


@dataclass(frozen=True)
class Why:
    """What a change is for: a word for lease and history, and whether another one's change is ended for it."""

    word: str
    break_lease: bool = False


@dataclass
class Flight:
    """The changes that are under way, so that Ctrl-C can reach them."""

    ids: dict[str, tuple[Transport, str]] = field(default_factory=dict)

    def say(self, word: str) -> list[str]:
        """Say a word to every change under way, over new connections; return the hosts that heard it."""
        there = list(self.ids.values())
        if not there:
            return []

        def one(way: Transport, id_: str) -> str:
            try:
                way.call(continue_request(id_, word), lambda _: None)
            except (HostError, AgentBugError):
                return ""
            return way.host

        with ThreadPoolExecutor(len(there)) as pool:
            return [host for host in pool.map(lambda pair: one(*pair), there) if host]


class _Others:
    """Tells the other hosts of a world to go back as soon as one does: its old server may wait for theirs."""

    def __init__(self, hosts: Mapping[str, tuple[Transport, str]]) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self._told = False

    def back(self, failed: str) -> None:
        """Say it once, in threads of their own; what becomes of them their own calls tell."""
        with self._lock:
            if self._told:
                return
            self._told = True
        for host, (way, id_) in self._hosts.items():
            if host != failed:
                threading.Thread(target=self._say, args=(way, id_, failed), daemon=True).start()

    @staticmethod
    def _say(way: Transport, id_: str, failed: str) -> None:
        # One that cannot be reached goes back by itself, when nobody says a word to it.
        with contextlib.suppress(HostError, AgentBugError):
            way.call(continue_request(id_, "revert", f"{failed} could not go on"), lambda _: None)


def worlds(ways: Sequence[Transport], target: Target) -> list[Sequence[Transport]]:
    """Return the hosts that switch together, in order; all of them, unless the target says how many make a world."""
    size = target.hosts_per_world or len(ways)
    return [ways[i : i + size] for i in range(0, len(ways), size)]


def roll(
    ways: Sequence[Transport],
    seen: Sequence[HostResult],
    target: Target,
    begin: Begin,
    flight: Flight,
    progress: Progress,
    why: Why,
) -> tuple[HostResult, ...]:
    """Change every host that is pending, world after world; stop after too many failed worlds.

    Args:
        ways: to the hosts, in rank order.
        seen: what the look at each found.
        target: how many hosts make a world, how long to pause between two, how many may fail.
        begin: makes the request of one host.
        flight: told of every change under way.
        progress: called with a host's name and a line.
        why: for lease and history, and whether another one's change is ended for it.

    Returns:
        One result a host; hosts of worlds that were not begun stay ``pending``.
    """
    before = {result.host: result for result in seen}
    results: dict[str, HostResult] = dict(before)
    failures, changed = 0, False
    for world in worlds(ways, target):
        if all(before[way.host].outcome != "pending" for way in world):
            continue
        if failures > target.max_failures:
            message = (
                "not begun, since a world before it failed" if failures == 1 else f"not begun: {failures} worlds failed"
            )
            results.update({way.host: replace(before[way.host], message=message) for way in world})
            continue
        if changed and target.pause:
            progress(world[0].host, f"pausing {target.pause} s before the next world")
            time.sleep(target.pause)
        changed = True
        done = _world(world, before, begin, flight, progress, why, target.confirm_timeout)
        results.update(done)
        failures += any(result.outcome in _FAILED for result in done.values())
    return tuple(results[way.host] for way in ways)


def _world(
    world: Sequence[Transport],
    before: Mapping[str, HostResult],
    begin: Begin,
    flight: Flight,
    progress: Progress,
    why: Why,
    patience: float,
) -> dict[str, HostResult]:
    """Change the hosts of one world, step by step together."""
    changing = [way for way in world if before[way.host].outcome == "pending"]
    waits = _TOGETHER if len(changing) > 1 else _ALONE
    changes = {way.host: _change(before[way.host], why, waits) for way in changing}
    flight.ids.update({way.host: (way, changes[way.host].id) for way in changing})

    def call(way: Transport, request: Mapping[str, Any]) -> Answer:
        def tell(text: str) -> None:
            progress(way.host, text)
            if text == GOING_BACK and len(changing) > 1:
                others.back(way.host)

        return _call(way, request, changes[way.host].id, patience, tell)

    others = _Others({way.host: (way, changes[way.host].id) for way in changing})

    answers = dict(_each(changing, lambda way: call(way, begin(before[way.host], changes[way.host]))))
    while any(answer["outcome"] == "waits" for answer in answers.values()):
        waiting = [way for way in changing if answers[way.host]["outcome"] == "waits"]
        phases = {answers[way.host]["phase"] for way in waiting}
        together = len(waiting) == len(changing) and len(phases) == 1
        if together and phases == {"proven"} and len(changing) > 1:
            looked = _each(changing, lambda way: call(way, continue_request(changes[way.host].id, "look")))
            together = all(answer["outcome"] == "waits" for _, answer in looked)
        why_not = "" if together else _why_not(answers)
        word = "go" if together else "revert"
        said = {way.host: continue_request(changes[way.host].id, word, why_not) for way in waiting}
        answers.update(_each(waiting, lambda way: call(way, said[way.host])))  # noqa: B023
    for way in changing:
        flight.ids.pop(way.host, None)
    return {way.host: _result(before[way.host], answers[way.host]) for way in changing}


def _change(before: HostResult, why: Why, waits: tuple[str, ...]) -> Change:
    plan = before.plan
    seen = plan.seen if plan else {}
    return Change(why.word, bool(plan and plan.restart), waits, seen, break_lease=why.break_lease)


def _each(ways: Sequence[Transport], work: Callable[[Transport], Answer]) -> Iterator[tuple[str, Answer]]:
    return zip([way.host for way in ways], parallel(work, ways, len(ways)), strict=True)


def _why_not(answers: Mapping[str, Answer]) -> str:
    failed = [host for host, answer in answers.items() if answer["outcome"] != "waits"]
    return f"{', '.join(failed) or 'a host of this world'} could not go on"


def _call(way: Transport, request: Mapping[str, Any], id_: str, patience: float, tell: Callable[[str], None]) -> Answer:
    """Ask a host; where the connection breaks, connect again and follow the change, which goes on there."""
    deadline: float | None = None
    while True:
        try:
            answer = way.call(request, tell)
        except HostError as error:
            begun = deadline is not None or request["verb"] == "continue" or not isinstance(error, UnreachableError)
            deadline = deadline or time.monotonic() + patience
            if not begun or time.monotonic() > deadline:
                return _lost(error)
            tell(f"{error.message}; trying again: the host goes on by itself")
            time.sleep(_RETRY_SECONDS)
            request = continue_request(id_, "follow")
        except AgentBugError as error:
            return {"outcome": "failed", "message": BUG, "evidence": str(error).splitlines()}
        else:
            problems = answer.get("problems")
            return {"outcome": "refused", "message": "; ".join(problems), "evidence": []} if problems else answer


def _lost(error: HostError) -> Answer:
    outcome = "unreachable" if isinstance(error, UnreachableError) else "failed"
    return {"outcome": outcome, "message": error.message, "evidence": []}


def _result(before: HostResult, answer: Answer) -> HostResult:
    return replace(
        before,
        outcome=answer["outcome"],
        message=answer["message"],
        evidence=tuple(answer["evidence"]),
        serves=answer.get("serves", ""),
        proof=answer.get("proof", {}),
        generation=answer.get("generation", 0),
    )
