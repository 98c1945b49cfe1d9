"""Record the system calls by which one change of a host reaches its disk.

strace is attached to the host's PID 1 from this machine and follows what PID 1 starts from then on: the unit of the
change with all its commands, and PID 1 itself, which makes the links of `systemctl enable`. The result is one file in
the order of the calls. `trim` leaves of it what `tests.crash.model` reads.

    python -m tests.crash.trace          # records all cases anew into tests/crash/recorded
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
from typing import TYPE_CHECKING, NamedTuple

from launcher.agent import adopt_find
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
#: A unit under our deployment's name that somebody else wrote, with a drop-in that it needs, started at boot.
FOREIGN = f"""
cd /etc/systemd/system && mkdir -p {UNIT}.d
printf '[Unit]\\nDescription=by hand\\n[Service]\\nExecStart=/bin/false\\nRestart=no\\n[Install]\\n' > {UNIT}
echo WantedBy=multi-user.target >> {UNIT}
printf '[Service]\\nExecStart=\\nExecStart=/bin/sleep infinity\\n' > {UNIT}.d/needed.conf
systemctl daemon-reload && systemctl enable --now {UNIT}
"""
#: A server by a unit of somebody else, on our port; it has the name of none of ours.
TAKEN_UNIT = "launched-by-hand.service"
_SERVER = ("/usr/bin/python3", "/opt/standin/standin.py", "-m", "sglang.launch_server", "--port", "8000")
TAKEN = f"""
cd /etc/systemd/system
printf '[Service]\\nSuccessExitStatus=SIGKILL\\nExecStart={" ".join(_SERVER)}\\n' > {TAKEN_UNIT}
printf '[Install]\\nWantedBy=multi-user.target\\n' >> {TAKEN_UNIT}
systemctl daemon-reload && systemctl enable --now {TAKEN_UNIT}
until ss -Hltn 'sport = 8000' | grep -q .; do sleep 0.1; done
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
    return [_short(line) if re.search(rf" write\(\d+<{_LONG}", line) else line for line in kept]


def _short(line: str) -> str:
    text = re.search(r'"(.*)"', line)
    if not text or len(text[1]) < 1000:
        return line
    digest = hashlib.sha256(text[1].encode()).hexdigest()
    return f'{line[: text.start()]}"sha256 {digest}"{line[text.end() :]}'


def record(host: FleetHost, launch: Launch, case: Case, folder: Path) -> tuple[model.Tree, list[str]]:
    """Deploy under strace; return what was there before and the lines of the trace."""
    before, raw = tree(host.root), folder / "raw"
    with traced(host, raw):
        launch("up", *REFERENCE, *case.words, "--yes", hosts=[host.name], check=case.exit_code)
        time.sleep(0.5)
    return before, raw.read_text(errors="surrogateescape").splitlines()


class Case(NamedTuple):
    """A deploy: what is done to the host before it, what it changes, and how it ends."""

    prepare: tuple[str, ...]
    words: tuple[str, ...] = ()
    exit_code: int = 0


_FAULT = ("engine.args.standin_fault=crash", "unit.nccl_conf=true")
_TAKES = (f"takes_over={adopt_find.digest(chr(0).join(_SERVER).encode(), '/', 0)}",)
#: Each follows upon the one before it: an undone change leaves what was there.
CASES = {
    "first": Case((WIPE, "rm -f /etc/nccl.conf")),
    "second": Case((), ("nccl.algo=PAT", "unit.nccl_conf=true")),
    "undone": Case((), _FAULT, 7),
    "first_undone": Case((WIPE,), _FAULT, 7),
    "foreign_undone": Case((WIPE, FOREIGN), _FAULT, 7),
    "foreign": Case((WIPE, FOREIGN)),
    "taken_undone": Case((WIPE, TAKEN), (*_TAKES, *_FAULT), 7),
    "taken": Case((WIPE, TAKEN), _TAKES),
}


def record_all(host: FleetHost, launch: Launch) -> Iterator[tuple[str, model.Tree, list[str]]]:
    """Record all cases, each with what was there before it."""
    for name, case in CASES.items():
        for command in case.prepare:
            host.run(command)
        with tempfile.TemporaryDirectory() as folder:
            before, lines = record(host, launch, case, Path(folder))
        yield name, before, lines


def read(name: str) -> tuple[str, model.Tree, list[str]]:
    """Return a recording: when and with what it was made, what was there before, and its lines."""
    about, before, *lines = (RECORDED / f"{name}.txt").read_text().split("\n")
    shown = json.loads(before.removeprefix("# before "))
    tree = {path: (kind, content.encode("utf-8", "surrogateescape")) for path, (kind, content) in shown.items()}
    return about.removeprefix("# "), tree, lines


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
    """Record all cases into tests/crash/recorded."""
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
