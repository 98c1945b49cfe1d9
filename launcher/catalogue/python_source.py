"""A package's Python source, read without importing it: from a wheel or a folder.

Only what is needed to learn a command line: which definition a name stands for, the literal values of a constant,
and the alternatives of a type annotation. A part that is computed when the program runs has no answer here.
"""

from __future__ import annotations

import ast
import functools
import zipfile
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NamedTuple

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

#: Wrappers whose first argument is the type that counts.
_TRANSPARENT = ("Annotated", "A", "SkipValidation")
_UNIONS = ("Union", "Optional")
_CONTAINERS = {"list": "list", "List": "list", "tuple": "tuple", "set": "set", "dict": "dict", "Dict": "dict"}


class Found(NamedTuple):
    """A definition and the file that holds it."""

    path: str
    node: ast.AST


class Import(NamedTuple):
    """A name that another module defines."""

    module: str
    name: str


class Tree:
    """The modules of a package by path, parsed at the first question."""

    def __init__(self, names: Callable[[], Iterable[str]], read: Callable[[str], bytes]) -> None:
        self._names = names
        self._read = read
        self.bindings = functools.cache(self._bindings)

    def matching(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        return sorted(name for name in self._names() if fnmatch(name, pattern))

    def text(self, path: str) -> str | None:
        """Return a file's text, or None when there is none."""
        try:
            return self._read(path).decode("utf-8")
        except (KeyError, OSError):
            return None

    def _bindings(self, path: str) -> Mapping[str, ast.AST | Import]:
        """Return what each top-level name of a module stands for when the program runs."""
        text = self.text(path)
        table: dict[str, ast.AST | Import] = {}
        if text is not None:
            _bind(ast.parse(text, path).body, path, table)
        return table

    def find(self, path: str, name: str, depth: int = 8) -> Found | None:
        """Return the definition of a name as one module sees it, through its imports."""
        node = self.bindings(path).get(name)
        if not isinstance(node, Import):
            return Found(path, node) if node is not None else None
        stem = node.module.replace(".", "/")
        for target in (f"{stem}.py", f"{stem}/__init__.py"):
            found = self.find(target, node.name, depth - 1) if depth else None
            if found:
                return found
        return None


def open_tree(place: Path) -> Tree:
    """Return the modules of a wheel, or of a folder that packages were unpacked into."""
    if place.is_dir():
        return Tree(
            lambda: (str(p.relative_to(place)) for p in place.glob("*/**/*.py")),
            lambda path: (place / path).read_bytes(),
        )
    try:
        archive = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as error:
        message = f"{place}: neither a wheel nor a folder ({error})"
        raise ConfigError(message) from error
    return Tree(archive.namelist, archive.read)


def _bind(body: Iterable[ast.stmt], path: str, table: dict[str, ast.AST | Import]) -> None:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(table.get(name), ast.ClassDef):
                table[name] = value  # a class that is made anew from itself stays what it was (SGLang's ServerArgs)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                table[name] = value
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                table[name] = statement
            case ast.ImportFrom():
                table |= {a.asname or a.name: Import(_absolute(statement, path), a.name) for a in statement.names}
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):  # what a type checker sees gives way
                _bind([*statement.body, *statement.orelse], path, table)
            case ast.If():
                _bind([*statement.orelse, *statement.body], path, table)
            case ast.Try():
                _bind([*(s for h in statement.handlers for s in h.body), *statement.body], path, table)


def _absolute(statement: ast.ImportFrom, path: str) -> str:
    if not statement.level:
        return statement.module or ""
    package = path.removesuffix(".py").split("/")[: -statement.level]
    return ".".join([*package, *(statement.module or "").split(".")]).rstrip(".")


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name, or nothing."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def text_of(tree: Tree, path: str, node: ast.AST | None) -> str:
    """Return the constant text of an expression; computed parts are left out."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=parts):
            return "".join(text_of(tree, path, part) for part in parts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return text_of(tree, path, left) + text_of(tree, path, right)
        case ast.Name(id=name) if found := tree.find(path, name):
            return text_of(tree, *found)
    return ""


def literals(tree: Tree, path: str, node: ast.AST | None) -> tuple[str, ...] | None:
    """Return the values of a constant collection or Literal type as text, or None when they are computed."""
    match node:
        case ast.Constant(value=None):
            return ()
        case ast.Constant(value=str() | int() as value):
            return (str(value),)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return _joined(tree, path, [p.value if isinstance(p, ast.Starred) else p for p in parts])
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _joined(tree, path, [left, right])
        case ast.Subscript(value=base, slice=inner) if last_name(base) == "Literal":
            return literals(tree, path, inner)
        case ast.Call(func=ast.Name(id="list" | "sorted" | "set" | "tuple" | "get_args"), args=[inner]):
            return literals(tree, path, inner)
        case ast.Name(id=name) if found := tree.find(path, name):
            return literals(tree, *found)
    return None


def _joined(tree: Tree, path: str, parts: Iterable[ast.AST]) -> tuple[str, ...] | None:
    values: list[str] = []
    for part in parts:
        found = literals(tree, path, part)
        if found is None:
            return None
        values += found
    return tuple(dict.fromkeys(values))


def alternatives(tree: Tree, path: str, node: ast.AST | None) -> dict[str, Found]:
    """Return the alternatives of a type annotation: builtin names, ``None``, ``Literal``, ``dataclass`` or other."""
    match node:
        case ast.Constant(value=None):
            return {"None": Found(path, node)}
        case ast.Constant(value=str(value)):
            return alternatives(tree, path, ast.parse(value, mode="eval").body)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return alternatives(tree, path, left) | alternatives(tree, path, right)
        case ast.Subscript(value=base, slice=inner):
            return _subscript(tree, path, node, last_name(base), inner)
        case ast.ClassDef(decorator_list=decorators, bases=bases):
            marks = [last_name(d.func if isinstance(d, ast.Call) else d) for d in decorators]
            if "dict" in map(last_name, bases):
                return {"dict": Found(path, node)}
            return {"dataclass" if {"config", "dataclass"} & set(marks) else "other": Found(path, node)}
        case ast.Name(id=name) if found := tree.find(path, name):
            return alternatives(tree, *found)
        case ast.Name(id=name):
            return {_CONTAINERS.get(name, name): Found(path, node)}
    return {"other": Found(path, node or ast.Pass())}


def _subscript(tree: Tree, path: str, node: ast.AST, base: str, inner: ast.AST) -> dict[str, Found]:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if base in _TRANSPARENT:
        return alternatives(tree, path, parts[0])
    if base in _UNIONS:
        found = {k: v for part in parts for k, v in alternatives(tree, path, part).items()}
        return found | ({"None": Found(path, node)} if base == "Optional" else {})
    kind = "Literal" if base == "Literal" else _CONTAINERS.get(base, "other")
    return {kind: Found(path, node)}
