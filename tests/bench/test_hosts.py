"""The client of a session, against a host that only plays: what an interrupt, and the end, make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from launcher.bench.hosts import OnHost
from launcher.errors import HostError
from launcher.host import secret_values
from launcher.host.requests import Limits
from tests.bench.test_serve import candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOTHING = "what was there before; nothing was replaced"


class Played:
    """A host that answers by what it is asked to do."""

    host = "h1"

    def __init__(self, **answers: Any) -> None:
        self._answers = {"open": {"outcome": "open"}, **answers}
        self.asked: list[str] = []

    def call(self, request: Mapping[str, Any], on_event: Callable[[str], None]) -> dict[str, Any]:  # noqa: ARG002
        does = request["order"]["do"] if request["verb"] == "session-ask" else "open"
        self.asked.append(does)
        answer = self._answers[does]
        if isinstance(answer, BaseException):
            raise answer
        return {"problems": [], "message": "", "evidence": [], **answer}


def session(played: Played) -> OnHost:
    return OnHost(played, secret_values.read(candidate().deployment), lambda _: None)


def test_an_interrupt_while_the_host_is_taken_gives_it_back_at_once() -> None:
    """It would be held until it hears nothing for a while."""
    played = Played(open=KeyboardInterrupt(), end={"outcome": "failed", "message": "there is no such session"})
    host = session(played)
    with pytest.raises(KeyboardInterrupt):
        host.open(candidate(), {}, Limits(60))
    assert host.close() == NOTHING
    assert played.asked == ["open", "end"]
    assert host.close() == NOTHING
    assert played.asked == ["open", "end"]


def test_production_is_told_as_it_serves() -> None:
    manifest = {"digest": "e" * 16, "env": {"A": "1"}, "argv": ["vllm"], "host": "::", "port": 8001}
    serving = {"outcome": "serving", "seconds": 3.0, "proof": {"main": 7}, "lines": ["x"], "manifest": manifest}
    host = session(Played(back=serving))
    host.open(candidate(), {}, Limits(60))
    found = host.back()
    assert found
    assert (found.life.serving, found.life.seconds, found.life.lines) == (True, 3.0, ("x",))
    assert (found.digest, dict(found.env), found.argv, found.host, found.port) == (
        "e" * 16,
        {"A": "1"},
        ("vllm",),
        "::",
        8001,
    )


def test_production_that_cannot_be_measured_says_why() -> None:
    played = Played(back={"outcome": "failed", "message": "nothing was served here", "evidence": ["x"]})
    host = session(played)
    host.open(candidate(), {}, Limits(60))
    found = host.back()
    assert found
    assert (found.life.serving, found.life.message, found.life.evidence) == (False, "nothing was served here", ("x",))
    untouched = session(Played(back={"outcome": "untouched"}))
    untouched.open(candidate(), {}, Limits(60))
    assert untouched.back() is None
    over = session(Played(back={"outcome": "failed", "over": True, "message": "nobody gave an order"}))
    over.open(candidate(), {}, Limits(60))
    with pytest.raises(HostError, match="the session ended: nobody gave an order"):
        over.back()
