"""Axes of the measuring client alone: they make further loads inside one life of a server, not further starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from launcher.compose.expand import Axis, Expansion
    from launcher.schema import Load

_LOADS = "bench.loads."


def split(expansion: Expansion, kind: str) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Return the axes that make points, and those that only change what the client does.

    Args:
        expansion: the sweep.
        kind: what is measured; only of a served model there is a client.

    Raises:
        ConfigError: an axis is of both, or how is measured would differ between points.
    """
    if kind == "allreduce":
        for key in (key for axis in expansion.axes for key in axis.keys):
            if key == "bench" or key.startswith("bench."):
                raise ConfigError(f"{key} says how is measured, so it is one for all points: a sweep each")
    if kind != "serve":
        return expansion.axes, ()
    points: list[Axis] = []
    client: list[Axis] = []
    for axis in expansion.axes:
        loads = [key for key in axis.keys if _is_load(key)]
        other = [key for key in axis.keys if key == "bench" or (key.startswith("bench.") and key not in loads)]
        if other:
            raise ConfigError(
                f"{other[0]} says how is measured, so it is one for all points; an axis of the client is"
                f" {_LOADS}NAME.KEY"
            )
        if loads and len(loads) < len(axis.keys):
            rest = next(key for key in axis.keys if key not in loads)
            raise ConfigError(f"{loads[0]} and {rest} are no pair: one is of the client, the other needs a new start")
        (client if loads else points).append(axis)
    for item in expansion.filters:
        if len({_is_load(key) for key in item.values}) > 1:
            raise ConfigError(f"{item.reason} mixes {_LOADS}* with keys of points: every point gets all loads")
    return tuple(points), tuple(client)


def loads_of(axes: Sequence[Axis]) -> list[str]:
    """Return the loads that axes vary."""
    return list(dict.fromkeys(_name(key) for axis in axes for key in axis.keys))


def variants(expansion: Expansion, axes: Sequence[Axis], name: str) -> Iterator[tuple[dict[str, str], tuple[str, ...]]]:
    """Yield the choices of one load, and the overrides that make it, for every variant of it."""
    seen: list[dict[str, str]] = []
    for chosen in expansion.product([axis for axis in axes if any(_name(key) == name for key in axis.keys)]):
        choices = {key: value for key, value in chosen.choices.items() if _name(key) == name}
        if not chosen.reason and choices not in seen:
            seen.append(choices)
            yield choices, chosen.words


def title(name: str, choices: Mapping[str, str]) -> str:
    """Return the name of a variant: ``chat-concurrency-8``."""
    return "-".join([name, *(f"{key.rpartition('.')[2]}-{value}" for key, value in choices.items())])


def combined(own: Mapping[str, Load], made: Iterable[tuple[str, str, Load]]) -> dict[str, Load]:
    """Return the loads of a point: in place of each one that is varied its variants, the others as they are.

    Args:
        own: of the configuration.
        made: of each variant the load that it is one of, its name, and itself.
    """
    result: dict[str, Load] = {}
    variants = list(made)
    for name in dict.fromkeys([*own, *(name for name, _, _ in variants)]):
        found = {title: load for of, title, load in variants if of == name}
        result |= found or {name: own[name]}
    return result


def _is_load(key: str) -> bool:
    return key.startswith(_LOADS) and key.count(".") == _LOADS.count(".") + 1


def _name(key: str) -> str:
    return key.removeprefix(_LOADS).partition(".")[0]
