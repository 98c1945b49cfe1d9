"""`-m` and `bench`: the plan of a sweep, its run, and what it found out."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import __version__
from launcher.bench import allreduce
from launcher.cli import measuring, searching, sharing, show_sweep
from launcher.cli.prepare import layers, names_of
from launcher.cli.tell import who
from launcher.compose import compose_sweep
from launcher.errors import ConfigError, LaunchError
from launcher.fleet.rollout import PENDING, worst
from launcher.sweep import checks, shares
from launcher.sweep.points import Points, build
from launcher.sweep.record import Settings, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from launcher.cli.parser import CommandLine
    from launcher.render import Release
    from launcher.schema import Deployment
    from launcher.sweep.record import Judgement, Workload


def multirun(line: CommandLine, *, run: bool) -> int:
    """Plan a sweep and, where it can be, run it.

    Raises:
        ConfigError: the sweep is refused.
    """
    points = _points(line)
    if len(points.candidates) == 1 and not (points.axes or points.client_axes):
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
        raise ConfigError("bench needs to know what to measure: add bench=allreduce or bench=serve")
    return _go(line, points, run=True)


def _points(line: CommandLine) -> Points:
    path = layers(line)
    names = names_of(line, path)
    if len(names) > 1:
        raise ConfigError("a measurement takes one deployment")
    texts = [*[f"deployment={name}" for name in names if name], *line.overrides]
    composed = compose_sweep(texts, path, line.environment)
    first = composed.baseline.composition.deployment
    if line.multirun and first.bench.kind == "off" and first.target.kind != "render":
        # A host is named, and nothing else is said: the server itself is measured.
        composed = compose_sweep([*texts, "bench=serve"], path, line.environment)
    for note in composed.baseline.composition.notes:
        print(f"launch: {note}", file=sys.stderr)
    checks.check(composed.baseline.composition.deployment)
    points = build(composed, line.allow, _identity, line.environment)
    return _pruned(points) if points.candidates[0].deployment.sweep.prune else points


def _pruned(points: Points) -> Points:
    from launcher.catalogue import measured
    from launcher.sweep import pruned

    deployment = points.candidates[0].deployment
    if deployment.bench.kind == "allreduce":
        raise ConfigError("sweep.prune=true goes by what bench=allreduce has measured: take it with bench=serve")
    own = measured.own(Path(deployment.sweep.out).expanduser())
    return pruned.without(points, (*measured.shipped(), *own))


def _identity(deployment: Deployment, release: Release) -> str:
    return allreduce.identity(deployment) if deployment.bench.kind == "allreduce" else release.digest


def _go(line: CommandLine, points: Points, *, run: bool) -> int:
    baseline = points.candidates[0].deployment
    if baseline.bench.kind == "off":
        return show_sweep.only_plan(
            line, points, "what to measure: bench=allreduce (collectives alone, seconds a point), or bench=serve"
        )
    sweep = _sweep(line, points, measuring.workloads(points))
    if not run or baseline.target.kind == "render":
        missing = (
            ""
            if baseline.target.kind != "render"
            else "where: target=process (here), or target=ssh target.hosts=[HOST]"
        )
        return show_sweep.only_plan(line, points, missing, sweep)
    return _run(line, points, sweep)


def _sweep(line: CommandLine, points: Points, workloads: tuple[Workload, ...]) -> Sweep:
    deployment, hosts = points.candidates[0].deployment, sharing.hosts(points)
    homes = shares.assign([candidate.point for candidate in points.candidates[1:]], hosts, {}) if hosts else {}
    settings = {field.name: getattr(deployment.sweep, field.name) for field in dataclasses.fields(Settings)}
    return Sweep(
        name=deployment.name,
        id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{deployment.name}-{deployment.bench.kind}",
        command=show_sweep.command(line),
        target=_target(deployment, homes),
        axes=points.axes,
        workloads=workloads,
        points=tuple(candidate.point for candidate in points.candidates),
        left_out=points.left_out,
        settings=Settings(**settings),
        facts=_facts(deployment),
        hosts=hosts,
        homes=homes,
        **searching.fields(line, points),
    )


def _target(deployment: Deployment, homes: Mapping[str, str]) -> str:
    if deployment.target.kind == "slurm":
        return shares.SLURM
    if homes:
        return ", ".join(dict.fromkeys(homes.values()))
    if deployment.target.kind in ("process", "local"):
        return "this machine"
    return ", ".join(deployment.target.hosts)


def _facts(deployment: Deployment) -> dict[str, Any]:
    from launcher.bench.carried import carried

    return {
        "launch": __version__,
        "model": deployment.model.name,
        "hardware": deployment.hw.name,
        "engine": deployment.engine.name,
        "ranks": deployment.engine.tensor_parallel,
        "backend": deployment.bench.backend,
        "program": "nccl-tests" if deployment.bench.nccl_tests else "torch",
        "baseline NCCL set": {k: v for k, v in carried(deployment).items() if k.startswith("NCCL_")},
    }


def _run(line: CommandLine, points: Points, sweep: Sweep) -> int:
    from launcher.sweep import resume

    deployment = points.candidates[0].deployment
    sweep = sharing.looked(points, sweep)
    if not line.json:
        show_sweep.plan(points, sweep)
    if not measuring.agreed(line, points, sweep):
        print("launch: nothing was started; confirm with --yes", file=sys.stderr)
        return PENDING
    out, wanted = Path(deployment.sweep.out).expanduser(), resume.Wanted(line.resume, line.resume_failed)
    with resume.opened(out, sweep, wanted, who(), show_sweep.note) as (begun, folder):
        return _measured(line, points, begun, folder)


def _measured(line: CommandLine, points: Points, sweep: Sweep, folder: Path) -> int:
    from launcher.sweep import closing, session, shared
    from launcher.sweep.statistics import judge

    watcher, why, ended = show_sweep.Progress(line), "", shared.Ended("")
    for ends in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ends) is not signal.SIG_IGN:  # as under nohup
            signal.signal(ends, _interrupt)
    try:
        if sweep.homes:
            ended = sharing.run(points, sweep, folder, watcher, watcher.tell)
            why = ended.why
        else:
            with measuring.measuring(points, sweep, folder, watcher.tell) as host:
                sweep, why = session.run(sweep, folder, host.measure, watcher, step=searching.step(sweep))
                closing.take(sweep, folder, host.closing, watcher, show_sweep.note)
            ended = shared.Ended(why, lost=host.lost)
    except KeyboardInterrupt:
        why = "interrupted"
        kept = "what was measured is kept" if watcher.last else "nothing was measured yet"
        print(f"launch: interrupted; {kept}", file=sys.stderr)
    except LaunchError:
        if watcher.last:
            show_sweep.note(f"what was measured is kept in {folder}; go on with --resume={folder.name}")
        raise
    finally:
        with _undisturbed():
            sweep = watcher.last or sweep
            judgement = judge(sweep)
            paths, unwritten = _written(points, sweep, judgement, folder, why or "stopped by an error")
    show_sweep.end(line, sweep, judgement, why, paths, ended.dropped)
    if why == "interrupted":
        return 130
    whole = [part for part in shares.parts(sweep) if part.target not in ended.dropped]
    gave = [any(not r.invalid for trial in part.trials for r in trial.readings) for part in whole]
    failed = [*ended.dropped.values(), *ended.lost, *unwritten]
    return worst([0 if all(gave) else 1, *(error.exit_code for error in failed)])


def _written(
    points: Points, sweep: Sweep, judgement: Judgement, folder: Path, ended: str
) -> tuple[list[Path], list[LaunchError]]:
    """Write the report and the memory of what was measured; return its paths, and what could not be written."""
    from launcher.slurm import spool
    from launcher.sweep import current, journal, report

    paths, unwritten = list[Path](), list[LaunchError]()
    told = dataclasses.replace(sweep, facts={**sweep.facts, "ended": ended, **current.facts(sweep)})
    with _told(unwritten):
        paths = report.write(folder, told, judgement) if sweep.trials else []
    with _told(unwritten):
        _remember(sweep, points)
    # Nothing that anybody could look for, as the output of a job would be.
    if not sweep.trials and not sweep.past and journal.is_empty(folder) and not spool.used(folder):
        shutil.rmtree(folder, ignore_errors=True)
    return paths, unwritten


def _remember(sweep: Sweep, points: Points) -> None:
    """Add what was measured to the memory that later plans warn from."""
    from launcher.bench import memory
    from launcher.catalogue import measured
    from launcher.sweep import disk

    if points.candidates[0].deployment.bench.kind != "allreduce":
        return
    deployments = {c.point.digest: c.deployment for c in points.candidates}
    found = [
        row
        for part, host in zip(shares.parts(sweep), shares.hosts_of(sweep) or ("",), strict=True)
        for row in memory.rows(part, deployments, shares.on(f"sweep {sweep.id}", host))
    ]
    if found:
        out = Path(points.candidates[0].deployment.sweep.out).expanduser()
        with disk.told(out / measured.OWN, "the memory of what was measured is not written"):
            measured.add(found, out)


@contextlib.contextmanager
def _told(errors: list[LaunchError]) -> Iterator[None]:
    """Tell what cannot be written and go on: what was measured is in the journal, and still worth to be shown."""
    try:
        yield
    except LaunchError as error:
        show_sweep.note(str(error))
        errors.append(error)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no further Ctrl-C end this program while it writes down what was measured: that takes a second or two."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    """End like Ctrl-C: what runs is ended, what was measured is kept and told."""
    raise KeyboardInterrupt
