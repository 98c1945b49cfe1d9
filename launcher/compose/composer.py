"""Compose deployments with Hydra's compose API; Hydra's errors become ours."""

from __future__ import annotations

import dataclasses
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from launcher.compose import overrides as ov
from launcher.compose.convert import to_deployment
from launcher.compose.sources import Sources, files_of, listed_groups
from launcher.compose.written import keep_as_written
from launcher.errors import ConfigError, nearest
from launcher.paths import GROUPS, data_dir
from launcher.schema import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hydra.core.config_search_path import ConfigSearchPath

    from launcher.compose.layers import Layers

_TOP_LEVEL = tuple(f.name for f in dataclasses.fields(Deployment))
_NAME = re.compile(r"[a-z0-9_.]{1,64}")


@dataclass(frozen=True)
class Composition:
    """A composed deployment, where its values come from, and what the user should know about it."""

    deployment: Deployment
    sources: Sources
    notes: tuple[str, ...] = ()


def compose(texts: Sequence[str], layers: Layers, environment: Mapping[str, str] | None = None) -> Composition:
    """Compose one deployment.

    Args:
        texts: Hydra overrides; groups with or without ``+``, in any order.
        layers: search path.
        environment: variables of the command line (``-e NAME=VALUE``); they win.

    Raises:
        ConfigError: something unknown, missing, contradictory or of the wrong type.
    """
    with _hydra(layers):
        return _compose(texts, layers, environment or {})


@dataclass(frozen=True)
class Composed:
    """One point of a sweep: its override texts, its value by axis, and what they compose to."""

    words: tuple[str, ...]
    choices: Mapping[str, str]
    composition: Composition


@dataclass(frozen=True)
class ComposedSweep:
    """A sweep: ``baseline`` is what is composed without the swept keys."""

    axes: Mapping[str, tuple[str, ...]]
    baseline: Composed
    points: tuple[Composed, ...]


def compose_sweep(texts: Sequence[str], layers: Layers, environment: Mapping[str, str] | None = None) -> ComposedSweep:
    """Compose the baseline and every point of a sweep, in the order of the comma lists.

    Raises:
        ConfigError: as `compose`; names the point.
    """
    env = environment or {}
    with _hydra(layers):
        expansion = ov.expand(texts)
        try:
            baseline = Composed(expansion.fixed, {}, _compose(expansion.fixed, layers, env))
        except ConfigError as error:
            raise ConfigError(*(f"the baseline, without the swept keys: {p}" for p in error.problems)) from error
        points: list[Composed] = []
        for words, choices in expansion.points:
            try:
                points.append(Composed(words, choices, _compose(words, layers, env)))
            except ConfigError as error:
                label = " ".join(f"{key}={value}" for key, value in choices.items())
                raise ConfigError(*(f"point '{label}': {p}" for p in error.problems)) from error
    return ComposedSweep(expansion.axes, baseline, tuple(points))


class _OwnLayers(SearchPathPlugin):
    """Puts one's own folders before the packaged one; Hydra's own options only add behind it."""

    folders: ClassVar[list[str]] = []

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:  # each stands right before what is packaged, so the first stays the first
            search_path.prepend(provider="launch", path=f"file://{folder}", anchor="main")


@contextmanager
def _hydra(layers: Layers) -> Iterator[None]:
    _OwnLayers.folders = [str(layer.path) for layer in layers.folders if layer.own]
    Plugins.instance().register(_OwnLayers)
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf"))):
        yield


def _compose(texts: Sequence[str], layers: Layers, environment: Mapping[str, str]) -> Composition:
    given = ov.read(texts, _TOP_LEVEL)
    _check_options(given, layers)
    try:
        lines = [*_group_lines(given, layers), *given.values]
        config = hydra_compose("config", lines, return_hydra_config=True)
        choices = {k: v for k, v in config.hydra.runtime.choices.items() if k in GROUPS}
        sources = Sources(files_of(layers, _defaults(lines)), given.typed)
        OmegaConf.set_struct(config, value=False)
        # The environment is read from the files themselves: here YAML and OmegaConf would have altered it.
        for key in ("hydra", "env"):
            config.pop(key, None)
        data = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True))
    except (ConfigCompositionException, MissingConfigException, OmegaConfBaseException) as error:
        raise ConfigError(_plain(error)) from error
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(_broken_file(layers, error)) from error
    env = {**sources.environment(), **given.environment}
    data["env"] = {name: value for name, value in env.items() if value is not None} | dict(environment)
    keep_as_written(data, sources)
    deployment = to_deployment(data, sources.origin)
    _check_name(deployment.name, sources)
    return Composition(deployment, sources, _notes(layers, choices))


def _defaults(lines: list[str]) -> list[tuple[str, str]]:
    """Return file and package of everything that Hydra merged, in its own order, without its own files."""
    loader = GlobalHydra.instance().config_loader()
    result = loader.compute_defaults_list(config_name="config", overrides=lines, run_mode=RunMode.RUN)
    return [
        (entry.config_path, "" if entry.package in (None, "_global_") else entry.package)
        for entry in result.defaults
        if entry.config_path and not entry.config_path.startswith("hydra/") and entry.config_path != "hydra"
    ]


def _check_options(given: ov.Overrides, layers: Layers) -> None:
    """Refuse options that no file defines, each with the nearest that exists."""
    problems: list[str] = []
    for group, option in given.groups:
        valid = layers.options(group)
        if option not in valid:
            line = given.typed[group]
            hint = nearest(option, valid)
            problems.append(
                f"override {line!r}: the group '{group}' has no option {option!r}{hint}; known: {', '.join(valid)}"
            )
    if problems:
        raise ConfigError(*problems)


def _group_lines(given: ov.Overrides, layers: Layers) -> list[str]:
    """Return group choices as Hydra wants them: a plus where no defaults list names the group yet."""
    names = ["config", *(f"{group}/{option}" for group, option in given.groups)]
    listed: set[str] = set()
    for name in names:
        hit = layers.find(name)
        listed |= listed_groups(hit[1]) if hit else set()
    return [f"{'' if group in listed else '+'}{group}={option}" for group, option in given.groups]


def _notes(layers: Layers, choices: Mapping[str, str]) -> tuple[str, ...]:
    """Announce every file of one's own that stands before another of the same name."""
    notes: list[str] = []
    for name in ("config", *(f"{group}/{option}" for group, option in choices.items() if option)):
        hit, weaker = layers.find(name), layers.shadowed(name)
        if hit and weaker:
            notes.append(f"{hit[0].label}/{name}.yaml stands before the file of that name in {', '.join(weaker)}")
    return tuple(notes)


def _check_name(name: str, sources: Sources) -> None:
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"{sources.origin('name')}name {name!r} must be of a-z, 0-9, '_' and '.', 64 at most: it names the unit"
        )
    if name == "drift":
        origin = sources.origin("name")
        raise ConfigError(f"{origin}name 'drift' is taken: launch-drift.service is the host's own check")


def _broken_file(layers: Layers, error: Exception) -> str:
    """Return file, line and reason of a file that cannot be read; Hydra does not say which it was."""
    for layer in layers.folders:
        for path in sorted(layer.path.rglob("*.y*ml")):
            label = f"{layer.label}/{path.relative_to(layer.path)}"
            try:
                yaml.load(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())  # noqa: S506 - Hydra's own, safe
            except yaml.MarkedYAMLError as found:
                mark = found.problem_mark or found.context_mark
                return f"{label}{f':{mark.line + 1}' if mark else ''}: no valid YAML: {found.problem}"
            except UnicodeDecodeError as found:
                return f"{label}: no valid UTF-8 at byte {found.start}"
            except (OSError, yaml.YAMLError) as found:
                return f"{label}: {' '.join(str(found).split())}"
    return f"a configuration file cannot be read: {error}"


def _plain(error: Exception) -> str:
    """Return Hydra's or OmegaConf's message in one line, without its advice on its own switches."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("full_key:", "object_type=", "reference_type="))]
    full = next((line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")), "")
    return (f"{full}: " if full else "") + " ".join(kept)
