"""What a shell knows at one point of a script."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from launcher.adopt.source import NOTHING, Word, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tree_sitter import Node

    from launcher.adopt.found import Remark
    from launcher.adopt.script import Script

#: A variable's value: text, an array, or an associative array.
Value = Word | tuple[Word, ...] | dict[str, Word]

#: Always in the environment, so that a plain assignment changes what programs get.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "SHELL", "TERM", "PWD", "TMPDIR")


@dataclass
class State:
    """Variables, functions, working folder and activated environment.

    Attributes:
        values: of all variables that the text sets.
        exported: names that programs get.
        removed: names taken away on purpose.
        functions: bodies by name, each with the text it stands in.
        arguments: ``$1`` and so on; None: not known.
        folder: working folder, empty: not said.
        python: interpreter of an activated environment.
        log: where `exec` sent the output.
        doubts: what every later server is told.
        all_exported: ``set -a``.
    """

    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    removed: dict[str, None] = field(default_factory=dict)
    functions: dict[str, tuple[Node, Script]] = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None
    folder: Word = NOTHING
    folders: list[Word] = field(default_factory=list)
    python: str = ""
    log: Word = NOTHING
    doubts: list[Remark] = field(default_factory=list)
    all_exported: bool = False
    ended: bool = False

    def copy(self) -> State:
        """Return the state that a subshell starts with."""
        return replace(
            self,
            values=dict(self.values),
            exported=set(self.exported),
            removed=dict(self.removed),
            functions=dict(self.functions),
            folders=list(self.folders),
            doubts=list(self.doubts),
        )

    def set(self, name: str, value: Value) -> None:
        """Assign to a variable."""
        self.values[name] = value
        if self.all_exported or (name in _INHERITED and name not in self.removed):
            self.export(name)

    def export(self, name: str) -> None:
        """Hand a variable to programs."""
        self.exported.add(name)
        self.removed.pop(name, None)

    def unset(self, name: str) -> None:
        """Take a variable away."""
        self.values.pop(name, None)
        self.exported.discard(name)
        self.removed[name] = None

    def text(self, name: str) -> Word | None:
        """Return what ``$NAME`` is; None: not known here. An unset variable is empty."""
        value = self.values.get(name)
        if value is None:
            return NOTHING if name in self.removed else None
        if isinstance(value, tuple):
            return value[0] if value else NOTHING
        if isinstance(value, dict):
            return value.get("0", NOTHING)
        return value

    def environment(self) -> dict[str, Word]:
        """Return the variables that a program started now gets, as far as the text sets them."""
        return {name: value for name, value in self.values.items() if name in self.exported and isinstance(value, Word)}

    def move(self, path: Word) -> None:
        """Change the working folder."""
        if path.text.startswith(("/", "~", "$")) or not self.folder.text:
            text = path.text
        else:
            text = posixpath.join(self.folder.text, path.text)
        if text.startswith("/"):
            text = posixpath.normpath(text)
        self.folder = replace(
            path, text=text, doubts=(*(() if path.text.startswith("/") else self.folder.doubts), *path.doubts)
        )

    def merge(self, other: State, doubt: Remark) -> None:
        """Take in what another way through the script may have changed: what differs is not known any more."""
        for name in dict.fromkeys((*self.values, *other.values)):
            if not _same(self.values.get(name), other.values.get(name)) or (name in self.exported) != (
                name in other.exported
            ):
                self._differs(name, other, doubt)
        if self.folder != other.folder or self.python != other.python:
            self.doubts.append(doubt)
        self.functions = {**other.functions, **self.functions}
        self.doubts += [remark for remark in other.doubts if remark not in self.doubts]

    def _differs(self, name: str, other: State, doubt: Remark) -> None:
        """Forget a variable that only the host knows; both of its values are told."""
        then, else_ = (quote(f"{name}={v.text}") if v else "it is not set" for v in (other.text(name), self.text(name)))
        told = replace(doubt, why=f"only the host knows whether this is so: then {then}, else {else_}")
        if name in self.exported | other.exported and not (name in self.exported and name in other.exported):
            self.values.pop(name, None)
            self.exported.discard(name)
            self.doubts.append(told)
            return
        held = (value for value in (self.values.get(name), other.values.get(name)) if isinstance(value, Word))
        more = [remark for value in held for remark in value.doubts]
        self.values[name] = Word(f"${name}", tuple(dict.fromkeys((told, *more))))


def _same(one: Value | None, other: Value | None) -> bool:
    """Return whether two values are the same text, wherever they were written."""
    if isinstance(one, Word) and isinstance(other, Word):
        return one.text == other.text and one.doubts == other.doubts
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def inherited(env: Mapping[str, Word], folder: Word, python: str, arguments: tuple[Word, ...] | None) -> State:
    """Return the state of a shell that is started with these variables."""
    state = State(values=dict(env), exported=set(env), folder=folder, python=python)
    state.arguments = arguments
    return state
