"""`-m --search`: how many points are chosen, which ones are left to the last, and who chooses."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from launcher.cli.parser import HALF
from launcher.errors import ConfigError
from launcher.sweep import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.cli.parser import CommandLine
    from launcher.sweep.points import Points
    from launcher.sweep.record import Sweep
    from launcher.sweep.session import Step


class Fields(TypedDict):
    """What a search adds to a `launcher.sweep.record.Sweep`."""

    search: int
    late: Mapping[str, str]


def fields(line: CommandLine, points: Points) -> Fields:
    """Return what the command line says of a search; nothing where every point is measured.

    Raises:
        ConfigError: it cannot be searched here.
    """
    if not line.search:
        return {"search": 0, "late": {}}
    from launcher.search import study

    deployment, many = points.candidates[0].deployment, len(points.candidates) - 1
    if deployment.target.kind == "slurm":
        raise ConfigError(
            "--search chooses one point after the other: run it in one job, with target=process, or leave --search out"
        )
    if deployment.target.kind == "ssh" and len(deployment.target.hosts) > 1:
        raise ConfigError(
            "--search chooses one point after the other, on one host: name one in target.hosts, or leave --search out"
        )
    if not many:
        raise ConfigError("--search has nothing to choose from: there is no point beside the baseline")
    study.need()
    most = math.ceil(many / 2) if line.search == HALF else min(int(line.search), many)
    return {"search": most, "late": _late(points)}


def step(sweep: Sweep) -> Step:
    """Return what chooses the next point of a sweep."""
    if not sweep.search:
        return schedule.step
    from launcher.search import order, study

    return partial(order.step, ask=study.ask)


def _late(points: Points) -> dict[str, str]:
    """Return why points are left to the last, by digest: the memory of all-reduces knows them to be slow."""
    from launcher.catalogue import measured
    from launcher.catalogue.nccl_measured_rules import everywhere

    rows = (*measured.shipped(), *measured.own(Path(points.candidates[0].deployment.sweep.out).expanduser()))
    found = {candidate.point.digest: everywhere(candidate.deployment, rows) for candidate in points.candidates[1:]}
    return {digest: why for digest, why in found.items() if why}
