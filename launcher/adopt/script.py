"""A shell text with its syntax tree and what the shell knows while it is read."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from typing import TYPE_CHECKING

from launcher.adopt import words
from launcher.adopt.found import Remark
from launcher.adopt.source import Assumed, Source, Word, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node, Parser

    from launcher.adopt.files import Files
    from launcher.adopt.shell_state import State

#: Kinds of nodes that are arguments of a command.
ARGUMENTS = (
    *("word", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "number"),
    *("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"),
    *("brace_expression", "command_name", "regex", "extglob_pattern", "test_operator", "variable_name"),
    *("special_variable_name", "==", "=~", "=", "array"),
)

#: ``<MODEL>`` in documentation; a shell would take it for two redirections, and its author meant neither.
_PLACEHOLDER = re.compile(r"(?<![<\w&])<([A-Za-z][\w.:/-]*)>(?=[\s\"'/,:;)]|$)")
#: ``$:`` is a dollar and a colon for a shell; the grammar stumbles over it.
_LONE_DOLLAR = re.compile(r"(?<![\\$])\$(?=[\s:;,./)\]}=+&|%]|$)")
_BRACKETS = {0xE000: "<", 0xE001: ">", 0xE002: "$"}


@functools.cache
def parser() -> Parser:
    """Return the parser of shell texts; it is loaded at the first one."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class Script:
    """One text: `source` in bytes, its tree, and the shell's `state` at the place where it is read."""

    def __init__(self, source: Source, state: State, files: Files | None = None) -> None:
        self.source, self.state, self.files = source, state, files
        text = _PLACEHOLDER.sub("\ue000\\1\ue001", _LONE_DOLLAR.sub("\ue002", source.text))
        self.content = text.encode("utf-8", "replace")
        self.ascii = self.content.isascii()
        self.root = parser().parse(self.content).root_node

    def slice(self, start: int, end: int) -> str:
        """Return the text between two bytes."""
        return self.content[start:end].decode("utf-8", "replace").translate(_BRACKETS)

    def text(self, node: Node) -> str:
        """Return the text of a node."""
        return self.slice(node.start_byte, node.end_byte)

    def offset(self, byte: int) -> int:
        """Return the character that stands at a byte."""
        if self.ascii:
            return byte
        row = bisect.bisect_right(self._rows[0], byte) - 1
        start = self._rows[0][row]
        return self._rows[1][row] + len(self.content[start:byte].decode("utf-8", "replace"))

    @functools.cached_property
    def _rows(self) -> tuple[list[int], list[int]]:
        """Return where each line begins, in bytes and in characters."""
        lines = self.content.split(b"\n")
        in_bytes = itertools.accumulate((len(line) + 1 for line in lines[:-1]), initial=0)
        lengths = (len(line.decode("utf-8", "replace")) + 1 for line in lines[:-1])
        return list(in_bytes), list(itertools.accumulate(lengths, initial=0))

    def line_at(self, byte: int) -> int:
        """Return the line of the file in which a byte stands."""
        return self.source.line(self.offset(byte))

    def line(self, node: Node) -> int:
        """Return the line of the file in which a node begins."""
        return self.line_at(node.start_byte)

    def where(self, node: Node) -> str:
        """Return ``FILE:LINE`` of a node."""
        return f"{self.source.name}:{self.line(node)}"

    def remark(self, node: Node, why: str) -> Remark:
        """Return a remark that quotes a node."""
        return Remark(self.where(node), quote(self.text(node)), why)

    def assumed(self, node: Node, why: str) -> Remark:
        """Return a remark on a node whose value is taken as known all the same."""
        return Assumed(self.where(node), quote(self.text(node)), why)

    def doubt(self, word: Word, why: str) -> Remark:
        """Return a remark that quotes a word as it is after expansion."""
        return Remark(f"{self.source.name}:{word.line}", quote(word.text), why)

    def atoms(self, node: Node) -> list[words.Atom]:
        """Return the pieces of a word that is not yet split."""
        return words.atoms(self, node)

    def word(self, node: Node, *, braced: bool = False) -> Word:
        """Return one word, expanded and not split."""
        return words.single(self, node, braced=braced)

    def heredoc(self, node: Node) -> Word | None:
        """Return the text of ``cat <<EOF``, None for any other statement."""
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child != body]
        if body is None or self.text(body) != "cat" or [child.type for child in redirects] != ["heredoc_redirect"]:
            return None
        return words.heredoc(self, redirects[0])

    def words(self, nodes: Sequence[Node]) -> list[Word]:
        """Return the arguments among the nodes of a command, expanded.

        Two words with only a joined end of line between them are one, and an escaped blank is part of a word; the
        grammar says otherwise.
        """
        found: list[words.Atom] = []
        end = -1
        for number, node in enumerate(nodes):
            dollar = node.type == "$" and number + 1 < len(nodes) and nodes[number + 1].type == "string"
            if node.type not in ARGUMENTS or dollar:
                continue
            gap = self.slice(end, node.start_byte) if 0 <= end <= node.start_byte else " "
            for piece in re.findall(r"\\\n|\\[ \t]|[ \t\n]+", gap) if end >= 0 else ():
                if not piece.startswith("\\"):
                    found.append(words.Atom("break"))
                elif piece != "\\\n":
                    found.append(words.Atom("quoted", piece[1]))
            end = node.end_byte
            found += self.atoms(node)
        return list(words.fields(self, found))
