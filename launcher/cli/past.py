"""The verbs about what was: history, rollback, uninstall."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.agent.findings import iso
from launcher.cli import show
from launcher.cli.flight import in_flight
from launcher.cli.prepare import prepare
from launcher.cli.tell import confirmed, live, paint, progress, who
from launcher.errors import ConfigError
from launcher.fleet import past as fleet
from launcher.fleet.change import Flight
from launcher.fleet.rollout import PENDING, transports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine
    from launcher.cli.prepare import Prepared
    from launcher.host.transport import Transport


def history(line: CommandLine) -> int:
    """Show the generations on every host."""
    item, ways = _one(line)
    seen = fleet.histories(item.deployment, ways)
    if line.json:
        print(
            json.dumps({host: {k: v for k, v in told.items() if k != "kept"} for host, told in seen.items()}, indent=1)
        )
        return 0
    for host, told in seen.items():
        print(paint(f"{host}  {item.deployment.name}", "bold"))
        for entry in told["history"]:
            print(f"  {_entry(entry, told)}")
        if not told["history"]:
            print("  nothing was applied here")
        print("  0  what was there before" if told["origin"] else "  0  not known")
    return 0


def _in_force(told: dict[str, Any]) -> int:
    good = [e["number"] for e in told["history"] if e["outcome"] == "good" and e["digest"] == told["applied"]]
    return max(good, default=-1)


def _entry(entry: dict[str, Any], told: dict[str, Any]) -> str:
    number = str(entry["number"] or "-")
    notes = [entry["outcome"]]
    notes += ["in force"] if entry["number"] == _in_force(told) else []
    notes += ["can be returned to"] if number in told["kept"] else []
    text = f"{number:<3}{entry['digest']}  {iso(entry['at'])}  {entry['by']}  {entry['why']}: {', '.join(notes)}"
    return f"{text}\n       {entry['message']}" if entry.get("message") else text


def rollback(line: CommandLine) -> int:
    """Apply an older generation: launch rollback NAME [NUMBER]."""
    numbers = [int(word) for word in line.names if word.isdigit()]
    if len(numbers) > 1:
        raise ConfigError("rollback takes one number: launch rollback NAME 3")
    item, ways = _one(line.with_names(*(word for word in line.names if not word.isdigit())))
    seen = fleet.plan(item.deployment, ways, numbers[0] if numbers else None)
    if not line.json:
        show.plan(seen.result)
    if not line.yes and not confirmed(line, "Apply this? [y/N] "):
        if line.json:
            print(json.dumps(show.record([seen.result], PENDING), indent=1))
        print("launch: nothing was changed; confirm with --yes", file=sys.stderr)
        return PENDING
    flight = Flight()
    with live(line, [way.host for way in ways]) as tell:
        work = partial(fleet.rollback, item.deployment, ways, seen, flight, tell, who())
        (done,) = in_flight([work], flight, [item.deployment.name])
    if line.json:
        print(json.dumps(show.record([done], done.exit_code), indent=1))
    else:
        show.result(done, changed=True)
    return done.exit_code


def uninstall(line: CommandLine) -> int:
    """Take a deployment off its hosts, back to what was there before it."""
    item, ways = _one(line)
    hosts = ", ".join(way.host for way in ways)
    if not line.yes and not confirmed(line, f"Stop {item.deployment.name} on {hosts} and remove it? [y/N] "):
        print("launch: nothing was changed; confirm with --yes", file=sys.stderr)
        return PENDING
    done = fleet.uninstall(item.deployment, ways, progress(line), who())
    if line.json:
        print(json.dumps({"hosts": done, "exit_code": fleet.worst_of(done)}, indent=1))
        return fleet.worst_of(done)
    for host, answer in done.items():
        print(f"{host}: {answer['outcome']}" + (f": {answer['message']}" if answer["message"] else ""))
        for step in answer.get("did", ()):
            print(f"  {step}")
    return fleet.worst_of(done)


def _one(line: CommandLine) -> tuple[Prepared, Sequence[Transport]]:
    if line.multirun:
        raise ConfigError(f"-m does not go with {line.verb}")
    item, *more = prepare(line, judge=False)
    if more:
        raise ConfigError(f"{line.verb} takes one deployment")
    if item.deployment.target.kind == "render":
        raise ConfigError("no host is named: add target=local, or target=ssh 'target.hosts=[HOST]'")
    return item, transports(item.deployment.target)
