"""Whether production, when it was back, served as the baseline of the sweep did: one start, and what that can tell."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from launcher.errors import LaunchError

from . import journal, shares, statistics
from .figures import figure, interval, level, relative, unit
from .record import Trial
from .tables import valid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .record import Sweep, Verdict, Workload


class Watcher(Protocol):
    """Is told what production gave when it was back."""

    def closed(self, sweep: Sweep, trial: Trial) -> None:
        """Tell it; the sweep has it already."""


@dataclass(frozen=True)
class Row:
    """Production in one workload.

    Attributes:
        workload: of the sweep.
        word: "as before", "differs", "cannot be told from one start", "invalid", or empty where it is not compared.
        value: measured, in the workload's unit; NaN: none.
        before: of the baseline, the geometric mean of its starts; NaN: none.
        text: difference and interval, or the reason.
    """

    workload: Workload
    word: str
    value: float
    before: float
    text: str


@dataclass(frozen=True)
class Found:
    """Production on one host; ``trial`` is None where it was not measured."""

    host: str
    trial: Trial | None
    is_baseline: bool
    rows: Sequence[Row]


def take(
    sweep: Sweep,
    folder: Path,
    measure: Callable[[int], Trial | None] | None,
    watcher: Watcher,
    tell: Callable[[str], None],
    host: str = "",
) -> None:
    """Measure production once more where that is asked for, and write it down; what goes wrong is told, no more.

    Args:
        sweep: at its end, on one host alone.
        folder: of it.
        measure: puts production back and measures it, see `launcher.sweep.shared.Host`; None where nothing serves.
        watcher: told what it gave.
        tell: told what is lost, in a line.
        host: of a sweep that several hosts share.
    """
    if not sweep.settings.closing or measure is None:
        return
    order, at = len(sweep.closing) + 1, time.time()
    try:
        trial = measure(order)
    except LaunchError as error:
        failed = {"failure": "not measured", "message": str(error), "kind": journal.CLOSING}
        trial = Trial(sweep.baseline.digest, order, at, time.time() - at, **failed)  # type: ignore[arg-type]
    if trial is None:
        return
    trial = dataclasses.replace(trial, host=host)
    try:
        journal.append(folder, trial)
    except LaunchError as error:
        tell(f"the closing measurement is not recorded: {error}")
    watcher.closed(dataclasses.replace(sweep, closing=(*sweep.closing, trial)), trial)


def found(sweep: Sweep) -> list[Found]:
    """Return what is known of production on every host, nothing where it was not to be measured."""
    if not sweep.settings.closing and not sweep.closing:
        return []
    parts = shares.parts(sweep)
    return [_found(part, len(parts), part.target if sweep.homes else "") for part in parts]


def _found(part: Sweep, hosts: int, host: str) -> Found:
    trial = _newest(part)
    if trial is None or trial.failure:
        return Found(host, trial, is_baseline=True, rows=())
    is_baseline, starts = trial.point == part.baseline.digest, valid(part)
    values = {reading.workload: reading for reading in trial.readings}
    rows = []
    for verdict, workload in zip(statistics.again(part, trial, hosts), part.workloads, strict=True):
        reading = values.get(workload.name)
        before = level([r.value for _, r in starts.get((part.baseline.digest, workload.name), ())])
        value = reading.value if reading and verdict.word != "invalid" else math.nan
        if verdict.word == "invalid":
            rows.append(Row(workload, "invalid", value, before, verdict.reason))
        else:
            rows.append(Row(workload, *(_word(verdict) if is_baseline else ("",)), value, before, _text(verdict)))
    return Found(host, trial, is_baseline, rows)


def _newest(part: Sweep) -> Trial | None:
    """Return the last one, unless points have replaced production again since."""
    last = max((trial.at for trial in (*part.trials, *part.past)), default=0.0)
    return next((trial for trial in reversed(part.closing) if trial.at >= last), None)


def _word(verdict: Verdict) -> tuple[str]:
    known = {"no difference": "as before", "undecided": "cannot be told from one start"}
    return (known.get(verdict.word, "differs"),)


def _text(verdict: Verdict) -> str:
    if not math.isfinite(verdict.difference):
        return verdict.reason
    around = interval(verdict)
    return relative(verdict.difference) + (f" {around}" if around.startswith("±") else f" ({around})" if around else "")


def told(sweep: Sweep) -> list[str]:
    """Return in plain sentences whether production serves as the baseline did, one for each host."""
    return [_sentence(sweep, one) for one in found(sweep)]


def _sentence(sweep: Sweep, one: Found) -> str:
    where = shares.on("Production", one.host)
    if one.trial is None:
        return (
            f"{where} was not measured once more (sweep.closing): the sweep did not come to its end, or had replaced"
            " nothing."
        )
    if one.trial.failure:
        return f"{where} was not measured once more (sweep.closing): {one.trial.message or one.trial.failure}."
    if not one.is_baseline:
        figures = ", ".join(map(_alone, one.rows))
        digests = f"{one.trial.point}, not {sweep.baseline.digest}"
        return (
            f"{where} is another release than the baseline of the sweep ({digests}), so the two are not compared:"
            f" {figures}."
        )
    words = {row.word for row in one.rows}
    begin = (
        f"{where} does not serve as the baseline did"
        if "differs" in words
        else f"{where} serves as the baseline did"
        if words == {"as before"}
        else f"{where}: whether it serves as the baseline did is not known in all"
    )
    return f"{begin}: {'; '.join(map(_part, one.rows))}."


def _part(row: Row) -> str:
    if row.word == "differs":
        return f"{row.workload.name} differs by {row.text}"
    return f"{row.workload.name} {row.word}{f' ({row.text})' if row.text else ''}"


def _alone(row: Row) -> str:
    if row.word == "invalid":
        return f"{row.workload.name} invalid ({row.text})"
    return f"{row.workload.name} {figure(row.value)} {unit(row.workload.unit)}"
