"""Ctrl-C while hosts are being changed: once lets them go on by themselves, twice takes the change back."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from launcher.fleet.change import Flight

T = TypeVar("T")
#: Seconds in which a second Ctrl-C takes the change back.
_SECOND = 5.0


def in_flight(work: Sequence[Callable[[], T]], flight: Flight, names: Sequence[str]) -> list[T]:
    """Do one piece of work after the other, and answer Ctrl-C.

    Args:
        work: changes hosts.
        flight: knows the changes under way.
        names: of the deployments, for what is said.
    """
    pool = ThreadPoolExecutor(1)
    done: list[T] = []
    for piece in work:
        future = pool.submit(piece)
        done.append(_result(future, flight, names))
    pool.shutdown()
    return done


def _result(future: Future[T], flight: Flight, names: Sequence[str]) -> T:
    try:
        _until(future, None)
    except KeyboardInterrupt:
        print(
            f"\nlaunch: the hosts go on by themselves: launch status {' '.join(names)}. Ctrl-C again within"
            f" {_SECOND:.0f} s takes the change back",
            file=sys.stderr,
            flush=True,
        )
        _second(future, flight)
    return future.result()


def _until(future: Future[T], seconds: float | None) -> None:
    while not future.done():
        wait([future], timeout=0.2 if seconds is None else min(seconds, 0.2))
        if seconds is not None:
            seconds -= 0.2
            if seconds <= 0:
                return


def _second(future: Future[T], flight: Flight) -> None:
    try:
        heard = flight.say("detach")
        _until(future, _SECOND)
    except KeyboardInterrupt:
        print("launch: taking the change back", file=sys.stderr, flush=True)
        flight.say("revert")
        _until(future, None)
        return
    if not future.done():
        where = ", ".join(heard) or "no host; a change that nobody confirms goes back by itself"
        print(f"launch: detached from {where}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(130)  # threads that still follow the hosts would hold a normal exit for minutes
