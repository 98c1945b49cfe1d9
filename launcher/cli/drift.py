"""The verbs that look at what runs: status and drift."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.agent.findings import iso
from launcher.cli import show_drift
from launcher.cli.prepare import Prepared, prepare
from launcher.cli.tell import confirmed, progress, who
from launcher.errors import ConfigError, LaunchError
from launcher.fleet import drift as fleet
from launcher.fleet.rollout import PENDING, transports, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.host.transport import Transport


@dataclass(frozen=True)
class _Job:
    item: Prepared
    ways: Sequence[Transport]

    def look(self, line: CommandLine) -> fleet.Checked:
        return fleet.look(self.item.deployment, self.item.release, self.ways, progress(line))

    def fix(self, seen: fleet.Checked, line: CommandLine, *, restart: bool) -> fleet.Checked:
        deployment, release = self.item.deployment, self.item.release
        return fleet.fix(deployment, release, self.ways, seen, progress(line), who(), restart=restart)


def status(line: CommandLine) -> int:
    """Show what runs on the hosts, one line each, or as a page; with ``--follow`` after the changes under way."""
    jobs = _jobs(line)
    if line.follow:
        for job in jobs:
            fleet.follow(job.item.deployment, job.ways, progress(line))
    seen = [job.look(line) for job in jobs]
    # To differ from this configuration is no failure of a look.
    code = worst(checked.exit_code for checked in seen if checked.exit_code != PENDING)
    if line.html:
        _write_page(line.html, record(seen, code))
    if line.json:
        print(json.dumps(record(seen, code), indent=1))
    else:
        show_drift.table(seen)
    return code


def drift(line: CommandLine) -> int:
    """Compare what runs with what was applied; with ``--fix`` put that back."""
    jobs = _jobs(line)
    seen = [job.look(line) for job in jobs]
    if not line.fix:
        return _finish(line, seen)
    if not line.json:
        show_drift.findings(seen)
    if not any(fleet.mendable(checked) for checked in seen):
        return _finish(line, seen, told=not line.json)
    restart = _may_restart(line, seen)
    if not line.json:
        print()
    done = [job.fix(checked, line, restart=restart) for job, checked in zip(jobs, seen, strict=True)]
    return _finish(line, done)


def _jobs(line: CommandLine) -> list[_Job]:
    if line.multirun:
        raise ConfigError(f"-m does not go with {line.verb}")
    prepared = prepare(line, judge=False)
    if any(item.deployment.target.kind == "render" for item in prepared):
        raise ConfigError("no host is named: add target=local, or target=ssh 'target.hosts=[HOST]'")
    return [_Job(item, transports(item.deployment.target)) for item in prepared]


def _may_restart(line: CommandLine, seen: Sequence[fleet.Checked]) -> bool:
    """Ask before a server is restarted; files alone are put back without a question."""
    hosts = [f"{checked.deployment} on {host}" for checked in seen for host in fleet.restarts(checked)]
    if not hosts:
        return False
    if line.yes or confirmed(line, f"Put the files back and restart {', '.join(hosts)}? [y/N] "):
        return True
    print("launch: no server is restarted; confirm with --yes", file=sys.stderr)
    return False


def _finish(line: CommandLine, seen: Sequence[fleet.Checked], *, told: bool = False) -> int:
    code = worst(checked.exit_code for checked in seen)
    if line.json:
        print(json.dumps(record(seen, code), indent=1))
    elif not told:
        show_drift.findings(seen)
    return code


def record(seen: Sequence[fleet.Checked], code: int) -> dict[str, Any]:
    """Return checks as plain data for ``--json`` and the page; times as ISO text in UTC."""
    deployments = [{**dataclasses.asdict(checked), "exit_code": checked.exit_code} for checked in seen]
    for host in (host for entry in deployments for host in entry["hosts"]):
        if host["check"]:
            host["check"]["since"] = iso(host["check"]["since"])
            if host["check"]["applied"]:
                host["check"]["applied"]["at"] = iso(host["check"]["applied"]["at"])
    return {"deployments": deployments, "exit_code": code}


def _write_page(path: str, data: dict[str, Any]) -> None:
    import time

    from launcher.cli.page import page

    try:
        Path(path).write_text(page(data, iso(time.time())), encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"--html {path}: {error.strerror}") from error
