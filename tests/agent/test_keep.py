"""What was there comes back to the byte: files, links, nothing; markers and generations on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import files, generations, keep, marker, origin, record
from tests.agent import drift_case as case

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root")


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /etc/launch and /etc/systemd/system."""
    monkeypatch.setattr(record, "ETC", str(tmp_path / "launch"))
    monkeypatch.setattr(record, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(record, "SHARED", str(tmp_path / "launch/shared.json"))
    monkeypatch.setattr(marker, "FOLDER", str(tmp_path / "launch/pending"))
    (tmp_path / "launch/x").mkdir(parents=True)
    (tmp_path / "units").mkdir()
    return tmp_path


def tree(path: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for entry in sorted(path.rglob("*")):
        status = entry.lstat()
        content = str(entry.readlink()) if entry.is_symlink() else entry.read_bytes() if entry.is_file() else None
        mtime = 0 if entry.is_dir() and not entry.is_symlink() else status.st_mtime_ns
        found[str(entry)] = (status.st_mode, status.st_uid, status.st_gid, mtime, content)
    return found


@needs_root
def test_files_links_and_nothing_come_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\0x")
    (tmp_path / "file").chmod(0o604)
    os.utime(tmp_path / "file", ns=(1_000_000_001, 1_000_000_002))
    (tmp_path / "link").symlink_to("/dev/null")
    paths = [str(tmp_path / name) for name in ("file", "link", "nothing")]
    before = tree(tmp_path)
    kept = json.loads(json.dumps(keep.take(paths)))
    for path in paths:
        if os.path.lexists(path):
            Path(path).unlink()
        (tmp_path / path).write_text("other")
    for entry in kept:
        keep.put(entry)
    assert tree(tmp_path) == before


def test_a_folder_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="neither a file nor a link"):
        keep.take([str(tmp_path)])


def request(number: int = 0) -> dict[str, Any]:
    """What an apply leaves in its record; the manifest differs by number."""
    whole = case.record()
    return {
        "files": whole["files"],
        "shared": [],
        "commands": [],
        "secrets": [],
        "needs": {**whole["needs"], "name": "x"},
        "intent": {**whole["intent"], "why": str(number)},
    }


@needs_root
def test_generations_are_numbered_kept_and_cut_off(etc: Path) -> None:
    for number in range(1, 13):
        record.write(request(number), {}, 1000.0 + number)
        assert generations.add("x", {"by": "anna", "why": "up", "at": number, "outcome": "good"}) == number
    assert generations.numbers("x") == list(range(3, 13))
    assert [entry["number"] for entry in generations.history("x")] == list(range(1, 13))
    assert generations.load("x", 5)["number"] == 5
    with pytest.raises(record.RecordError, match="is not there"):
        generations.load("x", 2)


@needs_root
def test_a_line_of_history_that_is_torn_hides_no_other(etc: Path) -> None:
    generations.note("x", {"number": 1, "digest": "a", "outcome": "good"})
    path = etc / "launch/x/history.jsonl"
    path.write_text(path.read_text() + '{"number": 2, "dig')
    generations.note("x", {"number": 3, "digest": "c", "outcome": "good"})
    assert [entry["number"] for entry in generations.history("x")] == [1, 3]


@needs_root
def test_releases_that_nothing_refers_to_go(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = etc / "launch/x"
    for digest in ("a" * 16, "b" * 16, "c" * 16, "d" * 16):
        for kind in ("env", "json"):
            (place / f"{digest}.{kind}").touch()
    (place / "notes.txt").touch()
    (etc / "launch/pending").mkdir()
    for torn in (place, etc / "launch/pending", etc / "units"):
        (torn / ".launch-abc.tmp").touch()
    (etc / "units/launch-x.service").write_text(f"EnvironmentFile=/etc/launch/x/{'a' * 16}.env\n")
    loaded = {"EnvironmentFiles": [[f"/etc/launch/x/{'b' * 16}.env", False]], "ExecStart": [], "ControlGroup": ""}
    monkeypatch.setattr("launcher.agent.systemd.properties", lambda _: loaded)
    (etc / "launch/pending/x.json").write_text(json.dumps({"text": "c" * 16}))
    assert generations.clean("x") == [f"{'d' * 16}.env", f"{'d' * 16}.json"]
    assert (place / "notes.txt").exists()
    assert not list(etc.rglob(".launch-*"))


@needs_root
def test_a_marker_is_there_until_it_is_taken_away(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.agent.systemd.systemctl", lambda *_: "")
    before = {"name": "x", "unit": "launch-x.service", "kept": [{"path": "/x", "kind": "absent"}]}
    assert marker.pending() == []
    marker.arm(before)
    assert marker.pending() == ["x"]
    assert marker.read("x") == before
    assert (etc / "launch/pending/x.json").stat().st_mode & 0o777 == 0o600
    marker.disarm("x")
    marker.disarm("x")
    assert marker.read("x") is None


@needs_root
@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "y"}', "\0\0\0"])
def test_a_marker_that_is_none_puts_nothing_back(etc: Path, content: str) -> None:
    (etc / "launch/pending").mkdir()
    (etc / "launch/pending/x.json").write_text(content)
    assert marker.read("x") is None


@needs_root
def test_generation_0_comes_back_to_the_byte(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = etc / "units"
    read = etc / "mine.env"
    read.write_text("A=1\n")
    (units / "launch-x.service").write_text(f"[Service]\nEnvironmentFile={read}\nExecStart=/bin/true\n")
    (units / "launch-x.service.d").mkdir()
    (units / "launch-x.service.d/z.conf").write_text("[Service]\nNice=1\n")
    (units / "multi-user.target.wants").mkdir()
    (units / "multi-user.target.wants/launch-x.service").symlink_to(units / "launch-x.service")
    os.utime(units / "launch-x.service", ns=(5, 5))
    monkeypatch.setattr("launcher.agent.systemd.properties", lambda _: {"ActiveState": "active"})
    assert origin.is_first("x")
    before = tree(etc)
    origin.write("x", origin.capture("x"))
    origin.clear("launch-x.service")
    assert not list((units / "launch-x.service.d").iterdir())
    (units / "launch-x.service").write_text("EnvironmentFile=/etc/launch/x/0123456789abcdef.env\n")
    (units / "multi-user.target.wants/launch-x.service").unlink()
    read.unlink()
    kept = origin.read("x")
    assert kept is not None
    assert kept["active"]
    origin.restore(kept)
    files.remove(origin.path_of("x"))
    (etc / "launch/x/generations").rmdir()
    assert tree(etc) == before
