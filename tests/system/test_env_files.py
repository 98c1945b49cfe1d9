"""Random environment files through real managers: `launcher.agent.env_file` reads in them what systemd reads."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from launcher.agent.env_file import EnvFileError, parse
from tests.agent.test_env_file import READ, REFUSED
from tests.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

SUITES = ("bullseye", "bookworm", "trixie")  # systemd 247, 252, 257
#: One instance for each file, since a unit with several files would mix them.
UNIT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Type=oneshot
EnvironmentFile=/opt/env-files/%i
ExecStart=/usr/bin/env -0
StandardOutput=file:/opt/env-files/%i.out
"""
FAILED = "systemctl list-units --failed --plain --no-legend 'env-file@*.service'"
PIECES = [
    *(b"A", b"B", b"_x1", b"A=", b"B=", b"\nA=", b"\nB=", b"\nC =", b"=", b"==", b"\n=", b"1A=", b"A-B=", b"export A="),
    *(b"'", b'"', b"''", b'""', b"'\"'\"'", b"'\\''", b"'a b'", b'"a b"', b"' '", b'" "'),
    *(b"\\", b"\\\\", b"\\\n", b"\\\r", b"\\\r\n", b"\\'", b'\\"', b"\\$", b"\\`", b"\\ ", b"\\n", b"\\#", b"\\x41"),
    *(b"#", b";", b"\n#", b"\n;", b" #", b"# c\\\n", b"\n# A=1\\\nB=2\n", b"\n; \\ \n", b"#\\\\\n"),
    *(b" ", b"  ", b"\t", b"\n", b"\n", b"\n\n", b"\r", b"\r\n", b"\x0b", b"\x0c", b" \n", b"\t\r\n"),
    *(b"$", b"${A}", b"%n", b"%%", b"`id`", b"x", b"y z", b"{}", b"~", b"*", "ü".encode(), "日本".encode()),
]
#: What refuses a file and what looks as if it did; each comes in few files.
RARE = [
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xc3''\xbc", b"\xc3\\\n\xbc"),
    *("\ufffe".encode(), "\ufdd0".encode(), "\ufdef".encode(), "\U0001ffff".encode(), "\ufffd".encode()),
    *("\ufeff".encode(), "\ufeff\nA=1\n".encode(), "\u2028".encode(), "\x85".encode(), "\ufdf0".encode()),
    *(b"\x01", b"\x1b[m", b"\x7f", b"\n# \xff\n", b"\n\xff\n", b"\n\xff=1\n", b"x" * 4096),
]


def hostile(source: random.Random) -> bytes:
    """Return a file made of what an environment file may hold, and of what it should not."""
    pieces = source.choices(PIECES, k=source.randint(1, 16))
    if source.random() < 0.3:
        pieces.insert(source.randint(0, len(pieces)), source.choice(RARE))
    if source.random() < 0.6:
        pieces.insert(0, b"A=")
    return b"".join(pieces)


def expected(content: bytes, version: int) -> dict[str, str] | None:
    """Return what our reader makes of a file, None where it says that systemd refuses it."""
    try:
        return parse(content, version)
    except EnvFileError:
        return None


def by_systemd(host: FleetHost, files: list[bytes]) -> list[dict[str, str] | None]:
    """Return what a service of each file gets, None where it does not start."""
    folder = host.root / "opt" / "env-files"
    (host.root / "etc/systemd/system/env-file@.service").write_text(UNIT)
    host.run("rm -rf /opt/env-files; mkdir /opt/env-files; systemctl daemon-reload")
    for number, content in enumerate([b"", *files]):
        (folder / str(number)).write_bytes(content)
    host.run(f"systemctl start $(seq -f env-file@%g.service 0 {len(files)}); true", timeout=300)
    refused = set(map(int, re.findall(r"@(\d+)\.service", host.run(FAILED).stdout)))
    assert set(host.run("systemctl show -P Result 'env-file@*.service'").stdout.split()) <= {"success", "resources"}
    usual = block(folder / "0.out")
    seen = [None if n in refused else block(folder / f"{n}.out") for n in range(1, len(files) + 1)]
    host.run("systemctl reset-failed; rm -rf /opt/env-files /etc/systemd/system/env-file@.service")
    return [env if env is None else {k: v for k, v in env.items() if k not in usual} for env in seen]


def block(output: Path) -> dict[str, str]:
    """Return what `env -0` wrote."""
    entries = output.read_bytes().decode().split("\0")[:-1]
    return dict(entry.split("=", 1) for entry in entries)


def trial(host: FleetHost, seed: int, count: int) -> tuple[int, int, int]:
    """Compare so many files; return how many were refused, how many gave variables and how many nothing."""
    version = int(host.run("systemctl --version").stdout.split()[1])
    source = random.Random(seed)
    files = [hostile(source) for _ in range(count)]
    seen = by_systemd(host, files)
    wrong = [(f, is_, ours) for f, is_ in zip(files, seen, strict=True) if (ours := expected(f, version)) != is_]
    assert not wrong, f"{len(wrong)} of {count}: " + "\n".join(map(str, wrong[:10]))
    return seen.count(None), sum(map(bool, seen)), seen.count({})


def test_each_rule(fleet: Fleet) -> None:
    seen = by_systemd(fleet.hosts[0], [content for content, _ in (*READ.values(), *REFUSED.values())])
    assert dict(zip(READ, seen, strict=False)) == {name: wanted for name, (_, wanted) in READ.items()}
    assert seen[len(READ) :] == [None] * len(REFUSED)


def test_three_hundred_files(fleet: Fleet) -> None:
    refused, filled, empty = trial(fleet.hosts[0], 1, 300)
    assert refused > 10
    assert filled > 150
    assert empty > 10


@pytest.fixture(scope="module", params=SUITES)
def manager(request: pytest.FixtureRequest) -> Iterator[FleetHost]:
    with Fleet.boot(1, suite=request.param) as booted:
        yield booted.hosts[0]


@pytest.mark.soak
def test_thousands_of_files(manager: FleetHost) -> None:
    for seed in range(100, 110):
        trial(manager, seed, 300)
