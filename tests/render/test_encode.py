"""Encodings of the two syntaxes, and values that no encoding can carry."""

from __future__ import annotations

import pytest

from launcher.errors import RenderError
from launcher.render import encode

ENVIRONMENT = {
    "plain": ({"A": "x"}, "A='x'\n"),
    "sorted": ({"B": "2", "A": "1"}, "A='1'\nB='2'\n"),
    "quote": ({"A": "a'b"}, "A='a'\"'\"'b'\n"),
    "no expansion": ({"A": r"$B `x` %n \ #"}, "A='$B `x` %n \\ #'\n"),
    "empty": ({"A": ""}, "A=''\n"),
    "line feed": ({"A": "a\nb"}, "A='a\nb'\n"),
}


@pytest.mark.parametrize(("env", "text"), ENVIRONMENT.values(), ids=ENVIRONMENT.keys())
def test_environment_file(env: dict[str, str], text: str) -> None:
    assert encode.environment_file(env) == text


ARGUMENTS = {
    "plain": ("x", "'x'"),
    "json": ('{"method":"eagle3"}', '\'{"method":"eagle3"}\''),
    "quote": ("a'b", r"'a\'b'"),
    "backslash": ("a\\nb", r"'a\\nb'"),
    "specifier": ("%n", "'%%n'"),
    "variable": ("$FOO ${BAR} $$", "'$$FOO $${BAR} $$$$'"),
    "controls": ("\n\t\r\x01", r"'\n\t\r\x01'"),
    "empty": ("", "''"),
    "semicolon": (";", "';'"),
    "unicode": ("ü→", "'ü→'"),
}


@pytest.mark.parametrize(("text", "encoded"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_argument(text: str, encoded: str) -> None:
    assert encode.argument(text) == encoded


BAD_VALUES = {
    "NUL": "a\0b",
    "not UTF-8": "a\udcff",
    "noncharacter": "a\ufffe",
    "high noncharacter": "a\U0001ffff",
    "arabic noncharacter": "a\ufdd0",
    "carriage return": "a\rb",
    "escape": "a\x1bb",
    "delete": "a\x7f",
    "too long": "a" * 131_071,
}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_values_that_cannot_survive_are_named(value: str) -> None:
    (problem,) = encode.check_environment({"GOOD": "x", "BAD": value})
    assert problem.startswith("env.BAD: ")


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A.B", "Ä", "A B", "A="])
def test_names_that_systemd_drops(name: str) -> None:
    assert encode.check_environment({name: "x"})


@pytest.mark.parametrize("bad", ["a\0b", "a\udcff", "a\ufffe", "a" * 131_072])
def test_arguments_that_cannot_survive_name_their_flag(bad: str) -> None:
    (problem,) = encode.check_arguments(["python", "--flag", bad])
    assert "--flag" in problem


def test_limits_in_bytes_are_exact() -> None:
    assert not encode.check_environment({"A": "a" * 131_069})
    assert encode.check_environment({"A": "a" * 131_070})
    assert not encode.check_arguments(["a" * 131_071])
    assert encode.check_arguments(["ü" * 65_536])
    assert encode.check_arguments(["a" * 100_000] * 11)
    assert encode.check_total([], {f"A{i}": "a" * 100_000 for i in range(22)})


@pytest.mark.parametrize("path", ["relative", "/a b", "/a%n", "/a$x", "/a'b", "/a\n", ""])
def test_paths_that_systemd_reads_in_two_ways(path: str) -> None:
    with pytest.raises(RenderError, match=r"engine\.python"):
        encode.plain_path("engine.python", path)
