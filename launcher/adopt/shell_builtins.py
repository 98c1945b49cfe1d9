"""What the shell does by itself: variables, folders, files that are sourced."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from launcher.adopt import shell
from launcher.adopt.found import Remark
from launcher.adopt.script import Script
from launcher.adopt.source import Source, Word, joined, part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Node

    from launcher.adopt.shell import Walk


_OTHER_SHELL = (
    "this sets the variable in fish or cmd, and nothing in bash, which launch reads it as: say -e NAME=VALUE if the"
    " server is to have it"
)


def run(walk: Walk, node: Node, words: Sequence[Word]) -> bool:
    """Carry out a command of the shell itself; returns False for any other command."""
    name = words[0].text
    action = _ACTIONS.get(name)
    if action is None or (action is _conda and [word.text for word in words[1:2]] != ["activate"]):
        return False
    action(walk, node, words)
    return True


def _cd(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    state = walk.script.state
    paths = [word for word in words[1:] if not word.text.startswith("-") or word.text == "-"]
    if words[0].text == "popd":
        state.folder = state.folders.pop() if state.folders else Word("")
        return
    if words[0].text == "pushd":
        state.folders.append(state.folder)
    if paths and paths[0].text != "-":
        state.move(paths[0])
    else:
        state.folder = Word("" if paths else "~", (walk.script.remark(node, "this folder is not known"),))


def _source(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    if len(words) < 2:
        return
    script, path = walk.script, words[1].text
    if posixpath.basename(path) == "activate":
        _activate(walk, node, words[1])
        return
    source = walk.into.files.source(path)
    if source is None or walk.depth >= 20:
        _owe(walk, node, f"{path} is not here, so what it sets is not known: put it beside the input")
        return
    other, kept = Script(source, script.state, walk.into.files), script.state.arguments
    if len(words) > 2:
        script.state.arguments = tuple(words[2:])
    shell.Walk(other, walk.into, walk.outer, walk.depth + 1).block(other.root.children)
    script.state = other.state
    script.state.arguments, script.state.ended = kept, False


def _activate(walk: Walk, node: Node, path: Word) -> None:
    folder = posixpath.dirname(path.text)
    if (
        not folder.startswith("/")
        and walk.script.state.folder.text.startswith("/")
        and not folder.startswith(("~", "$"))
    ):
        folder = posixpath.normpath(posixpath.join(walk.script.state.folder.text, folder))
    if folder.startswith("/") and "$" not in folder:
        walk.script.state.python = f"{folder}/python"
        return
    walk.script.state.python = ""
    _owe(walk, node, "a virtual environment whose full path is not said: set engine.python")


def _owe(walk: Walk, node: Node, why: str) -> None:
    remark = walk.script.remark(node, why)
    walk.script.state.doubts.append(remark)
    walk.into.owed.append(remark)


def _eval(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    text = joined(words[1:])
    if text.unknown or walk.depth >= 20:
        walk.into.remarks.append(walk.script.remark(node, "the text that this runs is not known"))
        return
    other = Script(Source(walk.script.source.name, text.text, text.marks), walk.script.state, walk.into.files)
    shell.Walk(other, walk.into, walk.outer, walk.depth + 1).block(other.root.children)
    walk.script.state = other.state


def _set(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    texts = [word.text for word in words[1:]]
    if name := _of_another_shell(texts):
        remark = Remark(walk.script.where(node), f"set … {name} …", _OTHER_SHELL)
        walk.script.state.doubts.append(remark)
        walk.into.owed.append(remark)
    if "--" in texts:
        walk.script.state.arguments = tuple(words[texts.index("--") + 2 :])
    for at, text in enumerate(texts):
        if text == "--":
            break
        option = texts[at + 1] if text in ("-o", "+o") and at + 1 < len(texts) else ""
        if re.fullmatch(r"[-+][a-zA-Z]*a[a-zA-Z]*", text) or option == "allexport":
            walk.script.state.all_exported = text.startswith("-")


def _of_another_shell(texts: Sequence[str]) -> str:
    """Return what ``set -x NAME VALUE`` (fish) or ``set NAME=VALUE`` (Windows) means to set, or nothing."""
    name = r"[A-Za-z_]\w*"
    if texts and (found := re.fullmatch(rf"({name})=.*", texts[0], re.DOTALL)):
        return found[1]
    exports = [at for at, text in enumerate(texts) if re.fullmatch(r"-[gUlf]*x|--export", text)]
    rest = [text for text in texts if not text.startswith("-")]
    return rest[0] if exports and "--" not in texts and len(rest) > 1 and re.fullmatch(name, rest[0]) else ""


def _shift(walk: Walk, _node: Node, words: Sequence[Word]) -> None:
    state = walk.script.state
    if state.arguments is not None:
        count = int(words[1].text) if len(words) > 1 and words[1].text.isdigit() else 1
        state.arguments = state.arguments[count:]


def _end(walk: Walk, _node: Node, _words: Sequence[Word]) -> None:
    walk.script.state.ended = True


def _read(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    doubt = walk.script.remark(node, "its value comes from outside of this text")
    names = [word.text for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.text)]
    whole = any(words[at].text.endswith("d") and not words[at + 1].text for at in range(1, len(words) - 1))
    if words[0].text == "read" and whole and len(names) == 1 and walk.stdin is not None:
        text = walk.stdin.text
        walk.script.state.set(names[0], part(walk.stdin, len(text) - len(text.lstrip()), len(text.rstrip())))
        return
    for name in names:
        walk.script.state.set(name, Word(f"${name}", (doubt,)))


def _environment(walk: Walk, node: Node, _words: Sequence[Word]) -> None:
    """Tell every later server of ``module load``, ``ulimit`` and their like."""
    _owe(walk, node, "it changes the environment or limits of what is started later, and is not taken over")


def _conda(walk: Walk, node: Node, words: Sequence[Word]) -> None:
    path = words[-1].text
    walk.script.state.python = f"{path.rstrip('/')}/bin/python" if path.startswith("/") else ""
    if len(words) > 2 and not path.startswith("/"):
        _owe(walk, node, f"the path of the environment {path} is not said: set engine.python")


def _nothing(_walk: Walk, _node: Node, _words: Sequence[Word]) -> None:
    """Commands without a trace in what is started later."""


_SILENT = (
    "trap", "wait", "true", "false", ":", "shopt", "hash", "type", "let", "jobs", "disown", "break", "continue",
    "local", "test", "[", "fg", "bg", "times", "history", "unalias",
)  # fmt: skip

_ACTIONS: dict[str, Callable[[Walk, Node, Sequence[Word]], None]] = {
    **dict.fromkeys(("cd", "pushd", "popd"), _cd),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _conda),
    **dict.fromkeys(("exit", "return", "logout"), _end),
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts"), _read),
    **dict.fromkeys(("ulimit", "module", "ml", "spack", "umask", "alias", "sysctl"), _environment),
    "eval": _eval,
    "set": _set,
    "shift": _shift,
    **dict.fromkeys(_SILENT, _nothing),
}
