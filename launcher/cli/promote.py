"""`promote`: a point of a sweep becomes a deployment file of one's own, with its evidence."""

from __future__ import annotations

import dataclasses
import difflib
import json
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli.init import check_name
from launcher.cli.prepare import layers
from launcher.cli.results import out_of
from launcher.cli.show_sweep import note
from launcher.cli.tell import confirmed, paint
from launcher.compose import Layers, compose, standalone
from launcher.errors import ConfigError, LaunchError
from launcher.fleet.rollout import PENDING
from launcher.layers import Layer
from launcher.render import render
from launcher.sweep import evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.compose import Composition
    from launcher.schema import Deployment
    from launcher.sweep.record import Judgement, Point, Sweep

_REACHED = ("local", "ssh")


@dataclass(frozen=True)
class Promoted:
    """A file that is written.

    Attributes:
        name: of the deployment, for `up`.
        deploys: whether the file names a host.
        code: exit code where it was not written.
    """

    name: str
    deploys: bool
    code: int = 0


@dataclass(frozen=True)
class _Found:
    sweep: Sweep
    point: Point
    judgement: Judgement


def promoted(line: CommandLine) -> Promoted:
    """Write a point's deployment file.

    Raises:
        ConfigError: there is no such point, it is no good, or the file would not be this point.
        LaunchError: the file cannot be written.
    """
    found, name = _meant(line)
    evidence.refuse(found.sweep, found.judgement, found.point)
    warnings = evidence.warnings(found.sweep, found.judgement, found.point)
    path = layers(line)
    wanted = _composed(found, line, path)
    name = name or _usual_name(found.point, wanted.deployment, path)
    check_name(f"promote … {name!r}", name)
    file = Path("conf") / "deployment" / f"{name}.yaml"
    text = _text(found, wanted, path, warnings)
    _check(found.point, name, text, path)
    for warning in warnings:
        note(f"warning: {warning}")
    deploys = wanted.deployment.target.kind in _REACHED
    if not _written(line, file, text):
        return Promoted(name, deploys, PENDING)
    _tell(line, found, file, deploys=deploys, name=name)
    return Promoted(name, deploys)


def _meant(line: CommandLine) -> tuple[_Found, str]:
    """Return the point, and the name where one is given; a label may come as several words."""
    from launcher.sweep import shelf
    from launcher.sweep.statistics import judge

    labels = [word for word in line.names if "=" in word]
    names = [word for word in line.names if "=" not in word]
    ref = " ".join(labels) if labels else names.pop(0) if names else ""
    if not ref or len(names) > 1:
        raise ConfigError("promote takes a point and a name: launch promote POINT [NAME]")
    sweep, point = shelf.either(out_of(line), ref, note)
    if point is None:
        raise ConfigError(f"{ref!r} is a sweep, not a point; a point of it is {sweep.id}:POINT")
    return _Found(sweep, point, judge(sweep)), names[0] if names else ""


def _composed(found: _Found, line: CommandLine, path: Layers) -> Composition:
    """Compose the point again, with the target that its file gets.

    Raises:
        ConfigError: the configuration has changed since, so this would be another point.
    """
    point = found.point
    digest = point.env.get("LAUNCH_DIGEST", "")
    if not digest or not point.words:
        raise ConfigError(
            f"sweep {found.sweep.id}: an older launch wrote it and did not keep what its points consist of"
        )
    again = _compose(point.words, path)
    release = render(again.deployment)
    if release.digest != digest:
        from launcher.sweep.compare import makes

        now = dataclasses.replace(point, env=dict(release.env), argv=release.argv)
        changes = [f"{c.kind} {c.name} was {c.left or 'none'} and is {c.right or 'none'}" for c in makes(point, now)]
        raise ConfigError(
            f"the configuration has changed since sweep {found.sweep.id}: '{point.label}' is release"
            f" {release.digest} now, {digest} was measured",
            *changes,
        )
    typed = [word for word in line.overrides if _key(word).startswith("target")]
    if typed or again.deployment.target.kind not in _REACHED:
        words = [word for word in point.words if not _key(word).startswith("target")]
        again = _compose([*words, *typed], path)
    return again


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _compose(words: Sequence[str], path: Layers) -> Composition:
    """Compose words as a sweep keeps them; what rules say was said before the sweep."""
    overrides: list[str] = []
    environment: dict[str, str] = {}
    allow: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-e":
            name, _, value = next(rest).partition("=")
            environment[name] = value
        elif word == "--allow":
            allow.append(next(rest))
        else:
            overrides.append(word)
    composition = compose(overrides, path, environment)
    allowed = tuple(dict.fromkeys([*composition.deployment.allow, *allow]))
    return dataclasses.replace(composition, deployment=dataclasses.replace(composition.deployment, allow=allowed))


def _base(point: Point) -> str:
    """Return the deployment file that a point was composed from; empty without one."""
    return next((word.partition("=")[2] for word in point.words if _key(word) == "deployment"), "")


def _usual_name(point: Point, deployment: Deployment, path: Layers) -> str:
    base = _base(point)
    return base if base in path.options("deployment", own=True) else deployment.name


def _text(found: _Found, wanted: Composition, path: Layers, warnings: Sequence[str]) -> str:
    """Return the file; how a point is measured is no part of it, except what its own file said of that."""
    options = standalone.choices(wanted)
    base = _base(found.point)
    own = compose([f"deployment={base}"], path) if base else None
    measured = standalone.choices(own) if own else {}
    options = {group: option for group, option in options.items() if group not in standalone.MEASURING}
    options |= {group: measured[group] for group in standalone.MEASURING if group in measured}
    plain = compose([f"{group}={option}" for group, option in options.items()], path).deployment
    source = own.deployment if own else plain
    deployment = dataclasses.replace(
        wanted.deployment, **{name: getattr(source, name) for name in standalone.MEASURING}
    )
    told = evidence.lines(found.sweep, found.judgement, found.point)
    head = [*told, *(f"Warning: {warning}." for warning in warnings)]
    return standalone.text(head, options, plain, deployment, path)


def _check(point: Point, name: str, text: str, path: Layers) -> None:
    """Compose the file before it is written.

    Raises:
        ConfigError: it would not be this point, or a stronger file of that name would be composed instead.
    """
    stronger = []
    for layer in path.folders:
        if layer.path == (Path.cwd() / "conf").resolve() or not layer.own:
            break
        stronger += [layer.label] if Layers((layer,)).find(f"deployment/{name}") else []
    if stronger:
        raise ConfigError(f"{stronger[0]} has a deployment {name!r} that stands before ./conf: give another name")
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        file = Path(folder) / "deployment" / f"{name}.yaml"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        tried = Layers((Layer(Path(folder), "the file that would be written", own=True), *path.folders))
        release = render(compose([f"deployment={name}"], tried).deployment)
    wanted = point.env["LAUNCH_DIGEST"]
    if release.digest != wanted:
        from launcher.sweep.compare import makes

        now = dataclasses.replace(point, env=dict(release.env), argv=release.argv)
        changes = [f"{c.kind} {c.name}: {c.left} would be {c.right}" for c in makes(point, now)]
        raise ConfigError(
            f"'{point.label}' cannot be written as a file: it would be release {release.digest}, not {wanted}", *changes
        )


def _written(line: CommandLine, file: Path, text: str) -> bool:
    """Write the file; one that is there only when that is confirmed."""
    from launcher.sweep import disk

    try:
        there = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = None
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"{file} cannot be read: {error}") from error
    if there == text:
        return True
    if there is not None:
        stream = sys.stderr if line.json else sys.stdout
        for row in difflib.unified_diff(there.splitlines(), text.splitlines(), str(file), "promoted", lineterm="", n=2):
            print(row if line.json else paint(row, row[0] if row[0] in "+-" else "dim"), file=stream)
        if not line.yes and not confirmed(line, f"Overwrite {file}? [y/N] "):
            note(f"{file} is there already; nothing was written: confirm with --yes, or give another name")
            return False
    with disk.told(file, "it is not written"):
        file.parent.mkdir(parents=True, exist_ok=True)
    disk.put(file, text)
    return True


def _tell(line: CommandLine, found: _Found, file: Path, *, deploys: bool, name: str) -> None:
    record: dict[str, Any] = {
        "file": str(file),
        "deployment": name,
        "sweep": found.sweep.id,
        "point": found.point.digest,
        "label": found.point.label,
        "digest": found.point.env["LAUNCH_DIGEST"],
        "deploys": deploys,
        "exit_code": 0,
    }
    if line.json:  # the record of a deploy follows on standard output
        print(json.dumps(record, indent=None if deploys else 1), file=sys.stderr if deploys else sys.stdout)
        return
    print(f"written: {file}  ('{found.point.label}', release {record['digest']})")
    if not deploys:
        folders = [word for folder in line.config_dirs for word in ("--config-dir", folder)]
        print(
            f"No host is named. Next: {shlex.join(['launch', 'plan', name, *folders])} target=ssh 'target.hosts=[HOST]'"
        )
