"""What a sweep shows: its plan, a line a trial, and what it found out; a record of the same for machines."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from launcher.cli import show_plan
from launcher.cli.tell import paint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from launcher.cli.parser import CommandLine
    from launcher.errors import LaunchError
    from launcher.sweep.points import Points
    from launcher.sweep.record import Judgement, Point, Reading, Sweep, Trial

#: Quoted lines of a failed point.
_QUOTED = 6


def note(text: str) -> None:
    """Tell something beside the results."""
    print(f"launch: {text}", file=sys.stderr, flush=True)


def only_plan(line: CommandLine, points: Points, missing: str, sweep: Sweep | None = None) -> int:
    """Print what a sweep would do and what is missing to run it, and return the exit code."""
    if line.json:
        print(json.dumps(show_plan.record(points, missing, sweep), indent=1))
        return 0
    plan(points, sweep)
    if missing:
        print(f"\nNothing was measured. Missing is {missing}. Next:")
        words = [] if sweep else ["bench=allreduce"]
        if points.candidates[0].deployment.target.kind == "render":
            given = tuple(word for word in line.overrides if word.lstrip("+") != "target=render")
            hosts = ["target=ssh", "target.hosts=[HOST]"]  # a closing measurement needs what serves there
            words += hosts if points.candidates[0].deployment.sweep.closing else ["target=process"]
            line = dataclasses.replace(line, overrides=given)
        print(f"  {command(line, *words)}")
    return 0


def command(line: CommandLine, *more: str) -> str:
    """Return the command that sweeps or measures what a command line says, and more overrides."""
    search = [f"--search={line.search}" if line.search.isdigit() else "--search"] if line.search else []
    words = ["-m", *search, *(["up"] if line.names else [])] if line.multirun else ["bench"]
    words += [*line.names, *line.overrides, *more]
    words += [word for name, value in line.environment.items() for word in ("-e", f"{name}={value}")]
    words += [word for folder in line.config_dirs for word in ("--config-dir", folder)]
    return shlex.join(["launch", *words, *(word for rule in line.allow for word in ("--allow", rule))])


def plan(points: Points, sweep: Sweep | None) -> None:
    """Print what a sweep would do, before anything is touched."""
    for text in show_plan.lines(points, sweep):
        print(text)


class Progress:
    """Progress of a sweep: one line a trial on standard error; keeps the newest state for what interrupts it."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._past = 0
        self.last: Sweep | None = None

    def begins(self, sweep: Sweep, point: Point) -> None:
        """Say which point is started."""
        self._past = max(self._past, len(sweep.past))
        if sys.stderr.isatty() and not self._line.json:
            print(f"\r\x1b[K{len(sweep.trials) + 1}: {point.label} …", end="", file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """Say what is being done, where that does not fill a log."""
        if sys.stderr.isatty() and not self._line.json:
            print(f"\r\x1b[K  {text[:100]}", end="", file=sys.stderr, flush=True)

    def ended(self, sweep: Sweep, trial: Trial) -> None:
        """Say what a trial gave, and how much is left."""
        from launcher.sweep import current, shares

        if len(sweep.past) > self._past:
            self._past = len(sweep.past)
            print("\r\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr)
            for text in current.told(sweep):
                note(text)
        self.last = sweep
        labels = {point.digest: point.label for point in sweep.points}
        label = shares.on(labels[trial.point], trial.host)
        done, total = len(sweep.trials), max(shares.expected(sweep), len(sweep.trials))
        left = shares.left(sweep) * sum(t.seconds for t in sweep.trials) / done
        if self._line.json:
            record = {
                "trial": trial.order,
                "point": labels[trial.point],
                **({"host": trial.host} if trial.host else {}),
                "failure": trial.failure,
                "left_s": round(left),
            }
            print(json.dumps(record), file=sys.stderr, flush=True)
            return
        start = "\r\x1b[K" if sys.stderr.isatty() else ""
        print(
            f"{start}{done}/{total} {label}: {_gave(sweep, trial)} ({trial.seconds:.1f} s;"
            f" about {left / 60:.1f} min left)",
            file=sys.stderr,
            flush=True,
        )

    def closed(self, sweep: Sweep, trial: Trial) -> None:
        """Say what production gave when it was back."""
        from launcher.sweep import shares

        self.last = sweep
        if self._line.json:
            told = {"closing": trial.order, **({"host": trial.host} if trial.host else {}), "failure": trial.failure}
            print(json.dumps(told), file=sys.stderr, flush=True)
            return
        start, name = "\r\x1b[K" if sys.stderr.isatty() else "", shares.on("production, back again", trial.host)
        print(f"{start}{name}: {_gave(sweep, trial)} ({trial.seconds:.1f} s)", file=sys.stderr, flush=True)


def _gave(sweep: Sweep, trial: Trial) -> str:
    if trial.failure:
        return f"{trial.failure}: {trial.message}"
    counted = [r for r in trial.readings if not r.invalid]
    if not counted:
        return f"invalid: {trial.readings[0].invalid[0] if trial.readings else 'nothing was read'}"
    units = {workload.name: workload.unit for workload in sweep.workloads}
    return ", ".join(f"{r.workload} {_figure(r.value, units[r.workload])}" for r in counted)


def _figure(value: float, unit: str) -> str:
    return f"{value / 1000:.3g} ms" if unit == "us" else f"{value:.4g} {unit}"


def end(
    line: CommandLine,
    sweep: Sweep,
    judgement: Judgement,
    why: str,
    paths: Sequence[Path],
    dropped: Mapping[str, LaunchError] | None = None,
) -> None:
    """Print what a sweep found out, and which hosts that share it dropped out."""
    from launcher.sweep import closing, current, effects, tables

    told = tables.summary(sweep, judgement) if len(sweep.points) > 1 else []
    out = [_dropped(sweep, host, error) for host, error in (dropped or {}).items()]
    if line.json:
        record = _record(sweep, judgement, why, told, paths)
        print(json.dumps({**record, "dropped": out} if out else record, indent=1))
        return
    print()
    table(tables.table(sweep, judgement) if len(sweep.points) > 1 else _measured(sweep))
    _failures(sweep)
    lines = effects.text(sweep, judgement)
    if lines:
        print("\neffect on a step")
        for text in lines:
            print(f"  {text}")
    print()
    for text in (
        *told,
        *closing.told(sweep),
        *current.told(sweep),
        *judgement.notes,
        *([f"Ended: {why}."] if why and len(sweep.points) > 1 else []),
    ):
        print(text)
    for one in out:
        print(_unfinished(sweep, one))
    for path in paths[:1]:
        print(f"report: {path}")


def _dropped(sweep: Sweep, host: str, error: LaunchError) -> dict[str, Any]:
    """Return which points a host has left unfinished, and why."""
    from launcher.sweep import shared, shares

    points = [point.label for point in shares.unfinished(shares.part(sweep, host))]
    return {"host": host, "message": shared.told(host, error), "unfinished": points}


def _unfinished(sweep: Sweep, dropped: Mapping[str, Any]) -> str:
    from launcher.sweep import shares

    points = dropped["unfinished"]
    if not points:
        return f"{dropped['host']} dropped out when every point of it was measured."
    names = ", ".join(f"'{label}'" for label in points[:_QUOTED])
    more = f" and {len(points) - _QUOTED} more" if len(points) > _QUOTED else ""
    where = "" if sweep.target == shares.SLURM else ", there or on other hosts"
    return (
        f"{dropped['host']} dropped out, not measured to the end: {names}{more}. To finish them{where}:"
        f" launch -m … --resume={sweep.id}"
    )


def _record(sweep: Sweep, judgement: Judgement, why: str, told: list[str], paths: Sequence[Path]) -> dict[str, Any]:
    from launcher.sweep import closing, current, effects
    from launcher.sweep.plain import to_plain

    production = {"summary": closing.told(sweep), "trials": to_plain(sweep.closing)}

    return {
        "id": sweep.id,
        "ended": why,
        "summary": told,
        "points": to_plain(sweep.points),
        "judgement": to_plain(judgement),
        **({"search": _search(sweep, judgement)} if sweep.search else {}),
        "effects": [dataclasses.asdict(effect) for effect in effects.effects(sweep, judgement)],
        "trials": to_plain(sweep.trials),
        **({"closing": production} if production["summary"] else {}),
        "not_counted": current.told(sweep),
        "files": [str(path) for path in paths],
    }


def _search(sweep: Sweep, judgement: Judgement) -> dict[str, Any]:
    from launcher.search import front, order

    return {
        "most": sweep.search,
        "chosen": [point.digest for point in order.chosen(sweep)],
        "front": [point.digest for point in front.front(sweep, judgement)],
    }


def _measured(sweep: Sweep) -> list[list[str]]:
    """Return what one configuration gave, a row a workload; of several starts the last one."""
    trial = next((trial for trial in reversed(sweep.trials) if trial.readings), None)
    rows = [["workload", "measured", "between", "", ""]]
    known = {workload.name: workload for workload in sweep.workloads}
    for reading in trial.readings if trial else ():
        unit = known[reading.workload].unit
        between = f"{_figure(reading.low, unit)} to {_figure(reading.high, unit)}"
        problem = f"INVALID: {reading.invalid[0]}" if reading.invalid else ""
        rows.append([known[reading.workload].text, _figure(reading.value, unit), between, _more(reading), problem])
    return rows


def _more(reading: Reading) -> str:
    """Return what else a reader asks for first: NCCL's choice for a collective, the other figures of a load."""
    details = reading.details
    if "us_per_allreduce" in details:
        took = " ".join(str(details[key]) for key in ("algorithm", "protocol") if key in details)
        return f"{details['us_per_allreduce']:.1f} us an all-reduce{f', NCCL took {took}' if took else ''}"
    names = {"ttft_ms_median": "ms to the first token", "tpot_ms_median": "ms a token", "output_tokens_per_s": "tok/s"}
    return ", ".join(f"{details[key]:.4g} {text}" for key, text in names.items() if key in details)


def _failures(sweep: Sweep) -> None:
    """Print what made a point fail, with the lines that show it, once a point."""
    from launcher.sweep import shares

    labels = {point.digest: point.label for point in sweep.points}
    failed = {(trial.point, trial.host): trial for trial in sweep.trials if trial.failure}
    for (digest, host), trial in failed.items():
        print(f"\n{paint('!', '!')} {shares.on(labels[digest], host)}: {trial.failure}: {trial.message}")
        for text in trial.evidence[:_QUOTED]:
            print(f"    | {text}")


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first one as their titles."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(text, "bold") if number == 0 else text)
