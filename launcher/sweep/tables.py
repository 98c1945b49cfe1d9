"""What a sweep has found, in plain sentences and as a table of plain text."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from launcher.search import front, order

from . import shares
from .figures import figure, interval, level
from .figures import relative as relative  # for whoever prints a table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .record import Judgement, Point, Reading, Sweep, Trial, Verdict, Workload

#: Overall words as the reader wants to meet them.
ORDER = ("baseline", "better", "trade", "no difference", "undecided", "worse", "invalid", "failed")
#: How many labels a sentence names, and how many sentences one word gets.
_SHOWN = 3


class Standing(NamedTuple):
    """In which kinds of workload a point is better, worse, undecided."""

    better: tuple[str, ...]
    worse: tuple[str, ...]
    undecided: tuple[str, ...]


def valid(sweep: Sweep) -> dict[tuple[str, str], list[tuple[Trial, Reading]]]:
    """Return what counts, by digest of the point and name of the workload, in the order of the trials."""
    found: dict[tuple[str, str], list[tuple[Trial, Reading]]] = {}
    for trial in sweep.trials:
        for reading in () if trial.failure else trial.readings:
            if not reading.invalid:
                found.setdefault((trial.point, reading.workload), []).append((trial, reading))
    return found


def judged(judgement: Judgement) -> dict[tuple[str, str], Verdict]:
    """Return verdicts by digest of the point and name of the workload."""
    return {(verdict.point, verdict.workload): verdict for verdict in judgement.verdicts}


def overall(sweep: Sweep, judgement: Judgement, point: Point) -> str:
    """Return the one word for a point."""
    if point.digest == sweep.baseline.digest:
        return "baseline"
    return judgement.overall.get(point.digest, "undecided")


def ranked(sweep: Sweep, judgement: Judgement) -> list[Point]:
    """Return the points as the reader wants to meet them: baseline, better ones, trades, and so on.

    Among equals the one comes first that gains most over all workloads. Of a search only those that were chosen.
    """
    verdicts = judged(judgement)

    def key(point: Point) -> tuple[int, float]:
        found = [verdicts.get((point.digest, workload.name)) for workload in sweep.workloads]
        gains = [gain(w, v.difference) for w, v in zip(sweep.workloads, found, strict=True) if v]
        known = [one for one in gains if math.isfinite(one)]
        return ORDER.index(overall(sweep, judgement, point)), -sum(known) / len(known) if known else 0

    return sorted([sweep.baseline, *order.chosen(sweep)] if sweep.search else sweep.points, key=key)


def gain(workload: Workload, difference: float) -> float:
    """Return a difference as a logarithm that is above 0 for the better."""
    ratio = math.log1p(difference) if difference > -1 else math.nan
    return -ratio if workload.lower_is_better else ratio


def failure(sweep: Sweep, point: Point) -> str:
    """Return the class of what most often went wrong with a point; empty when nothing did."""
    found = Counter(trial.failure for trial in sweep.trials if trial.point == point.digest and trial.failure)
    return found.most_common(1)[0][0] if found else ""


def table(sweep: Sweep, judgement: Judgement) -> list[list[str]]:
    """Return rows of texts, the header first: every point with its word, and its difference for each workload.

    Of hosts that share the points each has its own row of the baseline, and the others tell their host.
    """
    verdicts, readings = judged(judgement), valid(sweep)
    rows = [["point", *(["host"] if sweep.homes else []), "overall", *(workload.name for workload in sweep.workloads)]]
    for point, host in shares.places(sweep, ranked(sweep, judgement)):
        word = overall(sweep, judgement, point)
        cells = []
        for workload in sweep.workloads:
            found = shares.on_host(readings.get((point.digest, workload.name), ()), host)
            if word == "baseline":
                cells.append(f"{figure(level([r.value for _, r in found]))} {workload.unit}" if found else "-")
            else:
                cells.append(_cell(verdicts.get((point.digest, workload.name)), failed=word == "failed"))
        what = failure(sweep, point) if word == "failed" else ""
        rows.append([point.label, *([host] if host else []), f"{word}: {what}" if what else word, *cells])
    return rows


def _cell(verdict: Verdict | None, *, failed: bool) -> str:
    if failed or verdict is None:
        return "-"
    if verdict.word == "invalid":
        return "invalid"
    if not math.isfinite(verdict.difference):
        return verdict.word
    text, around = relative(verdict.difference), interval(verdict)
    shown = text if not around else f"{text} {around}" if around.startswith("±") else f"{text} ({around})"
    return f"{shown} ?" if verdict.word == "undecided" else shown


def summary(sweep: Sweep, judgement: Judgement) -> list[str]:
    """Return the answer in plain sentences, the shortest and most important one first."""
    others = [point for point in ranked(sweep, judgement) if point.digest != sweep.baseline.digest]
    if not sweep.trials:
        return ["No trial has run: nothing is known yet.", *_left_out(sweep)]
    if not others:
        return ["Only the baseline was measured: there is nothing to compare it with.", *_left_out(sweep)]
    groups: dict[str, list[Point]] = {}
    for point in others:
        groups.setdefault(overall(sweep, judgement, point), []).append(point)
    told = [] if groups.get("better") else [_nothing(sweep, groups)]
    for word, points in groups.items():
        if word in ("better", "trade", "worse"):
            told += _standings(sweep, judgement, points, word, len(others))
        elif word != "no difference":
            told.append(_rest(sweep, word, points, len(others)))
        elif len(points) < len(others):
            shows = "show" if len(points) > 1 else "shows"
            begin = f"{_count(len(points), len(others))} {shows}"
            told.append(f"{begin} no difference of {_percent(sweep)} or more{_names(points)}.")
    told += _searched(sweep, judgement) if sweep.search else []
    told += [
        f"The baseline itself moved by {relative(moved)} in {name} from the first trial to the last."
        for name, moved in judgement.drift.items()
    ]
    return told + _left_out(sweep)


def _nothing(sweep: Sweep, groups: Mapping[str, Sequence[Point]]) -> str:
    if set(groups) == {"no difference"}:
        effect = _percent(sweep)
        return f"Nothing separates these points from the baseline: every difference is smaller than {effect}."
    if set(groups) <= {"failed", "invalid"}:
        return "No point gave a valid result: nothing can be said about any."
    known = "Nothing is known to beat" if "undecided" in groups else "Nothing beats"
    return f"{known} the baseline{' everywhere' if 'trade' in groups else ''}."


def _percent(sweep: Sweep) -> str:
    return f"{sweep.settings.effect * 100:.3g} %"


def _count(number: int, total: int) -> str:
    if total == 1:
        return "The only point"
    return f"All {total} points" if number == total else f"{number} of {total} points"


def _are(points: Sequence[Point]) -> str:
    return "are" if len(points) > 1 else "is"


def _names(points: Sequence[Point], best: Callable[[Point], str] = lambda _: "") -> str:
    shown = [f"{point.label}{best(point)}" for point in points[:_SHOWN]]
    more = f" and {len(points) - _SHOWN} more" if len(points) > _SHOWN else ""
    return f": {', '.join(shown)}{more}"


def listed(parts: Iterable[str]) -> str:
    """Return "a, b and c"."""
    *begin, end = parts
    return f"{', '.join(begin)} and {end}" if begin else end


def _standings(sweep: Sweep, judgement: Judgement, points: Sequence[Point], word: str, total: int) -> list[str]:
    verdicts = judged(judgement)

    def best(point: Point) -> str:
        """Return where a better point gains most."""
        found = [(gain(w, v.difference), w, v) for w in sweep.workloads if (v := verdicts.get((point.digest, w.name)))]
        gains = [one for one in found if one[2].word == word == "better"]
        _, workload, verdict = max(gains, key=lambda one: one[0], default=(0, None, None))
        return f" ({workload.name} {relative(verdict.difference)})" if workload and verdict else ""

    groups: dict[Standing, list[Point]] = {}
    for point in points:
        groups.setdefault(standing(sweep, judgement, point), []).append(point)
    if len(groups) > _SHOWN:
        some = {"better": "better in some workloads", "worse": "worse in some workloads"}.get(word, "a trade")
        more = ", each in its own way, better in some workloads and worse in others" if word == "trade" else ""
        return [f"{_count(len(points), total)} {_are(points)} {some}{more}{_names(points, best)}."]
    told = []
    for where, group in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        parts = [f"{name} in {listed(kinds)}" for name, kinds in zip(Standing._fields, where, strict=True) if kinds]
        says = listed(parts) if parts else word
        if word == "trade":
            says += " (trade)"
        elif word == "better" and not where.worse and not where.undecided:
            says += " and worse nowhere"
        elif word == "worse" and not where.better and not where.undecided:
            says += " and better nowhere"
        told.append(f"{_count(len(group), total)} {_are(group)} {says}{_names(group, best)}.")
    return told


def standing(sweep: Sweep, judgement: Judgement, point: Point) -> Standing:
    """Return where a point is better, worse, undecided: by kind, or by workload where a kind disagrees in itself."""
    verdicts = judged(judgement)
    by_word: dict[str, list[Workload]] = {}
    for workload in sweep.workloads:
        if verdict := verdicts.get((point.digest, workload.name)):
            by_word.setdefault(verdict.word, []).append(workload)
    better, worse, undecided = (by_word.get(word, []) for word in Standing._fields)
    torn = {workload.kind for workload in better} & {workload.kind for workload in worse}
    decided = {workload.kind for workload in (*better, *worse)}

    def names(workloads: Iterable[Workload]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.name if one.kind in torn else one.kind for one in workloads))

    return Standing(names(better), names(worse), names(one for one in undecided if one.kind not in decided))


def _rest(sweep: Sweep, word: str, points: Sequence[Point], total: int) -> str:
    begin = _count(len(points), total)
    if word == "failed":
        classes = Counter(failure(sweep, point) or "no reason told" for point in points)
        told = f" ({', '.join(f'{n} {name}' if len(classes) > 1 else name for name, n in classes.items())})"
        return f"{begin} failed{told}{_names(points)}."
    return f"{begin} {_are(points)} {word}{_names(points)}."


def _searched(sweep: Sweep, judgement: Judgement) -> Iterator[str]:
    """Yield what a search leaves open: what none is shown to beat, and how many points were not measured."""
    found = front.front(sweep, judgement)
    if found:
        begin = "On the front, not" if len(sweep.workloads) > 1 else "Not"
        yield f"{begin} shown to be beaten by any measured point{_names(found)}."
    rest = len(sweep.points) - 1 - len(order.chosen(sweep))
    if rest:
        yield f"{order.told(sweep)}; of the other {rest} nothing is known. The intervals hold over all of them."


def _left_out(sweep: Sweep) -> list[str]:
    number = len(sweep.left_out)
    if not number:
        return []
    were, them = ("points were", "them") if number > 1 else ("point was", "it")
    return [f"{number} {were} left out, for a rule refuses {them}."]
