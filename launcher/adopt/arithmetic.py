"""``$((…))`` of numbers that are known."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING

from launcher.adopt.source import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from launcher.adopt.script import Script
    from launcher.adopt.shell_state import State

_LARGEST = 2**63
_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Eq: lambda a, b: int(a == b),
    ast.NotEq: lambda a, b: int(a != b),
    ast.Lt: lambda a, b: int(a < b),
    ast.LtE: lambda a, b: int(a <= b),
    ast.Gt: lambda a, b: int(a > b),
    ast.GtE: lambda a, b: int(a >= b),
}


class UnknownError(Exception):
    """The number is not known, or is no number."""


def of_node(script: Script, node: Node) -> Word | None:
    """Return the number that an arithmetic expansion is, None where it is not known."""
    text = _plain(script, node)
    text = text[3:-2] if text.startswith("$((") else text[2:-1]
    number = value(script.state, text)
    return None if number is None else Word(str(number), marks=((0, script.line(node)),))


def _plain(script: Script, node: Node) -> str:
    """Return an expression's text with ``${…}`` in it filled in; what is not known stays."""
    from launcher.adopt import expansion
    from launcher.adopt.words import unknown

    text, at = "", node.start_byte
    for inner in _expansions(node):
        atoms = expansion.expand(script, inner, quoted=True)
        known = "".join(atom.text for atom in atoms) if not any(map(unknown, atoms)) else script.text(inner)
        text += script.slice(at, inner.start_byte) + known
        at = inner.end_byte
    return text + script.slice(at, node.end_byte)


def _expansions(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type in ("expansion", "command_substitution"):
            yield child
        else:
            yield from _expansions(child)


def value(state: State, text: str) -> int | None:
    """Return what an expression of integers is, None where it is not known."""
    try:
        names = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", r"\1", text.strip())
        names = re.sub(r"\$(\d)", r"_arg_\1", names)
        if not names or len(names) > 200 or re.search(r"\b0\d|\b\d+[A-Za-z_]", names):  # octal, or no port
            return None
        return _of(state, ast.parse(names, mode="eval").body)
    except (SyntaxError, ValueError, UnknownError, RecursionError, MemoryError):
        return None


def _of(state: State, node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        result = node.value
    elif isinstance(node, ast.Name):
        result = _named(state, node.id)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        result = -_of(state, node.operand)
    elif isinstance(node, ast.BinOp):
        result = _binary(state, node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        result = _OPERATORS[type(node.ops[0])](_of(state, node.left), _of(state, node.comparators[0]))
    else:
        raise UnknownError
    if abs(result) >= _LARGEST:
        raise UnknownError
    return result


def _binary(state: State, node: ast.BinOp) -> int:
    left, right = _of(state, node.left), _of(state, node.right)
    if isinstance(node.op, ast.Div | ast.Mod):
        if not right:
            raise UnknownError
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # as in C, towards zero
        return quotient if isinstance(node.op, ast.Div) else left - quotient * right
    if type(node.op) not in _OPERATORS:
        raise UnknownError
    return _OPERATORS[type(node.op)](left, right)


def _named(state: State, name: str) -> int:
    if name.startswith("_arg_"):
        at = int(name[5:]) - 1
        word = state.arguments[at] if state.arguments is not None and 0 <= at < len(state.arguments) else None
    else:
        word = state.text(name)
    if word is None or word.unknown or not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", word.text):
        raise UnknownError
    return int(word.text)
