"""What a sweep shows: its plan, a line a trial, and what it found out; a record of the same for machines."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from launcher.cli.tell import paint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.cli.parser import CommandLine
    from launcher.sweep.points import Points
    from launcher.sweep.record import Judgement, Point, Sweep, Trial

#: Of one trial without a server, before one was measured here (2 x H200: 8 s; 11 sizes).
_TRIAL_SECONDS = 9.0
#: Quoted lines of a failed point.
_QUOTED = 6


def only_plan(line: CommandLine, points: Points, missing: str, sweep: Sweep | None = None) -> int:
    """Print what a sweep would do and what is missing to run it, and return the exit code."""
    if line.json:
        print(json.dumps(_plan_record(points, missing, sweep), indent=1))
        return 0
    plan(points, sweep)
    if missing:
        print(f"\nNothing was measured. Missing is {missing}. Next:")
        words = [] if sweep else ["bench=allreduce"]
        words += [] if points.candidates[0].deployment.target.kind != "render" else ["target=process"]
        print(f"  {command(line, *words)}")
    return 0


def command(line: CommandLine, *more: str) -> str:
    """Return the command that sweeps or measures what a command line says, and more overrides."""
    words = ["-m", *(["up"] if line.names else [])] if line.multirun else ["bench"]
    words += [*line.names, *line.overrides, *more]
    words += [word for name, value in line.environment.items() for word in ("-e", f"{name}={value}")]
    words += [word for folder in line.config_dirs for word in ("--config-dir", folder)]
    return shlex.join(["launch", *words, *(word for rule in line.allow for word in ("--allow", rule))])


def _plan_record(points: Points, missing: str, sweep: Sweep | None) -> dict[str, Any]:
    return {
        "axes": {key: list(values) for key, values in points.axes.items()},
        "points": [
            {
                "digest": c.point.digest,
                "label": c.point.label,
                "aliases": list(c.point.aliases),
                "notes": list(c.point.notes),
                "env": dict(c.release.env),
                "argv": list(c.release.argv),
            }
            for c in points.candidates
        ],
        "left_out": [dataclasses.asdict(item) for item in points.left_out],
        "workloads": [dataclasses.asdict(w) for w in sweep.workloads] if sweep else [],
        "missing": missing,
        "exit_code": 0,
    }


def plan(points: Points, sweep: Sweep | None) -> None:
    """Print what a sweep would do, before anything is touched."""
    count = len(points.candidates)
    if count == 1 and sweep:
        _show_work(sweep)
        return
    print(paint(f"sweep of {count} points", "bold"))
    width = max(len(c.point.label) for c in points.candidates)
    notes: dict[str, list[str]] = {}
    for candidate in points.candidates:
        point = candidate.point
        same = f"  (also: {'; '.join(point.aliases)})" if point.aliases else ""
        print(f"  {point.digest}  {point.label:<{width}}{same}".rstrip())
        for note in point.notes:
            notes.setdefault(note, []).append(point.label)
    for note, labels in notes.items():
        where = labels[0] if len(labels) == 1 else f"{len(labels)} points"
        print(f"  {paint('!', '!')} {where}: {note}")
    for item in points.left_out:
        print(f"  {paint('left out', '!')}  {item.label}")
        for reason in item.reasons:
            print(f"      {reason}")
    if sweep:
        _show_work(sweep)


def _show_work(sweep: Sweep) -> None:
    from launcher.sweep.schedule import expected

    print(f"  measured: {', '.join(w.name for w in sweep.workloads)}")
    for workload in sweep.workloads:
        details = workload.details
        messages = f"{details['allreduces']} all-reduces of {_bytes(details['bytes'])}"
        print(f"    {workload.name:<14} {workload.text}: {messages}")
    trials = expected(sweep)
    minutes = trials * _TRIAL_SECONDS / 60
    if len(sweep.points) > 1:
        print(
            f"  {trials} fresh starts at least, the baseline interleaved: about {minutes:.0f} min; no server is touched"
        )


def _bytes(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


class Progress:
    """Progress of a sweep: one line a trial on standard error; keeps the newest state for what interrupts it."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self.last: Sweep | None = None

    def begins(self, sweep: Sweep, point: Point) -> None:
        """Say which point is started."""
        if sys.stderr.isatty() and not self._line.json:
            print(f"\r\x1b[K{len(sweep.trials) + 1}: {point.label} …", end="", file=sys.stderr, flush=True)

    def ended(self, sweep: Sweep, trial: Trial) -> None:
        """Say what a trial gave, and how much is left."""
        from launcher.sweep.schedule import expected

        self.last = sweep
        labels = {point.digest: point.label for point in sweep.points}
        done, total = len(sweep.trials), max(expected(sweep), len(sweep.trials))
        left = (total - done) * sum(t.seconds for t in sweep.trials) / done
        if self._line.json:
            record = {
                "trial": trial.order,
                "point": labels[trial.point],
                "failure": trial.failure,
                "left_s": round(left),
            }
            print(json.dumps(record), file=sys.stderr, flush=True)
            return
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(
            f"{start}{trial.order}/{total} {labels[trial.point]}: {_gave(trial)} ({trial.seconds:.1f} s;"
            f" about {left / 60:.1f} min left)",
            file=sys.stderr,
            flush=True,
        )


def _gave(trial: Trial) -> str:
    if trial.failure:
        return f"{trial.failure}: {trial.message}"
    counted = [r for r in trial.readings if not r.invalid]
    if not counted:
        return f"invalid: {trial.readings[0].invalid[0] if trial.readings else 'nothing was read'}"
    return ", ".join(f"{r.workload} {r.value / 1000:.3g} ms" for r in counted)


def end(line: CommandLine, sweep: Sweep, judgement: Judgement, why: str, paths: Sequence[Path]) -> None:
    """Print what a sweep found out."""
    from launcher.sweep import effects, tables

    told = tables.summary(sweep, judgement) if len(sweep.points) > 1 else []
    if line.json:
        print(json.dumps(_record(sweep, judgement, why, told, paths), indent=1))
        return
    print()
    _print_table(tables.table(sweep, judgement) if len(sweep.points) > 1 else _measured(sweep))
    _failures(sweep)
    lines = effects.text(sweep, judgement)
    if lines:
        print("\neffect on a step")
        for text in lines:
            print(f"  {text}")
    print()
    for text in (*told, *judgement.notes, *([f"Ended: {why}."] if why and len(sweep.points) > 1 else [])):
        print(text)
    for path in paths[:1]:
        print(f"report: {path}")


def _record(sweep: Sweep, judgement: Judgement, why: str, told: list[str], paths: Sequence[Path]) -> dict[str, Any]:
    from launcher.sweep import effects
    from launcher.sweep.plain import to_plain

    return {
        "id": sweep.id,
        "ended": why,
        "summary": told,
        "points": to_plain(sweep.points),
        "judgement": to_plain(judgement),
        "effects": [dataclasses.asdict(effect) for effect in effects.effects(sweep, judgement)],
        "trials": to_plain(sweep.trials),
        "files": [str(path) for path in paths],
    }


def _measured(sweep: Sweep) -> list[list[str]]:
    """Return what one configuration gave, a row a workload; of several starts the last one."""
    trial = next((trial for trial in reversed(sweep.trials) if trial.readings), None)
    rows = [["workload", "ms a step", "between", "us an all-reduce", "NCCL took", ""]]
    texts = {workload.name: workload.text for workload in sweep.workloads}
    for reading in trial.readings if trial else ():
        took = " ".join(str(reading.details[key]) for key in ("algorithm", "protocol") if key in reading.details)
        between = f"{reading.low / 1000:.3g} to {reading.high / 1000:.3g}"
        each = f"{reading.details.get('us_per_allreduce', 0.0):.1f}"
        problem = f"INVALID: {reading.invalid[0]}" if reading.invalid else ""
        rows.append([texts[reading.workload], f"{reading.value / 1000:.3g}", between, each, took or "-", problem])
    return rows


def _failures(sweep: Sweep) -> None:
    """Print what made a point fail, with the lines that show it, once a point."""
    labels = {point.digest: point.label for point in sweep.points}
    failed = {trial.point: trial for trial in sweep.trials if trial.failure}
    for digest, trial in failed.items():
        print(f"\n{paint('!', '!')} {labels[digest]}: {trial.failure}: {trial.message}")
        for text in trial.evidence[:_QUOTED]:
            print(f"    | {text}")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(text, "bold") if number == 0 else text)
