"""`diff`: two points, or two sweeps, side by side."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from launcher.cli import show_sweep
from launcher.cli.results import out_of
from launcher.cli.show_sweep import note
from launcher.cli.tell import paint
from launcher.errors import ConfigError
from launcher.sweep.figures import counted
from launcher.sweep.plain import to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.sweep.compare import Change, Figure, Side
    from launcher.sweep.record import Sweep

_TITLES = {"override": "overrides", "variable": "environment", "argument": "arguments", "version": "versions"}
_NOTHING = "(none)"


def diff(line: CommandLine) -> int:
    """Show how two points, or two sweeps, differ."""
    from launcher.sweep import shelf
    from launcher.sweep.compare import Side

    if len(line.names) != 2:
        raise ConfigError("diff takes two points or two sweeps: launch diff A B; quote a label of several words")
    out = out_of(line)
    (a, left), (b, right) = (shelf.either(out, name, note) for name in line.names)
    if (left is None) != (right is None):
        raise ConfigError("diff takes two points or two sweeps, not one of each; a point of a sweep is ID:POINT")
    if left and right:
        if (a.id, left.digest) == (b.id, right.digest):
            raise ConfigError(f"both are the same point: '{left.label}' of sweep {a.id}")
        return _points(line, Side(a, left), Side(b, right))
    if a.id == b.id:
        raise ConfigError(f"both are the same sweep: {a.id}")
    return _sweeps(line, a, b)


def _points(line: CommandLine, a: Side, b: Side) -> int:
    from launcher.sweep import compare

    made = compare.makes(a.point, b.point)
    ran = [
        *(compare.surroundings(a.sweep, b.sweep) if a.sweep.id != b.sweep.id else []),
        *compare.ran(a.trials, b.trials),
    ]
    found = compare.figures(a, b)
    warnings = _warnings(ran, a.sweep, b.sweep)
    if compare.apart(a, b):
        warnings.append("measured on two hosts, each beside its own baseline: compare what each of them gained")
    if line.json:
        record = {
            "left": _named(a),
            "right": _named(b),
            "changes": [asdict(change) for change in (*made, *ran)],
            "figures": [_figure(figure) for figure in found],
            "warnings": warnings,
            "exit_code": 0,
        }
        print(json.dumps(record, indent=1))
        return 0
    for name, side in (("A", a), ("B", b)):
        print(f"{name}  {side.point.digest}  {side.point.label}  (sweep {side.sweep.id})")
    _changes([*made, *ran])
    if found:
        print(f"\n{paint('figures', 'bold')}")
        show_sweep.table([["workload", "A", "B", "B against A", ""], *(_row(figure) for figure in found)])
    for text in warnings:
        note(f"warning: {text}")
    return 0


def _named(side: Side) -> dict[str, Any]:
    point = side.point
    return {"sweep": side.sweep.id, "digest": point.digest, "label": point.label, "words": list(point.words)}


def _figure(figure: Figure) -> dict[str, Any]:
    told = {"workload": figure.workload.name, "unit": figure.workload.unit, "left": figure.left, "right": figure.right}
    verdict = dataclasses.asdict(figure.verdict) if figure.verdict else {}
    keys = ("word", "difference", "low", "high", "reason")
    plain: dict[str, Any] = to_plain({**told, **{key: verdict[key] for key in keys if key in verdict}})
    return plain


def _row(figure: Figure) -> list[str]:
    from launcher.sweep.figures import figure as shown
    from launcher.sweep.figures import interval, relative

    unit = figure.workload.unit
    values = ["-" if math.isnan(value) else f"{shown(value)} {unit}" for value in (figure.left, figure.right)]
    verdict = figure.verdict
    if verdict is None:
        return [figure.workload.name, *values, "-", ""]
    around = interval(verdict)
    text = f"{relative(verdict.difference)} {around if around.startswith('±') or not around else f'({around})'}".strip()
    return [figure.workload.name, *values, text, f"{verdict.word}{f': {verdict.reason}' if verdict.reason else ''}"]


def _changes(changes: Sequence[Change]) -> None:
    for kind, title in _TITLES.items():
        some = [change for change in changes if change.kind == kind]
        if some:
            print(f"\n{paint(title, 'bold')}")
        for change in some:
            left, right = (_NOTHING if side is None else side or '""' for side in (change.left, change.right))
            print(f"  {change.name}: {left} -> {right}")


def _warnings(ran: Sequence[Change], a: Sweep, b: Sweep) -> list[str]:
    """Return why figures cannot be compared, or only with care."""
    if ran:
        names = ", ".join(dict.fromkeys(change.name for change in ran))
        return [f"measured with another {names}: the figures cannot be compared, the settings are not all that differs"]
    if a.id != b.id:
        return ["measured in two sweeps: what changed on the machine in between is not in the intervals"]
    return []


def _sweeps(line: CommandLine, a: Sweep, b: Sweep) -> int:
    from launcher.sweep import compare
    from launcher.sweep.compare import Side

    theirs = {point.digest: point for point in b.points}
    pairs = [(Side(a, point), Side(b, theirs[point.digest])) for point in a.points if point.digest in theirs]
    ran = [*compare.surroundings(a, b), *compare.ran(a.trials, b.trials)]
    found = [(left.point, compare.figures(left, right)) for left, right in pairs]
    known = {left.point.digest for left, _ in pairs}
    only = {name: [p.label for p in one.points if p.digest not in known] for name, one in (("A", a), ("B", b))}
    warnings = _warnings(ran, a, b)
    if line.json:
        points = [{"digest": p.digest, "label": p.label, "figures": [_figure(f) for f in many]} for p, many in found]
        sides = {"left": a.id, "right": b.id, "only_left": only["A"], "only_right": only["B"]}
        changes = [asdict(change) for change in ran]
        print(
            json.dumps({**sides, "points": points, "changes": changes, "warnings": warnings, "exit_code": 0}, indent=1)
        )
        return 0
    print(f"A  sweep {a.id}\nB  sweep {b.id}")
    _changes(ran)
    rows = [[point.label, *_row(figure)] for point, many in found for figure in many]
    print("\n" + paint(f"{counted(len(pairs), 'point')} in common", "bold"))
    if rows:
        show_sweep.table([["point", "workload", "A", "B", "B against A", ""], *rows])
    for name, labels in only.items():
        if labels:
            print(f"only in {name}: {', '.join(labels)}")
    for text in warnings:
        note(f"warning: {text}")
    return 0
