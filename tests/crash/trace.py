"""Record the system calls by which one change of a host reaches its disk.

strace is attached to the host's PID 1 from this machine and follows what PID 1 starts from then on: the unit of the
change with all its commands, and PID 1 itself, which makes the links of `systemctl enable`. The result is one file in
the order of the calls. `trim` leaves of it what `tests.crash.model` reads.

    python -m tests.crash.trace          # records the three cases anew into tests/crash/recorded
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash import model
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

RECORDED = Path(__file__).with_name("recorded")
CALLS = (
    "openat,open,creat,write,pwrite64,writev,rename,renameat,renameat2,link,linkat,unlink,unlinkat,symlink,symlinkat,"
    "mkdir,mkdirat,rmdir,fsync,fdatasync,sync,syncfs,ftruncate,truncate,copy_file_range,sendfile"
)
#: What a second deploy changes, to tell it from the first.
SECOND = ("nccl.algo=PAT", "unit.nccl_conf=true")
#: A unit under our deployment's name that somebody else wrote, with a drop-in that it needs, started at boot.
FOREIGN = f"""
cd /etc/systemd/system && mkdir -p {UNIT}.d
printf '[Unit]\\nDescription=by hand\\n[Service]\\nExecStart=/bin/false\\nRestart=no\\n[Install]\\n' > {UNIT}
echo WantedBy=multi-user.target >> {UNIT}
printf '[Service]\\nExecStart=\\nExecStart=/bin/sleep infinity\\n' > {UNIT}.d/needed.conf
systemctl daemon-reload && systemctl enable --now {UNIT}
"""
#: Contents of these are only compared, so a recording holds their digest.
_LONG = "/usr/local/lib/"


@contextlib.contextmanager
def traced(host: FleetHost, path: Path) -> Iterator[None]:
    """Write the calls of PID 1 and of what it starts into a file while the block runs."""
    options = ["-f", "-y", "-s", "4000000", "-e", f"trace={CALLS}", "-o", str(path), "-p", str(_first(host))]
    with subprocess.Popen(["strace", *options], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as strace:
        assert strace.stderr
        told = strace.stderr.readline()
        assert "attached" in told, told
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate(timeout=30)


def _first(host: FleetHost) -> int:
    """Return the number that this machine has for the host's PID 1."""
    for pid in host.cgroup.pids():
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            found = re.search(r"^NSpid:\s+(?:\d+\s+)+1$", status, re.MULTILINE)
            if found and "Name:\tsystemd\n" in status:
                return pid
    raise AssertionError("the host has no PID 1")


def tree(root: Path) -> model.Tree:
    """Return what lies on a host's disk in the places that a change writes to."""
    found: model.Tree = {}
    for top in ("etc/launch", "etc/systemd/system", "usr/local/lib/launch"):
        for folder, folders, files in os.walk(root / top):
            for path in (Path(folder), *(Path(folder, name) for name in (*folders, *files))):
                found["/" + str(path.relative_to(root))] = _entry(path)
    if (root / "etc/nccl.conf").exists():
        found["/etc/nccl.conf"] = _entry(root / "etc/nccl.conf")
    return {path: entry for path, entry in found.items() if model.in_scope(path)}


def _entry(path: Path) -> model.Entry:
    if path.is_symlink():
        return "link", path.readlink().as_posix().encode()
    return ("folder", b"") if path.is_dir() else ("file", path.read_bytes())


def trim(lines: list[str]) -> list[str]:
    """Return the lines that the model reads, with digests for long contents."""
    kept = [op.line for op in model.parse(lines)]
    return [_short(line) if _LONG in line and " write(" in line else line for line in kept]


def _short(line: str) -> str:
    text = re.search(r'"(.*)"', line)
    if not text or len(text[1]) < 1000:
        return line
    digest = hashlib.sha256(text[1].encode()).hexdigest()
    return f'{line[: text.start()]}"sha256 {digest}"{line[text.end() :]}'


def record(host: FleetHost, launch: Launch, words: tuple[str, ...], folder: Path) -> tuple[model.Tree, list[str]]:
    """Deploy under strace; return what was there before and the lines of the trace."""
    before, raw = tree(host.root), folder / "raw"
    with traced(host, raw):
        launch("up", *REFERENCE, *words, "--yes", hosts=[host.name])
        time.sleep(0.5)
    return before, raw.read_text(errors="surrogateescape").splitlines()


CASES = {"first": (WIPE,), "second": (), "foreign": (WIPE, FOREIGN)}


def record_all(host: FleetHost, launch: Launch) -> Iterator[tuple[str, model.Tree, list[str]]]:
    """Record a first deploy, a second one, and a first one over somebody else's unit."""
    for name, commands in CASES.items():
        for command in commands:
            host.run(command)
        with tempfile.TemporaryDirectory() as folder:
            before, lines = record(host, launch, SECOND if name == "second" else (), Path(folder))
        yield name, before, lines


def write(name: str, before: model.Tree, lines: list[str], about: str) -> None:
    """Write a trimmed recording."""
    shown = {path: [kind, _plain(path, content)] for path, (kind, content) in sorted(before.items())}
    head = [f"# {about}", f"# before {json.dumps(shown)}"]
    (RECORDED / f"{name}.txt").write_text("\n".join([*head, *trim(lines)]) + "\n")


def _plain(path: str, content: bytes) -> str:
    if path.startswith(_LONG) and len(content) >= 1000:
        return f"sha256 {hashlib.sha256(content).hexdigest()}"
    return content.decode("utf-8", "surrogateescape")


def versions(host: FleetHost) -> str:
    """Return the date and the versions that a recording was made with."""
    strace = subprocess.run(["strace", "-V"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    systemd = host.run("systemctl --version | head -1").stdout.strip()
    python = host.run("python3 --version").stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"recorded {today}; {systemd}; {python}; Linux {os.uname().release}; {strace}"


def main() -> None:
    """Record the three cases into tests/crash/recorded."""
    from tests.fleet import Fleet

    RECORDED.mkdir(exist_ok=True)
    with Fleet.boot(1) as fleet:
        host, launch = fleet.hosts[0], Launch(fleet)
        about = versions(host)
        for name, before, lines in record_all(host, launch):
            write(name, before, lines, about)
            print(name, len(lines), "calls")


if __name__ == "__main__":
    main()
