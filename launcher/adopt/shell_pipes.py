"""Redirections, here-documents and pipes: where output goes, and what a command reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.adopt import shell_variables, words
from launcher.adopt.found import Remark
from launcher.adopt.source import NOTHING, Source, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from launcher.adopt.shell import Walk

#: Programs at the end of a pipe that only pass on or keep what comes out of a server.
_FILTERS = frozenset(
    ("tee", "cat", "grep", "egrep", "sed", "awk", "ts", "less", "more", "head", "tail", "rotatelogs", "logger", "cut",
     "cronolog", "multilog", "systemd-cat", "stdbuf", "xargs", "jq", "python", "python3", "sort", "uniq", "wc", "tr")
)  # fmt: skip


def redirected(walk: Walk, node: Node, log: Word | None, stdin: Word | None) -> None:
    """Read a statement with its redirections."""
    body = next((child for i, child in enumerate(node.children) if node.field_name_for_child(i) == "body"), None)
    piped: list[Node] = []
    errors = NOTHING
    for child in node.children:
        if child is body or not child.is_named:
            continue
        if child.type in ("heredoc_redirect", "herestring_redirect"):
            stdin = here(walk, child, piped) or stdin
            for inner in child.children:
                if inner.type == "file_redirect":
                    log, errors = file(walk, inner, log, errors)
        elif child.type == "file_redirect":
            log, errors = file(walk, child, log, errors)
    if body is None:
        if log is not None:
            walk.script.state.log = log
        return
    before = len(walk.into.servers)
    if piped:
        pipeline(walk, [body, *piped], log, stdin)
    else:
        walk.statement(body, log, stdin)
    if errors.text and errors.text not in ("/dev/null", log.text if log else ""):
        why = "errors go to a file of their own; launch writes all output to one log"
        walk.tell(before, Remark(walk.script.where(node), f"2> {errors.text}", why))


def file(walk: Walk, node: Node, log: Word | None, errors: Word) -> tuple[Word | None, Word]:
    """Return where output and errors go after one more redirection."""
    operator = next((c.type for c in node.children if c.type in (">", ">>", "&>", "&>>", ">|", ">&")), "")
    descriptor = next((walk.script.text(c) for c in node.children if c.type == "file_descriptor"), "1")
    targets = [c for i, c in enumerate(node.children) if node.field_name_for_child(i) == "destination"]
    target = targets[0] if targets else None
    walk.more += targets[1:]
    if not operator or target is None:
        return log, errors
    word = walk.script.word(target)
    if word.text.isdigit() or word.text == "-":
        return log, (log or errors) if descriptor == "2" and word.text == "1" else errors
    if descriptor == "2":
        return log, word
    return (word if word.text != "/dev/null" else NOTHING), errors


def here(walk: Walk, node: Node, piped: list[Node]) -> Word | None:
    """Return the text of a here-document or here-string; commands behind it in a pipe go to ``piped``."""
    if node.type == "herestring_redirect":
        inner = [child for child in node.children if child.is_named]
        return walk.script.word(inner[-1]) if inner else None
    for child in node.children:
        if child.type == "pipeline":
            piped += [c for c in child.children if c.is_named]
    return words.heredoc(walk.script, node)


def pipeline(walk: Walk, parts: Sequence[Node], log: Word | None, stdin: Word | None) -> None:
    """Read commands that are piped into each other."""
    if not parts:
        return
    texts = [[w.text for w in walk.script.words(p.children)] if p.type == "command" else [] for p in parts]
    for part, texts_of in zip(parts[1:], texts[1:], strict=True):
        if texts_of[:1] == ["tee"]:
            files = [word for word in walk.script.words(part.children)[1:] if not word.text.startswith("-")]
            log = files[0] if files else log
    before = len(walk.into.servers)
    feed = shell_variables.printed(walk.script, parts[0], texts[0], stdin)
    if feed is None or len(parts) < 2:
        walk.statement(parts[0], log, stdin)
    for number, part in enumerate(parts[1:], 1):
        first = texts[number][0] if texts[number] else ""
        if (number == 1 and feed is not None) or (first and first not in _FILTERS):
            walk.statement(part, log, feed if number == 1 else None)
        elif first == "xargs" and any("vllm" in text or "sglang" in text for text in texts[number]):
            walk.into.remarks.append(walk.script.remark(part, "launch does not follow xargs: write the commands out"))
        elif first != "tee":
            walk.tell(before, walk.script.remark(part, "the output runs through this; launch writes it to a log"))


def writes(walk: Walk, node: Node, words: Sequence[Word], log: Word, stdin: Word | None) -> bool:
    """Take note of a command that only writes its text to ``log``; returns whether that is all it does."""
    texts = [word.text for word in words]
    if texts == ["exec"]:
        walk.script.state.log = log
    elif texts == ["cat"] and stdin is not None:
        walk.into.files.write(log.text, Source(walk.script.source.name, stdin.text, stdin.marks))
    elif texts[:1] in (["echo"], ["printf"]) and any("sglang" in text or "vllm" in text for text in texts):
        why = f"the script writes this into {log.text}, which launch does not follow: name that file to adopt"
        walk.into.remarks += [walk.script.remark(node, why), *(doubt for word in words for doubt in word.doubts)]
    else:
        return False
    return True
