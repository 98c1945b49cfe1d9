"""The net below all readers of shell: a line that names an engine's server and that nothing came from is told.

Whatever a reader does not know (``watch``, ``find -exec``, a function that is never called), no server is lost without
a word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.adopt import engines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.adopt.source import Source
    from launcher.adopt.start import Gathered

_NAMES = re.compile(r"sglang\.(?:launch_server|srt\.entrypoints)|vllm\.entrypoints|\b(?:sglang|vllm)\s+serve\b")
_WHY = "this names a server, and launch found none in it: if it starts one, give launch that command alone"
_MOST_LINES = 20


def tell(source: Source, into: Gathered) -> None:
    """Tell of the lines of a text that name a server and that neither a server nor a remark came from.

    A comment is told only where nothing else was found: it is meant not to run.
    """
    known = [*into.remarks, *into.owed, *(remark for server in into.servers for remark in server.remarks)]
    places = {server.where for server in into.servers} | {remark.where for remark in known}
    lines = [(at, text, _places(source, at, text)) for at, text in _lines(source.text) if _NAMES.search(_words(text))]
    named = {place for _, _, there in lines for place in there}
    # A server that is started elsewhere by words of this line: "${COMMAND[@]}".
    elsewhere = [
        " ".join(server.argv[: found.arguments])
        for server in into.servers
        if server.where not in named and (found := engines.recognise(server.argv)) is not None
    ]
    silent = [
        source.remark(at, at + len(text), _WHY)
        for at, text, there in lines
        if not places & there
        and not (places and text.lstrip().startswith("#"))
        and not any(program in _words(text) for program in elsewhere)
    ]
    into.remarks += silent[:_MOST_LINES]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each line begins, and the line; what a backslash joins is one."""
    for match in re.finditer(r"(?:[^\n]*\\\n)*[^\n]*(?:\n|$)", text):
        yield match.start(), match.group().rstrip("\n")


def _words(text: str) -> str:
    return " ".join(text.replace("\\\n", " ").split())


def _places(source: Source, at: int, text: str) -> set[str]:
    return {source.where(at + offset) for offset in (0, *(match.end() for match in re.finditer("\n", text)))}
