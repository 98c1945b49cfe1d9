"""Files of adopted servers: never over another file, secrets where only their user can read them, all or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from launcher.adopt import secret_store, write
from launcher.errors import ConfigError, LaunchError
from tests.composing import packaged


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _secret(folder: Path, key: str = "HF_TOKEN", name: str = "prod") -> Path:
    return folder / "home" / ".config" / "launch" / "secrets" / name / key


def test_secrets_are_for_their_user_alone(folder: Path) -> None:
    assert write.check("prod", "name: prod\n", {"HF_TOKEN": "hidden"}, packaged())
    umask = os.umask(0)
    try:
        write.write("prod", "name: prod\n", {"HF_TOKEN": "hidden"})
    finally:
        os.umask(umask)
    path = _secret(folder)
    assert path.read_text() == "hidden\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Path("conf/deployment/prod.yaml").read_text() == "name: prod\n"


def test_the_same_again_is_no_conflict(folder: Path) -> None:
    write.write("prod", "name: prod\n", {"HF_TOKEN": "hidden"})
    assert not write.check("prod", "name: prod\n", {"HF_TOKEN": "hidden"}, packaged())
    assert secret_store.write("prod", {"HF_TOKEN": "hidden"}) == []
    assert _secret(folder).read_text() == "hidden\n"


def test_another_secret_is_not_overwritten(folder: Path) -> None:
    secret_store.write("prod", {"HF_TOKEN": "older"})
    with pytest.raises(ConfigError, match="holds another value") as caught:
        write.check("prod", "name: prod\n", {"HF_TOKEN": "hidden"}, packaged())
    assert "hidden" not in str(caught.value)
    assert "older" not in str(caught.value)
    assert _secret(folder).read_text() == "older\n"


@pytest.mark.parametrize("content", [b"name: other\n", b"\xff\xfe"])
def test_another_file_is_not_overwritten(content: bytes) -> None:
    file = Path("conf/deployment/prod.yaml")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="nothing was written"):
        write.check("prod", "name: prod\n", {}, packaged())
    with pytest.raises(ConfigError, match="is there already"):
        write.write("prod", "name: prod\n", {"HF_TOKEN": "hidden"})
    assert file.read_bytes() == content
    assert not (file.parent.parent.parent / "home" / ".config" / "launch" / "secrets" / "prod").exists()


def test_a_packaged_deployment_keeps_its_name() -> None:
    with pytest.raises(ConfigError, match="packaged conf has a deployment 'reference' already"):
        write.check("reference", "name: reference\n", {}, packaged())


def test_a_folder_in_the_place_of_the_file_is_told() -> None:
    Path("conf/deployment/prod.yaml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is there and cannot be read"):
        write.check("prod", "name: prod\n", {}, packaged())


def test_a_file_in_the_place_of_the_folder_is_told() -> None:
    Path("conf").write_text("")
    with pytest.raises(LaunchError, match="cannot be read"):
        write.check("prod", "name: prod\n", {}, packaged())
    with pytest.raises(LaunchError, match=r"(cannot be written|is there already).*nothing was written"):
        write.write("prod", "name: prod\n", {})


@pytest.mark.parametrize("target", ["launcher.adopt.write.os.fsync", "launcher.adopt.secret_store.os.fsync"])
def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    calls = {"left": 1 if target.startswith("launcher.adopt.write") else 0}

    def full(_: int) -> None:
        if calls["left"]:
            calls["left"] -= 1
            return
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(target, full)
    with pytest.raises(LaunchError, match="No space left on device; nothing was written"):
        write.write("prod", "name: prod\n", {"HF_TOKEN": "hidden"})
    assert not Path("conf/deployment/prod.yaml").exists()
    assert not _secret(folder).exists()
