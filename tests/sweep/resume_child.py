"""A sweep with a measuring program that only counts: run by tests as a child, which they kill.

usage: resume_child.py OUT STARTS SECONDS [ID]; STARTS gets one line with the point of every start.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.sweep import resume, session
from launcher.sweep.record import Settings
from tests.sweep import cases

if TYPE_CHECKING:
    from launcher.sweep.record import Point, Sweep, Trial

ID = "20261130-021500-kimi-k2-allreduce"
POINTS = (cases.BASELINE, *(cases.point(n, {"nccl.nthreads": str(n)}) for n in range(1, 5)))


def sweep(**fields: object) -> Sweep:
    told = {"id": ID, "points": POINTS, "settings": Settings(repeats=2, max_repeats=2, baseline_every=2), **fields}
    return cases.sweep(**told)


class Counting:
    """Writes every start down before it is measured."""

    def __init__(self, starts: Path, seconds: float) -> None:
        self._starts, self._seconds = starts, seconds

    def __call__(self, point: Point, order: int, upcoming: Point | None = None) -> Trial:  # noqa: ARG002
        with self._starts.open("a") as stream:
            stream.write(f"{point.digest}\n")
        time.sleep(self._seconds)
        found = [cases.reading(w, 20.0) for w in (cases.DECODE, cases.VERIFY, cases.PREFILL)]
        return cases.trial(point, order, found, at=time.time(), seconds=self._seconds)


class Silent:
    def begins(self, sweep: Sweep, point: Point) -> None: ...

    def ended(self, sweep: Sweep, trial: Trial) -> None: ...


def main(out: str, starts: str, seconds: str, id_: str = "") -> None:
    made = sweep(id=f"20261201-000000-kimi-k2-{time.time_ns() % 1000}-allreduce") if id_ else sweep()
    with resume.opened(Path(out), made, resume.Wanted(id_), "a test", print) as (begun, folder):
        _, why = session.run(begun, folder, Counting(Path(starts), float(seconds)), Silent())
    print(f"ended: {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
