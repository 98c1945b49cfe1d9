"""What `adopt` shows of each server: its file, the table of differences, what is to be said, and what is next."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.adopt.surroundings import MISSING
from launcher.adopt.write import file_of
from launcher.cli.tell import paint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.found import Remark, Server
    from launcher.adopt.match import Adopted
    from launcher.cli.parser import CommandLine

_COLOURS = {"cannot be said": "red", "changed": "yellow", "left out": "yellow", "secret": "cyan", "added": "green"}
#: Of a value in the table; the record has all of it.
_LONGEST = 240
_EXAMPLES = {"engine.python": "/opt/…/bin/python", "engine.user": "USER"}


@dataclass(frozen=True)
class Result:
    """What became of one server."""

    name: str
    server: Server
    adopted: Adopted | None = None
    written: bool = False
    error: str = ""
    code: int = 0

    def record(self) -> dict[str, Any]:
        """Return it for ``--json``; no secret is in it."""
        found = self.adopted
        told: dict[str, Any] = {
            "name": self.name,
            "where": self.server.where,
            "file": str(file_of(self.name)),
            "written": self.written,
            "error": self.error,
            "remarks": [dataclasses.asdict(remark) for remark in self.server.remarks],
        }
        if found is None:
            return told
        return told | {
            "text": found.text,
            "options": dict(found.wanted.options),
            "hw": dataclasses.asdict(found.wanted.hw),
            "missing": [*found.missing, *found.unknown],
            "differences": [dataclasses.asdict(row) for row in found.compared.rows],
            "same": list(found.compared.same),
            "findings": [dataclasses.asdict(finding) for finding in found.findings],
            "secrets": sorted(found.wanted.secrets),
        }


def result(shown: Result, line: CommandLine) -> None:
    """Print what became of a server."""
    found = shown.adopted
    print(paint(f"{shown.server.where}: {shown.name}", "bold"))
    if found is not None:
        print()
        for row in found.text.rstrip("\n").splitlines():
            print(f"  {row}")
        print(f"\n{paint('what differs from the server as it was started', 'bold')}")
        _table(found)
        for text in found.compared.same:
            print(f"  same: {_plain(text)}")
        hw = found.wanted.hw
        if hw.guessed:
            print(f"\nhw={hw.name} is a guess, please confirm: {hw.why}.")
            print("It decides which rules apply and what hosts are compared with, not what the server is started with.")
            print("For another machine: the same command with +hw=NAME")
        _findings(found)
    remarks(shown.server.remarks)
    sys.stdout.flush()
    if shown.error:
        for text in shown.error.splitlines():
            print(f"launch: {shown.server.where}: {text}", file=sys.stderr)
    elif found is not None:
        _next(shown, found, line)
    print()


def remarks(found: Sequence[Remark]) -> None:
    """Print what of the input is not in the result."""
    for remark in found:
        print(f"{remark.where}: {remark.why}" + (f"\n  {_plain(remark.quote)}" if remark.quote else ""))


def _table(found: Adopted) -> None:
    """Print the differences in columns that fit the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title, width in (("", 14), ("what", 26), ("was", 30), ("will be", 30), ("why", 0)):
        table.add_column(title, overflow="fold", **({"max_width": width} if width else {}))  # type: ignore[arg-type]
    for row in found.compared.rows:
        table.add_row(
            Text(row.kind, style=_COLOURS[row.kind]),
            *(Text(_plain(text)) for text in (row.what, row.was, row.will, row.why)),
        )
    width = shutil.get_terminal_size((130, 24)).columns
    console = Console(width=max(width, 60), highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _plain(text: str) -> str:
    """Return a piece of the input as a terminal may show it: of bearable length, nothing in it is a command to it."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in shown)


def _findings(found: Adopted) -> None:
    """Print what rules refuse or warn of; a refusal stops `up`, not the file."""
    for finding in found.findings:
        refuses = finding.severity == "refuse" and not finding.allowed
        if refuses or finding.severity == "warn" or finding.allowed:
            word = "will be refused" if refuses else "allowed" if finding.allowed else "warning"
            force = f" To force it: --allow {finding.rule}" if refuses else ""
            print(f"{paint(word, '!' if refuses else '~')}: {finding.text} [{finding.rule}]{force}")


def _next(shown: Result, found: Adopted, line: CommandLine) -> None:
    print(f"\n{'written' if shown.written else 'there already, the same'}: {file_of(shown.name)}")
    plain = [key for key in found.unknown if not key.startswith("secrets.")]
    say = [*(f"{key}={_EXAMPLES[key]}" for key in found.missing), *(f"{key}=…" for key in plain)]
    if found.missing:
        print(f"Not said by the input: {', '.join(found.missing)}. Edit {MISSING} there, or say it behind a command.")
    if plain:
        print(f"Not known from the input: {', '.join(plain)}. Edit the file, or say it behind a command.")
    for key in found.unknown:
        if key not in plain:
            print(f"Not known from the input: {key}. Write the value to {_place(found, key)}, with mode 0600.")
    folders = [word for folder in line.config_dirs for word in ("--config-dir", folder)]
    refused = dict.fromkeys(f.rule for f in found.findings if f.severity == "refuse" and not f.allowed)
    allow = [word for rule in refused for word in ("--allow", rule)]
    target = found.deployment.target
    where = [] if target.kind in ("local", "ssh") else ["target=ssh"]
    where += ["target.hosts=[HOST]"] if where and not target.hosts else []
    command = ["launch", "plan", shown.name, *say, *where, *allow, *folders]
    print(f"Next: {' '.join(word if '…' in word else shlex.quote(word) for word in command)}")


def _place(found: Adopted, key: str) -> str:
    """Return the file in which a secret is looked for."""
    secrets = found.deployment.secrets
    group, name = key.split(".")[1:]
    return (secrets.env if group == "env" else secrets.args)[name].removeprefix("file:")
