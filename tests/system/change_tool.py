"""Helpers of the tests of changes: run one in the background, hold it in a phase, break something, judge the rest."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.system.tool import REFERENCE, UNIT, look, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fleet import FleetHost
    from tests.system.tool import Launch

NAME = "kimi_k2_5_int4"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
#: A changed value and a start of seconds, so that a change can be met in the middle.
NEW = (*REFERENCE, "nccl.max_nchannels=8", "engine.args.standin_load=2")
#: Seconds that a host waits for its client.
PATIENCE = 5


def inside(host: FleetHost, command: str, *, check: bool = True) -> str:
    """Run a command on a host without its network, as somebody at its console does."""
    pid = next(p for p in host.cgroup.pids() if _is_init(p))
    spaces = ["--mount", "--uts", "--ipc", "--pid", "--net"]
    done = subprocess.run(
        ["nsenter", f"--target={pid}", *spaces, "sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def _is_init(pid: int) -> bool:
    try:
        found = re.search(r"^NSpid:\s+\d+\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return found is not None and found.group(1) == "1"


@dataclass
class Running:
    """A `launch` that runs in the background; its lines are kept as they come."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def until(self, text: str, seconds: float = 40) -> None:
        """Wait for a line of progress."""
        deadline = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert self.process.poll() is None, f"ended before {text!r}\n{self.said()}"
            assert time.monotonic() < deadline, f"no {text!r}\n{self.said()}"
            time.sleep(0.02)

    def end(self, seconds: float = 90) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout=seconds)
        for thread in self.threads:
            thread.join(timeout=10)
        assert "Traceback" not in self.said(), self.said()
        return code

    def said(self) -> str:
        """Return everything that was printed so far."""
        return "".join([*self.lines, *self.out])


def begin(launch: Launch, *words: str, hosts: Sequence[str] = ("h1",)) -> Running:
    """Start `launch` in the background; a word given here stands for the one of `Launch.aim`."""
    given = {word.split("=")[0] for word in words}
    aim = [word for word in launch.aim(hosts) if word.split("=")[0] not in given]
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", *words, *aim],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(process)
    for stream, kept in ((process.stderr, running.lines), (process.stdout, running.out)):
        thread = threading.Thread(target=_keep, args=(stream, kept), daemon=True)
        thread.start()
        running.threads.append(thread)
    return running


def _keep(stream: Any, kept: list[str]) -> None:
    with stream:
        kept.extend(iter(stream.readline, ""))


def waits_for_word(host: FleetHost, phase: str = "proven", seconds: float = 40) -> None:
    """Wait until the change on a host waits after a phase."""
    deadline = time.monotonic() + seconds
    while f'"waits": "{phase}"' not in inside(host, "cat /run/launch-change/*/events", check=False):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_until_over(host: FleetHost, seconds: float = 90) -> None:
    """Wait until no change of a host is under way, and none is being put back."""
    deadline = time.monotonic() + seconds
    while inside(host, "systemctl list-units --no-legend 'launch-change-*' | grep -v failed", check=False):
        assert time.monotonic() < deadline, inside(host, "systemctl status --no-pager 'launch-change-*'", check=False)
        time.sleep(0.1)


WAIT = '[ -z "$slow" ] || { touch /run/held; while [ -e /run/held ] && [ -e /run/hold ]; do sleep 0.05; done; }'
CONFIG = "/mnt/models/Kimi-K2.5/config.json"


@dataclass(frozen=True)
class Phase:
    """A place in a change where it can be held: what prepares the host, and how to see that it is there."""

    prepare: str
    reached: Callable[[FleetHost, Running], None]
    words: tuple[str, ...] = ()


def _held(host: FleetHost, _: Running) -> None:
    deadline = time.monotonic() + 40
    while not inside(host, "ls /run/held", check=False):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _line(text: str) -> Callable[[FleetHost, Running], None]:
    return lambda _, running: running.until(text)


def _proven(host: FleetHost, running: Running) -> None:
    running.until(": starting")
    running.process.send_signal(signal.SIGSTOP)
    waits_for_word(host)


def _slow(program: str, pattern: str, *, after: bool) -> str:
    """Return what puts a slow program before the real one: it waits before or after its work."""
    lines = [
        "#!/bin/sh",
        f'case "$*" in {pattern}) slow=1;; esac',
        *([] if after else [WAIT]),
        f'/usr/bin/{program} "$@"; code=$?',
        *([WAIT] if after else []),
        "exit $code",
    ]
    path = f"/usr/local/bin/{program}"
    return f"touch /run/hold; cat > {path} <<'END'\n" + "\n".join(lines) + f"\nEND\nchmod 755 {path}"


PHASES = {
    "looking": Phase(
        f"touch /run/hold; mv {CONFIG} {CONFIG}.kept; mkfifo {CONFIG}; chmod 644 {CONFIG}", _line(": looking at the")
    ),
    "staging": Phase(_slow("systemd-analyze", "*verify*", after=False), _held),
    "switched": Phase("touch /run/hold", _held, ("unit.before_stop='touch /run/held; sleep 3'",)),
    "stopped": Phase(_slow("systemctl", f"*' stop {UNIT}'", after=True), _held),
    "starting": Phase("true", _line(": starting")),
    "proven": Phase("true", _proven),
}
#: Lets the change go on, and takes everything away that held it; may be done twice.
RELEASE = f"""rm -f /run/hold /run/held /usr/local/bin/systemctl /usr/local/bin/systemd-analyze
[ ! -p {CONFIG} ] || {{ timeout 2 sh -c 'cat {CONFIG}.kept > {CONFIG}'; mv -f {CONFIG}.kept {CONFIG}; }}"""

#: /etc/launch on a disk of its own, that can be full; and back on the common one.
OWN_DISK = """mkdir -p /srv/x && mount -t tmpfs -o size=8m tmpfs /srv/x && cp -a /etc/launch/. /srv/x/ &&
mount --bind /srv/x /etc/launch && umount /srv/x"""
COMMON_DISK = """if mountpoint -q /etc/launch; then rm -rf /srv/y; mkdir /srv/y && cp -a /etc/launch/. /srv/y/ &&
umount /etc/launch && rm -rf /etc/launch/* && cp -a /srv/y/. /etc/launch/ && rm -rf /srv/y; fi"""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong: what is prepared, what happens, and how it is mended."""

    strike: Callable[[FleetHost, Running], None]
    mend: Callable[[FleetHost], None] = lambda _: None
    prepare: str = "true"


def _kill_client(_: FleetHost, running: Running) -> None:
    running.process.kill()


def _console(command: str) -> Callable[..., None]:
    def act(host: FleetHost, *_: Running) -> None:
        inside(host, command)

    return act


FAULTS = {
    "client killed": Fault(_kill_client),
    "change killed": Fault(_console("/usr/bin/systemctl kill -s KILL 'launch-change-*'")),
    "change stopped": Fault(_console("/usr/bin/systemctl stop --no-block 'launch-change-*'")),
    "power cut": Fault(lambda host, _: host.power_cut(), lambda host: host.boot()),
    "cable unplugged": Fault(lambda host, _: host.unplug(), lambda host: host.plug()),
    "disk full": Fault(
        _console("dd if=/dev/zero of=/etc/launch/filler bs=64k 2>/dev/null; true"),
        _console("rm /etc/launch/filler"),
        OWN_DISK,
    ),
    "read-only": Fault(
        _console("mount -o remount,bind,ro /etc"), _console("mount -o remount,bind,rw /etc"), "mount --bind /etc /etc"
    ),
}

#: Prints what a host serves, by means that are not ours.
STATE = r"""
python3 - <<'EOF'
import glob, json, os, re
def text(path):
    try:
        return open(path, errors="replace").read()
    except OSError:
        return ""
unit = text("UNITFILE")
digest = re.findall(r"^EnvironmentFile=/etc/launch/NAME/([0-9a-f]{16})\.env$", unit, re.M)
applied = json.loads(text("/etc/launch/NAME/applied.json") or "{}")
kept = [json.loads(text(p)) for p in sorted(glob.glob("/etc/launch/NAME/generations/*.json")) if "00000" not in p]
print(json.dumps({
    "unit": digest[0] if digest else "",
    "applied": applied.get("digest", ""),
    "same": not applied or applied["files"][2]["text"] == unit,
    "files": [os.path.exists("/etc/launch/NAME/%s.%s" % (d, e)) for d in digest for e in ("env", "json")],
    "pending": os.listdir("/etc/launch/pending") if os.path.isdir("/etc/launch/pending") else [],
    "temporary": glob.glob("/etc/launch/**/.launch-*", recursive=True) + glob.glob("/etc/systemd/system/.launch-*"),
    "generations": [g["digest"] for g in kept],
}))
EOF
"""


def state(host: FleetHost) -> dict[str, Any]:
    """Return what lies on a host and what runs there: ``running`` are the digests of all processes of the unit."""
    found: dict[str, Any] = json.loads(host.run(STATE.replace("UNITFILE", UNIT_FILE).replace("NAME", NAME)).stdout)
    seen = look(host)
    running = {p["env"].get("LAUNCH_DIGEST", "") for p in seen["processes"].values()}
    return {**found, "running": running, "active": seen["ActiveState"], "count": len(seen["processes"])}


def settled(host: FleetHost, seconds: float = 20) -> dict[str, Any]:
    """Return the state as soon as the server is up, or the last one that was seen."""
    deadline = time.monotonic() + seconds
    while True:
        until(host, "active", seconds=deadline - time.monotonic())
        seen = state(host)
        if (seen["active"] == "active" and seen["count"] >= 4) or time.monotonic() > deadline:
            return seen
        time.sleep(0.2)


def assert_whole(seen: dict[str, Any], digest: str) -> None:
    """Assert that a host serves one release, that its files belong together, and that nothing is left of a change."""
    assert seen["active"] == "active", seen
    assert seen["running"] == {digest}, seen
    assert seen["count"] >= 4, seen
    assert (seen["unit"], seen["applied"], seen["same"]) == (digest, digest, True), seen
    assert seen["files"] == [True, True], seen
    assert (seen["pending"], seen["temporary"]) == ([], []), seen
    assert seen["generations"][-1] == digest, seen


@contextlib.contextmanager
def fault_file(host: FleetHost, text: str) -> Iterator[None]:
    """Let the stand-in of a host fail, whatever its release is, or with @WORD where its command line has a word."""
    host.run(f"echo '{text}' > /opt/standin/fault")
    try:
        yield
    finally:
        host.run("rm -f /opt/standin/fault")
