"""Sweeps and points by the names that people give them: an id, the begin of one, a label, the begin of a digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import ConfigError, nearest

from . import disk, journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .record import Point, Sweep

NEWEST = "newest"
#: Of a digest, or an id, at least so many characters.
_SHORTEST = 4
_SHOWN = 12


def folders(out: Path) -> list[Path]:
    """Return the folders of all sweeps, the oldest first.

    Raises:
        LaunchError: the folder cannot be read.
    """
    with disk.told(out, "sweeps cannot be listed"):
        found = [folder for folder in out.iterdir() if (folder / journal.PLAN).is_file()] if out.is_dir() else []
    return sorted(found, key=lambda folder: folder.name)


def kind(id_: str) -> str:
    """Return what a sweep measured, such as ``allreduce``, by its id."""
    return id_.rpartition("-")[2]


def folder(out: Path, ref: str) -> Path:
    """Return the folder of a sweep.

    Raises:
        ConfigError: there is none of that name, or several.
    """
    known = folders(out)
    if not known:
        raise ConfigError(f"there is no sweep in {out}; name another folder: sweep.out=FOLDER")
    if ref == NEWEST:
        return known[-1]
    found = [one for one in known if one.name == ref] or [one for one in known if one.name.startswith(ref)]
    if len(ref) < _SHORTEST or not found:
        names = [one.name for one in known]
        raise ConfigError(f"there is no sweep {ref!r} in {out}{nearest(ref, names)}; known: {_some(names[::-1])}")
    if len(found) > 1:
        raise ConfigError(f"{ref!r} is the begin of several sweeps: {_some([one.name for one in found])}")
    return found[0]


def either(out: Path, ref: str, tell: Callable[[str], None]) -> tuple[Sweep, Point | None]:
    """Return what is meant: a point of the newest sweep, ``ID:POINT``, or a whole sweep (with no point).

    Raises:
        ConfigError: there is no such point or sweep, or several.
        LaunchError: a sweep cannot be read.
    """
    id_, sign, name = ref.partition(":")
    if sign and "=" not in id_:
        sweep = journal.load(folder(out, id_), tell)
        return sweep, point(sweep, name)
    if ref == NEWEST or (ref.startswith("20") and any(one.name.startswith(ref) for one in folders(out))):
        return journal.load(folder(out, ref), tell), None
    sweep = journal.load(folder(out, NEWEST), tell)
    return sweep, point(sweep, ref)


def point(sweep: Sweep, name: str) -> Point:
    """Return a point by its label, another label of it, or the begin of its digest.

    Raises:
        ConfigError: there is none, or several.
    """
    named = [one for one in sweep.points if name in (one.label, *one.aliases) or one.digest == name]
    if named:
        return named[0]
    found = [one for one in sweep.points if len(name) >= _SHORTEST and one.digest.startswith(name)]
    labels = [one.label for one in sweep.points]
    if not found:
        known = _some([f"'{label}'" for label in labels])
        raise ConfigError(f"sweep {sweep.id} has no point {name!r}{nearest(name, labels)}; its points: {known}")
    if len(found) > 1:
        raise ConfigError(f"{name!r} is the begin of several digests: {_some([one.digest for one in found])}")
    return found[0]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
