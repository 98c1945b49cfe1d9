"""From a command line to composed deployments and their releases, before anything is touched."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.catalogue import rules
from launcher.compose import Composition, Layers, compose, find_layers
from launcher.errors import ConfigError, LaunchError
from launcher.fleet import placement
from launcher.render import File, Release, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.render.exports import Export
    from launcher.schema import Deployment

#: Stands for every deployment file of one's own.
ALL = "all"


@dataclass(frozen=True)
class Prepared:
    """One deployment, ready to be shown, written or applied.

    ``words`` are the names and overrides that it was composed from.
    """

    composition: Composition
    release: Release
    findings: tuple[rules.Finding, ...]
    words: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[rules.Finding]:
        """What is told with every command, not only by `check`: warnings, and refusals that were let through."""
        return [f for f in self.findings if f.severity == "warn" or f.allowed]

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


def prepare(line: CommandLine, *, judge: bool = True) -> list[Prepared]:
    """Compose, check and render everything that the command line names; warn on standard error.

    Args:
        line: the command line.
        judge: whether a rule that refuses is an error, and one that warns is told.

    Raises:
        ConfigError: something is refused.
    """
    path = layers(line)
    prepared: list[Prepared] = []
    for name in names_of(line, path):
        texts = [*([f"deployment={name}"] if name else []), *line.overrides]
        prepared.append(_prepared(compose(texts, path, line.environment), line, texts, judge=judge))
    notes = {note for item in prepared for note in item.composition.notes}
    if judge:
        notes |= {f"warning: {f.text} [{f.rule}]" for item in prepared for f in item.warnings}
    for note in sorted(notes):
        print(f"launch: {note}", file=sys.stderr)
    names = [item.release.name for item in prepared]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ConfigError(f"two deployments would be called {', '.join(doubles)}: give each file a name: of its own")
    placement.check([item.deployment for item in prepared])
    return prepared


def _prepared(composition: Composition, line: CommandLine, words: Sequence[str], *, judge: bool) -> Prepared:
    allow = tuple(dict.fromkeys([*composition.deployment.allow, *line.allow]))
    deployment = dataclasses.replace(composition.deployment, allow=allow)
    findings = rules.check(deployment)
    refused = rules.refusals(findings) if judge else []
    if refused:
        raise ConfigError(*refused)
    composition = dataclasses.replace(composition, deployment=deployment)
    return Prepared(composition, render(deployment), findings, tuple(words))


def names_of(line: CommandLine, path: Layers) -> tuple[str, ...]:
    """Return the deployments that a command line names; an empty name where it names none.

    Raises:
        ConfigError: all are meant, and there is none.
    """
    if line.names != (ALL,):
        return line.names or ("",)
    own = tuple(path.options("deployment", own=True))
    if not own:
        raise ConfigError("there is no deployment file of your own: launch init writes a first one")
    return own


def batch_script(item: Prepared) -> File:
    """Return the batch script of a deployment for Slurm.

    Raises:
        RenderError: Slurm cannot serve it so.
    """
    from launcher.host import bundle
    from launcher.render import sbatch

    text = sbatch.script(item.deployment, item.release, bundle.task_program)
    return File(f"{item.release.name}.sbatch", text, 0o600)


class Programs:
    """Our own programs as texts, for what is exported."""

    def task(self, manifest: str, place: str) -> str:
        """Return what starts and proves a server without systemd."""
        from launcher.host import bundle

        return bundle.task_program(manifest, place)

    def shared(self, python: str) -> Sequence[File]:
        """Return the agent and the units that are the same for every deployment."""
        from launcher.host import requests

        return requests.shared_files(python)


def exported(item: Prepared, form: str) -> Export:
    """Return a deployment in the files of another tool.

    Raises:
        ConfigError: that tool cannot carry it.
    """
    from launcher.render.exports import Export, export

    if form == "sbatch":
        script = batch_script(item)
        return Export((script,), (), (), f"sbatch {{folder}}/{script.path}")
    return export(form, item.deployment, item.release, Programs())


def write(item: Prepared, *more: File) -> Path:
    """Write a release, and further files beside it, into the target's folder and return where it lies.

    Raises:
        LaunchError: the folder cannot be written.
    """
    out = item.deployment.target.out
    try:
        folder = Path(out).expanduser() / item.release.name / item.release.digest
        folder.mkdir(parents=True, exist_ok=True)
        for file in (*item.release.files, *more):
            path = folder / Path(file.path).name
            path.touch(mode=file.mode)
            path.write_text(file.text, encoding="utf-8")
    except RuntimeError as error:
        raise LaunchError(f"target.out={out}: {error}") from error
    except OSError as error:
        raise LaunchError(f"target.out={out}: cannot write {error.filename}: {error.strerror}") from error
    return folder
