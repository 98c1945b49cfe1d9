"""The journal of a sweep on disk: its plan once, then one line for each trial, appended and never changed.

``OUT/SWEEP_ID/sweep.json`` is the sweep without its trials (replaced when it is resumed),
``OUT/SWEEP_ID/journal.jsonl`` has one trial a line, in the order in which they ended. A last line
that is torn (a power cut, a full disk) is passed over when reading and cut off by the next append, so that no later
line is lost.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.errors import ConfigError, LaunchError

from . import disk
from .current import counted
from .plain import UnfitError, from_plain, to_plain
from .record import Sweep, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLAN, JOURNAL = "sweep.json", "journal.jsonl"
#: Kind of a trial that is no start of a point: production, measured when it was back.
CLOSING = "closing"
#: Of a sweep that several hosts share it is 2, of a search 3, with a closing measurement 4: who does not know of hosts
#: would compare points across them, who does not know of searches would measure every point, and who does not know of
#: closing measurements would count them as starts of the baseline.
VERSION = 4


def _silent(_: str) -> None:
    """Tell nobody."""


class TakenError(LaunchError):
    """There is a sweep of that id already."""


def create(out: Path, sweep: Sweep) -> Path:
    """Make the folder of a sweep, with its plan and with the trials that it has already, and return it.

    Raises:
        ConfigError: its id cannot name a folder.
        TakenError: the folder exists.
        LaunchError: it cannot be made; nothing is left behind then.
    """
    if not sweep.id or sweep.id.startswith(".") or "/" in sweep.id or "\0" in sweep.id:
        raise ConfigError(f"a sweep cannot be kept under the id {sweep.id!r}: it has to be a plain name of a folder")
    folder = out / sweep.id
    with disk.told(folder, "no sweep is begun"):
        out.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            raise TakenError(
                f"{folder}: it exists already and is not overwritten; start the sweep again for a new id, "
                "name another folder, or remove this one"
            ) from None
        try:
            disk.put(folder / JOURNAL, "".join(_line(trial) for trial in sweep.trials))
            disk.put(folder / PLAN, _text(sweep))
            disk.sync_folder(out)
        except BaseException:
            with suppress(OSError):
                for name in (PLAN, JOURNAL):
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()
            raise
    return folder


def replan(folder: Path, sweep: Sweep) -> None:
    """Replace the plan of a sweep that is resumed; its trials stay, so it has to know all of their points.

    Raises:
        LaunchError: no space, no permission, folder gone. What was there stays.
    """
    disk.put(folder / PLAN, _text(sweep))


def append(folder: Path, trial: Trial, tell: Callable[[str], None] = _silent) -> None:
    """Add a trial to the journal, lastingly; several processes may do so at once.

    Args:
        folder: of the sweep.
        trial: that has ended.
        tell: called with one line when a torn one was cut off.

    Raises:
        LaunchError: no space, no permission, folder gone. What was recorded before is whole.
    """
    path, line = folder / JOURNAL, _line(trial).encode("ascii")
    with (
        disk.told(path, f"trial {trial.order} is not recorded, all before it are"),
        _locked(path, os.O_RDWR | os.O_APPEND, fcntl.LOCK_EX) as descriptor,
    ):
        size = os.fstat(descriptor).st_size
        tail = _unended(descriptor, size)
        if tail and _is_whole(tail):
            line = b"\n" + line
        elif tail:
            size -= len(tail)
            os.ftruncate(descriptor, size)
            tell(_torn(path, tail, "is cut off"))
        try:
            while line:
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise


def load(folder: Path, tell: Callable[[str], None] = _silent) -> Sweep:
    """Return a sweep with all of its trials, those that count apart from those that no longer do.

    Args:
        folder: of the sweep.
        tell: called with one line when the last trial is torn and passed over.

    Raises:
        LaunchError: it cannot be read, a newer version wrote it, or something in it is broken, with file and line.
    """
    sweep = _plan(folder / PLAN)
    path = folder / JOURNAL
    with disk.told(path, "the sweep cannot be read"), _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
        *lines, tail = _read(descriptor, 0, os.fstat(descriptor).st_size).split(b"\n")
    if tail and _is_whole(tail):
        lines.append(tail)
    elif tail:
        tell(_torn(path, tail, "is passed over"))
    digests = {point.digest for point in (*sweep.points, *sweep.gone)}
    trials: dict[tuple[str, str, int], Trial] = {}
    for number, line in enumerate(lines, 1):
        trial = _trial(f"{path}:{number}", line, digests)
        if trials.setdefault((trial.host, trial.kind, trial.order), trial) is not trial:
            tell(f"{path}:{number}: start {trial.order} is there already; this line is passed over")
    starts = tuple(trial for trial in trials.values() if not trial.kind)
    closing = tuple(trial for trial in trials.values() if trial.kind == CLOSING)
    return counted(replace(sweep, trials=starts, closing=closing))


def is_empty(folder: Path) -> bool:
    """Return whether no trial was written yet."""
    try:
        return (folder / JOURNAL).stat().st_size == 0
    except FileNotFoundError:
        return True


def latest(out: Path) -> Path | None:
    """Return the folder of the newest sweep, by its id; none when there is no sweep.

    Raises:
        LaunchError: the folder cannot be read.
    """
    with disk.told(out, "sweeps cannot be listed"):
        if not out.is_dir():
            return None
        found = [folder for folder in out.iterdir() if (folder / PLAN).is_file()]
    return max(found, key=lambda folder: folder.name, default=None)


def _text(sweep: Sweep) -> str:
    version = 4 if sweep.settings.closing or sweep.closing else 3 if sweep.search else 2 if sweep.homes else 1
    plan = {"version": version, **to_plain(replace(sweep, trials=(), past=(), closing=()))}
    del plan["trials"], plan["past"]
    return json.dumps(plan, indent=1) + "\n"


def _plan(path: Path) -> Sweep:
    with disk.told(path, "the sweep cannot be read"):
        content = path.read_bytes()
    data = _json(content, path)
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int) or version < 1:
        raise LaunchError(f"{path}: this is no sweep: it has no version")
    if version > VERSION:
        raise LaunchError(
            f"{path}: a newer launch wrote this (version {version}, this one reads {VERSION}); update launch-llm"
        )
    try:
        sweep: Sweep = from_plain(Sweep, data)
    except UnfitError as error:
        raise LaunchError(f"{path}: {error}") from error
    if not sweep.points:
        raise LaunchError(f"{path}: points is empty; even a sweep without choices has its baseline")
    return sweep


def _trial(place: str, line: bytes, digests: set[str]) -> Trial:
    try:
        trial: Trial = from_plain(Trial, _json(line, place))
    except UnfitError as error:
        raise LaunchError(f"{place}: {error}") from error
    if trial.point not in digests and trial.kind != CLOSING:
        raise LaunchError(f"{place}: point is {trial.point!r}, which {PLAN} does not have")
    return trial


def _json(content: bytes, place: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}," if error.lineno > 1 else ""
        raise LaunchError(f"{place}: broken JSON:{line} column {error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise LaunchError(f"{place}: broken JSON: {error}") from error


def _line(trial: Trial) -> str:
    return json.dumps(to_plain(trial), separators=(",", ":")) + "\n"


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Iterator[int]:
    """Open a file and wait until it is ours: shared to read, alone to write."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, lock)
        yield descriptor
    finally:
        os.close(descriptor)


def _unended(descriptor: int, size: int) -> bytes:
    """Return what follows the last end of a line."""
    tail, at = b"", size
    while at and b"\n" not in tail:
        begin = max(0, at - 65536)
        tail, at = _read(descriptor, begin, at - begin) + tail, begin
    return tail.rpartition(b"\n")[2]


def _read(descriptor: int, at: int, size: int) -> bytes:
    content = b""
    while len(content) < size and (more := os.pread(descriptor, size - len(content), at + len(content))):
        content += more
    return content


def _is_whole(line: bytes) -> bool:
    """Whether a line lacks nothing but its end."""
    try:
        from_plain(Trial, json.loads(line))
    except (ValueError, RecursionError, UnfitError):
        return False
    return True


def _torn(path: Path, tail: bytes, fate: str) -> str:
    begin = tail[:60].decode("utf-8", "backslashreplace")
    return f"{path}: the last line is torn ({len(tail)} bytes, no end) and {fate}; its trial is lost: {begin!r}"
