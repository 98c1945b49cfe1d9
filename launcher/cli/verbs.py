"""What each verb does, in terms of the other packages."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.catalogue import rules
from launcher.cli import show
from launcher.cli.drift import drift, status
from launcher.cli.flight import in_flight
from launcher.cli.past import history, rollback, uninstall
from launcher.cli.prepare import Prepared, exported, layers, prepare, write
from launcher.cli.tell import confirmed, live, progress, who
from launcher.errors import ConfigError
from launcher.fleet import rollout
from launcher.fleet.change import Flight, Why, roll
from launcher.host import secret_values
from launcher.host.requests import apply_request
from launcher.render.intent import intent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from launcher.cli.parser import CommandLine
    from launcher.host.requests import Change
    from launcher.host.secret_values import SecretValues
    from launcher.host.transport import Transport
    from launcher.render.exports import Export
    from launcher.schema import Deployment


def up(line: CommandLine) -> int:
    """Deploy, or render where no host is named."""
    return _deploy(line, apply=True)


def plan(line: CommandLine) -> int:
    """Show what `up` would change."""
    return _deploy(line, apply=False)


def render_only(line: CommandLine) -> int:
    """Write releases into a folder, whatever the target."""
    _no_sweep(line)
    return _render(line, prepare(line), keep=True)


def run(line: CommandLine) -> int:
    """Become the server, in the foreground, with the environment that the unit would give it."""
    _no_sweep(line)
    prepared = prepare(line)
    if len(prepared) != 1:
        raise ConfigError("run takes one deployment")
    if prepared[0].deployment.runtime.kind != "venv":
        raise ConfigError("launch run starts the engine itself: leave out runtime=podman, whose container needs a unit")
    release = prepared[0].release
    from launcher.host import foreground

    values = secret_values.read(prepared[0].deployment).reveal()
    env, dropped = foreground.environment(os.environ, release.env, values)
    for name in dropped:
        print(f"launch: {name} of this shell is not passed on: the configuration does not set it", file=sys.stderr)
    print(f"launch: release {release.digest}: {shlex.join(release.argv)}", file=sys.stderr)
    sys.stdout.flush()
    foreground.replace_process(release, env, values)


def check(line: CommandLine) -> int:
    """Apply all rules to the configuration; 2 when one of them refuses it."""
    _no_sweep(line)
    prepared = prepare(line, judge=False)
    code = ConfigError.exit_code if any(rules.refusals(item.findings) for item in prepared) else 0
    if line.json:
        print(json.dumps(show.findings_record(prepared, code), indent=1))
    else:
        show.findings(prepared)
    return code


def explain(line: CommandLine) -> int:
    """Tell a key's value, what set it, and what of it reaches the server."""
    _no_sweep(line)
    from launcher.cli.explain import explanation

    if not line.names:
        raise ConfigError(
            "explain takes a key: launch explain nccl.algo +hw=rtx6000x8, or launch explain nccl.algo NAME"
        )
    key, *names = line.names
    if len(names) > 1:
        raise ConfigError("explain takes one key and one deployment")
    item, *others = prepare(line.with_names(*names), judge=False)
    if others:
        raise ConfigError("explain takes one key and one deployment")
    told = explanation(item.composition, item.release, item.findings, key)
    print(json.dumps(told, indent=1) if line.json else show.explanation(told))
    return 0


def bench(line: CommandLine) -> int:
    """Measure one configuration."""
    _no_sweep(line)
    from launcher.cli import sweep

    return sweep.bench(line)


def results(line: CommandLine) -> int:
    """Show sweeps, or what one of them found out."""
    _no_sweep(line)
    from launcher.cli.results import results as told

    return told(line)


def diff(line: CommandLine) -> int:
    """Show how two points, or two sweeps, differ."""
    _no_sweep(line)
    from launcher.cli.diff import diff as told

    return told(line)


def promote(line: CommandLine) -> int:
    """Write a point of a sweep as a deployment, and deploy it where it names a host."""
    _no_sweep(line)
    from launcher.cli.promote import promoted

    done = promoted(line)
    if done.code or not done.deploys:
        return done.code
    return up(dataclasses.replace(line, verb="up", names=(done.name,), overrides=()))


def init(line: CommandLine) -> int:
    """Write a small commented folder to start from."""
    _no_sweep(line)
    from launcher.cli.init import write_folder

    if len(line.names) > 1:
        raise ConfigError("init takes one name")
    written = write_folder(line.names[0] if line.names else "server", layers(line))
    for path in written:
        print(f"written: {path}")
    print(f"Next: name your host in {written[0]}, then: launch plan {written[0].stem}")
    return 0


def adopt(line: CommandLine) -> int:
    """Write deployment files from commands, units and containers, or from what runs on hosts."""
    _no_sweep(line)
    from launcher.cli.adopt import adopt as written

    return written(line)


def schema(line: CommandLine) -> int:
    """Print the JSON Schema of one kind of file."""
    _no_sweep(line)
    from launcher.cli.schemas import schema as told

    return told(line)


VERBS: dict[str, Callable[[CommandLine], int]] = {
    "up": up,
    "plan": plan,
    "render": render_only,
    "status": status,
    "drift": drift,
    "history": history,
    "rollback": rollback,
    "uninstall": uninstall,
    "run": run,
    "bench": bench,
    "check": check,
    "explain": explain,
    "results": results,
    "diff": diff,
    "promote": promote,
    "init": init,
    "adopt": adopt,
    "schema": schema,
}


def _no_sweep(line: CommandLine) -> None:
    if line.multirun:
        raise ConfigError(f"-m does not go with {line.verb}")


def _deploy(line: CommandLine, *, apply: bool) -> int:
    if line.multirun:
        from launcher.cli.sweep import multirun

        return multirun(line, run=apply)
    prepared = prepare(line)
    if any(item.deployment.target.kind == "process" for item in prepared):
        raise ConfigError("target=process has no systemd to deploy to: launch run, launch bench, or launch -m")
    if any(item.deployment.target.kind == "slurm" for item in prepared):
        raise ConfigError("target=slurm is for sweeps (launch -m); to serve in a job: launch render --format sbatch")
    if all(item.deployment.target.kind == "render" for item in prepared):
        return _render(line, prepared, keep=apply)
    if any(item.deployment.target.kind == "render" for item in prepared):
        raise ConfigError("some of these deployments name a host and some do not: give each a target")
    return _deploy_all(line, _jobs(prepared), apply=apply)


@dataclass(frozen=True)
class _Job:
    """One deployment with the ways to its hosts and its secrets."""

    item: Prepared
    ways: Sequence[Transport]
    secrets: SecretValues

    def look(self, progress: rollout.Progress) -> rollout.Result:
        deployment, release = self.item.deployment, self.item.release
        seen = rollout.look(deployment, release, self.ways, self.secrets, progress)
        return rollout.Result(release.name, release.digest, seen)

    def change(self, seen: rollout.Result, flight: Flight, tell: rollout.Progress, why: Why) -> rollout.Result:
        deployment, release = self.item.deployment, self.item.release
        kept = intent(deployment, self.item.words, who())
        links = _link_test(deployment)

        def begin(_: rollout.HostResult, how: Change) -> Mapping[str, Any]:
            return apply_request(release, deployment, self.secrets, kept, how, links)

        done = roll(self.ways, seen.hosts, deployment.target, begin, flight, tell, why)
        return rollout.Result(release.name, release.digest, done)


def _link_test(deployment: Deployment) -> Mapping[str, Any] | None:
    if deployment.target.link_test == "off":
        return None
    from launcher.bench import allreduce

    return allreduce.link_test(deployment)


def _jobs(prepared: Sequence[Prepared]) -> list[_Job]:
    """Check every target and read every secret before any host is looked at."""
    return [
        _Job(item, rollout.transports(item.deployment.target), secret_values.read(item.deployment)) for item in prepared
    ]


def _deploy_all(line: CommandLine, jobs: Sequence[_Job], *, apply: bool) -> int:
    """Look at all hosts of all deployments, show one plan, then change one deployment after the other."""
    tell = progress(line)
    results = [job.look(tell) for job in jobs]
    if not line.json:
        for result in results:
            show.plan(result)
    hosts = [host for result in results for host in result.hosts]
    if rollout.blocked(hosts) or not apply or all(host.outcome == "unchanged" for host in hosts):
        return _finish(line, results, changed=False)
    if not line.yes and not confirmed(line, "Apply this? [y/N] "):
        code = _finish(line, results, changed=False)
        if not line.json:
            print("launch: changes are pending, nothing was changed; confirm with --yes", file=sys.stderr)
        return code
    flight, why = Flight(), Why("up", line.break_lease)
    with live(line, [way.host for way in jobs[0].ways] if len(jobs) == 1 else []) as show_progress:
        work = [partial(job.change, seen, flight, show_progress, why) for job, seen in zip(jobs, results, strict=True)]
        done = in_flight(work, flight, [job.item.release.name for job in jobs])
    return _finish(line, done, changed=True)


def _finish(line: CommandLine, results: Sequence[rollout.Result], *, changed: bool) -> int:
    code = rollout.worst(result.exit_code for result in results)
    if line.json:
        print(json.dumps(show.record(results, code), indent=1))
    else:
        for result in results:
            show.result(result, changed=changed)
        if (
            any(host.outcome in {"unreachable", "refused"} for result in results for host in result.hosts)
            and not changed
        ):
            print("No host was changed.")
    return code


def _render(line: CommandLine, prepared: Sequence[Prepared], *, keep: bool) -> int:
    exports = [exported(item, line.format) for item in prepared] if line.format else []
    more = [export.files for export in exports] or [()] * len(prepared)
    folders = [write(item, *files) if keep else None for item, files in zip(prepared, more, strict=True)]
    if line.json:
        _print_records(prepared, folders, exports)
        return 0
    for item, folder in zip(prepared, folders, strict=True):
        show.release(item.deployment, item.release, folder)
    for export, folder in zip(exports, folders if exports else [], strict=True):
        show.export(export, str(folder))
    if not exports and all(item.deployment.target.kind == "render" for item in prepared):
        show.how_to_name_a_host(line)
    return 0


def _print_records(items: Sequence[Prepared], folders: Sequence[Path | None], exports: Sequence[Export]) -> None:
    records: list[dict[str, Any]] = [
        {
            "deployment": item.release.name,
            "digest": item.release.digest,
            "argv": list(item.release.argv),
            "env": dict(item.release.env),
            "folder": str(folder) if folder else None,
        }
        for item, folder in zip(items, folders, strict=True)
    ]
    for record, export in zip(records, exports, strict=False):
        files = [file.path for file in export.files]
        record["export"] = {"files": files, "kept": export.kept, "lost": export.lost}
    print(json.dumps(records, indent=1))
