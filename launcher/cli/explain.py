"""Why a key has its value, and what of it reaches the server."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from launcher.catalogue import nccl
from launcher.errors import ConfigError, LaunchError, nearest
from launcher.fleet.plan import arguments
from launcher.render import Release, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.catalogue.rules import Finding
    from launcher.compose import Composition
    from launcher.schema import Deployment


def explanation(composition: Composition, release: Release, findings: Sequence[Finding], key: str) -> dict[str, Any]:
    """Explain one dotted key.

    Returns:
        ``key``, ``value``, ``origins`` (strongest first; empty for a built-in default) and ``reaches``: the
        arguments, variables and unit settings that change when the value does; ``known`` is what NCCL and the
        engine will do with it.

    Raises:
        ConfigError: there is no such key.
    """
    deployment = composition.deployment
    value = _value(deployment, key)
    return {
        "key": key,
        "value": value,
        "origins": composition.sources.origins(key),
        "reaches": _reaches(deployment, release, key, value),
        "known": [*_of_nccl(key), *(f"{f.text} {f.explanation} ({f.source})" for f in findings if _about(f.text, key))],
    }


def _about(text: str, key: str) -> bool:
    """Return whether a finding speaks of a key; findings name their keys in full."""
    return re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.]*\w)", text) is not None


def _of_nccl(key: str) -> list[str]:
    """Return what the catalogue knows of an NCCL variable, its source with it."""
    variable = nccl.variables().get(key.removeprefix("nccl.")) if key.startswith("nccl.") else None
    if variable is None:
        return []
    default = f"{variable.name}: NCCL's own choice is {variable.default or 'not documented'}"
    since = f", read from {variable.since} on" if variable.since else ""
    removed = f" until {variable.removed}" if variable.removed else ""
    return [f"{default}{since}{removed}. {variable.note} (launcher/catalogue/nccl.csv)"]


def _value(deployment: Deployment, key: str) -> object:
    node: object = deployment
    done: list[str] = []
    for part in key.split("."):
        names = _names(node)
        if part not in names:
            where = f" in '{'.'.join(done)}'" if done else ""
            raise ConfigError(f"there is no key {part!r}{where}{nearest(part, names)}; set: {', '.join(names)}")
        node = node[part] if isinstance(node, dict) else getattr(node, part)
        done.append(part)
    return dataclasses.asdict(node) if dataclasses.is_dataclass(node) and not isinstance(node, type) else node


def _names(node: object) -> list[str]:
    if isinstance(node, dict):
        return list(node)
    return [f.name for f in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []


def _reaches(deployment: Deployment, release: Release, key: str, value: object) -> list[str]:
    """Render once more with another value and tell what differs: what is told here is never out of date."""
    other = _another(value)
    if other is None:
        return []
    try:
        changed = render(_replaced(deployment, key.split("."), other))
    except (LaunchError, TypeError, ValueError):
        return []
    old, new = _everything(release), _everything(changed)
    return [line for line in old if old[line] != new.get(line)]


def _everything(release: Release) -> dict[str, str]:
    """Return all that a process sees, by the line that shows it."""
    flags = {f"{flag} {words}".strip(): f"{flag} {words}" for flag, words in arguments(release.argv).items()}
    env = {f"{n}={v}": v for n, v in release.env.items() if n != "LAUNCH_DIGEST"}
    settings = {f"{n}={v} (unit)": v for n, v in release.settings.items()}
    return {**flags, **env, **settings}


def _another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else None


def _replaced(node: Any, parts: list[str], value: object) -> Any:  # noqa: ANN401 - a dataclass or a map
    head, *rest = parts
    inner = node[head] if isinstance(node, dict) else getattr(node, head)
    new = _replaced(inner, rest, value) if rest else value
    return {**node, head: new} if isinstance(node, dict) else dataclasses.replace(node, **{head: new})
