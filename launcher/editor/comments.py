"""What the source of the schema says about each field: the comment lines right above it."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import tokenize

from launcher import schema


@functools.cache
def comments() -> dict[tuple[str, str], str]:
    """Return the comment of each field by class and name; a field without one is left out."""
    source = inspect.getsource(schema)
    lines = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }
    found: dict[tuple[str, str], str] = {}
    for cls in (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)):
        for field in cls.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[cls.name, field.target.id] = _above(field.lineno, lines)
    return {key: text for key, text in found.items() if text}


def _above(line: int, lines: dict[int, str]) -> str:
    texts: list[str] = []
    while line - 1 in lines:
        line -= 1
        texts.append(lines[line])
    return " ".join(reversed(texts)).replace("``", "")
