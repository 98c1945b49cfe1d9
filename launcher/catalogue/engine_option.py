"""One flag of an engine: the keyword arguments of its ``add_argument``, and what they mean for a user."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.catalogue.python_source import last_name, literals, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.catalogue.python_source import Tree

_NO_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "BooleanOptionalAction", "version")
_DEPRECATED = re.compile(r"\W*(note: )?(\S+ is )?deprecated", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Declared:
    """A flag of one release; the first of `names` is the canonical one."""

    names: tuple[str, ...]
    takes: str
    choices: tuple[str, ...]
    deprecated: str
    source: str


@dataclass
class Option:
    """The keyword arguments of one ``add_argument``, as far as they matter."""

    action: str = ""
    nargs: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    deprecated: str = ""
    flags: tuple[str, ...] = ()
    parsed: bool = False

    def set(self, tree: Tree, path: str, key: str, node: ast.expr) -> None:
        """Take over one keyword argument, or one entry of a dictionary of them."""
        match key, node:
            case "action", ast.Constant(value=str(value)):
                self.action = value
            case "action", _:
                self.action = last_name(node)
                self.nargs = self.nargs or _nargs_of_action(tree, path, self.action)
            case "nargs", ast.Constant(value=value):
                self.nargs = str(value)
            case "choices", _:
                self.choices = literals(tree, path, node) or ()
            case "help", _:
                self.help = text_of(tree, path, node)
            case "new_flag", _:
                self.deprecated = f"use {text_of(tree, path, node)}"
            case "deprecated", ast.Constant(value=True):
                self.deprecated = "deprecated"
            case "flags", _:
                self.flags = literals(tree, path, node) or ()
            case "type_parser", _:
                self.parsed = True
            case "action_kwargs", ast.Dict(keys=keys, values=values):
                for name, item in zip(keys, values, strict=True):
                    self.set(tree, path, text_of(tree, path, name), item)

    def drop(self, key: str) -> None:
        """Forget one keyword argument."""
        if key in ("action", "nargs"):
            setattr(self, key, "")

    def declared(self, names: Iterable[str], source: str) -> Declared | None:
        """Return the flag under these names, or None when they make a positional argument."""
        known = sorted((n for n in (*self.flags, *names) if n.startswith("-")), key=lambda n: not n.startswith("--"))
        if self.action == "BooleanOptionalAction":
            known += [f"--no-{n[2:]}" for n in known if n.startswith("--")]
        return Declared(tuple(known), self._takes(), self.choices, self._note(), source) if known else None

    def _takes(self) -> str:
        if self.action in _NO_VALUE:
            return "none"
        return {"": "one", "None": "one", "0": "none", "?": "optional"}.get(self.nargs, "many")

    def _note(self) -> str:
        if self.deprecated.startswith("use "):
            return self.deprecated
        words = " ".join(self.help.split())
        if self.deprecated or "Deprecated" in self.action or _DEPRECATED.match(words):
            sentences = re.split(r"(?<=[.)]) ", words)
            return " ".join(sentences[: 1 + (len(sentences[0]) < 20)]) or "deprecated"
        return ""


def _nargs_of_action(tree: Tree, path: str, name: str) -> str:
    """Return "0" when an action class of the engine's own takes no value by itself."""
    found = tree.find(path, name)
    if not found or not isinstance(found.node, ast.ClassDef):
        return ""
    for node in ast.walk(found.node):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [a.arg for a in node.args.args][len(node.args.args) - len(node.args.defaults) :]
            given = [*zip(names, node.args.defaults, strict=True)]
            given += [(k.arg or "", k.value) for c in ast.walk(node) if isinstance(c, ast.Call) for k in c.keywords]
            if any(name == "nargs" and isinstance(v, ast.Constant) and v.value == 0 for name, v in given):
                return "0"
    return ""
