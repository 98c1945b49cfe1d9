"""The check that runs on the host by itself: what it says, writes and starts. The check and systemd are stand-ins."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import journal, systemd, watch, watch_memory
from launcher.agent.findings import Finding, as_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CRITICAL = Finding("file-content", "files", "critical", "/etc/x", "/etc/x was changed", mend="launch drift --fix")
WARNING = Finding("drop-in", "loaded", "warning", "/etc/y", "a drop-in")
NOT_TOLD = Finding("hw-acs", "host", "unknown", "", "lspci is not installed")
UNREAD = Finding("env-unread", "processes", "unknown", "7", "process 7 cannot be read")
INFO = Finding("i", "host", "info", "", "an idle GPU")
MUTED = WARNING._replace(muted="accepted until 2030-01-01: known")


@dataclass
class Host:
    """What the stand-ins show, and what was said and started."""

    folder: Path
    reports: dict[str, Any] = field(default_factory=dict)
    lines: list[tuple[str, int, str]] = field(default_factory=list)
    fields: list[dict[str, str]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def shows(self, *findings: Finding, name: str = "a", alert: str = "page@a.service", **changes: Any) -> None:
        self.reports[name] = {
            "deployment": name,
            "applied": {"digest": "d", "at": 1, "by": "", "launch": ""},
            "running": "d",
            "service": "active (running)",
            "restarts": 0,
            "main": 7,
            "proven": 4,
            "processes": 4,
            "findings": as_data(findings),
            "watch": {"alert": alert, "textfile": str(self.folder / "launch.prom")},
            **changes,
        }

    def run(self) -> int:
        """One run; what was said and started before is forgotten."""
        for seen in (self.lines, self.fields, self.started):
            seen.clear()
        return watch.watch()

    def said(self, unit: str = "launch-a.service") -> list[tuple[int, str]]:
        return [(level, text) for of, level, text in self.lines if of == unit]

    @property
    def files(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    @property
    def metrics(self) -> str:
        return (self.folder / "launch.prom").read_text()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path / "collector")
    host.folder.mkdir()

    def check(name: str) -> Any:
        if isinstance(host.reports[name], Exception):
            raise host.reports[name]
        return host.reports[name]

    def systemctl(*words: str) -> str:
        assert words[:3] == ("start", "--no-block", "--")
        if words[3] in host.broken:
            raise systemd.SystemdError(f"Unit {words[3]} not found.")
        host.started.append(words[3])
        return ""

    def say_of(unit: str, text: str, *, level: int, **fields: str) -> None:
        host.lines.append((unit, level, text))
        host.fields.append(fields)

    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setattr(watch, "_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(watch, "check", check)
    monkeypatch.setattr(watch, "deployments", lambda: list(host.reports))
    monkeypatch.setattr(watch, "say_of", say_of)
    monkeypatch.setattr(watch, "say", lambda text, *, level: host.lines.append(("", level, text)))
    monkeypatch.setattr(systemd, "systemctl", systemctl)
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "fchown", lambda *_: None)
    return host


def test_a_run_without_drift_speaks_once(host: Host) -> None:
    host.shows()
    assert host.run() == 0
    assert host.said() == [(5, "drift: a: no drift; release d runs")]
    assert host.run() == 0
    assert (host.lines, host.started) == ([], [])
    assert 'launch_drift_findings{deployment="a",severity="critical"} 0' in host.metrics


def test_lines_of_findings(host: Host) -> None:
    host.shows(CRITICAL, WARNING, UNREAD, NOT_TOLD, INFO, MUTED, alert="")
    host.run()
    assert host.said() == [
        (3, "drift: /etc/x was changed [file-content]; launch drift --fix"),
        (4, "drift: a drop-in [drop-in]"),
        (5, "drift: process 7 cannot be read [env-unread]"),
        (5, "drift: lspci is not installed [hw-acs]"),
        (5, "drift: a: 3 findings (1 critical, 1 warning, 1 unknown), 1 cannot be told, 1 accepted; release d runs"),
    ]
    named = {"LAUNCH_DEPLOYMENT": "a", "LAUNCH_FINDING": "file-content /etc/x", "LAUNCH_LAYER": "files"}
    assert host.fields[0] == named
    host.run()
    # Drift is said by every run; what is none, and cannot be told, only once.
    assert [text for _, text in host.said()] == [
        "drift: /etc/x was changed [file-content]; launch drift --fix",
        "drift: a drop-in [drop-in]",
        "drift: process 7 cannot be read [env-unread]",
    ]
    host.shows()
    host.run()
    assert host.said() == [(5, "drift: a: no drift; release d runs")]


#: What the host shows run by run, and whether the alert is started in each run.
ALERTS: dict[str, list[tuple[tuple[Finding, ...], int, bool]]] = {
    "nothing": [((), 0, False), ((), 0, False)],
    "one finding": [((CRITICAL,), 0, True), ((CRITICAL,), 0, False)],
    "a second one": [((CRITICAL,), 0, True), ((CRITICAL, WARNING), 0, True), ((CRITICAL, WARNING), 0, False)],
    "gone and back": [((CRITICAL,), 0, True), ((), 0, False), ((CRITICAL,), 0, True)],
    "one of two is gone": [((CRITICAL, WARNING), 0, True), ((WARNING,), 0, False)],
    "nothing that counts": [((NOT_TOLD, INFO, MUTED), 0, False)],
    "accepted no more": [((MUTED,), 0, False), ((WARNING,), 0, True)],
    "cannot be read": [((UNREAD,), 0, True)],
    "restarted": [((), 0, False), ((), 1, True), ((), 1, False), ((), 3, True)],
    "restarted before the first run": [((), 2, True), ((), 2, False)],
    "started by hand": [((), 3, True), ((), 0, False), ((), 1, True)],
    "started by hand, and restarted before the next run": [((), 3, True), ((), 1, True), ((), 1, False)],
}


@pytest.mark.parametrize("runs", ALERTS.values(), ids=ALERTS.keys())
def test_the_alert_is_for_what_is_new(host: Host, runs: list[tuple[tuple[Finding, ...], int, bool]]) -> None:
    for number, (findings, restarts, wanted) in enumerate(runs):
        host.shows(*findings, restarts=restarts)
        assert host.run() == 0
        assert host.started == (["page@a.service"] if wanted else []), f"run {number}"


def test_an_alert_that_cannot_be_started_is_tried_again(host: Host) -> None:
    host.shows(CRITICAL, restarts=2)
    host.broken = {"page@a.service"}
    for _ in range(2):
        assert host.run() == 1
        assert (3, "drift: the alert cannot be started: Unit page@a.service not found.") in host.said()
    host.broken = set()
    assert host.run() == 0
    assert host.started == ["page@a.service"]
    assert host.said()[-1] == (5, "drift: page@a.service is started for file-content /etc/x, 2 restarts")


def test_an_alert_that_is_named_later_tells_of_what_is_there(host: Host) -> None:
    host.shows(CRITICAL, alert="")
    host.run()
    assert host.started == []
    host.shows(CRITICAL)
    host.run()
    assert host.started == ["page@a.service"]


def test_one_that_cannot_be_checked_does_not_stop_the_others(host: Host) -> None:
    host.shows(CRITICAL)
    host.shows(name="b")
    host.run()
    for error in (systemd.SystemdError("busctl: no answer"), OSError(5, "no answer"), KeyError("no answer")):
        host.reports["a"] = error
        assert host.run() == 1
        assert [(level, "no answer" in text) for level, text in host.said()] == [(3, True)]
        assert 'launch_drift_check_success{deployment="a"} 0' in host.metrics
        assert 'launch_drift_check_success{deployment="b"} 1' in host.metrics
        assert 'launch_drift_findings{deployment="a"' not in host.metrics
    host.shows(CRITICAL)
    assert host.run() == 0
    assert host.started == []  # it was told of before


def test_what_is_deployed_cannot_be_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def deployments() -> list[str]:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(watch, "deployments", deployments)
    assert host.run() == 1
    assert len(host.said("")) == 1


DAMAGED = [
    "",
    "{",
    "[]",
    "null",
    '{"deployments": 1}',
    '{"deployments": {"a": {}}}',
    '{"deployments": {"a": []}}',
    "\0",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_memory_is_none(host: Host, text: str) -> None:
    host.shows(CRITICAL)
    host.run()
    path = host.folder.parent / "run/state.json"
    assert json.loads(path.read_text())["deployments"]["a"]["alerted"] == [CRITICAL.key]
    path.write_text(text)
    assert watch_memory.load() == {}
    assert host.run() == 0
    assert host.started == ["page@a.service"]


def test_a_memory_that_cannot_be_written(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.shows(CRITICAL)
    (host.folder.parent / "run").write_text("no folder")
    assert host.run() == 1
    assert any("will repeat its alerts" in text for _, text in host.said(""))


def test_a_file_of_metrics_follows_what_is_deployed(host: Host) -> None:
    host.shows()
    host.shows(name="b")
    host.run()
    assert 'deployment="b"' in host.metrics
    assert (host.folder / "launch.prom").stat().st_mode & 0o777 == 0o644
    assert host.files == ["launch.prom"]
    del host.reports["b"]
    host.run()
    assert 'deployment="b"' not in host.metrics
    assert host.said("") == [(5, "drift: b is not deployed here any more")]
    other = str(host.folder / "other.prom")
    host.shows(watch={"alert": "", "textfile": other})
    host.run()
    assert host.files == ["other.prom"]
    del host.reports["a"]
    host.run()
    assert host.files == []


@pytest.mark.parametrize("settings", [{}, {"alert": "", "textfile": ""}])
def test_no_wishes(host: Host, settings: dict[str, str]) -> None:
    host.shows(CRITICAL, watch=settings)
    assert host.run() == 0
    assert host.files == []


def test_without_node_exporter_no_metrics_and_no_word_of_it(host: Host) -> None:
    host.shows(watch={"alert": "", "textfile": str(host.folder / "none/launch.prom")})
    assert host.run() == 0
    assert host.said("") == []


def test_the_folder_of_metrics_is_a_file(host: Host) -> None:
    (host.folder / "x").write_text("")
    host.shows(watch={"alert": "", "textfile": str(host.folder / "x/launch.prom")})
    assert host.run() == 1
    assert len(host.said("")) == 1


@pytest.mark.parametrize(("number", "word"), [(errno.ENOSPC, "No space"), (errno.EROFS, "ReadWritePaths=")])
def test_no_half_file_of_metrics(host: Host, monkeypatch: pytest.MonkeyPatch, number: int, word: str) -> None:
    host.shows()
    host.run()
    before = host.metrics

    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fsync)
        assert host.run() == 1
    assert word in host.said("")[0][1]
    assert host.files == ["launch.prom"]
    assert host.metrics == before


def test_nothing_is_said_while_the_host_is_changed(host: Host) -> None:
    host.shows(CRITICAL)
    lock = host.folder.parent / "lock"
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
    assert host.run() == 0
    assert host.said()
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert host.run() == 0
    finally:
        os.close(descriptor)
    assert [unit for unit, _, _ in host.lines] == [""]
    assert "launch is changing this host" in host.lines[0][2]


def test_a_change_that_begins_during_the_check(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.shows(CRITICAL)
    answers = iter([False, True])
    monkeypatch.setattr(watch, "_changing", lambda: next(answers))
    assert host.run() == 0
    assert [unit for unit, _, _ in host.lines] == [""]
    assert host.started == []


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[tuple[str, str]]]]:
    """What a journal would read, by its documented protocol."""
    path = tmp_path / "socket"
    monkeypatch.setattr(journal, "_JOURNAL", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(path))
        channel.settimeout(5)

        def read() -> list[tuple[str, str]]:
            data, found = channel.recv(1 << 20), []
            while data:
                line, _, data = data.partition(b"\n")
                name, sign, value = line.partition(b"=")
                if not sign:
                    (length,) = struct.unpack("<Q", data[:8])
                    value, data = data[8 : 8 + length], data[8 + length :]
                    assert data[:1] == b"\n"
                    data = data[1:]
                found.append((name.decode(), value.decode()))
            return found

        yield read


@pytest.mark.parametrize("evil", ["a\nPRIORITY=0\n_UID=0", "a\n", "\x1b[31m", "\udcff", "x" * 500_000, "MESSAGE=\n\0"])
def test_no_value_makes_a_field(received: Callable[[], list[tuple[str, str]]], evil: str) -> None:
    journal.say_of("launch-a.service", evil, level=4, LAUNCH_FINDING=evil)
    found = received()
    assert [name for name, _ in found] == [
        *("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "OBJECT_SYSTEMD_UNIT", "LAUNCH_FINDING")
    ]
    entry = dict(found)
    assert entry["PRIORITY"] == "4"
    assert entry["OBJECT_SYSTEMD_UNIT"] == "launch-a.service"
    assert entry["MESSAGE"].isprintable()


def test_without_a_journal_it_goes_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal, "_JOURNAL", str(tmp_path / "none"))
    journal.say_of("launch-a.service", "drift: x\n<0>y", level=4)
    assert capsys.readouterr().err == "<4>launch: drift: x\\x0a<0>y\n"


def test_the_temporary_file_is_not_for_the_collector(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    rename = os.rename

    def note(source: str, target: str) -> None:
        seen.append(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)
    host.shows()
    host.run()
    (temporary,) = [path for path in seen if path.startswith(str(host.folder))]
    assert not temporary.endswith(".prom")
