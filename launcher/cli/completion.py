"""``launch completion SHELL``, and the hidden ``launch __complete`` that its scripts call at each TAB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from launcher import completion
from launcher.completion.line import cut_of_bash, of_bash
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.cli.parser import CommandLine

VERB = "completion"
#: First word of the hidden entry.
HIDDEN = "__complete"


def script(line: CommandLine) -> int:
    """Print the script of a shell."""
    if len(line.names) != 1 or line.names[0] not in completion.SHELLS:
        hint = nearest(line.names[0], completion.SHELLS) if len(line.names) == 1 else ""
        known = ", ".join(completion.SHELLS)
        raise ConfigError(f'completion takes one shell{hint}: {known}. In bash: eval "$(launch completion bash)"')
    print(completion.script(line.names[0]), end="")
    return 0


def answer(words: Sequence[str]) -> int:
    """Print what fits at the cursor, one candidate a line with a tab before its explanation.

    Args:
        words: the shell, then for bash the line up to the cursor and ``$COMP_WORDBREAKS``; for others the words,
            the last one up to the cursor.
    """
    from launcher.cli.complete import complete

    shell, *rest = words or [""]
    rest = rest or [""]
    cut = 0
    if shell == "bash":
        text, breaks = rest[0], rest[-1]
        cut, rest = cut_of_bash(text, breaks), of_bash(text)
    elif shell == "fish":
        rest[-1] = rest[-1].lstrip("'\"")
    found = complete(rest, os.environ, Path.cwd())
    if found.files:
        print(":files")
    if found.goes_on:
        print(":nospace")
    for text, told in found.candidates:
        print(f"{text[cut:]}\t{' '.join(told.split())}" if told else text[cut:])
    return 0
