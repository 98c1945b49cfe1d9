"""Where a job leaves what it measures: a folder of its own below that of the sweep, which the command reads.

``jobs/job-2.1/`` is the first try of the second job. Its plan and journal are those of a sweep
(`launcher.sweep.journal`) with the points of this job alone; the job is the only one that writes that journal, and the
command the only one that writes the journal of the whole sweep. Beside them lie what submitit writes (script, function,
the job's output) and three marks.
"""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.sweep import disk, journal

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.sweep.record import Point, Sweep, Trial

FOLDER = "jobs"
_ID, _BEGUN, _ENDED = "slurm-id", "begun.json", "ended.json"


@dataclass(frozen=True)
class Begun:
    """A start that runs: the digest of its point, its job and node, and since when (seconds since 1970)."""

    point: str
    at: float


@dataclass(frozen=True)
class Ended:
    """How a job ended by itself.

    Attributes:
        why: nothing was left to do; empty after an error.
        error: why nothing can be measured there.
    """

    why: str
    error: str = ""


def make(folder: Path, part: Sweep) -> Path:
    """Make the folder of a job's next try, with its part of the sweep; the part's target is the name of the job.

    Raises:
        LaunchError: it cannot be made.
    """
    known = latest(folder).get(part.target)
    number = int(known.name.rpartition(".")[2]) + 1 if known else 1
    # Orders of the trials to come are those of no other job's.
    own = {trial.order for trial in (*part.trials, *part.past)}
    forgiven = tuple(order for order in part.forgiven if order in own)
    return journal.create(folder / FOLDER, dataclasses.replace(part, id=f"{part.target}.{number}", forgiven=forgiven))


def latest(folder: Path) -> dict[str, Path]:
    """Return the folder of the last try of every job of a sweep, by the job's name."""
    found: dict[str, tuple[int, Path]] = {}
    for path in (folder / FOLDER).glob("*.*"):
        name, _, number = path.name.rpartition(".")
        if number.isdigit() and (path / journal.PLAN).is_file():
            found[name] = max(found.get(name, (0, path)), (int(number), path))
    return {name: path for name, (_, path) in found.items()}


def used(folder: Path) -> bool:
    """Return whether a job of a sweep was ever submitted."""
    return any(map(id_of, latest(folder).values()))


def fits(path: Path, part: Sweep) -> bool:
    """Return whether a job that goes on does what would be asked of it now."""
    was = journal.load(path)
    points, others = ({point.digest for point in one.points} for one in (was, part))
    same = points == others and (was.settings, was.workloads) == (part.settings, part.workloads)
    return same and not ended(path)


def trials(path: Path) -> list[Trial]:
    """Return every trial that a job has, those of earlier ones included, in their order.

    Raises:
        LaunchError: the folder cannot be read.
    """
    sweep = journal.load(path)
    return sorted((*sweep.trials, *sweep.past), key=lambda trial: trial.order)


def keep_id(path: Path, id_: str) -> None:
    """Keep which job of Slurm works in a folder."""
    disk.put(path / _ID, id_)


def id_of(path: Path) -> str:
    """Return which job of Slurm works in a folder; empty when none was submitted."""
    with suppress(FileNotFoundError):
        return (path / _ID).read_text(encoding="ascii").strip()
    return ""


def log(path: Path, id_: str) -> Path:
    """Return the file with the output of a job, as submitit names it."""
    return path / f"{id_}_0_log.out"


def begins(path: Path, point: Point) -> None:
    """Mark that a start begins."""
    _put(path / _BEGUN, Begun(point.digest, time.time()))


def is_over(path: Path) -> None:
    """Mark that the start is in the journal."""
    (path / _BEGUN).unlink(missing_ok=True)


def begun(path: Path) -> Begun | None:
    """Return the start that runs, or in which the job ended."""
    found = _get(path / _BEGUN)
    return Begun(**found) if found else None


def end(path: Path, ended: Ended) -> None:
    """Mark that a job ended by itself, and how."""
    _put(path / _ENDED, ended)


def ended(path: Path) -> Ended | None:
    """Return how a job ended by itself; None when it has not."""
    found = _get(path / _ENDED)
    return Ended(**found) if found else None


def _put(path: Path, value: Begun | Ended) -> None:
    disk.put(path, json.dumps(dataclasses.asdict(value)))


def _get(path: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {}
