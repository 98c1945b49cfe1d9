"""Markdown: its code blocks, one after the other, as somebody would run them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import engines, net, shell, terminal
from launcher.adopt.found import Remark
from launcher.adopt.shell_state import State
from launcher.adopt.source import Source, quote
from launcher.adopt.start import Gathered
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from launcher.adopt.source import Word

_SHELL = frozenset(
    ("", "bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal", "text", "txt", "cmd",
     "plaintext", "plain", "none", "commandline", "command", "slurm", "sbatch")
)  # fmt: skip
_OTHERS = {"yaml": "x.yaml", "yml": "x.yaml", "ini": "x.service", "systemd": "x.service", "service": "x.service",
           "conf": "x.service", "toml": ""}  # fmt: skip
_SESSIONS = ("console", "shell-session", "shellsession")
_ENGINE = re.compile(r"sglang|vllm", re.IGNORECASE)


def read(source: Source, into: Gathered) -> None:
    """Read the code blocks, and the spans of code that start an engine.

    The blocks share variables as if one had typed them one after the other; a server that gets something from an
    earlier block is told so.
    """
    state, spans = State(), list(_pieces(source))
    for language, piece, inline in spans:
        if inline:
            _span(piece, into)
        elif language in _OTHERS:
            _other(piece, language, into)
        elif language in _SHELL:
            before, earlier = len(into.servers), state.environment()
            state.ended = False
            state = shell.read(terminal.typed(piece, session=language in _SESSIONS), into, state)
            _told(into, before, earlier, source.name)
            net.tell(piece, into)
        elif language == "dockerfile" or _ENGINE.search(piece.text):
            _unread(piece, language, into)


def _pieces(source: Source) -> Iterator[tuple[str, Source, bool]]:
    """Yield language, text and whether it stands within a line, of every piece of code."""
    from markdown_it import MarkdownIt

    first = source.line(0)
    lines = source.text.splitlines()
    for token in MarkdownIt("commonmark").parse(source.text):
        if token.map is None:
            continue
        start = token.map[0]
        if token.type in ("fence", "code_block"):
            words = token.info.strip().lower().replace("{", " ").replace(".", " ").split() if token.info else []
            line = start + (1 if token.type == "fence" else 0)
            yield (
                (words[0].strip("}") if words else ""),
                Source(source.name, token.content, ((0, first + line),)),
                False,
            )
        elif token.type == "inline":
            for child in token.children or ():
                if child.type == "code_inline":
                    at = _find(lines, start, token.map[1], child.content)
                    yield "", Source(source.name, child.content, ((0, first + at),)), True


def _find(lines: list[str], start: int, end: int, text: str) -> int:
    words = text.split()
    first = words[0] if words else ""
    whole = next((at for at in range(start, min(end, len(lines))) if text in lines[at]), None)
    return (
        whole
        if whole is not None
        else next((at for at in range(start, min(end, len(lines))) if first in lines[at]), start)
    )


def _span(piece: Source, into: Gathered) -> None:
    """Read a span of code if it starts an engine: the bare name of a command in a sentence does not."""
    if not re.search(r"\s-{1,2}\w|\bserve\s+[\w.-]*/", piece.text) or not _ENGINE.search(piece.text):
        return
    inner = Gathered(into.files, into.shell)
    shell.read(piece, inner)
    into.servers += [server for server in inner.servers if _has_arguments(server.argv)]


def _has_arguments(argv: tuple[str, ...]) -> bool:
    engine = engines.recognise(argv)
    return engine is not None and len(argv) > engine.arguments


def _other(piece: Source, language: str, into: Gathered) -> None:
    from launcher.adopt import read as reading

    kind = reading.kind(piece.text, _OTHERS[language]) if _OTHERS[language] else ""
    if language in ("ini", "conf", "toml") and "[Service]" not in piece.text:
        kind = ""
    if not kind or (kind == "engine" and not _ENGINE.search(piece.text) and "model" not in piece.text):
        if _ENGINE.search(piece.text):
            _unread(piece, language, into)
        return
    inner = Gathered(into.files, into.shell)
    try:
        reading.READERS[kind](piece, inner)
    except ConfigError as error:
        into.remarks.append(Remark(piece.where(0), quote(piece.text), str(error).split(": ", 1)[-1]))
        return
    found = inner.found()
    into.servers += found.servers
    if found.servers or _ENGINE.search(piece.text):
        into.remarks += found.remarks


def _unread(piece: Source, language: str, into: Gathered) -> None:
    into.remarks.append(piece.remark(0, len(piece.text), f"a code block of {language}, which launch does not read"))


def _told(into: Gathered, before: int, earlier: Mapping[str, Word], name: str) -> None:
    """Tell the servers of a block what they got from earlier ones."""
    for at in range(before, len(into.servers)):
        server = into.servers[at]
        got = [
            Remark(f"{name}:{value.line}", quote(f"{variable}={value.text}"), "from an earlier code block")
            for variable, value in earlier.items()
            if server.env.get(variable) == value.text and f"{name}:{value.line}" != server.where
        ]
        into.servers[at] = replace(server, remarks=(*server.remarks, *got))
