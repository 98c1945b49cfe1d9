"""From a command line to composed deployments and their releases, before anything is touched."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.compose import Composition, Layers, compose, compose_points, find_layers
from launcher.errors import ConfigError, LaunchError, RenderError
from launcher.fleet import placement
from launcher.render import Release, render

if TYPE_CHECKING:
    from launcher.cli.parser import CommandLine
    from launcher.schema import Deployment

#: Stands for every deployment file of one's own.
ALL = "all"


@dataclass(frozen=True)
class Prepared:
    """One deployment, ready to be shown, written or applied; ``label`` names a point of a sweep."""

    composition: Composition
    release: Release
    label: str = ""

    @property
    def deployment(self) -> Deployment:
        """The composed deployment."""
        return self.composition.deployment


def layers(line: CommandLine) -> Layers:
    """Return the search path of a command line."""
    try:
        return find_layers(line.config_dirs, os.environ, Path.cwd())
    except FileNotFoundError as error:
        raise LaunchError("the current folder does not exist any more; go to one that does") from error


def prepare(line: CommandLine) -> list[Prepared]:
    """Compose and render everything that the command line names; announce shadowed files on standard error."""
    path = layers(line)
    prepared: list[Prepared] = []
    for name in _names(line, path):
        texts = [*([f"deployment={name}"] if name else []), *line.overrides]
        composition = compose(texts, path, line.environment)
        prepared.append(Prepared(composition, render(composition.deployment)))
    for note in sorted({note for item in prepared for note in item.composition.notes}):
        print(f"launch: {note}", file=sys.stderr)
    names = [item.release.name for item in prepared]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ConfigError(f"two deployments would be called {', '.join(doubles)}: give each file a name: of its own")
    placement.check([item.deployment for item in prepared])
    return prepared


def prepare_points(line: CommandLine) -> list[Prepared]:
    """Compose and render every point of a sweep; points with equal digests are one."""
    path = layers(line)
    names = _names(line, path)
    if len(names) > 1:
        raise ConfigError("a sweep takes one deployment")
    texts = [*[f"deployment={name}" for name in names if name], *line.overrides]
    points: dict[str, Prepared] = {}
    for words, composition in compose_points(texts, path, line.environment):
        label = " ".join(word for word in words if word not in line.overrides) or "(one point)"
        try:
            release = render(composition.deployment)
        except RenderError as error:
            raise RenderError(*(f"point '{label}': {p}" for p in error.problems)) from error
        points.setdefault(release.digest, Prepared(composition, release, label))
    return list(points.values())


def _names(line: CommandLine, path: Layers) -> tuple[str, ...]:
    if line.names != (ALL,):
        return line.names or ("",)
    own = tuple(path.options("deployment", own=True))
    if not own:
        raise ConfigError("there is no deployment file of your own: launch init writes a first one")
    return own


def write(item: Prepared) -> Path:
    """Write a release into the target's folder and return where it lies.

    Raises:
        LaunchError: the folder cannot be written.
    """
    out = item.deployment.target.out
    folder = Path(out).expanduser() / item.release.name / item.release.digest
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in item.release.files:
            path = folder / Path(file.path).name
            path.touch(mode=file.mode)
            path.write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"target.out={out}: cannot write {error.filename}: {error.strerror}") from error
    return folder
