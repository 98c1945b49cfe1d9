"""What each verb does, in terms of the other packages."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli import show
from launcher.compose import compose, compose_points
from launcher.errors import ConfigError, LaunchError, PendingError, RenderError
from launcher.fleet import rollout
from launcher.render import Release, render

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.cli.parser import CommandLine
    from launcher.schema import Deployment


def up(line: CommandLine) -> int:
    """Deploy, or render where no host is named."""
    return _deploy(line, apply=True)


def plan(line: CommandLine) -> int:
    """Show what `up` would change."""
    return _deploy(line, apply=False)


def render_only(line: CommandLine) -> int:
    """Write releases into a folder, whatever the target."""
    return _render_points(line) if line.multirun else _render_all(line, _releases(line))


def status(line: CommandLine) -> int:
    """Show what runs on the hosts, and whether it is this configuration."""
    _no_sweep(line)
    results = []
    for deployment, release in _releases(line):
        if deployment.target.kind == "render":
            raise ConfigError("no host is named: add target=local, or target=ssh 'target.hosts=[HOST]'")
        ways = rollout.transports(deployment.target)
        seen = rollout.look(deployment, release, ways, _progress(line))
        results.append(rollout.Result(deployment.name, release.digest, seen))
    if line.json:
        print(json.dumps([show.record(result) for result in results], indent=1))
    else:
        show.status_table(results)
    codes = [result.exit_code for result in results]
    return max((code for code in codes if code != 3), default=0)  # pending is no failure of a look


def run(line: CommandLine) -> int:
    """Become the server, in the foreground, with the environment that the unit would give it."""
    _no_sweep(line)
    releases = _releases(line)
    if len(releases) != 1:
        raise ConfigError("run takes one deployment")
    _, release = releases[0]
    from launcher.host.foreground import environment, replace_process

    env, dropped = environment(os.environ, release)
    for name in dropped:
        print(
            f"launch: {name} of this shell is not passed on: the configuration does not set it",
            file=sys.stderr,
        )
    print(f"launch: release {release.digest}: {shlex.join(release.argv)}", file=sys.stderr)
    replace_process(release, env)


VERBS: dict[str, Callable[[CommandLine], int]] = {
    "up": up,
    "plan": plan,
    "render": render_only,
    "status": status,
    "run": run,
}


def _releases(line: CommandLine) -> list[tuple[Deployment, Release]]:
    """Compose and render everything that the command line names, before anything is touched."""
    names = line.names or ("",)
    pairs: list[tuple[Deployment, Release]] = []
    for name in names:
        texts = [*([f"deployment={name}"] if name else []), *line.overrides]
        deployment = compose(texts, line.environment)
        pairs.append((deployment, render(deployment)))
    return pairs


def _no_sweep(line: CommandLine) -> None:
    if line.multirun:
        raise ConfigError(f"-m does not go with {line.verb}")


def _deploy(line: CommandLine, *, apply: bool) -> int:
    if line.multirun:
        return _render_points(line, write=apply)
    pairs = _releases(line)
    if all(deployment.target.kind == "render" for deployment, _ in pairs):
        return _render_all(line, pairs) if apply else _show_releases(line, pairs)
    codes = [_deploy_one(line, deployment, release, apply=apply) for deployment, release in pairs]
    return next(code for code in (8, 7, 1, 6, 5, 4, 3, 0) if code in codes)


def _deploy_one(line: CommandLine, deployment: Deployment, release: Release, *, apply: bool) -> int:
    ways = rollout.transports(deployment.target)
    progress = _progress(line)
    seen = rollout.look(deployment, release, ways, progress)
    if not line.json:
        show.plan(deployment, release, seen)
    result = rollout.Result(deployment.name, release.digest, seen)
    if rollout.blocked(seen) or not apply or all(host.outcome == "unchanged" for host in seen):
        return _finish(line, result, changed=False)
    if not line.yes and not _confirmed(line):
        raise PendingError("changes are pending, nothing was changed; confirm with --yes")
    done = rollout.change(deployment, release, ways, seen, progress)
    return _finish(line, rollout.Result(deployment.name, release.digest, done), changed=True)


def _finish(line: CommandLine, result: rollout.Result, *, changed: bool) -> int:
    if line.json:
        print(json.dumps(show.record(result), indent=1))
    else:
        show.result(result, changed=changed)
    return result.exit_code


def _confirmed(line: CommandLine) -> bool:
    if line.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input("Apply this? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def _progress(line: CommandLine) -> rollout.Progress:
    def tell(host: str, text: str) -> None:
        print(f"{host}: {text}", file=sys.stderr, flush=True)

    return (lambda _host, _text: None) if line.json else tell


def _render_all(line: CommandLine, pairs: list[tuple[Deployment, Release]]) -> int:
    folders = [_write(deployment, release) for deployment, release in pairs]
    if line.json:
        print(json.dumps([_rendered(r, f) for (_, r), f in zip(pairs, folders, strict=True)], indent=1))
        return 0
    for (deployment, release), folder in zip(pairs, folders, strict=True):
        show.release(deployment, release, folder)
    if all(deployment.target.kind == "render" for deployment, _ in pairs):
        show.how_to_name_a_host(line)
    return 0


def _show_releases(line: CommandLine, pairs: list[tuple[Deployment, Release]]) -> int:
    if line.json:
        print(json.dumps([_rendered(release, None) for _, release in pairs], indent=1))
        return 0
    for deployment, release in pairs:
        show.release(deployment, release, None)
    show.how_to_name_a_host(line)
    return 0


def _rendered(release: Release, folder: Path | None) -> dict[str, Any]:
    return {
        "deployment": release.name,
        "digest": release.digest,
        "argv": list(release.argv),
        "env": dict(release.env),
        "folder": str(folder) if folder else None,
    }


def _render_points(line: CommandLine, *, write: bool = True) -> int:
    """Render every point of a sweep; points with equal digests are one."""
    if len(line.names) > 1:
        raise ConfigError("a sweep takes one deployment")
    texts = [*[f"deployment={name}" for name in line.names], *line.overrides]
    points: dict[str, tuple[str, Deployment, Release]] = {}
    for words, deployment in compose_points(texts, line.environment):
        label = " ".join(word for word in words if word not in line.overrides) or "(one point)"
        if deployment.target.kind != "render":
            raise ConfigError(
                "a sweep on hosts is not there yet: without target=… the points are composed and rendered"
            )
        try:
            release = render(deployment)
        except RenderError as error:
            raise RenderError(*(f"point '{label}': {p}" for p in error.problems)) from error
        points.setdefault(release.digest, (label, deployment, release))
    folders = {digest: _write(d, r) if write else None for digest, (_, d, r) in points.items()}
    if line.json:
        records = [
            {"point": label, **_rendered(release, folders[digest])} for digest, (label, _, release) in points.items()
        ]
        print(json.dumps(records, indent=1))
    else:
        show.points([(label, release, folders[digest]) for digest, (label, _, release) in points.items()])
    return 0


def _write(deployment: Deployment, release: Release) -> Path:
    """Write a release into the target's folder and return where it lies.

    Raises:
        LaunchError: the folder cannot be written.
    """
    folder = Path(deployment.target.out) / release.name / release.digest
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in release.files:
            path = folder / Path(file.path).name
            path.touch(mode=file.mode)
            path.write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise LaunchError(
            f"target.out={deployment.target.out}: cannot write {error.filename}: {error.strerror}"
        ) from error
    return folder
