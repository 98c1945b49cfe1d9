"""How busy others keep the processors: neither the server, nor its client, nor this process."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from launcher.agent import cpu

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SPIN = "import time; end = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"


def spinning() -> subprocess.Popen[bytes]:
    """Start a process that keeps one processor busy."""
    return subprocess.Popen([sys.executable, "-c", SPIN])


def used() -> float:
    """Return the processor seconds of all children that have ended: on a busy machine it is less than they wanted."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def test_what_the_server_uses_is_its_own() -> None:
    """Compared with the same process as a stranger at the same time, since this machine may be busy."""
    begin, before = time.monotonic(), used()
    with spinning() as process:
        watches = [cpu.Cpu(lambda: [process.pid]), cpu.Cpu(list)]
        time.sleep(1.0)
        ours, strange = (watch.seen() for watch in watches)
        process.kill()
    assert ours["processors"] >= 1
    assert strange["others"] > ours["others"] + (used() - before) / (time.monotonic() - begin) / 2


def test_what_a_client_used_that_has_ended_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, before = time.monotonic(), used()
    watch = cpu.Cpu(list)
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    with_client = watch.seen()["others"]
    monkeypatch.setattr(cpu, "_ours", lambda: watch._ours)
    assert watch.seen()["others"] > with_client + (used() - before) / (time.monotonic() - begin) / 2


def test_where_nothing_can_be_read_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu, "open", lambda *_, **__: (tmp_path / "none").open(), raising=False)
    assert cpu.Cpu(list).seen() == {}
