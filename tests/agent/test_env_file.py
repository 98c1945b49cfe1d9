"""Environment files, one rule of systemd at a time; tests/system/test_env_files.py asks systemd itself."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.env_file import EnvFileError, parse
from launcher.render import encode

READ: dict[str, tuple[bytes, dict[str, str]]] = {
    "empty": (b"", {}),
    "plain": (b"A=1\nB=2\n", {"A": "1", "B": "2"}),
    "no line end at the end": (b"A=1", {"A": "1"}),
    "no value": (b"A=\nB=", {"A": "", "B": ""}),
    "a sign in the value": (b"A=b=c", {"A": "b=c"}),
    # names
    "blanks around name and value": (b" \tA \t= \tb  c \t\n", {"A": "b  c"}),
    "no sign": (b"A\nB=1\nC", {"B": "1"}),
    "names that are none": (b"export A=1\nA-B=1\nA.B=1\n1A=1\n=1\n==1\n=A=1\nB=1", {"B": "1"}),
    "a name of other letters": ("\u00c4=1\nB=1".encode(), {"B": "1"}),
    "the last of a name counts": (b"A=1\nB=2\nA=3\n", {"A": "3", "B": "2"}),
    "the last counts even when empty": (b"A=1\nA=\n", {"A": ""}),
    "byte order mark": ("\ufeffA=1\nB=2".encode(), {"B": "2"}),
    # line ends
    "CR and CRLF": (b"A=1\rB=2\r\nC=3", {"A": "1", "B": "2", "C": "3"}),
    "CR inside of quotes": (b"A='1\r2'\nB=\"1\r\n2\"", {"A": "1\r2", "B": "1\r\n2"}),
    # without quotes
    "nothing is expanded": (b"A=$B ${C} `d` %n %%", {"A": "$B ${C} `d` %n %%"}),
    "quotes in the middle": (b"A=a'b'\"c\"", {"A": "a'b'\"c\""}),
    "no comment behind a value": (b"A=1 # x ; y", {"A": "1 # x ; y"}),
    "escapes": (b"A=a\\b\\\\c\\'\\$", {"A": "ab\\c'$"}),
    "an escaped blank at the end stays": (b"A=a\\ \nB=a \\", {"A": "a ", "B": "a "}),
    "an escape at the start": (b"A=\\ \\#x", {"A": " #x"}),
    "lines joined": (b"A=a \\\n b\\\r c\nB=1", {"A": "a  b c", "B": "1"}),
    "an escaped CR leaves the LF": (b"A=a\\\r\nB=1", {"A": "a", "B": "1"}),
    "blanks after a joined line": (b"A=a\\\n  \nB=1", {"A": "a", "B": "1"}),
    # single quotes
    "single": (b"A=' a\n\\n \"$x\" # '\nB=1", {"A": ' a\n\\n "$x" # ', "B": "1"}),
    "quotes one after the other": (b"A='a' \t'b'\"c\"", {"A": "abc"}),
    "a quote as we write it": (b"A='a'\"'\"'b'", {"A": "a'b"}),
    "a quote as a shell writes it": (b"A='a'\\''b'", {"A": "a''b'"}),
    "plain after quotes": (b"A='a b' # note ", {"A": "a b# note"}),
    "a quote that does not end": (b"A=1\nB='x\nC=2\n", {"A": "1", "B": "x\nC=2\n"}),
    # double quotes
    "double": (b"A=\" a\n# 'b' \"", {"A": " a\n# 'b' "}),
    "escapes in double": (b'A="\\" \\\\ \\$ \\` \\n \\x41 \\\'"', {"A": "\" \\ $ ` \\n \\x41 \\'"}),
    "lines joined in double": (b'A="a\\\nb\\\r\nc"', {"A": "ab\\\r\nc"}),
    "a double quote that does not end": (b'A="x\nC=2\\', {"A": "x\nC=2"}),
    # comments
    "comments": (b"# A=1\n ;B=1\n\t#\nC=1", {"C": "1"}),
    "comment with CR": (b"# A=1\rB=1", {"B": "1"}),
    "a joined line is no comment": (b"A=\\\n#B=1", {"A": "#B=1"}),
    "an escape inside of a comment": (b"# a\\b\nA=1", {"A": "1"}),
    # bytes
    "letters": ("A=\u00fc\u65e5\U0001f680".encode(), {"A": "\u00fc\u65e5\U0001f680"}),
    "a letter in two pieces": (b"A='\xc3''\xbc'\nB=\xc3\\\n\xbc", {"A": "\u00fc", "B": "\u00fc"}),
    "control characters": (b"A=\x01\x0b\x1b\x7f \x0c", {"A": "\x01\x0b\x1b\x7f \x0c"}),
    "only a comment is no text": (b"# \xff\n\xff\nA=1", {"A": "1"}),
    "beside the noncharacters": ("A=\ufdcf\ufdf0\ufffd\U0001fffd".encode(), {"A": "\ufdcf\ufdf0\ufffd\U0001fffd"}),
}
REFUSED: dict[str, tuple[bytes, str]] = {
    "NUL": (b"A=1\n# \0", "line 2 holds a NUL byte"),
    "zeros after a crash": (b"\0" * 4096, "line 1 holds a NUL byte"),
    "no text": (b"A=1\n\nB='\n\xff'", "the variable in line 3 is not UTF-8"),
    "a name that is no text": (b"\xff=1", "the variable in line 1 is not UTF-8"),
    "half a letter": (b"A=\xc3", "the variable in line 1 is not UTF-8"),
    "a letter with a sign in it": (b"A='\xc3'#'\xbc'", "the variable in line 1 is not UTF-8"),
    "half of a pair": (b"A=\xed\xa0\x80", "the variable in line 1 is not UTF-8"),
    "written too long": (b"A=\xc0\xaf", "the variable in line 1 is not UTF-8"),
    "beyond Unicode": (b"A=\xf4\x90\x80\x80", "the variable in line 1 is not UTF-8"),
    "U+FDD0": ("A=\ufdd0".encode(), "the variable in line 1 holds the Unicode noncharacter U+FDD0"),
    "U+10FFFF": (
        "# x\rA=\n1\ufffe\U0010ffff=".encode(),
        "the variable in line 2 holds the Unicode noncharacter U+FFFE",
    ),
    "a noncharacter in a name that is none": ("A \ufdef=".encode(), "noncharacter U+FDEF"),
}


@pytest.mark.parametrize("version", [247, 252, 257])
@pytest.mark.parametrize(("content", "wanted"), READ.values(), ids=READ.keys())
def test_read(content: bytes, wanted: dict[str, str], version: int) -> None:
    assert parse(content, version) == wanted


@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(content: bytes, words: str) -> None:
    with pytest.raises(EnvFileError, match=words.replace("+", r"\+")):
        parse(content, 252)


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_comment_that_ends_in_a_backslash(end: str) -> None:
    content = f"# A=1\\{end}B=2{end}C=3".encode()
    assert parse(content, 253) == {"C": "3"}
    assert parse(content, 254) == {"B": "2", "C": "3"}


def test_sizes() -> None:
    largest = b"A=1\n".ljust(4 * 1024 * 1024, b"\n")
    assert parse(largest, 247) == {"A": "1"}
    with pytest.raises(EnvFileError, match="4194305 bytes are more than the 4194304 that systemd 247 reads"):
        parse(largest + b"\n", 247)


@given(
    st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), st.text()),
    st.sampled_from([247, 257]),
)
def test_what_we_write_is_read_back(env: dict[str, str], version: int) -> None:
    env = {name: value for name, value in env.items() if not encode.check_environment({name: value})}
    assert parse(encode.environment_file(env).encode(), version) == env


@given(st.binary(), st.sampled_from([247, 257]))
def test_no_file_is_too_odd(content: bytes, version: int) -> None:
    with contextlib.suppress(EnvFileError):
        parse(content, version)
