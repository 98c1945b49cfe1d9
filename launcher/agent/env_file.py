r"""Environment files read as systemd reads them: what a service gets from a file, before any service is started.

The same states as in systemd's reader, one method each. Bytes pass one by one, because quotes may lie inside of a
character: ``'\xc3''\xbc'`` is one letter. Tried against systemd 247, 252 and 257 with thousands of files
(tests/system/test_env_files.py).
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Tuple

_NEWLINE, _BLANK = "\n\r", " \t\n\r"
_ESCAPABLE = '"\\`$'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: systemd takes these for no characters: U+FDD0 to U+FDEF and the last two of each plane.
_NONCHARACTER = re.compile(
    "[\ufdd0-\ufdef" + "".join(chr(p << 16 | e) for p in range(17) for e in (0xFFFE, 0xFFFF)) + "]"
)
_MIB = 1024 * 1024


class EnvFileError(Exception):
    """systemd refuses the whole file: a service that names it does not start."""


def parse(content: bytes, version: int) -> Dict[str, str]:
    """Return the variables that a service gets from an environment file.

    What systemd leaves out without refusing the file is left out here as well: lines without ``=`` and names that
    are none. Of a name that comes twice the last value counts. Whether Linux would take so long a value is not
    looked at. Control characters are kept, as by Debian's 247.3; an earlier 247 leaves such a variable out.

    Args:
        content: of the file.
        version: of systemd, 247 or newer. Up to 253 a comment that ends in a backslash goes on in the next line.

    Raises:
        EnvFileError: systemd would refuse the whole file, and why.
    """
    largest = (4 if version < 249 else 64) * _MIB  # a few bytes more pass where the allocator rounds up
    if len(content) > largest:
        raise EnvFileError(f"{len(content)} bytes are more than the {largest} that systemd {version} reads")
    if b"\0" in content:
        raise EnvFileError(f"line {_line(content, content.index(0))} holds a NUL byte")
    reader = _Reader(comments_go_on=version < 254)
    for at, char in enumerate(content.decode("latin-1")):
        reader.read(at, char)
    reader.end()
    result: Dict[str, str] = {}
    for start, key, raw in reader.found:
        name, value = (_text(part, _line(content, start)) for part in (key, raw))
        if _NAME.fullmatch(name):
            result[name] = value
    return result


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def _text(raw: str, line: int) -> str:
    """Return bytes as text; the error shows none of them, since they may be a secret."""
    try:
        text = raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError as error:
        raise EnvFileError(f"the variable in line {line} is not UTF-8") from error
    found = _NONCHARACTER.search(text)
    if found:
        raise EnvFileError(f"the variable in line {line} holds the Unicode noncharacter U+{ord(found.group()):04X}")
    return text


class _Reader:
    """The state machine; ``found`` gathers where a name starts, the name and the value, all as single bytes."""

    def __init__(self, *, comments_go_on: bool) -> None:
        self.found: List[Tuple[int, str, str]] = []
        self._comments_go_on = comments_go_on
        self._state: Callable[[str], None] = self._before_name
        self._at = self._start = 0
        self._name: List[str] = []
        self._value: List[str] = []
        self._kept = 0  # so many characters of the value stay when its end is trimmed

    def read(self, at: int, char: str) -> None:
        self._at = at
        self._state(char)

    def end(self) -> None:
        """Take the last value; the end of the file closes quotes, and an escape that escapes nothing is dropped."""
        if self._state not in (self._before_name, self._in_name, self._comment, self._comment_escape):
            self._push(trim=self._state == self._plain)

    def _push(self, *, trim: bool) -> None:
        value = self._value[: self._kept] if trim else self._value
        self.found.append((self._start, "".join(self._name).rstrip(_BLANK), "".join(value)))
        self._name, self._value, self._kept = [], [], 0
        self._state = self._before_name

    def _before_name(self, char: str) -> None:
        if char in "#;":
            self._state = self._comment
        elif char not in _BLANK:
            self._start, self._name, self._state = self._at, [char], self._in_name

    def _in_name(self, char: str) -> None:
        if char in _NEWLINE:
            self._state = self._before_name
        elif char == "=":
            self._state = self._before_value
        else:
            self._name.append(char)

    def _before_value(self, char: str) -> None:
        """Also the state after a closing quote, so that more quotes may follow, or plain text."""
        if char in _NEWLINE:
            self._push(trim=False)
        elif char == "'":
            self._state = self._single
        elif char == '"':
            self._state = self._double
        elif char == "\\":
            self._state = self._escape
        elif char not in _BLANK:
            self._take(char)
            self._state = self._plain

    def _plain(self, char: str) -> None:
        if char in _NEWLINE:
            self._push(trim=True)
        elif char == "\\":
            self._state, self._kept = self._escape, len(self._value)
        elif char in _BLANK:
            self._value.append(char)
        else:
            self._take(char)

    def _escape(self, char: str) -> None:
        self._state = self._plain
        if char not in _NEWLINE:
            self._take(char)

    def _single(self, char: str) -> None:
        if char == "'":
            self._state = self._before_value
        else:
            self._take(char)

    def _double(self, char: str) -> None:
        if char == '"':
            self._state = self._before_value
        elif char == "\\":
            self._state = self._double_escape
        else:
            self._take(char)

    def _double_escape(self, char: str) -> None:
        self._state = self._double
        if char in _ESCAPABLE:
            self._take(char)
        elif char != "\n":
            self._take("\\")
            self._take(char)

    def _take(self, char: str) -> None:
        """Append a character that stays even at the end of a value."""
        self._value.append(char)
        self._kept = len(self._value)

    def _comment(self, char: str) -> None:
        if char in _NEWLINE:
            self._state = self._before_name
        elif char == "\\":
            self._state = self._comment_escape

    def _comment_escape(self, char: str) -> None:
        self._state = self._before_name if char in _NEWLINE and not self._comments_go_on else self._comment
