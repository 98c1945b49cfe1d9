"""What the report of a sweep says, in words and in order; the template gives it its looks."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import shares
from .figures import figure, interval, is_number, level, relative, unit
from .report_words import flat
from .tables import failure, judged, overall, ranked, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .record import Judgement, Point, Reading, Sweep, Trial, Verdict, Workload

#: Style and sign of each word: no word is told by its colour alone.
LOOKS = {
    "baseline": ("calm", "●"),
    "better": ("good", "✓"),
    "worse": ("bad", "✗"),
    "trade": ("warn", "⇄"),
    "no difference": ("calm", "≈"),
    "undecided": ("wait", "?"),
    "invalid": ("lost", "–"),  # noqa: RUF001 - a sign
    "failed": ("lost", "!"),
    "proved": ("good", "✓"),
    "silent": ("calm", "·"),
    "contradicted": ("bad", "✗"),
}
UNKNOWN = ("lost", "?")
#: Details of readings with names for people; others are shown under their own.
TITLES = {
    "us_per_allreduce": "µs per all-reduce",
    "us_per_allgather": "µs per all-gather",
    "allreduces": "all-reduces a step",
    "step_ms": "est. ms a step",
    "tokens_per_s": "est. tokens/s",
    "wrong": "wrong results",
}


@dataclass(frozen=True)
class Cell:
    """A point in one workload."""

    word: str
    text: str
    around: str = ""
    reason: str = ""
    estimate: str = ""
    trials: int = 0


@dataclass(frozen=True)
class Row:
    """A point over all workloads."""

    point: Point
    word: str
    cells: Sequence[Cell]
    starts: str
    proof: tuple[str, str]
    failure: str
    #: Of a sweep that several hosts share.
    host: str = ""


@dataclass(frozen=True)
class Proof:
    """What the log told of the variables of a point: word by variable, the gravest of all starts, with its quote."""

    point: Point
    variables: Sequence[tuple[str, str, str]]
    word: str
    told: str


@dataclass(frozen=True)
class Group:
    """Trials of a point that went wrong in the same way."""

    point: Point
    trials: Sequence[Trial]

    @property
    def first(self) -> Trial:
        """The one whose evidence is shown."""
        return self.trials[0]


@dataclass(frozen=True)
class Levels:
    """The measured values of one workload, with everything else that was read."""

    workload: Workload
    titles: Sequence[str]
    rows: Sequence[tuple[Point, str, str, int, Sequence[str]]]


def rows(sweep: Sweep, judgement: Judgement) -> list[Row]:
    """Return the rows of the main table; every host that shares the sweep has one for its baseline."""
    verdicts, readings = judged(judgement), valid(sweep)
    shown = []
    for point, host in shares.places(sweep, ranked(sweep, judgement)):
        word = overall(sweep, judgement, point)
        cells = []
        for workload in sweep.workloads:
            found = shares.on_host(readings.get((point.digest, workload.name), ()), host)
            if word == "baseline":
                cells.append(_baseline(workload, found))
            else:
                verdict = None if word == "failed" else verdicts.get((point.digest, workload.name))
                cells.append(_cell(verdict, _estimate(found)))
        proof = proof_of(sweep, point)
        starts, told = _starts(sweep, point, host), (proof.word, proof.told)
        shown.append(Row(point, word, cells, starts, told, failure(sweep, point), host))
    return shown


def _baseline(workload: Workload, found: Sequence[tuple[Trial, Reading]]) -> Cell:
    values = [reading.value for _, reading in found]
    if not values:
        return Cell("invalid", "no reading")
    around = f"{figure(min(values))} to {figure(max(values))}" if len(values) > 1 else ""
    return Cell("baseline", f"{figure(level(values))} {unit(workload.unit)}", around, "", _estimate(found), len(values))


def _cell(verdict: Verdict | None, estimate: str) -> Cell:
    if verdict is None:
        return Cell("", "")
    text = relative(verdict.difference) if math.isfinite(verdict.difference) else ""
    if verdict.word == "invalid":
        return Cell("invalid", "", "", verdict.reason, "", verdict.trials)
    return Cell(verdict.word, text, interval(verdict), verdict.reason, estimate, verdict.trials)


def _estimate(found: Sequence[tuple[Trial, Reading]]) -> str:
    parts = []
    for key, what in (("step_ms", "ms a step"), ("tokens_per_s", "tokens/s")):
        values = [reading.details[key] for _, reading in found if is_number(reading.details.get(key))]
        if values:
            parts.append(f"{figure(sum(values) / len(values))} {what}")
    return ", ".join(parts)


def _starts(sweep: Sweep, point: Point, host: str) -> str:
    trials = [trial for trial in sweep.trials if trial.point == point.digest and host in ("", trial.host)]
    failed = sum(bool(trial.failure) for trial in trials)
    return f"{len(trials)}{f', {failed} failed' if failed else ''}" if trials else "none"


def proof_of(sweep: Sweep, point: Point) -> Proof:
    """Return what is proved of a point; a variable that is contradicted in one start is contradicted."""
    gravest: dict[str, tuple[str, str]] = {}
    order = ("proved", "silent", "contradicted")
    for trial in sweep.trials:
        for name, told in trial.proof.items() if trial.point == point.digest else ():
            new = (told.get("word", "silent"), told.get("quote", ""))
            old = gravest.setdefault(name, new)
            if (order.index(new[0]) if new[0] in order else 3) > (order.index(old[0]) if old[0] in order else 3):
                gravest[name] = new
    numbers = Counter(word for word, _ in gravest.values())
    ranks = sorted(numbers, key=lambda word: order[::-1].index(word) if word in order else -1)
    if not gravest:
        word, told_ = "silent", "nothing to prove" if point.digest == sweep.baseline.digest else "no proof"
    elif set(numbers) == {"proved"}:
        word, told_ = "proved", f"all {numbers['proved']} proved" if numbers["proved"] > 1 else "1 proved"
    else:
        word, told_ = ranks[0], ", ".join(f"{numbers[word]} {word}" for word in ranks)
    variables = sorted((name, *told) for name, told in gravest.items())
    variables.sort(key=lambda entry: ranks.index(entry[1]))
    return Proof(point, variables, word, told_)


def failures(sweep: Sweep) -> list[Group]:
    """Return failed trials, those together that failed in the same way."""
    groups: dict[tuple[str, str, str, str], list[Trial]] = {}
    for trial in sweep.trials:
        if trial.failure:
            groups.setdefault((trial.point, trial.host, trial.failure, trial.message), []).append(trial)
    points = {point.digest: point for point in sweep.points}
    return [Group(points[digest], trials) for (digest, _, _, _), trials in groups.items()]


def invalid(sweep: Sweep) -> list[tuple[Point, str, str, str]]:
    """Return readings that count for nothing: point, reason, workloads, trials."""
    groups: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for trial in sweep.trials:
        for reading in trial.readings:
            for reason in reading.invalid:
                groups.setdefault((trial.point, reason), []).append((reading.workload, trial.order))
    points = {point.digest: point for point in sweep.points}
    return [
        (points[digest], reason, _joined(name for name, _ in found), _joined(str(order) for _, order in found))
        for (digest, reason), found in groups.items()
    ]


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def levels(sweep: Sweep, points: Sequence[Point]) -> list[Levels]:
    """Return measured values for each workload, with a column for each detail that some reading has."""
    readings, tables = valid(sweep), []
    for workload in sweep.workloads:
        found = [
            (
                replace(point, label=shares.on(point.label, host)),
                shares.on_host(readings.get((point.digest, workload.name), ()), host),
            )
            for point, host in shares.places(sweep, points)
        ]
        keys = list(dict.fromkeys(key for _, pairs in found for _, reading in pairs for key in reading.details))
        lines = []
        for point, pairs in found:
            if pairs:
                values = [reading.value for _, reading in pairs]
                span = f"{figure(min(r.low for _, r in pairs))} to {figure(max(r.high for _, r in pairs))}"
                details = [_detail(key, [r.details[key] for _, r in pairs if key in r.details]) for key in keys]
                lines.append((point, figure(level(values)), span, len(values), details))
        if lines:
            tables.append(Levels(workload, [TITLES.get(key, key.replace("_", " ")) for key in keys], lines))
    return tables


def _detail(key: str, values: Sequence[Any]) -> str:
    if values and all(map(is_number, values)):
        return figure(max(values) if key == "wrong" else sum(values) / len(values))
    return _joined(value if isinstance(value, str) else flat(value) for value in values)


def effects(sweep: Sweep, judgement: Judgement) -> list[tuple[str, list[tuple[str, int, list[str]]]]]:
    """Return for each axis and value how many points have it and their mean difference for each workload.

    The baseline counts, with no difference, for the values that it says it has.
    """
    verdicts = judged(judgement)
    shown = []
    for axis, values in sweep.axes.items() if len(sweep.axes) > 1 else ():
        lines = []
        for value in values:
            points = [point for point in sweep.points if point.choices.get(axis) == value]
            means, most = [], 0
            for workload in sweep.workloads:
                found = [_ratio(sweep, verdicts, point, workload) for point in points]
                known = [ratio for ratio in found if math.isfinite(ratio)]
                most = max(most, len(known))
                means.append(relative(math.expm1(sum(known) / len(known))) if known else "")
            lines.append((value, most, means))
        shown.append((axis, lines))
    return shown


def _ratio(sweep: Sweep, verdicts: Mapping[tuple[str, str], Verdict], point: Point, workload: Workload) -> float:
    if point.digest == sweep.baseline.digest:
        return 0.0
    verdict = verdicts.get((point.digest, workload.name))
    if verdict is None or verdict.word == "invalid" or not -1 < verdict.difference < math.inf:
        return math.nan
    return math.log1p(verdict.difference)
