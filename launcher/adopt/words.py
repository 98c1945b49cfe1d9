"""From the words of a script to the arguments of a program: quotes, variables, arrays, braces."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from launcher.adopt import ansi_c, braces, expansion
from launcher.adopt.source import Assumed, Marks, Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node

    from launcher.adopt.found import Remark
    from launcher.adopt.script import Script

_MOST_BRACES = 50
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w .:/-]*>")


@dataclass(frozen=True)
class Atom:
    """A piece of a word before it is split.

    Attributes:
        kind: ``bare`` (as written: braces, ``~`` and globs act), ``quoted``, ``split`` (the value of an unquoted
            variable, split at blanks), ``break`` (between two elements of an array), ``none`` (an empty array).
    """

    kind: str
    text: str = ""
    doubts: tuple[Remark, ...] = ()
    marks: Marks = ()


def unknown(atom: Atom) -> bool:
    """Return whether a part of an atom is not known."""
    return any(not isinstance(doubt, Assumed) for doubt in atom.doubts)


def single(script: Script, node: Node, *, braced: bool = False) -> Word:
    """Return a word that is not split: the value of an assignment, the target of a redirection.

    ``export A={b,c}`` (``braced``) assigns each of what its braces make, so the last one stays.
    """
    found = [replace(a, text=" ") if a.kind == "break" else a for a in atoms(script, node)]
    return _placed(script, glue(_braced(found)[-1] if braced else found))


def _placed(script: Script, word: Word) -> Word:
    """Tell of a placeholder, as documentation has them: ``<YOUR_MODEL>``."""
    found = _PLACEHOLDER.search(word.text)
    if found is None:
        return word
    doubt = script.doubt(replace(word, text=found.group()), "a placeholder: put the real value in its place")
    return replace(word, doubts=(*word.doubts, doubt))


def glue(found: Sequence[Atom]) -> Word:
    """Join atoms to one word."""
    text = ""
    doubts: list[Remark] = []
    marks: list[tuple[int, int]] = []
    for atom in found:
        marks += [(offset + len(text), line) for offset, line in atom.marks]
        text += atom.text
        doubts += atom.doubts
    return Word(text, tuple(dict.fromkeys(doubts)), tuple(marks) or ((0, 1),))


def fields(script: Script, found: Sequence[Atom]) -> Iterator[Word]:
    """Split atoms into words as the shell does."""
    for way in (way for word in _words(found) for way in _braced(word)):
        pieces: list[Atom] = []
        real = False
        for atom in _split(way):
            if atom.kind == "break":
                if pieces or real:
                    yield _finished(script, pieces)
                pieces, real = [], False
            elif atom.kind != "none":
                pieces.append(atom)
                real = True
        if pieces or real:
            yield _finished(script, pieces)


def _words(found: Sequence[Atom]) -> Iterator[list[Atom]]:
    """Yield the atoms of each word; braces act within one word alone."""
    word: list[Atom] = []
    for atom in found:
        if atom.kind == "break":
            yield word
            word = []
        else:
            word.append(atom)
    yield word


def _finished(script: Script, pieces: Sequence[Atom]) -> Word:
    word = _placed(script, glue(pieces))
    bare = "".join(atom.text for atom in pieces if atom.kind in ("bare", "split"))
    if pieces and pieces[0].kind == "bare" and re.match(r"~(?:/|$|[a-z_])", pieces[0].text):
        return replace(word, doubts=(*word.doubts, script.doubt(word, "~ is the home of the user who runs it there")))
    if re.search(r"[*?]|\[[^\]]+\]", bare) and any(a.kind == "bare" and re.search(r"[*?\[]", a.text) for a in pieces):
        return replace(word, doubts=(*word.doubts, script.doubt(word, "a pattern of file names, which are not known")))
    return word


def _split(found: Sequence[Atom]) -> Iterator[Atom]:
    for atom in found:
        if atom.kind != "split":
            yield atom
            continue
        source = expansion.lines(atom.text, atom.marks)
        at = 0
        for match in re.finditer(r"[ \t\n]+", atom.text):
            if match.start() > at:
                yield Atom("split", atom.text[at : match.start()], atom.doubts, ((0, source(at)),))
            yield Atom("break")
            at = match.end()
        if at < len(atom.text):
            yield Atom("split", atom.text[at:], atom.doubts, ((0, source(at)),))


def atoms(script: Script, node: Node) -> list[Atom]:
    """Return the pieces of a word."""
    kind = node.type
    text = script.text(node)
    marks = ((0, script.line(node)),)
    if kind == "raw_string":
        return [Atom("quoted", text[1:-1], (), marks)]
    if kind == "ansi_c_string":
        return [Atom("quoted", ansi_c.decode(text[2:-1]), (), marks)]
    if kind in ("string", "translated_string"):
        return _double(script, node)
    if kind in ("concatenation", "command_name"):
        return [atom for piece in _pieces(script, node) for atom in piece]
    if kind in expansion.KINDS:
        return expansion.expand(script, node, quoted=False)
    return _bare(text, script.line(node))


def _pieces(script: Script, node: Node) -> Iterator[list[Atom]]:
    children, at, skip = node.children, node.start_byte, False
    for number, child in enumerate(children):
        if child.start_byte > at:
            yield _bare(script.slice(at, child.start_byte), script.line_at(at))
        following = children[number + 1] if number + 1 < len(children) else None
        skip = child.type == "$" and following is not None and following.type in ("string", "raw_string")
        if not skip:
            yield atoms(script, child)
        at = child.end_byte


def _bare(text: str, line: int) -> list[Atom]:
    """Return the atoms of unquoted text: an escaped character is as good as a quoted one."""
    found: list[Atom] = []
    for match in re.finditer(r"\\(\n)|\\(.)|([^\\]+)|(\\)", text, re.DOTALL):
        here = ((0, line + text.count("\n", 0, match.start())),)
        if match.group(3) is not None:
            found.append(Atom("bare", match.group(3), (), here))
        elif match.group(1) is None:
            found.append(Atom("quoted", match.group(2) or "\\", (), here))
    return found


def _double(script: Script, node: Node) -> list[Atom]:
    inner = [child for child in node.children if child.type not in ('"', '$"', "$")]
    start = node.start_byte + script.slice(node.start_byte, node.end_byte).index('"') + 1
    end = node.end_byte - 1
    found = between(script, inner, start, end, '$`"\\')
    if any(atom.kind == "none" for atom in found) and not any(atom.text or atom.kind == "break" for atom in found):
        return [Atom("none")]  # "${EMPTY[@]}" is no word at all
    return [Atom("quoted", "", (), ((0, script.line(node)),)), *found]


def between(script: Script, children: Sequence[Node], start: int, end: int, escaped: str) -> list[Atom]:
    """Return the atoms of text in double quotes, or of a here-document: what lies between expansions is literal."""
    found: list[Atom] = []
    at = start
    for child in children:
        if child.type in expansion.KINDS:
            found += literal(script.slice(at, child.start_byte), script.line_at(at), escaped)
            found += expansion.expand(script, child, quoted=True)
            at = child.end_byte
    return [*found, *literal(script.slice(at, end), script.line_at(at), escaped)]


def literal(text: str, line: int, escaped: str) -> list[Atom]:
    """Return quoted text without its escapes; a backslash at the end of a line joins it with the next one."""
    found: list[Atom] = []
    at = 0
    for number, piece in enumerate(re.split(r"(?<!\\)((?:\\\\)*)\\\n", text)) if "\\\n" in text else [(0, text)]:
        if number % 2:  # the even backslashes before a joined end of line
            found[-1] = replace(found[-1], text=found[-1].text + "\\" * (len(piece) // 2))
            at += len(piece) + 2
            continue
        here = line + text.count("\n", 0, at)
        found.append(Atom("quoted", re.sub(rf"\\([{re.escape(escaped)}])", r"\1", piece), (), ((0, here),)))
        at += len(piece)
    return found


def heredoc(script: Script, node: Node) -> Word | None:
    """Return the text of a here-document."""
    start, body = (
        next((c for c in node.children if c.type == kind), None) for kind in ("heredoc_start", "heredoc_body")
    )
    if start is None or body is None:
        return None
    text = script.text(body)
    if any(child.type == "<<-" for child in node.children):
        text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
    if any(mark in script.text(start) for mark in "'\"\\"):
        return Word(text, (), ((0, script.line(body)),))
    return glue(between(script, body.children, body.start_byte, body.end_byte, "$`\\"))


def _braced(found: list[Atom]) -> list[list[Atom]]:
    """Return the words that ``a{b,c}`` and ``{1..3}`` make of one."""
    if not 0 < sum(atom.text.count("{") for atom in found if atom.kind == "bare") <= _MOST_BRACES:
        return [found]
    units = [
        unit
        for a in found
        for unit in ([Atom("bare", c, a.doubts, a.marks[:1]) for c in a.text] if a.kind == "bare" else [a])
    ]
    try:
        return braces.expand(units)
    except OverflowError:
        return [found]
