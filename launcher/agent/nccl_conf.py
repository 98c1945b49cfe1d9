"""What NCCL takes from a file such as /etc/nccl.conf, and the block in it that belongs to one deployment.

NCCL sets what its files name, unless it is set already: a server that is started by hand gets the block's variables, a
server of ours has its own and takes only those that it leaves unset. The block is at the top of the file, because the
first line of a name wins. Its markers hold no ``=``: before NCCL 2.26 no line is a comment, and one without ``=`` is
passed over. Read and write such a file without translating line ends, else foreign lines change.
"""

from __future__ import annotations

import pwd
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional

PATH = "/etc/nccl.conf"
_LONGEST = 1023  # bytes of a name or a value that NCCL keeps
_MARKER = re.compile(r"# launch ([a-z0-9_.]{1,64}) (begin: written by launch, do not edit|end)\r?")
_NAME = re.compile(r"NCCL_[A-Za-z0-9_]+")
_CURE = "restore or delete its marker lines, then try again"

_Mark = NamedTuple("_Mark", [("owner", str), ("begins", bool), ("line", int), ("start", int), ("stop", int)])
_Block = NamedTuple("_Block", [("owner", str), ("before", str), ("inside", str), ("after", str)])


class BlockError(Exception):
    """The marked block is damaged, or cannot be written."""


def paths(env: Mapping[str, str], user: str) -> List[str]:
    """Return the files that NCCL takes variables from, the strongest first.

    The file in the home folder is looked for there by the password database up to NCCL 2.29, by HOME since 2.30.3;
    a file named by NCCL_CONF_FILE (2.23) takes its place.
    """
    if env.get("NCCL_CONF_FILE"):
        return [env["NCCL_CONF_FILE"], "/etc/nccl.conf"]
    try:
        homes = [pwd.getpwnam(user).pw_dir]
    except KeyError:
        homes = []
    homes += [env["HOME"]] if env.get("HOME") else []
    return [*dict.fromkeys(home + "/.nccl.conf" for home in homes), "/etc/nccl.conf"]


def variables(text: str) -> Dict[str, str]:
    """Return what NCCL takes from a file, whatever the names begin with.

    The first line of a name counts. Nothing is trimmed but a CR at the end (NCCL before 2.30 keeps that as well).

    Args:
        text: of the file; bytes that are not UTF-8 as ``surrogateescape`` gives them.
    """
    found: Dict[str, str] = {}
    for line in text.split("\n"):
        if line.startswith("#"):
            continue
        line = line.split("\0")[0]
        name, sign, value = (line[:-1] if line.endswith("\r") else line).partition("=")
        if sign and name:
            found.setdefault(_cut(name), _cut(value))
    return found


def _cut(text: str) -> str:
    return text.encode("utf-8", "surrogateescape")[:_LONGEST].decode("utf-8", "surrogateescape")


def owner(text: str) -> str:
    """Return the name of the deployment whose block is in a file, or "".

    Raises:
        BlockError: the block is damaged.
    """
    block = _find(text)
    return block.owner if block else ""


def block_variables(text: str) -> Dict[str, str]:
    """Return what NCCL takes from the block alone.

    Raises:
        BlockError: the block is damaged.
    """
    block = _find(text)
    return variables(block.inside) if block else {}


def foreign(text: str) -> str:
    """Return a file without the block.

    Raises:
        BlockError: the block is damaged.
    """
    block = _find(text)
    return block.before + block.after if block else text


def with_block(text: str, name: str, env: Mapping[str, str]) -> str:
    """Return a file with the block of a deployment at its top, in place of the block that it had.

    Args:
        text: of the file as it is.
        name: of the deployment.
        env: of the release; the variables of NCCL are taken from it.

    Raises:
        BlockError: the block is damaged, or a value fits into no such file (see `unfit`).
    """
    rest, problems = foreign(text), unfit(env)
    begin, end = f"# launch {name} begin: written by launch, do not edit", f"# launch {name} end"
    if not _MARKER.fullmatch(begin):
        problems = [f"{name!r} is no name of a deployment"]
    if problems:
        raise BlockError("; ".join(problems))
    lines = [f"{key}={env[key]}" for key in sorted(env) if key.startswith("NCCL_")]
    return "".join(line + "\n" for line in (begin, *lines, end)) + rest


def unfit(env: Mapping[str, str]) -> List[str]:
    """Return why variables of NCCL cannot be written into such a file, one line each."""
    named = {name: _unfit(name, value) for name, value in sorted(env.items()) if name.startswith("NCCL_")}
    return [f"{name}: {reason}, which {PATH} cannot carry" for name, reason in named.items() if reason]


def _unfit(name: str, value: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        return "is no name of a variable"
    if "\n" in value or "\0" in value:
        return "holds a line end or a NUL byte"
    if value.endswith("\r"):
        return "ends in a CR"
    if any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        return "holds bytes that are not UTF-8"
    return f"is longer than {_LONGEST} bytes" if len(value.encode("utf-8")) > _LONGEST else ""


def conflicts(text: str, name: str, env: Mapping[str, str]) -> List[str]:
    """Return what the block of another deployment would set in a server of this one, one line a variable.

    Args:
        text: of the file.
        name: of this deployment.
        env: of its release.

    Raises:
        BlockError: the block is damaged.
    """
    other = owner(text)
    if other in ("", name):
        return []
    return [
        f"{PATH} holds the block of deployment {other}, which sets {key} here too: set"
        f" {_key(key)} in {name}, or turn off unit.nccl_conf in {other}"
        for key in sorted(block_variables(text))
        if key.startswith("NCCL_") and key not in env
    ]


def _key(variable: str) -> str:
    return "nccl." + variable[len("NCCL_") :].lower()


def _find(text: str) -> Optional[_Block]:
    """Return the block of a file.

    Raises:
        BlockError: a marker without the other, or more than one block.
    """
    begin: Optional[_Mark] = None
    found: Optional[_Block] = None
    for mark in _marks(text):
        if mark.begins and (begin or found):
            raise _damage(mark, "a second block begins")
        if mark.begins:
            begin = mark
        elif begin is None or begin.owner != mark.owner:
            raise _damage(mark, "a block ends that did not begin")
        else:
            found = _Block(mark.owner, text[: begin.start], text[begin.stop : mark.start], text[mark.stop :])
            begin = None
    if begin:
        raise _damage(begin, "a block begins that does not end")
    return found


def _marks(text: str) -> Iterator[_Mark]:
    start = 0
    for number, line in enumerate(text.split("\n"), start=1):
        stop = min(start + len(line) + 1, len(text))
        match = _MARKER.fullmatch(line)
        if match:
            yield _Mark(match.group(1), match.group(2) != "end", number, start, stop)
        start = stop


def _damage(mark: _Mark, what: str) -> BlockError:
    return BlockError(f"{PATH} line {mark.line}: {what} (deployment {mark.owner}): {_CURE}")
