"""Compose deployments with Hydra's compose API; Hydra's errors become ours."""

from __future__ import annotations

import dataclasses
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from launcher.compose import overrides as ov
from launcher.compose.convert import to_deployment
from launcher.compose.sources import Sources, check_environment, chosen_files
from launcher.errors import ConfigError, nearest
from launcher.paths import GROUPS, data_dir
from launcher.schema import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TOP_LEVEL = tuple(f.name for f in dataclasses.fields(Deployment))
_NAME = re.compile(r"[a-z0-9_.]{1,64}")
_DEFAULT_GROUPS = frozenset({"nccl", "model", "engine", "target"})


def compose(texts: Sequence[str], environment: Mapping[str, str] | None = None) -> Deployment:
    """Compose one deployment.

    Args:
        texts: Hydra overrides; groups with or without ``+``, in any order.
        environment: variables that never meet YAML or Hydra (``-e KEY=VALUE``); they win.

    Raises:
        ConfigError: something unknown, missing, contradictory or of the wrong type.
    """
    with _hydra():
        return _compose(texts, environment or {})


def compose_points(
    texts: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[tuple[tuple[str, ...], Deployment]]:
    """Compose every point of a sweep, in the order of the comma lists.

    Returns:
        Pairs of the point's override texts and its deployment.

    Raises:
        ConfigError: as `compose`; names the point.
    """
    points: list[tuple[tuple[str, ...], Deployment]] = []
    with _hydra():
        for point in ov.expand(texts):
            try:
                points.append((point, _compose(point, environment or {})))
            except ConfigError as error:
                label = " ".join(point)
                raise ConfigError(*(f"point '{label}': {p}" for p in error.problems)) from error
    return points


@contextmanager
def _hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(data_dir("conf"))):
        yield


def _compose(texts: Sequence[str], environment: Mapping[str, str]) -> Deployment:
    given = ov.read(texts, _TOP_LEVEL)
    _check_options(given)
    lines = [*_group_lines(given), *given.values]
    try:
        config = hydra_compose("config", overrides=lines, return_hydra_config=True)
        choices = {k: v for k, v in config.hydra.runtime.choices.items() if k in GROUPS}
        OmegaConf.set_struct(config, value=False)
        del config["hydra"]
        data = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True))
    except (ConfigCompositionException, MissingConfigException, OmegaConfBaseException) as error:
        raise ConfigError(_plain(error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"a configuration file is no YAML: {' '.join(str(error).split())}") from error
    sources = Sources(chosen_files([data_dir("conf")], choices), given.typed)
    check_environment(sources.files)
    _check_typed_environment(given.typed, data)
    deployment = to_deployment(data, sources.origin)
    env = {**deployment.env, **environment}
    deployment = dataclasses.replace(deployment, env=env)
    _check_name(deployment.name, sources)
    return deployment


def _check_options(given: ov.Overrides) -> None:
    """Refuse options that no file defines, each with the nearest that exists."""
    problems: list[str] = []
    for group, option in given.groups:
        valid = sorted(p.stem for p in (data_dir("conf") / group).glob("*.yaml"))
        if option not in valid:
            line = given.typed[group]
            hint = nearest(option, valid)
            problems.append(
                f"override {line!r}: the group '{group}' has no option {option!r}{hint}; known: {', '.join(valid)}"
            )
    if problems:
        raise ConfigError(*problems)


def _group_lines(given: ov.Overrides) -> list[str]:
    """Return group choices as Hydra wants them: a plus where no defaults list names the group yet."""
    listed = set(_DEFAULT_GROUPS)
    for group, option in given.groups:
        if group == "deployment":
            text = (data_dir("conf") / group / f"{option}.yaml").read_text(encoding="utf-8")
            listed |= set(re.findall(r"^\s*-\s*/(\w+)\s*:", text, re.MULTILINE))
    return [f"{'' if group in listed else '+'}{group}={option}" for group, option in given.groups]


def _check_typed_environment(typed: Mapping[str, str], data: Mapping[str, Any]) -> None:
    """Refuse ``env.X=VALUE`` whose text Hydra changed on its way (``1e3``, ``1_000``, ``true``)."""
    problems: list[str] = []
    for key, line in typed.items():
        if not key.startswith("env.") or line.startswith("~"):
            continue
        name, text = key[4:], line.partition("=")[2]
        value = (data.get("env") or {}).get(name)
        if isinstance(value, int | float) and str(value) != text:
            problems.append(f"override {line!r}: would arrive as {value}; use -e {name}={text}")
    if problems:
        raise ConfigError(*problems)


def _check_name(name: str, sources: Sources) -> None:
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"{sources.origin('name')}name {name!r} must be of a-z, 0-9, '_' and '.', 64 at most: it names the unit"
        )


def _plain(error: Exception) -> str:
    """Return Hydra's or OmegaConf's message in one line, without its advice on its own switches."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("full_key:", "object_type=", "reference_type="))]
    full = next((line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")), "")
    return (f"{full}: " if full else "") + " ".join(kept)
