"""`-m` and `bench`: the plan of a sweep, its run, and what it found out."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import __version__
from launcher.bench import allreduce
from launcher.bench.steps import Step, steps
from launcher.cli.prepare import layers, names_of
from launcher.cli.tell import paint, who
from launcher.compose import compose_sweep
from launcher.errors import ConfigError
from launcher.sweep.points import Points, build
from launcher.sweep.record import Settings, Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.render import Release
    from launcher.schema import Deployment
    from launcher.sweep.record import Judgement, Point, Trial

#: Of one trial without a server, before one was measured here (2 x H200: 8 s; 11 sizes).
_TRIAL_SECONDS = 9.0


def multirun(line: CommandLine, *, run: bool) -> int:
    """Plan a sweep and, where it can be, run it.

    Raises:
        ConfigError: the sweep is refused.
    """
    points = _points(line)
    if len(points.candidates) == 1 and not points.axes:
        raise ConfigError("-m without a list of values: give one, as nccl.algo=Ring,Tree")
    return _go(line, points, run=run)


def bench(line: CommandLine) -> int:
    """Measure one configuration.

    Raises:
        ConfigError: nothing to measure with, or on.
    """
    points = _points(line)
    if points.axes:
        raise ConfigError("bench takes one configuration; for several: launch -m …")
    if points.candidates[0].deployment.bench.kind == "off":
        raise ConfigError("bench needs to know what to measure: add bench=allreduce")
    return _go(line, points, run=True)


def _points(line: CommandLine) -> Points:
    path = layers(line)
    names = names_of(line, path)
    if len(names) > 1:
        raise ConfigError("a measurement takes one deployment")
    texts = [*[f"deployment={name}" for name in names if name], *line.overrides]
    composed = compose_sweep(texts, path, line.environment)
    for note in composed.baseline.composition.notes:
        print(f"launch: {note}", file=sys.stderr)
    return build(composed, line.allow, _identity)


def _identity(deployment: Deployment, release: Release) -> str:
    return allreduce.identity(deployment) if deployment.bench.kind == "allreduce" else release.digest


def _go(line: CommandLine, points: Points, *, run: bool) -> int:
    baseline = points.candidates[0].deployment
    if baseline.bench.kind == "off":
        return _only_plan(line, points, "what to measure: bench=allreduce (collectives alone, seconds a point)")
    wanted = _steps(points)
    sweep = _sweep(line, points, wanted)
    if not run or baseline.target.kind == "render":
        missing = (
            ""
            if baseline.target.kind != "render"
            else "where: target=process (here), or target=ssh target.hosts=[HOST]"
        )
        return _only_plan(line, points, missing, sweep)
    return _run(line, points, sweep)


def _steps(points: Points) -> tuple[Step, ...]:
    """Return the steps that all points share.

    Raises:
        ConfigError: a point has others, so its figures could not be compared.
    """
    first = steps(points.candidates[0].deployment)
    for candidate in points.candidates[1:]:
        if steps(candidate.deployment) != first:
            raise ConfigError(
                f"point '{candidate.point.label}' has messages of other sizes than the baseline: with bench=allreduce"
                " points differ in NCCL's variables and the environment; measure models, speculation and"
                " engine.tensor_parallel one at a time"
            )
    return first


def _sweep(line: CommandLine, points: Points, wanted: tuple[Step, ...]) -> Sweep:
    deployment = points.candidates[0].deployment
    told = dataclasses.asdict(deployment.sweep)
    out = told.pop("out")
    assert out is not None  # noqa: S101 - a string; kept out of the settings
    return Sweep(
        name=deployment.name,
        id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{deployment.name}-{deployment.bench.kind}",
        command=_command(line),
        target="this machine"
        if deployment.target.kind == "process"
        else ", ".join(deployment.target.hosts) or "localhost",
        axes=points.axes,
        workloads=tuple(step.workload for step in wanted),
        points=tuple(candidate.point for candidate in points.candidates),
        left_out=points.left_out,
        settings=Settings(**told),
        facts=_facts(deployment),
    )


def _command(line: CommandLine) -> str:
    words = [*(["-m"] if line.multirun else ["bench"]), *line.names, *line.overrides]
    words += [word for name, value in line.environment.items() for word in ("-e", f"{name}={value}")]
    return shlex.join(["launch", *words, *(word for rule in line.allow for word in ("--allow", rule))])


def _facts(deployment: Deployment) -> dict[str, Any]:
    from launcher.bench.carried import carried

    return {
        "launch": __version__,
        "model": deployment.model.name,
        "hardware": deployment.hw.name,
        "engine": deployment.engine.name,
        "ranks": deployment.engine.tensor_parallel,
        "backend": deployment.bench.backend,
        "baseline NCCL set": {k: v for k, v in carried(deployment).items() if k.startswith("NCCL_")},
    }


def _only_plan(line: CommandLine, points: Points, missing: str, sweep: Sweep | None = None) -> int:
    if line.json:
        print(json.dumps(_plan_record(points, missing, sweep), indent=1))
        return 0
    _show_plan(points, sweep)
    if missing:
        print(f"\nNothing was measured. Missing is {missing}. Next:")
        words = [*line.names, *line.overrides]
        words += [] if sweep else ["bench=allreduce"]
        words += [] if points.candidates[0].deployment.target.kind != "render" else ["target=process"]
        print(f"  launch -m {shlex.join(words)}")
    return 0


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


def _show_plan(points: Points, sweep: Sweep | None) -> None:
    """Print what a sweep would do, before anything is touched."""
    count = len(points.candidates)
    print(paint(f"sweep of {count} point{'s' if count > 1 else ''}", "bold"))
    width = max(len(c.point.label) for c in points.candidates)
    for candidate in points.candidates:
        point = candidate.point
        same = f"  (also: {'; '.join(point.aliases)})" if point.aliases else ""
        print(f"  {point.digest}  {point.label:<{width}}{same}".rstrip())
        for note in point.notes:
            print(f"      {paint('!', '!')} {note}")
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
    print(f"  {trials} fresh starts at least, the baseline interleaved; about {minutes:.0f} min, no server is touched")


def _bytes(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


def _run(line: CommandLine, points: Points, sweep: Sweep) -> int:
    from launcher.bench.measure import AllReduce, place
    from launcher.sweep import journal, report, session
    from launcher.sweep.statistics import judge

    deployment = points.candidates[0].deployment
    where = place(deployment, who())
    if not line.json:
        _show_plan(points, sweep)
    folder = journal.create(Path(deployment.sweep.out).expanduser(), sweep)
    measure = AllReduce({c.point.digest: c.deployment for c in points.candidates}, where, lambda _: None)
    watcher = _Told(line)
    why = ""
    try:
        sweep, why = session.run(sweep, folder, measure, watcher)
    except KeyboardInterrupt:
        why = "interrupted"
        print("launch: interrupted; what was measured is kept", file=sys.stderr)
    finally:
        where.close()
        sweep = watcher.last or sweep
        judgement = judge(sweep)
        paths = report.write(folder, sweep, judgement) if sweep.trials else []
    _tell_end(line, sweep, judgement, why, paths)
    if why == "interrupted":
        return 130
    return 1 if not any(t.readings for t in sweep.trials) else 0


class _Told:
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


def _tell_end(line: CommandLine, sweep: Sweep, judgement: Judgement, why: str, paths: Sequence[Path]) -> None:
    from launcher.sweep import effects, tables
    from launcher.sweep.plain import to_plain

    told = tables.summary(sweep, judgement)
    if line.json:
        record = {
            "id": sweep.id,
            "ended": why,
            "summary": told,
            "judgement": to_plain(judgement),
            "effects": [dataclasses.asdict(e) for e in effects.effects(sweep, judgement)],
            "files": [str(path) for path in paths],
            "exit_code": 0,
        }
        print(json.dumps(record, indent=1))
        return
    print()
    _print_table(tables.table(sweep, judgement))
    lines = effects.text(sweep, judgement)
    if lines:
        print("\neffect on a step")
        for text in lines:
            print(f"  {text}")
    print()
    for text in (*told, *judgement.notes, *([f"Ended: {why}."] if why else [])):
        print(text)
    for path in paths[:1]:
        print(f"report: {path}")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        print(paint(text, "bold") if number == 0 else text)
