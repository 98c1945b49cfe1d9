"""``if``, ``case``, ``&&`` and ``||``: the way that is taken where the text says it, else each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import conditions, unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from launcher.adopt.found import Remark
    from launcher.adopt.shell import Walk
    from launcher.adopt.source import Word


def both(walk: Walk, node: Node, log: Word | None) -> None:
    """Read ``a && b`` and ``a || b``."""
    sides = [child for child in node.children if child.is_named]
    either = any(child.type == "||" for child in node.children)
    if len(sides) != 2:
        unread.tell(walk, node)
        return
    known = conditions.holds(walk.script, sides[0])
    walk.statement(sides[0], log)
    if walk.script.state.ended or known is either:
        return
    certain = known is not None or (not either and sides[0].type != "test_command")
    if certain:
        walk.statement(sides[1], log)
        return
    walk.branch([sides[1]], walk.script.remark(sides[0], "what follows depends on this"), failing=either)


def choose(walk: Walk, node: Node) -> None:
    """Read the ways of an ``if``."""
    doubt: Remark | None = None
    taken = False
    for tests, body in _ways(node):
        if taken:
            unread.skipped(walk, body)
            continue
        known = conditions.holds(walk.script, tests[-1]) if tests else True
        for test in tests:
            walk.statement(test)
        if known is None:
            doubt = walk.script.remark(tests[-1], "it is started only if this holds on the host")
            walk.branch(body, doubt)
        elif known and doubt is not None:  # the last of several ways, of which only the host knows the right one
            walk.branch(body, replace(doubt, why="it is started only if this does not hold on the host"))
        elif known:
            walk.block(body)
        else:
            unread.skipped(walk, body)
        taken = bool(known)


def case(walk: Walk, node: Node) -> None:
    """Read the items of a ``case``."""
    value = node.child_by_field_name("value")
    if value is None:
        unread.tell(walk, node)
        return
    word = walk.script.word(value)
    unsure = taken = False
    for item in [child for child in node.children if child.type == "case_item"]:
        patterns = [c for i, c in enumerate(item.children) if item.field_name_for_child(i) == "value"]
        body = [
            c
            for i, c in enumerate(item.children)
            if item.field_name_for_child(i) not in ("value", "termination") and c.type not in (")", "|", "(")
        ]
        known = False if taken else conditions.matches(word, [walk.script.word(pattern) for pattern in patterns])
        if known is False:
            unread.skipped(walk, [item] if body else [])
        elif known and not unsure:
            walk.block(body)
        else:
            unsure = True
            walk.branch(body, walk.script.remark(item, f"only if {word.text} is this on the host"))
        taken = taken or bool(known)


def _ways(node: Node) -> Iterator[tuple[list[Node], list[Node]]]:
    """Yield conditions and body of ``if``, each ``elif`` and ``else``."""
    conditions: list[Node] = []
    body: list[Node] = []
    then = node.type == "else_clause"
    later: list[Node] = []
    for child in node.children:
        if child.type == "then":
            then = True
        elif child.type in ("elif_clause", "else_clause"):
            later.append(child)
        elif child.is_named and child.type != "comment":
            (body if then else conditions).append(child)
    yield conditions, body
    for child in later:
        yield from _ways(child)
