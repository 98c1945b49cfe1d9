"""Readings and verdicts of a sweep as flat rows, for spreadsheets and programs."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from launcher.agent.findings import iso

from . import shares
from .figures import level
from .plain import to_plain
from .tables import overall, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .record import Judgement, Point, Reading, Sweep, Trial

_TRIAL = ("order", "at", "seconds", "point", "digest")
_READING = ("workload", "kind", "value", "unit", "low", "high", "valid", "invalid", "failure", "message")
_VERDICT = ("workload", "kind", "word", "overall", "difference", "low", "high", "trials", "reason")
_LEVELS = ("baseline_value", "point_value", "unit", "lower_is_better")


def results(sweep: Sweep) -> list[dict[str, Any]]:
    """Return one row for each reading of each trial, and one without a reading for a trial that has none."""
    points, kinds = {point.digest: point for point in sweep.points}, {one.name: one for one in sweep.workloads}
    rows = []
    for trial in sweep.trials:
        point = points[trial.point]
        begin = {"order": trial.order, "at": iso(trial.at), "seconds": trial.seconds}
        begin |= {"point": point.label, "digest": point.digest, "choices": {**point.choices, **point.values}}
        begin |= {"host": trial.host} if sweep.homes else {}
        for reading in trial.readings or (None,):
            workload = kinds.get(reading.workload) if reading else None
            unit = {"kind": workload.kind if workload else "", "unit": workload.unit if workload else ""}
            rows.append({**begin, **_reading(reading, trial), **unit})
    return rows


def _reading(reading: Reading | None, trial: Trial) -> dict[str, Any]:
    failed = {"failure": trial.failure, "message": trial.message}
    if reading is None:
        empty: dict[str, Any] = dict.fromkeys(("value", "low", "high"))
        return {"workload": "", **empty, "valid": False, "invalid": (), **failed, "details": {}}
    told = {"workload": reading.workload, "value": reading.value, "low": reading.low, "high": reading.high}
    counts = not reading.invalid and not trial.failure
    return {**told, "valid": counts, "invalid": reading.invalid, **failed, "details": dict(reading.details)}


def verdicts(sweep: Sweep, judgement: Judgement) -> list[dict[str, Any]]:
    """Return one row for each point and workload."""
    points, kinds = {point.digest: point for point in sweep.points}, {one.name: one for one in sweep.workloads}
    readings = valid(sweep)

    def mean(digest: str, name: str, host: str) -> float:
        return level([reading.value for _, reading in shares.on_host(readings.get((digest, name), ()), host)])

    rows = []
    for one in judgement.verdicts:
        point, workload = points[one.point], kinds[one.workload]
        begin = {
            "point": point.label,
            "digest": point.digest,
            "choices": {**point.choices, **point.values},
            **to_plain(one),
        }
        begin |= {"point": point.label, "kind": workload.kind, "overall": overall(sweep, judgement, point)}
        host = sweep.homes.get(one.point, "")
        begin |= {"host": host} if host else {}
        levels = (mean(sweep.baseline.digest, one.workload, host), mean(one.point, one.workload, host))
        rows.append({**begin, **dict(zip(_LEVELS, (*levels, workload.unit, workload.lower_is_better), strict=True))})
    return rows


def results_csv(sweep: Sweep) -> str:
    """Return the readings with a column for each axis and for each detail that is a text or a number."""
    rows = results(sweep)
    details = dict.fromkeys(key for row in rows for key, value in row["details"].items() if _is_scalar(value))
    return _csv(rows, (*_TRIAL, *_host(sweep), *_READING), _axes(sweep, sweep.points), details)


def results_jsonl(sweep: Sweep) -> str:
    """Return the same rows, one JSON object a line, with all details."""
    return "".join(json.dumps(to_plain(row)) + "\n" for row in results(sweep))


def verdicts_csv(sweep: Sweep, judgement: Judgement) -> str:
    """Return the verdicts with a column for each axis."""
    titles = ("point", "digest", *_host(sweep), *_VERDICT, *_LEVELS)
    return _csv(verdicts(sweep, judgement), titles, _axes(sweep, sweep.points), ())


def _host(sweep: Sweep) -> tuple[str, ...]:
    return ("host",) if sweep.homes else ()


def _axes(sweep: Sweep, points: Iterable[Point]) -> dict[str, None]:
    return dict.fromkeys([*sweep.axes, *(axis for point in points for axis in point.choices)])


def _csv(rows: Iterable[Mapping[str, Any]], fixed: Sequence[str], axes: Iterable[str], details: Iterable[str]) -> str:
    """Return rows as text; the column of an axis or a detail is named in full where its name is taken."""
    axes, details = list(axes), list(details)
    titles = list(fixed)
    for kind, names in (("choices", axes), ("details", details)):
        titles += [f"{kind}.{name}" if name in titles else name for name in names]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(titles)
    for row in rows:
        values = [row[name] for name in fixed]
        values += [row["choices"].get(name) for name in axes]
        values += [value if _is_scalar(value := row["details"].get(name)) else None for name in details]
        writer.writerow([_text(value) for value in values])
    return stream.getvalue()


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, int, float))


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
