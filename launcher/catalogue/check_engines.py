"""Compare the data of engine flags with a release: ``python -m launcher.catalogue.check_engines sglang==0.5.23``.

A maintenance tool for the day a new SGLang or vLLM appears. Each argument is a release to download with pip, a
wheel, or a folder that one was unpacked or installed into. The source is read, never imported, and the flags that
it has gained and lost are printed: against the same release in the data, or else the newest older one. With
``--update`` the release is written into ``engine_flags.csv``. Exit code 0: no difference, or written; 1:
differences; 2: something cannot be read.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.catalogue import engines
from launcher.catalogue.engine_option import Declared
from launcher.catalogue.engine_source import declared
from launcher.catalogue.python_source import open_tree
from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLUMNS = ("engine", "flag", "aliases", "takes", "choices", "since", "until", "deprecated", "source")
_ENGINES = "|".join(engines.TITLES)


class Release(NamedTuple):
    """The flags of one release of an engine; `origin` is what it was read from."""

    engine: str
    version: str
    origin: str
    flags: Sequence[Declared]


def read(argument: str) -> Release:
    """Return the flags of a release on PyPI, in a wheel, or in a folder."""
    if not re.fullmatch(rf"({_ENGINES})==[\w.!+]+", argument):
        return _read(Path(argument))
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        words = ["download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--quiet", "--dest", folder]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, argument], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ConfigError(f"{argument}: pip cannot download it: {done.stderr.strip().splitlines()[-1:]}")
        return _read(next(Path(folder).iterdir()))


def _read(place: Path) -> Release:
    names = [p.name for p in place.iterdir()] if place.is_dir() else [place.name]
    for name in sorted(names):
        if found := re.fullmatch(rf"({_ENGINES})-([^-]+)(\.dist-info|-.*\.whl)", name):
            engine, version = found[1], found[2].partition("+")[0]
            return Release(engine, version, f"{engine}-{found[2]}", declared(open_tree(place), engine))
    raise ConfigError(f"{place}: neither ENGINE==VERSION nor a wheel or folder of {' or '.join(engines.TITLES)}")


def known(engine: str) -> dict[str, Release]:
    """Return the releases that the data holds, as far as it can tell them apart."""
    origins = {row["since"]: row["source"] for row in engines.rows(engine) if not row["flag"]}
    return {v: Release(engine, v, origins[v], _at(engine, v)) for v in engines.versions(engine)}


def _at(engine: str, version: str) -> list[Declared]:
    found = []
    for flag in engines.flags(engine).values():
        names = [n for n, (a, b) in flag.spans.items() if _within(a, version, b)]
        if names:
            found.append(Declared(tuple(names), flag.takes, flag.choices, flag.deprecated, flag.source))
    return found


def _within(first: str, version: str, last: str) -> bool:
    return engines.order(first) <= engines.order(version) <= engines.order(last)


class _Row:
    """A flag over the releases: as the newest declares it, and which release has which of its names."""

    def __init__(self, newest: Declared) -> None:
        self.newest = newest
        self.seen: dict[str, list[str]] = {}

    def cells(self, engine: str) -> tuple[str, ...]:
        """Return the row of the data file; releases were added newest first."""
        spans = {name: (seen[-1], seen[0]) for name, seen in self.seen.items()}
        name = self.newest.names[0]
        aliases = [n if span == spans[name] else f"{n}@{span[0]}-{span[1]}" for n, span in spans.items() if n != name]
        choices = "|".join(self.newest.choices)
        start = (engine, name, " ".join(aliases), self.newest.takes, choices)
        return (*start, *spans[name], self.newest.deprecated, self.newest.source)


def merge(releases: Iterable[Release]) -> list[tuple[str, ...]]:
    """Return the rows of one engine: its releases, then its flags by name.

    A flag of an older release belongs to the row that shares a name with it.
    """
    newest_first = sorted(releases, key=lambda r: engines.order(r.version), reverse=True)
    rows: list[_Row] = []
    index: dict[str, _Row] = {}
    for release in newest_first:
        for flag in release.flags:
            row = next((index[n] for n in flag.names if n in index), None)
            if row is None:
                row = _Row(flag)
                rows.append(row)
            for name in flag.names:
                index.setdefault(name, row).seen.setdefault(name, []).append(release.version)
    _warn_of_gaps(rows, [r.version for r in newest_first])
    heads = [(r.engine, "", "", "", "", r.version, r.version, "", r.origin) for r in reversed(newest_first)]
    return heads + sorted(row.cells(newest_first[0].engine) for row in rows)


def _warn_of_gaps(rows: Iterable[_Row], newest_first: Sequence[str]) -> None:
    """Say which names went and came back: the data then promises them for the releases between, too."""
    for name, seen in ((name, seen) for row in rows for name, seen in row.seen.items()):
        between = newest_first[newest_first.index(seen[0]) : newest_first.index(seen[-1]) + 1]
        if missing := [version for version in between if version not in seen]:
            sys.stderr.write(f"{name}: not in {', '.join(missing)}, but before and after\n")


def compare(release: Release, others: Mapping[str, Release]) -> tuple[str, list[str], list[str]]:
    """Return the release that another is compared with, and the names gained and lost."""
    older = [v for v in others if engines.order(v) <= engines.order(release.version)]
    base = max(older, key=engines.order) if older else min(others, key=engines.order)
    now = {name for flag in release.flags for name in flag.names}
    then = {name for flag in others[base].flags for name in flag.names}
    return base, _shown(now - then), _shown(then - now)


def _shown(names: set[str]) -> list[str]:
    return sorted(n for n in names if f"--{n.removeprefix('--no-')}" not in names or not n.startswith("--no-"))


def write(releases: Mapping[str, Mapping[str, Release]], path: Path) -> None:
    """Write the data file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for engine in sorted(releases):
            writer.writerows(merge(releases[engine].values()))


def main(arguments: list[str]) -> int:
    """Print the comparisons and return the exit code."""
    parser = argparse.ArgumentParser(prog="check_engines", description="Compare engine flags with a release.")
    parser.add_argument("release", nargs="+", help="sglang==VERSION, vllm==VERSION, a wheel, or a folder")
    parser.add_argument("--update", action="store_true", help="write the releases into the data file")
    given = parser.parse_args(arguments)
    code, releases = 0, {engine: known(engine) for engine in engines.TITLES}
    for argument in given.release:
        try:
            release = read(argument)
        except (LaunchError, OSError, SyntaxError) as error:
            sys.stderr.write(f"{argument}: {error}\n")
            code = 2
            continue
        base, gained, lost = compare(release, releases[release.engine])
        title = f"{engines.TITLES[release.engine]} {release.version}: {len(release.flags)} flags"
        sys.stdout.write(f"{title}, {len(gained)} names gained and {len(lost)} lost against {base}\n")
        sys.stdout.writelines(f"gained: {name}\n" for name in gained)
        sys.stdout.writelines(f"lost: {name}\n" for name in lost)
        code = max(code, int(bool(gained or lost) and not given.update))
        releases[release.engine][release.version] = release
    if given.update:
        write(releases, engines.FLAGS)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
