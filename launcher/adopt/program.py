"""Which engine a command line starts, with which interpreter, and where the engine's own words begin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from launcher.adopt import engines

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Program:
    """What stands before the engine's own flags.

    Attributes:
        engine: sglang or vllm.
        python: absolute path of the interpreter where the words say it; empty: they do not.
        head: the words of the program, up to and with ``serve``.
        options: of the interpreter.
        words: the engine's own.
        positional: how many of them may stand without a flag.
    """

    engine: str
    python: str
    head: tuple[str, ...]
    options: tuple[str, ...]
    words: tuple[str, ...]
    positional: int


def read(argv: Sequence[str]) -> Program | None:
    """Return what a command line starts, or None where it is no server that launch knows."""
    found = engines.recognise(argv)
    if found is None or not found.name:
        return None
    head = tuple(argv[: found.arguments])
    path = PurePosixPath(head[0])
    is_python = engines.is_python(head[0])
    python = str(path if is_python else path.with_name("python")) if path.is_absolute() else ""
    # A console script of the whole system says in its first line what runs it.
    if not is_python and str(path.parent) in ("/usr/bin", "/usr/local/bin"):
        python = ""
    positional = 1 if found.name == "vllm" and head[-1] == "serve" else 0
    return Program(found.name, python, head, _options(head), tuple(argv[found.arguments :]), positional)


def _options(head: Sequence[str]) -> tuple[str, ...]:
    """Return the interpreter's own options, before its module or script."""
    found: list[str] = []
    for number, word in enumerate(head[1:], 1):
        if word.startswith("-m") or (not word.startswith("-") and head[number - 1] not in ("-X", "-W")):
            break
        found.append(word)
    return tuple(found)
