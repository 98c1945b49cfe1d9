"""Loops of a script: unrolled where the text says over what they run, else read once and told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.adopt import arithmetic, unread
from launcher.adopt.source import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from launcher.adopt.shell import Walk

_MOST_TURNS = 256
_COUNTING = re.compile(
    r"for\s*\(\(\s*(\w+)\s*=\s*([^;]+);\s*\1\s*(<=?)\s*([^;]+);\s*(?:\1\s*\+\+|\+\+\s*\1|\1\s*\+=\s*(\d+))\s*\)\)"
)


def read(walk: Walk, node: Node) -> None:
    """Read a loop."""
    body = node.child_by_field_name("body")
    if body is None or node.has_error:
        unread.tell(walk, node)
    elif node.type == "for_statement":
        _for(walk, node, body)
    elif node.type == "c_style_for_statement":
        _counting(walk, node, body)
    else:
        tests = [c for i, c in enumerate(node.children) if node.field_name_for_child(i) == "condition" and c.is_named]
        walk.branch([*tests, body], walk.script.remark(node, "a loop: it is read once"))


def _for(walk: Walk, node: Node, body: Node) -> None:
    script = walk.script
    variable = node.child_by_field_name("variable")
    values = [child for i, child in enumerate(node.children) if node.field_name_for_child(i) == "value"]
    if variable is None or node.children[0].type != "for":
        unread.tell(walk, node)
        return
    name = script.text(variable)
    if values or any(child.type == "in" for child in node.children):
        words: Sequence[Word] | None = script.words(values)
    else:
        words = script.state.arguments
    if words is None or len(words) > _MOST_TURNS or any(word.unknown for word in words):
        why = "a loop over what is not known here: it is read once"
        script.state.set(name, Word(f"${name}", (script.remark(node, why),)))
        _once(walk, node, body, why)
        return
    for word in words:
        walk.into.turn(walk.script.source.name)
        script.state.set(name, word)
        walk.statement(body)


def _counting(walk: Walk, node: Node, body: Node) -> None:
    script = walk.script
    found = _COUNTING.match(script.text(node))
    edges = [arithmetic.value(script.state, text) for text in found.group(2, 4)] if found else []
    if found is None or edges[0] is None or edges[1] is None:
        _once(walk, node, body, "a loop that launch cannot count: it is read once")
        return
    turns = range(edges[0], edges[1] + (found.group(3) == "<="), int(found.group(5) or 1) or 1)
    if len(turns) > _MOST_TURNS:
        _once(walk, node, body, "a loop of very many turns: it is read once")
        return
    for number in turns:
        walk.into.turn(walk.script.source.name)
        script.state.set(found.group(1), Word(str(number), marks=((0, script.line(node)),)))
        walk.statement(body)


def _once(walk: Walk, node: Node, body: Node, why: str) -> None:
    walk.branch([body], walk.script.remark(node, why))
