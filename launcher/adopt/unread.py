"""What a shell text holds and the reader does not take: quoted with its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.adopt.found import Remark
from launcher.adopt.source import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from launcher.adopt.script import Script
    from launcher.adopt.shell import Walk

_ENGINE_LINE = re.compile(r"^.*(?:sglang|vllm).*$", re.MULTILINE)
_MOST_LINES = 20


def beside(script: Script, nodes: Sequence[Node]) -> set[int]:
    """Return where statements begin that share a line with something that the grammar cannot read."""
    bad = [node for node in nodes if node.type == "ERROR" and script.text(node).strip(" \t\n;&")]
    rows = {row for node in bad for row in (node.start_point[0], node.end_point[0])}
    return {node.start_byte for node in nodes if node.start_point[0] in rows or node.end_point[0] in rows}


def readable(node: Node) -> bool:
    """Return whether the grammar can read a command; within ``${…}`` the text itself is read."""
    if not node.has_error or node.type in ("expansion", "variable_assignments"):
        return True
    if node.type == "ERROR" or node.is_missing:
        return False
    return all(map(readable, node.children))


def tell(walk: Walk, node: Node) -> None:
    """Tell of something that is no shell as far as the grammar knows."""
    text, why = walk.script.text(node), "launch cannot read this as shell, so it is left out"
    if text.strip(" \t\n;&"):
        walk.into.remarks.append(walk.script.remark(node, why))
    for match in list(_ENGINE_LINE.finditer(text, text.find("\n") + 1))[:_MOST_LINES] if "\n" in text else ():
        where = f"{walk.script.source.name}:{walk.script.line(node) + text.count(chr(10), 0, match.start())}"
        walk.into.remarks.append(Remark(where, quote(match.group()), why))


def behind_end(walk: Walk, node: Node) -> None:
    """Tell of a server behind the end of a script."""
    text = walk.script.text(node)
    if node.type != "comment" and ("sglang" in text or "vllm" in text):
        walk.into.remarks.append(walk.script.remark(node, "the script ends before this line"))


def skipped(walk: Walk, nodes: Sequence[Node]) -> None:
    """Tell of servers in a way that the script does not take as it stands."""
    for node in nodes:
        if _ENGINE_LINE.search(walk.script.text(node)):
            why = "not started as the script stands; with other values of its variables it would be"
            walk.into.remarks.append(walk.script.remark(node, why))
