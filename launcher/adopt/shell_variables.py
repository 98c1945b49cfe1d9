"""Variables of a shell: assignments, ``export``, ``declare``, ``unset``."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from launcher.adopt.script import ARGUMENTS, Script
from launcher.adopt.source import NOTHING, Word, joined
from launcher.catalogue import environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tree_sitter import Node

    from launcher.adopt.found import Remark
    from launcher.adopt.start import Gathered

_WATCHED = ("NCCL_", "SGLANG_", "VLLM_", "CUDA_VISIBLE_DEVICES")


def assign(script: Script, node: Node, *, braced: bool = False) -> str:
    """Carry out one assignment; returns the variable's name."""
    name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name_node is None:
        return ""
    adding = any(child.type == "+=" for child in node.children)
    name = script.text(name_node)
    if name_node.type == "subscript":
        return _assign_element(script, name_node, value_node)
    if value_node is not None and value_node.type == "array":
        _assign_array(script, name, value_node, adding=adding)
        return name
    value = (
        script.word(value_node, braced=braced) if value_node is not None else Word("", marks=((0, script.line(node)),))
    )
    held = script.state.values.get(name)
    if adding and isinstance(held, Word):
        value = joined([held, value], "")
    elif adding and held is None and name not in script.state.removed:
        value = joined(
            [Word(f"${name}", (script.remark(node, "what it is added to is not set in this text"),)), value], ""
        )
    script.state.set(name, value)
    return name


def _assign_array(script: Script, name: str, node: Node, *, adding: bool) -> None:
    keyed = re.findall(r"\[([^\]]+)\]=", script.text(node))
    if keyed:
        held = script.state.values.get(name)
        table = dict(held) if adding and isinstance(held, dict) else {}
        for match in re.finditer(r"\[([^\]]+)\]=(\"[^\"]*\"|'[^']*'|[^\s)]*)", script.text(node)):
            value = match.group(2)
            doubts = (script.remark(node, "an element that is not literal"),) if re.search(r"[$`]", value) else ()
            table[match.group(1).strip("\"'")] = Word(value.strip("\"'"), doubts, ((0, script.line(node)),))
        script.state.set(name, table)
        return
    held = script.state.values.get(name)
    before = held if isinstance(held, tuple) else ((held,) if isinstance(held, Word) else ())
    script.state.set(name, (*(before if adding else ()), *script.words(node.children)))


def _assign_element(script: Script, node: Node, value: Node | None) -> str:
    name, _, key = script.text(node).rstrip("]").partition("[")
    word = script.word(value) if value is not None else NOTHING
    held = script.state.values.get(name)
    key = key.strip("\"'")
    if isinstance(held, dict):
        script.state.set(name, {**held, key: word})
    elif key.isdigit() and isinstance(held, tuple) and int(key) <= len(held):
        script.state.set(name, (*held[: int(key)], word, *held[int(key) + 1 :]))
    else:
        script.state.set(name, {key: word})
    return name


def own_lines(script: Script, node: Node) -> list[Node]:
    """Return a command's parts without assignments that stand on lines before it; those are carried out.

    The grammar takes ``A=1 B=2`` for the beginning of the command on the next line.
    """
    children = list(node.children)
    last = -1
    for at, (one, other) in enumerate(itertools.pairwise(children)):
        if one.type != "variable_assignment":
            break
        if re.search(r"(?<!\\)\n", script.slice(one.end_byte, other.start_byte)):
            last = at
    for child in children[: last + 1]:
        assign(script, child)
    return children[last + 1 :]


def with_blanks(script: Script, node: Node, words: list[Word]) -> list[Word]:
    """Return a command's words with escaped blanks at its end, which the grammar leaves out.

    A blank behind the backslash at the end of a line is the usual reason: the next line is another command then.
    """
    tail = re.match(r"(?:[ \t]*(?:\\[ \t])+)+", script.slice(node.end_byte, node.end_byte + 200))
    if tail is None or not words:
        return words
    doubt = script.remark(node, "a blank behind the backslash ends the command here")
    pieces = [Word(piece[1::2], (doubt,)) for piece in re.findall(r"(?:\\[ \t])+", tail.group())]
    if tail.group().startswith("\\"):
        return [*words[:-1], joined([words[-1], pieces[0]], ""), *pieces[1:]]
    return [*words, *pieces]


def prefix(script: Script, assignments: Sequence[Node]) -> dict[str, Word]:
    """Return the variables set for one command alone."""
    kept, exported = dict(script.state.values), set(script.state.exported)
    names = [assign(script, node) for node in assignments]
    found = {name: value for name in names if isinstance(value := script.state.values.get(name), Word)}
    script.state.values, script.state.exported = kept, exported
    return found


def declare(script: Script, node: Node, into: Gathered) -> None:
    """Carry out assignments, ``export``, ``declare``, ``unset`` and their like."""
    if node.type == "variable_assignment":
        assign(script, node)
        return
    if node.type == "variable_assignments":
        for child in node.children:
            assign(script, child)
        return
    keyword, state, name = node.children[0].type, script.state, ""
    options = "".join(script.text(c) for c in node.children[1:] if c.type == "word" and script.text(c)[:1] in "-+")
    if "f" in options:
        return
    exports = (keyword == "export" and "n" not in options) or (keyword in ("declare", "typeset") and "x" in options)
    end = -1
    for child in node.children[1:]:
        behind, end = child.start_byte == end, child.end_byte
        if behind and name and isinstance(value := state.values.get(name), Word):
            state.set(name, joined([value, script.word(child)], ""))  # the grammar cuts ``A="b"\\;`` in two
        elif child.type == "variable_assignment":
            name = assign(script, child, braced=True)
            if exports and name:
                state.export(name)
        elif child.type in ARGUMENTS and script.text(child)[:1] not in "-+":
            _declared(script, child, keyword, options, into)


def _declared(script: Script, node: Node, keyword: str, options: str, into: Gathered) -> None:
    state = script.state
    for word in script.words([node]):
        name, equals, _ = word.text.partition("=")
        if word.unknown and not (equals and re.fullmatch(r"[A-Za-z_]\w*", name)):
            remark = script.remark(node, "variables that launch cannot know from this text")
            state.doubts.append(remark)
            into.owed.append(remark)
        elif keyword in ("unset", "unsetenv"):
            state.unset(word.text)
        elif "n" in options and keyword == "export":
            state.exported.discard(name)
        else:
            if equals:
                start = len(name) + 1
                state.set(name, Word(word.text[start:], word.doubts, ((0, script.line(node)),)))
            elif "A" in options:
                state.set(name, {})
            elif "a" in options:
                state.set(name, ())
            if keyword == "export" or "x" in options:
                state.export(name)


def not_exported(script: Script, env: Mapping[str, Word]) -> list[Remark]:
    """Return remarks on settings that are set in the shell but never reach the server."""
    known = environment.settings()
    why = "set but not exported, so the server does not get it: if it should, put `export` before it"
    return [
        script.doubt(Word(f"{name}={value.text}", marks=value.marks), why)
        for name, value in script.state.values.items()
        if isinstance(value, Word) and name not in env and (name in known or name.startswith(_WATCHED))
    ]


def printed(script: Script, node: Node, texts: Sequence[str], stdin: Word | None) -> Word | None:
    """Return what the first command of a pipe writes into it, None where it is not sure."""
    if texts[:1] == ["cat"] and len(texts) == 1:
        return stdin
    if texts[:1] in (["echo"], ["printf"]) and node.type == "command":
        words = script.words(node.children)[1:]
        if texts[0] == "printf" and texts[1:2] in (["%s"], ["%s\\n"], ["%s\n"]):
            return joined(words[1:], "\n")
        if texts[0] == "echo" and words and not words[0].text.startswith("-"):
            return joined(words)
    return None
