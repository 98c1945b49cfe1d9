from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from launcher.catalogue import check, nccl

if TYPE_CHECKING:
    from pathlib import Path


def library(path: Path, constants: bytes) -> str:
    """Write the smallest ELF file that has the two sections the tool needs."""
    names = b"\0.rodata\0.shstrtab\0"
    body = constants + names
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, 64 + len(body))
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 2)
    section = "<IIQQQQIIQQ"
    table = bytes(64)
    table += struct.pack(section, 1, 1, 2, 0, 64, len(constants), 0, 0, 1, 0)
    table += struct.pack(section, 9, 3, 0, 0, 64 + len(constants), len(names), 0, 0, 1, 0)
    path.write_bytes(header + body + table)
    return str(path)


def constants(*names: str, version: str = "2.28.9") -> bytes:
    return f"\0NCCL version {version}+cuda12.9\0".encode() + b"".join(n.encode() + b"\0" for n in names)


def test_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(check.expected((2, 28, 9)))
    assert len(names) == 187  # as many as the released 2.28.9 holds
    assert check.main([library(tmp_path / "lib", constants(*names))]) == 0
    assert capsys.readouterr().out == "NCCL 2.28.9: 187 names, 0 new, 0 no longer there\n"


def test_new_and_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(check.expected((2, 28, 9)) - {"NCCL_ALGO"})
    extra = ["NCCL_BRAND_NEW", "merged tail NCCL_OTHER", "NCCL_CONFIG_INITIALIZER", "no NCCL_NAME here"]
    assert check.main([library(tmp_path / "lib", constants(*names, *extra))]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[1:] == ["new: NCCL_BRAND_NEW", "new: NCCL_OTHER", "no longer there: NCCL_ALGO"]


@pytest.mark.parametrize(
    ("release", "name", "there"),
    [
        ((2, 28, 9), "NCCL_WORK_FIFO_DEPTH", False),
        ((2, 21, 5), "NCCL_WORK_FIFO_DEPTH", True),
        ((2, 28, 9), "NCCL_MAX_NRINGS", True),
        ((2, 28, 9), "NCCL_MAX_NCHANNELS", True),
        ((2, 28, 9), "NCCL_SYM_TMA_ENABLE", False),
        ((2, 32, 3), "NCCL_SYM_KERNEL_ID", False),
        ((2, 32, 3), "NCCL_INSPECTOR_ENABLE", False),
    ],
)
def test_expected(release: tuple[int, ...], name: str, there: bool) -> None:
    assert (name in check.expected(release)) is there
    assert name in {v.name for v in nccl.variables().values()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "cannot be read"),
        (b"#!/bin/sh\n" * 20, "wrong magic number"),
        (b"\x7fELF\x01\x01" + bytes(100), "wrong magic number"),
        (b"\x7fELF\x02\x01" + bytes(20), "cannot be read"),
        (b"\x7fELF\x02\x01" + b"\xff" * 100, "cannot be read"),
        (b"\x7fELF\x02\x01" + bytes(100), "no section names"),
    ],
    ids=["missing", "empty", "script", "32 bit", "cut", "garbage", "no sections"],
)
def test_unreadable(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str) -> None:
    path = tmp_path / "lib"
    if content is not None:
        path.write_bytes(content)
    assert check.main([str(path)]) == 2
    assert message in capsys.readouterr().err


def test_not_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([library(tmp_path / "lib", b"\0hello\0")]) == 2
    assert "is it libnccl?" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 2
    assert "usage" in capsys.readouterr().err
