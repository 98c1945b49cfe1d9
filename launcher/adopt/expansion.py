"""What ``$A``, ``${A:-b}``, ``$(…)`` and ``$((…))`` are, as far as the text says it; the rest stays as written."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from launcher.adopt import arithmetic, substitution
from launcher.adopt.source import Marks, Source, Word, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tree_sitter import Node

    from launcher.adopt.script import Script
    from launcher.adopt.words import Atom

KINDS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution")
_NAME = re.compile(r"\$\{([#!]?)([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(.*?)\])?", re.DOTALL)
_UNKNOWN = "not set in this text: set it before, or edit the value that launch writes"


def lines(text: str, marks: Marks) -> Callable[[int], int]:
    """Return the function that says in which line of the file a character of a value stands."""
    return Source("", text, marks or ((0, 1),)).line


def expand(script: Script, node: Node, *, quoted: bool) -> list[Atom]:
    """Return the atoms that an expansion becomes."""
    if node.type == "simple_expansion":
        return _listed(script, node, _variable(script, script.text(node)[1:]), quoted=quoted)
    if node.type == "expansion":
        return _braced(script, node, quoted=quoted)
    if node.type == "arithmetic_expansion":
        return _listed(script, node, arithmetic.of_node(script, node), quoted=quoted)
    if node.type == "command_substitution":
        return _listed(script, node, substitution.output(script, node), quoted=quoted)
    return _listed(script, node, None, quoted=quoted)


def _listed(script: Script, node: Node, value: Word | list[Word] | None, *, quoted: bool) -> list[Atom]:
    from launcher.adopt.words import Atom

    if value is None:
        text = script.text(node)
        why = "the output of a command, which launch does not run" if "(" in text or "`" in text else _UNKNOWN
        return [Atom("quoted", text, (script.remark(node, why),), ((0, script.line(node)),))]
    kind = "quoted" if quoted else "split"
    if quoted and isinstance(value, list) and re.fullmatch(r"\$\*|\$\{(?:\w+\[)?\*\]?\}", script.text(node)):
        value = joined(value)
    if isinstance(value, Word):
        return [
            Atom(
                kind if "$" not in value.text or not value.unknown else "quoted", value.text, value.doubts, value.marks
            )
        ]
    found = [atom for word in value for atom in (Atom("break"), Atom(kind, word.text, word.doubts, word.marks))]
    return found[1:] if found else [Atom("none")]


def _variable(script: Script, name: str) -> Word | list[Word] | None:
    state = script.state
    if name in ("@", "*"):
        return None if state.arguments is None else list(state.arguments)
    if name == "#":
        return None if state.arguments is None else Word(str(len(state.arguments)))
    if name.isdigit() and name != "0":
        if state.arguments is None:
            return None
        return state.arguments[int(name) - 1] if int(name) <= len(state.arguments) else Word("")
    if name == "PWD" and "PWD" not in state.values and state.folder.text:
        return state.folder
    return state.text(name)


def _element(script: Script, name: str, index: str) -> Word | list[Word] | None:
    value = script.state.values.get(name)
    if value is None:
        return ([] if index in "@*" else Word("")) if name in script.state.removed else None
    if isinstance(value, Word):
        value = (value,)
    if index in ("@", "*"):
        return list(value.values()) if isinstance(value, dict) else list(value)
    key = _index(script, index)
    if isinstance(value, dict):
        return value.get(key, Word(""))
    if not re.fullmatch(r"-?\d+", key):
        return None
    return value[int(key)] if -len(value) <= int(key) < len(value) else Word("")


def _index(script: Script, text: str) -> str:
    """Return the key of an element: ``$KEY`` and ``"key"`` are looked up, a bare name may be a number."""
    bare = text.strip("\"'")
    name = re.fullmatch(r"\$\{?(\w+)\}?", bare)
    known = script.state.text(name.group(1) if name else bare)
    if name or (known is not None and re.fullmatch(r"[A-Za-z_]\w*", bare) and known.text.isdigit()):
        return known.text if known is not None else bare
    return bare


def _braced(script: Script, node: Node, *, quoted: bool) -> list[Atom]:
    text = script.text(node)
    found = _NAME.match(text)
    if found is None:
        return _listed(script, node, None, quoted=quoted)
    prefix, name, index = found.groups()
    value = _element(script, name, index) if index is not None else _variable(script, name)
    rest = text[found.end() : -1]
    operator = re.match(r":?[-=+?]", rest)
    if prefix == "!":
        value = _indirect(script, value, name, index, rest)
    elif prefix == "#":
        value = _length(value)
    elif operator and operator.group()[-1] != "?":
        empty = value is None or value == [] or (":" in operator.group() and isinstance(value, Word) and not value.text)
        if empty != (operator.group()[-1] == "+"):
            return _default(script, node, name, operator.group(), quoted=quoted, known=value is not None)
        value = Word("") if operator.group()[-1] == "+" else value
    elif rest and not operator:
        value = _changed(value, rest)
    return _listed(script, node, value, quoted=quoted)


def _length(value: Word | list[Word] | None) -> Word | None:
    if isinstance(value, list):
        return Word(str(len(value)))
    return None if value is None or value.unknown else Word(str(len(value.text)))


def _indirect(
    script: Script, value: Word | list[Word] | None, name: str, index: str | None, rest: str
) -> Word | list[Word] | None:
    if index in ("@", "*"):
        held = script.state.values.get(name)
        if isinstance(held, dict):
            return [Word(key) for key in held]
        return [Word(str(at)) for at in range(len(held))] if isinstance(held, tuple) else None
    if rest or not isinstance(value, Word) or value.unknown:
        return None
    return script.state.text(value.text)


def _default(script: Script, node: Node, name: str, operator: str, *, quoted: bool, known: bool) -> list[Atom]:
    """Return the word in ``${A:-word}`` and its like; a variable that the text does not set is taken as not set."""
    from launcher.adopt.words import Atom, glue

    children = node.children
    at = next((i for i, child in enumerate(children) if child.type == operator), None)
    if at is None:
        return _listed(script, node, None, quoted=quoted)
    inner, start, end = children[at + 1 : -1], children[at].end_byte, node.end_byte - 1
    found = _in_quotes(script, inner, start, end) if quoted else _bare(script, inner, start, end)
    if not known and operator[-1] != "+":
        why = f"{name} is not set in this text, so its default is taken"
        found = [Atom(a.kind, a.text, (*a.doubts, script.assumed(node, why)), a.marks) for a in found]
    if operator[-1] == "=":
        script.state.set(name, glue(found))
    return found


def _in_quotes(script: Script, inner: Sequence[Node], start: int, end: int) -> list[Atom]:
    from launcher.adopt.words import Atom, literal

    found, at = [Atom("quoted")], start
    for child in _topmost(inner):
        found += literal(re.sub(r'(?<!\\)"', "", script.slice(at, child.start_byte)), script.line_at(at), '$`"\\}')
        found += expand(script, child, quoted=True)
        at = child.end_byte
    return [*found, *literal(re.sub(r'(?<!\\)"', "", script.slice(at, end)), script.line_at(at), '$`"\\}')]


def _topmost(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        if node.type in KINDS:
            yield node
        else:
            yield from _topmost(node.children)


def _bare(script: Script, inner: Sequence[Node], start: int, end: int) -> list[Atom]:
    from launcher.adopt.words import Atom

    found: list[Atom] = []
    at = start
    for child in inner:
        found.append(Atom("split", script.slice(at, child.start_byte)))
        found += [Atom("split" if a.kind == "bare" else a.kind, a.text, a.doubts, a.marks) for a in script.atoms(child)]
        at = child.end_byte
    return [*found, Atom("split", script.slice(at, end))]


def _changed(value: Word | list[Word] | None, rest: str) -> Word | list[Word] | None:
    """Return ``${A%b}``, ``${A#b}``, ``${A/b/c}``, ``${A:1:2}``, ``${A^^}`` of a value that is known."""
    if not isinstance(value, Word) or value.unknown or re.search(r"[$`]", rest):
        return _slice(value, rest) if isinstance(value, list) else None
    text = value.text
    for operator, change in (("^^", str.upper), (",,", str.lower)):
        if rest == operator:
            return Word(change(text), doubts=value.doubts, marks=value.marks)
    cut = re.fullmatch(r":\s*(\d+|\s-\d+)(?::(-?\d+))?", rest)
    if cut:
        start = int(cut.group(1))
        return Word(
            text[start:] if cut.group(2) is None else text[start:][: int(cut.group(2))],
            doubts=value.doubts,
            marks=value.marks,
        )
    pattern = re.fullmatch(r"(##?|%%?)(.*)", rest, re.DOTALL)
    if pattern:
        return Word(_trimmed(text, *pattern.groups()), doubts=value.doubts, marks=value.marks)
    replaced = re.fullmatch(r"/(/?)((?:[^/\\]|\\.)+)(?:/(.*))?", rest, re.DOTALL)
    if replaced:
        every, old, new = replaced.groups()
        expression = (
            fnmatch.translate(re.sub(r"\\(.)", r"\1", old).replace("[^", "[!")).removesuffix("\\Z").removesuffix("\\z")
        )
        return Word(
            re.sub(expression, lambda _: new or "", text, count=0 if every else 1),
            doubts=value.doubts,
            marks=value.marks,
        )
    return None


def _slice(value: list[Word], rest: str) -> list[Word] | None:
    cut = re.fullmatch(r":(\d+)(?::(\d+))?", rest)
    if cut is None:
        return None
    start = int(cut.group(1))
    return value[start:] if cut.group(2) is None else value[start : start + int(cut.group(2))]


def _trimmed(text: str, operator: str, pattern: str) -> str:
    pattern = re.sub(r"[\"']", "", pattern).replace("[^", "[!")
    front, longest = operator[0] == "#", len(operator) == 2
    lengths = range(len(text) + 1)
    for length in reversed(lengths) if longest else lengths:
        piece = text[:length] if front else text[len(text) - length :]
        if fnmatch.fnmatchcase(piece, pattern):
            return text[length:] if front else text[: len(text) - length]
    return text
