"""How the end of a session on a host is told, and what counts as not put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.cli.measuring import _put_back
from launcher.errors import HostError, LaunchError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable


def raising(error: BaseException) -> Callable[[], str]:
    def close() -> str:
        raise error

    return close


@pytest.mark.parametrize("error", [HostError("h1", "not restored: nothing"), UnreachableError("h1", "no way")])
def test_a_host_that_is_not_back_is_told_and_counts(error: HostError, capsys: pytest.CaptureFixture[str]) -> None:
    lost: list[LaunchError] = []
    _put_back("h1", raising(error), 120, lost)
    said = capsys.readouterr().err
    assert str(error) in said
    assert "a session that hears nothing for 120 s puts back what was served before, by itself" in said
    assert lost == [error]


def test_a_second_interrupt_says_what_becomes_of_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    lost: list[LaunchError] = []
    with pytest.raises(KeyboardInterrupt):
        _put_back("h1", raising(KeyboardInterrupt()), 7, lost)
    said = capsys.readouterr().err
    assert "h1: interrupted again, so nobody waits for it" in said
    assert "hears nothing for 7 s puts back what was served before" in said
    assert lost == []


def test_what_is_back_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lost: list[LaunchError] = []
    _put_back("h1", lambda: "the old release again", 120, lost)
    assert capsys.readouterr().err == "launch: h1: serves the old release again\n"
    assert lost == []
