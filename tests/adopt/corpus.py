"""The corpus: a folder for each case, with the input as a person has it, its head, and what a real shell made of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).resolve().parent / "corpus"
HEAD, EXPECTED = "case.yaml", "expected.json"
#: Stands for whatever cannot be known from the text: it was another value in another world.
UNKNOWN = None


@dataclass(frozen=True)
class Started:
    """One server as it was seen to start; ``UNKNOWN`` where the two worlds differ.

    Attributes:
        argv: its words, the first one as the program that was run.
        env: what it got on top of the surrounding environment.
        unset: what of the surrounding environment it did not get.
        host: where ssh or srun brought it; empty: where the text was run.
        user: whose it became by sudo or a unit's ``User=``; empty: not said.
        working_directory: where it ran; empty: where the text was run.
        log_file: the file its output went to; empty: none.
        image: of its container.
    """

    argv: tuple[str | None, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    host: str | None = ""
    user: str | None = ""
    working_directory: str | None = ""
    log_file: str | None = ""
    image: str = ""


@dataclass(frozen=True)
class Case:
    """One case: its folder, its head, and the servers that were seen.

    Attributes:
        folder: everything of it.
        head: ``source``, ``url``, ``engine``, ``file``, ``how``, and what the run needs; README.md says more.
    """

    folder: Path
    head: dict[str, Any]

    @property
    def name(self) -> str:
        """``KIND/NAME``."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def kind(self) -> str:
        """What sort of text it is, such as ``script``."""
        return self.folder.parent.name

    @property
    def input(self) -> Path:
        """The file that is read."""
        return self.folder / str(self.head["file"])

    @property
    def how(self) -> str:
        """Where the expectation comes from: ``shell``, ``compose``, ``unit`` or ``hand``."""
        return str(self.head.get("how", "shell"))

    def text(self) -> str:
        """The input as read by a program that keeps line ends."""
        return self.input.read_bytes().decode()

    def expected(self) -> list[Started]:
        """What was recorded, or written by hand."""
        stored = json.loads((self.folder / EXPECTED).read_text())
        return [Started(**{key: _tuple(value) for key, value in one.items()}) for one in stored["servers"]]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def cases() -> list[Case]:
    """All cases in the order of their names."""
    heads = sorted(CORPUS.glob(f"*/*/{HEAD}"))
    return [Case(head.parent, yaml.safe_load(head.read_text())) for head in heads]


def exceptions() -> dict[str, str]:
    """The cases that the reader is known to get wrong, with the reason, from the table in README.md."""
    listed: dict[str, str] = {}
    section = (CORPUS / "README.md").read_text().partition("\n## Exceptions\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        if line.startswith("| `") and len(cells) == 2:
            listed[cells[0].strip("`")] = cells[1]
    return listed
