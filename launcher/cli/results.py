"""`results`: what sweeps found out, read again from their journals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli import show_sweep
from launcher.cli.prepare import layers
from launcher.cli.show_sweep import note
from launcher.compose import compose
from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from launcher.cli.parser import CommandLine
    from launcher.sweep.record import Judgement, Sweep


def out_of(line: CommandLine) -> Path:
    """Return the folder of the sweeps: as configured, or as told by sweep.out.

    Raises:
        ConfigError: the configuration is refused.
    """
    if line.environment or line.allow:
        raise ConfigError(f"-e and --allow do not go with {line.verb}")
    return Path(compose(line.overrides, layers(line)).deployment.sweep.out).expanduser()


def results(line: CommandLine) -> int:
    """Show all sweeps, or what one of them found out."""
    from launcher.sweep import journal, shelf

    if len(line.names) > 1:
        raise ConfigError("results takes one sweep: launch results ID")
    out = out_of(line)
    if not line.names:
        if line.html:
            raise ConfigError("--html needs a sweep: launch results ID --html FILE")
        return _table(line, out)
    folder = shelf.folder(out, line.names[0])
    sweep = journal.load(folder, note)
    judgement, ended = state(folder, sweep)
    paths = [path for path in (folder / "report.html",) if path.is_file()]
    if line.html:
        paths = [_page(Path(line.html), sweep, judgement, ended)]
    show_sweep.end(line, sweep, judgement, ended, paths)
    return 0


def state(folder: Path, sweep: Sweep) -> tuple[Judgement, str]:
    """Return what a sweep found out so far, and how it stands, for people."""
    import time

    from launcher.sweep import lock
    from launcher.sweep.shares import why_over
    from launcher.sweep.statistics import judge

    judgement = judge(sweep)
    if lock.running(folder):
        return judgement, "not yet, it is running"
    # What a resumed run would look at first is no reason to call a sweep unfinished.
    over = why_over(dataclasses.replace(sweep, since=0.0), judgement, time.time())
    return judgement, over or f"before it was done; to go on: launch -m … --resume={sweep.id}"


def _page(path: Path, sweep: Sweep, judgement: Judgement, ended: str) -> Path:
    from launcher.sweep import current, disk, report

    told = dataclasses.replace(sweep, facts={**sweep.facts, "ended": ended, **current.facts(sweep)})
    disk.put(path, report.page(told, judgement))
    return path


def _table(line: CommandLine, out: Path) -> int:
    from launcher.sweep import shelf

    records = [_record(folder) for folder in shelf.folders(out)]
    if line.json:
        print(json.dumps({"folder": str(out), "sweeps": records, "exit_code": 0}, indent=1))
        return 0
    good = [record for record in records if not record.get("problem")]
    if good:
        rows = [["sweep", "deployment", "bench", "points", "trials", "ended", "found"]]
        rows += [[_short(str(record[key])) for key in _COLUMNS] for record in good]
        show_sweep.table(rows)
    elif not records:
        print(f"there is no sweep in {out}")
    for record in records:
        if record.get("problem"):
            note(record["problem"])
    return 0


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


_WIDEST = 100
_COLUMNS = ("id", "deployment", "bench", "points", "trials", "ended", "summary")


def _record(folder: Path) -> dict[str, Any]:
    """Return one sweep in a line; one that cannot be read tells so."""
    from launcher.sweep import journal, shelf, tables

    notes: list[str] = []
    try:
        sweep = journal.load(folder, notes.append)
        judgement, ended = state(folder, sweep)
    except LaunchError as error:
        return {"id": folder.name, "problem": str(error)}
    for text in notes:
        note(text)
    return {
        "id": folder.name,
        "deployment": sweep.name,
        "bench": shelf.kind(folder.name),
        "points": len(sweep.points),
        "trials": len(sweep.trials),
        "not_counted": len(sweep.past),
        "ended": ended.partition(";")[0],
        "summary": tables.summary(sweep, judgement)[0] if len(sweep.points) > 1 else "one configuration",
        "problem": "",
    }
