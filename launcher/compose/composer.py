"""Compose deployments with Hydra's compose API; Hydra's errors become ours."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.types import RunMode
from omegaconf import open_dict
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from launcher.compose import overrides as ov
from launcher.compose.convert import to_deployment
from launcher.compose.flat import Tree
from launcher.compose.search_path import hydra
from launcher.compose.sources import Source, Sources, called, files_of, listed_groups
from launcher.compose.written import keep_as_written
from launcher.errors import ConfigError, nearest
from launcher.inventory import targets
from launcher.paths import GROUPS
from launcher.schema import Deployment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.override_parser.types import Override

    from launcher.layers import Layers

#: Keys that a configuration has.
TOP_LEVEL = tuple(f.name for f in dataclasses.fields(Deployment))
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
    with hydra(layers):
        return Composer(layers, environment or {}).compose(texts)


@dataclass(frozen=True)
class _Base:
    """What group choices alone compose to, before single values are set.

    Attributes:
        tree: as Hydra made it.
        files: everything that took part.
        notes: what the user should know about them.
    """

    tree: Tree
    files: tuple[Source, ...]
    notes: tuple[str, ...]
    #: With values set that many points share, by their texts.
    trees: dict[tuple[str | None, ...], Tree] = field(default_factory=dict)

    @functools.cached_property
    def environment(self) -> Mapping[str, str]:
        """The environment of the files."""
        return Sources(self.files, {}).environment()


class Composer:
    """Composes many deployments from the same folders; each choice of groups is composed once.

    Hydra itself composes a choice of groups first and then sets single values, one after the other, on the result. So
    the first part is kept, and the second done on a copy (`launcher.compose.flat`): what comes out is the same.
    """

    def __init__(self, layers: Layers, environment: Mapping[str, str], labels: Mapping[str, str] | None = None) -> None:
        self._layers = layers
        self._environment = environment
        self._labels = labels or {}
        self._bases: dict[tuple[object, ...], _Base] = {}
        self._groups: dict[str, bool] = {}

    def compose(self, texts: Sequence[str]) -> Composition:
        """Compose one deployment; only within `hydra`.

        Raises:
            ConfigError: as `compose`.
        """
        given = ov.read(texts, TOP_LEVEL, self._labels)
        # A folder of one's own may make a group of any key; Hydra then has its own words for a value.
        odd = [line for line in given.values if self._is_group(line.lstrip("+~").partition("=")[0])]
        values = ov.parse([line for line in given.values if line not in odd])
        try:
            base = self._base(given, odd)
            data = self._data(base, values)
        except (ConfigCompositionException, MissingConfigException, OmegaConfBaseException) as error:
            raise ConfigError(_plain(error)) from error
        except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(_broken_file(self._layers, error)) from error
        sources = Sources(base.files, given.typed, self._labels)
        env = {**base.environment, **given.environment}
        data["env"] = {name: value for name, value in env.items() if value is not None} | dict(self._environment)
        keep_as_written(data, sources)
        deployment = to_deployment(data, sources.origin)
        _check_name(deployment.name, sources)
        deployment, notes = _with_hosts(deployment)
        return Composition(deployment, sources, (*base.notes, *notes))

    def _data(self, base: _Base, values: Sequence[Override]) -> dict[str, Any]:
        """Return the resolved values; up to the last one that needs Hydra they are set by it, once for all points."""
        hydras = [number for number, value in enumerate(values, 1) if not base.tree.takes(value)]
        first, rest = values[: max(hydras, default=0)], values[max(hydras, default=0) :]
        tree = base.trees.get(name := tuple(value.input_line for value in first))
        if tree is None:
            tree = base.tree.changed(first)
            if rest or not first:
                base.trees[name] = tree
        if not tree.takes_all(rest):
            tree, rest = tree.changed(rest), []
        return tree.data(rest)

    def _is_group(self, key: str) -> bool:
        if key not in self._groups:
            self._groups[key] = any((layer.path / key).is_dir() for layer in self._layers.folders)
        return self._groups[key]

    def _base(self, given: ov.Overrides, odd: Sequence[str]) -> _Base:
        name = (given.groups, *odd)
        if name not in self._bases:
            _check_options(given, self._layers, self._labels)
            lines = [*_group_lines(given, self._layers), *odd]
            config = hydra_compose("config", lines, return_hydra_config=True)
            choices = {k: v for k, v in config.hydra.runtime.choices.items() if k in GROUPS}
            files = files_of(self._layers, _defaults(lines))
            with open_dict(config):
                config.pop("hydra")
            self._bases[name] = _Base(Tree(config), files, _notes(self._layers, choices))
        return self._bases[name]


def _defaults(lines: list[str]) -> list[tuple[str, str]]:
    """Return file and package of everything that Hydra merged, in its own order, without its own files."""
    loader = GlobalHydra.instance().config_loader()
    result = loader.compute_defaults_list(config_name="config", overrides=lines, run_mode=RunMode.RUN)
    return [
        (entry.config_path, "" if entry.package in (None, "_global_") else entry.package)
        for entry in result.defaults
        if entry.config_path and not entry.config_path.startswith("hydra/") and entry.config_path != "hydra"
    ]


def _check_options(given: ov.Overrides, layers: Layers, labels: Mapping[str, str]) -> None:
    """Refuse options that no file defines, each with the nearest that exists."""
    problems: list[str] = []
    for group, option in given.groups:
        valid = layers.options(group)
        if option not in valid:
            problems.append(
                f"{called(given.typed[group], labels)}: the group '{group}' has no option {option!r}"
                f"{nearest(option, valid)}; known: {', '.join(valid)}"
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


def _with_hosts(deployment: Deployment) -> tuple[Deployment, tuple[str, ...]]:
    """Return the deployment with the hosts that its target's groups and patterns stand for, and notes."""
    if not targets.wants(deployment.target):
        return deployment, ()
    target, notes = targets.resolved(deployment.target)
    return dataclasses.replace(deployment, target=target), notes


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
