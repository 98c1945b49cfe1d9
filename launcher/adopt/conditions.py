"""Whether a condition of a script holds, as far as the text alone says it."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from launcher.adopt import arithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from launcher.adopt.script import Script
    from launcher.adopt.source import Word

_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


def holds(script: Script, node: Node) -> bool | None:
    """Return whether a command succeeds; None: only a real shell on the host can say."""
    kind = node.type
    if kind == "negated_command":
        inner = [holds(script, child) for child in node.children if child.is_named]
        return None if not inner or inner[-1] is None else not inner[-1]
    if kind == "list":
        return _list(script, node)
    if kind == "test_command":
        return _test(script, node)
    if kind == "compound_statement" and script.text(node).startswith("(("):
        number = arithmetic.value(script.state, script.text(node)[2:-2])
        return None if number is None else number != 0
    if kind == "command":
        words = [word.text for word in script.words(node.children)]
        if words and words[0] in ("true", ":", "false"):
            return words[0] != "false"
        if words and words[0] == "test":
            return _words(script, script.words(node.children)[1:])
    return None


def _list(script: Script, node: Node) -> bool | None:
    sides = [child for child in node.children if child.is_named]
    if len(sides) != 2:
        return None
    left = holds(script, sides[0])
    if any(child.type == "&&" for child in node.children):
        return False if left is False else (holds(script, sides[1]) if left else None)
    return True if left else (holds(script, sides[1]) if left is False else None)


def _test(script: Script, node: Node) -> bool | None:
    inner = [child for child in node.children if child.type not in ("[", "]", "[[", "]]", "((", "))")]
    if script.text(node).startswith("(("):
        number = arithmetic.value(script.state, script.text(node)[2:-2])
        return None if number is None else number != 0
    return _expression(script, inner[0]) if len(inner) == 1 else None


def _expression(script: Script, node: Node) -> bool | None:
    children = node.children
    if node.type == "parenthesized_expression" and len(children) == 3:
        return _expression(script, children[1])
    if node.type == "unary_expression" and len(children) == 2:
        operator = script.text(children[0])
        if operator == "!":
            inner = _expression(script, children[1])
            return None if inner is None else not inner
        return _unary(script, operator, script.word(children[1]))
    if node.type == "binary_expression" and len(children) == 3:
        operator = script.text(children[1])
        if operator in ("&&", "||"):
            left, right = (_expression(script, child) for child in (children[0], children[2]))
            if operator == "&&":
                return False if False in (left, right) else (None if None in (left, right) else True)
            return True if True in (left, right) else (None if None in (left, right) else False)
        pattern = children[2].type not in ("string", "raw_string") and _in_brackets(script, node)
        return _binary(script.word(children[0]), operator, script.word(children[2]), pattern=pattern)
    return None


def _in_brackets(script: Script, node: Node) -> bool:
    """Return whether a comparison stands in ``[[ … ]]``, where its right side is a pattern."""
    outer: Node | None = node
    while outer is not None and outer.type != "test_command":
        outer = outer.parent
    return outer is not None and script.text(outer).startswith("[[")


def _words(script: Script, words: Sequence[Word]) -> bool | None:
    if len(words) == 2:
        return _unary(script, words[0].text, words[1])
    if len(words) == 3:
        return _binary(words[0], words[1].text, words[2], pattern=False)
    return None


def _unary(script: Script, operator: str, word: Word) -> bool | None:
    if operator in ("-f", "-e", "-r", "-s") and not word.unknown and script.files is not None:
        return True if script.files.text(word.text) is not None else None  # a file that is not here may be there
    if operator not in ("-n", "-z") or word.unknown:
        return None
    return bool(word.text) == (operator == "-n")


def _binary(left: Word, operator: str, right: Word, *, pattern: bool) -> bool | None:
    if left.unknown or right.unknown:
        return None
    if operator in ("=", "==", "!="):
        equal = fnmatch.fnmatchcase(left.text, right.text) if pattern else left.text == right.text
        return equal == (operator != "!=")
    if operator in _NUMBERS and re.fullmatch(r"-?\d{1,18}", left.text) and re.fullmatch(r"-?\d{1,18}", right.text):
        a, b = int(left.text), int(right.text)
        return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[_NUMBERS[operator]]
    return None


def matches(word: Word, patterns: Sequence[Word]) -> bool | None:
    """Return whether a word is one of a `case`."""
    if word.unknown or any(pattern.unknown and "$" in pattern.text for pattern in patterns):
        return None
    return any(fnmatch.fnmatchcase(word.text, pattern.text) for pattern in patterns)
