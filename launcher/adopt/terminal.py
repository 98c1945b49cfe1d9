"""Text copied from a terminal: prompts and numbers of a history stand before the commands, output between them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.adopt.source import Source

#: ``(venv) user@host:~/x$``, ``[user@host x]#`` or a lone ``$``; a lone ``#`` begins a comment.
_PROMPT = re.compile(
    r"^(\s*)(?:\([\w./-]+\)\s*)*"
    r"(?:\[?[\w.-]+@[\w.-]+[:\s][^$#\n;|&]*[$#]|[\w./~-]*[$%\u276f\u279c](?=\s))\s+"
)
_NUMBER = re.compile(r"^\s*\d+\*?\s+(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\s+)?(?=\S)")
_ZSH = re.compile(r"^: \d{9,}:\d+;")


def typed(source: Source, *, session: bool = False) -> Source:
    """Return a text with only what was typed, each line where it was.

    Args:
        source: the text.
        session: lines without a prompt are output, even before the first prompt.
    """
    lines = source.text.split("\n")
    prompts = [bool(_PROMPT.match(line)) for line in lines]
    if any(prompts):
        first = next((prompt for line, prompt in zip(lines, prompts, strict=True) if line.strip()), False)
        return replace(source, text=_after_prompts(lines, prompts, session=session or first))
    for mark in (_NUMBER, _ZSH):
        if all(mark.match(line) for line in lines if line.strip()):
            return replace(source, text="\n".join(mark.sub("", line) for line in lines))
    return source


def _after_prompts(lines: list[str], prompts: list[bool], *, session: bool) -> str:
    kept: list[str] = []
    going = False
    for line, prompt in zip(lines, prompts, strict=True):
        if prompt:
            kept.append(_PROMPT.sub(r"\1", line))
        elif going:
            kept.append(re.sub(r"^> ?", "", line))
        else:
            kept.append("" if session else line)
        going = bool(kept[-1]) and kept[-1].endswith("\\")
    return "\n".join(kept)
