"""Segments of dead servers go; those of the living, of other users and of other programs stay."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from launcher.agent import leftovers

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(leftovers, "_SHM", str(tmp_path))
    return tmp_path


def test_only_what_nobody_has_open_goes(shm: Path) -> None:
    for name in ("nccl-abc", "psm_1234", "sem.mp-x", "mine.db", "nccl-held"):
        (shm / name).write_text("x")
    (shm / "nccl-folder").mkdir()
    (shm / "nccl-link").symlink_to("/etc/passwd")
    with (shm / "nccl-held").open():
        assert leftovers.remove(ME) == 3
    assert sorted(path.name for path in shm.iterdir()) == ["mine.db", "nccl-folder", "nccl-held", "nccl-link"]


def test_a_mapped_segment_stays(shm: Path) -> None:
    import mmap

    path = shm / "nccl-mapped"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as stream:
        held = mmap.mmap(stream.fileno(), 4096)
    assert leftovers.remove(ME) == 0
    held.close()
    assert leftovers.remove(ME) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_other_users_keep_theirs(shm: Path) -> None:
    (shm / "nccl-theirs").touch()
    os.chown(shm / "nccl-theirs", 65534, 65534)
    assert leftovers.remove(ME) == 0
    assert leftovers.remove("nobody") == 1


def test_an_unknown_user_or_no_folder_is_nothing(shm: Path) -> None:
    assert leftovers.remove("no-such-user") == 0
    shm.rmdir()
    assert leftovers.remove(ME) == 0
