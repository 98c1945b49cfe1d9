from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from launcher.catalogue import check_engines, engines
from launcher.catalogue.engine_option import Declared

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--tp-size", "-t", "--tensor-parallel-size")
        parser.add_argument("--shown", action=BooleanOptionalAction, help="Deprecated: nobody looks.")
"""


def release(version: str, *flags: tuple[str, ...]) -> check_engines.Release:
    made = [Declared(names, "one", (), "", f"{version}.py") for names in flags]
    return check_engines.Release("sglang", version, f"sglang-{version}", made)


def test_merge(capsys: pytest.CaptureFixture[str]) -> None:
    releases = [
        release("0.9", ("--a", "--old"), ("--gone",), ("--back",)),
        release("0.10", ("--new", "--a"), ("--split", "--late")),
        release("0.11", ("--new", "--a"), ("--split",), ("--late",), ("--back",)),
    ]
    rows = [(row[1], row[2], row[5], row[6], row[8]) for row in check_engines.merge(releases)]
    assert rows == [
        ("", "", "0.9", "0.9", "sglang-0.9"),
        ("", "", "0.10", "0.10", "sglang-0.10"),
        ("", "", "0.11", "0.11", "sglang-0.11"),
        ("--back", "", "0.9", "0.11", "0.11.py"),
        ("--gone", "", "0.9", "0.9", "0.9.py"),
        ("--late", "", "0.10", "0.11", "0.11.py"),
        ("--new", "--a@0.9-0.11 --old@0.9-0.9", "0.10", "0.11", "0.11.py"),
        ("--split", "", "0.10", "0.11", "0.11.py"),
    ]
    assert capsys.readouterr().err == "--back: not in 0.10, but before and after\n"


def wheel(folder: Path, version: str) -> str:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/srt/server_args.py", SOURCE)
    return str(path)


def unpacked(folder: Path, version: str) -> str:
    with zipfile.ZipFile(wheel(folder, version)) as archive:
        archive.extractall(folder / "site")
    (folder / "site" / f"sglang-{version}+cpu.dist-info").mkdir()
    return str(folder / "site")


def test_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = engines.FLAGS.read_text()
    data = {engine: check_engines.known(engine) for engine in engines.TITLES}
    monkeypatch.setattr(check_engines, "known", data.__getitem__)
    monkeypatch.setattr(engines, "FLAGS", tmp_path / "flags.csv")
    new = wheel(tmp_path, "0.99.0")
    assert check_engines.main([new]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("SGLang 0.99.0: 2 flags, 2 names gained and ")
    assert head.endswith("lost against 0.5.23")
    assert lines[:2] == ["gained: --shown", "gained: -t"]
    assert "lost: --mem-fraction-static" in lines
    assert check_engines.main([new, "--update"]) == 0
    assert check_engines.main([unpacked(tmp_path, "0.99.0")]) == 0
    assert capsys.readouterr().out.endswith("SGLang 0.99.0: 2 flags, 0 names gained and 0 lost against 0.99.0\n")
    written = engines.FLAGS.read_text().splitlines()
    source = "sglang/srt/server_args.py"
    assert f"sglang,--shown,--no-shown,none,,0.99.0,0.99.0,Deprecated: nobody looks.,{source}" in written
    tensor = "--tensor-parallel-size -t@0.99.0-0.99.0"
    assert f"sglang,--tp-size,{tensor},one,,0.5.6,0.99.0,,{source}" in written
    assert [w for w in written if w[:4] == "vllm"] == [w for w in before.splitlines() if w[:4] == "vllm"]


@pytest.mark.parametrize("argument", ["other.whl", "sglang-9-py3-none-any.whl", "sglang>=1", "torch==2"])
def test_what_cannot_be_read(
    argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sglang-9-py3-none-any.whl").write_text("no archive")
    assert check_engines.main([argument]) == 2
    assert "neither " in capsys.readouterr().err


def test_the_data_is_what_the_tool_writes(tmp_path: Path) -> None:
    check_engines.write({e: check_engines.known(e) for e in engines.TITLES}, tmp_path / "flags.csv")
    assert (tmp_path / "flags.csv").read_text() == engines.FLAGS.read_text()
