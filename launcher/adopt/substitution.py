"""``$(…)`` of commands that only repeat, cut or count text that is known. Nothing is run; the rest stays as written."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING

from launcher.adopt.source import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

    from launcher.adopt.found import Remark
    from launcher.adopt.script import Script

_ESCAPES = {"\\n": "\n", "\\t": "\t"}


def output(script: Script, node: Node) -> Word | None:
    """Return what a command substitution is, None where only a real shell can say."""
    inner = [child for child in node.children if child.is_named and child.type != "comment"]
    if len(inner) != 1:
        return None
    text = _text(script, inner[0])
    if text is None:
        return None
    doubts: tuple[Remark, ...] = ()
    if inner[0].type == "pipeline" or text[1]:
        doubts = (script.assumed(node, "worked out by launch without running it: look whether it is right"),)
    return Word(text[0].rstrip("\n"), doubts, ((0, script.line(node)),))


def _text(script: Script, node: Node) -> tuple[str, bool] | None:
    """Return the output of a statement, and whether it comes from a file."""
    if node.type == "file_redirect" and script.text(node).startswith("<"):
        return _file(script, script.text(node)[1:].strip())
    if node.type == "redirected_statement":
        body = script.heredoc(node)
        return (body.text, False) if body is not None and not body.unknown else None
    if node.type == "pipeline":
        parts = [child for child in node.children if child.is_named]
        found = _text(script, parts[0])
        for part in parts[1:]:
            texts = _words(script, part)
            change = _FILTERS.get(texts[0]) if texts else None
            if found is None or change is None or texts is None:
                return None
            text = change(found[0], texts[1:])
            found = None if text is None else (text, found[1])
        return found
    texts = _words(script, node)
    return _first(script, texts) if texts else None


def _words(script: Script, node: Node) -> list[str] | None:
    if node.type != "command" or any(child.type == "variable_assignment" for child in node.children):
        return None
    words = script.words(node.children)
    return None if any(word.unknown for word in words) else [word.text for word in words]


def _first(script: Script, texts: Sequence[str]) -> tuple[str, bool] | None:
    name, rest = texts[0], list(texts[1:])
    if name == "echo" and not any(text.startswith("-") or "\\" in text for text in rest):
        return f"{' '.join(rest)}\n", False
    if name == "printf" and rest and rest[0] in ("%s", "%s\\n", "%s\n", "%s "):
        return "".join(rest[0].replace("%s", text).replace("\\n", "\n") for text in rest[1:]), False
    if name == "seq":
        return _seq(rest)
    if name == "pwd" and not rest and script.state.folder.text and not script.state.folder.unknown:
        return f"{script.state.folder.text}\n", False
    if name == "basename" and 1 <= len(rest) <= 2 and rest[0].strip("/") and not rest[0].startswith("-"):
        base = posixpath.basename(rest[0].rstrip("/"))
        return (base.removesuffix(rest[1]) if len(rest) == 2 and base != rest[1] else base) + "\n", False
    if name == "dirname" and len(rest) == 1 and rest[0].strip("/") and not rest[0].startswith("-"):
        return (posixpath.dirname(rest[0].rstrip("/")) or ".") + "\n", False
    if name == "cat" and len(rest) == 1:
        return _file(script, rest[0])
    if name == "grep" and len(rest) == 3 and rest[0] == "-v" and re.fullmatch(r"\^?\\?[#\w]+|\^\\s\*#", rest[1]):
        found = _file(script, rest[2])
        if found is not None:
            pattern = re.compile(rest[1])
            return "".join(f"{line}\n" for line in found[0].splitlines() if not pattern.search(line)), True
    return None


def _file(script: Script, path: str) -> tuple[str, bool] | None:
    text = script.files.text(path) if script.files is not None else None
    return None if text is None else (text, True)


def _seq(texts: Sequence[str]) -> tuple[str, bool] | None:
    if not 1 <= len(texts) <= 3 or not all(re.fullmatch(r"-?\d{1,6}", text) for text in texts):
        return None
    numbers = [int(text) for text in texts]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    last = numbers[-1]
    if not step or abs(last - first) // abs(step) > 1000:
        return None
    return "".join(f"{number}\n" for number in range(first, last + (1 if step > 0 else -1), step)), False


def _tr(text: str, texts: list[str]) -> str | None:
    sets = [_ESCAPES.get(part, part) for part in texts]
    if len(sets) == 2 and sets[0] == "-d" and len(sets[1]) == 1:
        return text.replace(sets[1], "")
    if len(sets) == 2 and all(len(part) == 1 for part in sets):
        return text.replace(sets[0], sets[1])
    return None


def _wc(text: str, texts: list[str]) -> str | None:
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode("utf-8", "replace"))}
    return f"{counts[texts[0]]}\n" if len(texts) == 1 and texts[0] in counts else None


def _xargs(text: str, texts: list[str]) -> str | None:
    if texts not in ([], ["-d", "\\n"]):
        return None
    if texts:
        return " ".join(text.splitlines()) + "\n"
    try:
        return " ".join(shlex.split(text)) + "\n"
    except ValueError:
        return None


def _head(text: str, texts: list[str]) -> str | None:
    found = re.fullmatch(r"-n? ?(\d{1,4})", " ".join(texts))
    return "".join(text.splitlines(keepends=True)[: int(found.group(1))]) if found else None


def _cut(text: str, texts: list[str]) -> str | None:
    found = re.fullmatch(r"-d ?(.) -f ?(\d{1,3})|-f ?(\d{1,3}) -d ?(.)", " ".join(texts))
    if found is None:
        return None
    mark, field = found.group(1) or found.group(4), int(found.group(2) or found.group(3))
    pieces = [line.split(mark) for line in text.splitlines()]
    return "".join(f"{line[0] if len(line) == 1 else ''.join(line[field - 1 : field])}\n" for line in pieces)


def _awk(text: str, texts: list[str]) -> str | None:
    found = re.fullmatch(r"-F ?(,|:|;) \{ ?print NF ?;?\}", " ".join(texts))
    if found is None:
        return None
    return "".join(f"{len(line.split(found.group(1))) if line else 0}\n" for line in text.splitlines())


_FILTERS: dict[str, Callable[[str, list[str]], str | None]] = {
    "tr": _tr, "wc": _wc, "xargs": _xargs, "head": _head, "cut": _cut, "awk": _awk,
}  # fmt: skip
