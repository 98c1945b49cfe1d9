"""A server that was started without launch is looked at and taken over; when that fails it runs again as it was."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from launcher.fleet.adopt import look as look_at
from launcher.schema import Target
from tests.fleet import Fleet
from tests.system.change_tool import FAULTS, PHASES, RELEASE, Phase, begin, fault_file, inside, wait_until_over
from tests.system.tool import REFERENCE, TUNED, UNIT, Launch, assert_tuned, journal, look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

FOLDER, LOG, OLD = "/srv/by_hand", "/srv/by_hand/server.log", "llm-old.service"
SECRET = "hf_notForPeopleToSee"
COMMAND = (
    "/opt/standin/python -m sglang.launch_server --model-path /mnt/models/Kimi-K2.5 --tp-size 2"
    f" --served-model-name 'two words' '' --api-key {SECRET} --host 0.0.0.0 --port 8000"
)
VARIABLES = " ".join(f"{name}={value}" for name, value in TUNED.items())
#: As somebody starts a server over SSH; the session ends and the server stays.
BY_HAND = f"""
mkdir -p {FOLDER} && chown llm: {FOLDER} && cd {FOLDER} && umask 027
{VARIABLES} ODD='a b' HF_TOKEN={SECRET} nohup nice -n 3 setpriv --reuid=llm --regid=llm --init-groups \
{COMMAND} > {LOG} 2>&1 < /dev/null &
"""
UNIT_TEXT = f"""
mkdir -p {FOLDER} /etc/systemd/system/{OLD}.d && cat > /etc/systemd/system/{OLD} <<'END'
[Unit]
Description=written by somebody
[Service]
User=llm
WorkingDirectory={FOLDER}
EnvironmentFile=/etc/llm-old.env
ExecStart={COMMAND}
SuccessExitStatus=SIGKILL
[Install]
WantedBy=multi-user.target
END
printf '[Service]\\nEnvironment=ODD=ab\\n' > /etc/systemd/system/{OLD}.d/odd.conf
echo {VARIABLES} | tr ' ' '\\n' > /etc/llm-old.env
systemctl daemon-reload && systemctl enable --now {OLD}
"""
LOOP = f"""
mkdir -p {FOLDER} && cd {FOLDER} && cat > loop.sh <<'END'
echo $$ > pid
while sleep 0.3; do {VARIABLES} {COMMAND}; done
END
nohup bash loop.sh > {LOG} 2>&1 < /dev/null &
"""
CLEAN = f"""
systemctl disable --now {OLD} 2>/dev/null; systemctl stop 'launch-again-*' 2>/dev/null
for pid in $(ss -Hltnp 'sport = 8000' | grep -o 'pid=[0-9]*' | cut -d= -f2); do kill -9 $pid; done
rm -rf {FOLDER} /etc/llm-old.env /etc/systemd/system/{OLD}*; systemctl daemon-reload; true
"""
HEALTH = "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8000/health\")'"
#: Prints the process that listens on the port, read without our code; 0 where nobody does.
SEEN = r"""
python3 - <<'EOF'
import hashlib, json, os, re, subprocess
ss = subprocess.run(["ss", "-Hltnp", "sport = 8000"], capture_output=True, text=True).stdout
pid = re.search(r"pid=(\d+)", ss)
if not pid:
    print(json.dumps({"pid": 0}))
    raise SystemExit
at = "/proc/" + pid[1]
read = lambda name: open(at + "/" + name, "rb").read()
status = dict(line.split(":\t", 1) for line in read("status").decode().splitlines())
block = read("cmdline")[:-1]
digest = hashlib.sha256(b"\0".join((block, os.readlink(at + "/cwd").encode(), status["Uid"].split()[0].encode())))
print(json.dumps({
    "pid": int(pid[1]), "argv": block.decode().split("\0"), "digest": digest.hexdigest(),
    "env": sorted(read("environ").decode().split("\0")), "cwd": os.readlink(at + "/cwd"),
    "ids": [status[name] for name in ("Uid", "Gid", "Groups")], "umask": status["Umask"],
    "streams": [os.readlink(at + "/fd/%d" % n) for n in range(3)], "limits": read("limits").decode(),
    "nice": read("stat").rpartition(b") ")[2].split()[16].decode(), "ignored": status["SigIgn"],
}))
EOF
"""


def seen(host: FleetHost) -> dict[str, Any]:
    """Return what listens on the server's port."""
    found: dict[str, Any] = json.loads(inside(host, SEEN))
    return found


def start(host: FleetHost, commands: str) -> dict[str, Any]:
    """Run what somebody else does to start a server, and return the server once it is ready."""
    host.run(commands)
    deadline = time.monotonic() + 20
    while host.run(HEALTH, check=False).returncode:
        assert time.monotonic() < deadline, host.run(f"cat {LOG}", check=False).stdout
        time.sleep(0.1)
    return seen(host)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a server runs as another one did."""
    return {**one, "pid": 0} == {**other, "pid": 0}


@pytest.fixture
def clean(host: FleetHost) -> Iterator[FleetHost]:
    """A host without the servers of these tests, before and after."""
    host.run(CLEAN)
    yield host
    host.run(CLEAN)


def target(launch: Launch) -> Target:
    return dataclasses.replace(Target(), ssh_config=str(launch.fleet.ssh_config), connect_timeout=3)


def taking(old: dict[str, Any], *words: str) -> tuple[str, ...]:
    return (*REFERENCE, f"takes_over={old['digest']}", *words)


def test_a_server_started_by_hand(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, BY_HAND)
    found = look_at(["h1"], target(launch))
    (server,) = found.servers
    assert list(server.argv) == old["argv"]
    assert sorted(f"{name}={value}" for name, value in server.env.items()) == [e for e in old["env"] if e]
    assert (server.user, server.working_directory, server.log_file) == ("llm", FOLDER, "")
    assert (server.argv_digest, server.unit, server.whole_env) == (old["digest"], "", True)
    failed = launch("up", *taking(old, "engine.args.standin_fault=crash"), "--yes", check=7).stdout
    assert f"take over process {old['pid']} of user llm, started by hand, running since 20" in failed
    assert "--api-key *** --host" in failed
    assert "nobody serves meanwhile, for about " in failed
    assert "started again as it was: process" in failed
    again = seen(clean)
    assert same(again, old), (again, old)
    assert again["pid"] != old["pid"]
    assert "standin: asked to stop" in clean.run(f"cat {LOG}").stdout  # the log goes on, it is not begun anew
    assert clean.run("ls -A /run/launch-again /etc/launch/pending").stdout.split() == [
        "/etc/launch/pending:",
        "/run/launch-again:",
    ]
    done = launch("up", *taking(old), "--yes")
    assert f"stopping process {again['pid']} of user llm, put back by launch before" in done.stderr
    assert_tuned(look(clean))
    assert str(seen(clean)["pid"]) == look(clean)["MainPID"]
    shown = launch("uninstall", *taking(old), "--yes").stdout
    assert f"start it by hand, as user llm in {FOLDER}: " in shown
    lines = journal(clean)
    assert f"launch: takes the place of another server: stopping process {old['pid']} of user llm" in lines
    assert f"launch: the server that was taken over runs again: process {again['pid']} in launch-again-" in lines
    assert SECRET not in f"{failed}{done.stdout}{done.stderr}{shown}{lines}"
    assert seen(clean)["pid"] == 0


STATES = f"systemctl is-active {OLD}; systemctl is-enabled {OLD}; true"


def test_a_unit_of_somebody_else(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, UNIT_TEXT)
    (server,) = look_at(["h1"], target(launch)).servers
    assert (server.unit, server.env["ODD"]) == (OLD, "ab")
    pieces = " ".join(remark.quote for remark in server.remarks)
    assert f"{OLD}.d/odd.conf" in pieces
    assert "/etc/llm-old.env" in pieces
    launch("up", *taking(old), "--yes")
    assert_tuned(look(clean))
    assert clean.run(STATES).stdout.split() == ["inactive", "disabled"]
    assert f"started {OLD} as it was before" in launch("uninstall", *taking(old), "--yes").stdout
    assert clean.run(STATES).stdout.split() == ["active", "enabled"]


@pytest.mark.soak
def test_a_unit_that_is_put_back(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, UNIT_TEXT)
    failed = launch("up", *taking(old, "engine.args.standin_fault=crash"), "--yes", check=7).stdout
    assert f"started again as it was: process {seen(clean)['pid']} in {OLD}, port 8000" in failed
    assert clean.run(STATES).stdout.split() == ["active", "enabled"]
    assert seen(clean)["digest"] == old["digest"]
    launch("up", *taking(old), "--yes")
    assert "nothing to change" in launch("plan", *taking(old)).stdout
    launch("uninstall", *taking(old), "--yes")
    old = start(clean, f"systemctl disable {OLD}")
    launch("up", *taking(old, "engine.args.standin_fault=crash"), "--yes", check=7)
    assert clean.run(STATES).stdout.split() == ["active", "disabled"]


def test_a_client_that_is_killed_midway(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, BY_HAND)
    running = begin(launch, "up", *taking(old, "engine.args.standin_load=3", "target.confirm_timeout=3"), "--yes")
    running.until(": starting")
    running.process.kill()
    running.end()
    wait_until_over(clean)
    assert same(seen(clean), old)
    assert look(clean)["ActiveState"] in {"inactive", "failed"}


#: Where a change is broken: what prepares the host, the words that go with it, and how to see that it is there.
PLACES = {
    **{name: PHASES[name] for name in ("staging", "switched", "stopped", "starting", "proven")},
    "stopping the old": Phase("kill -STOP $(cat /run/old)", lambda _, running: running.until("stopping process")),
}


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", ["client killed", "change killed", "change stopped", "power cut"])
def test_a_fault_in_a_phase(launch: Launch, clean: FleetHost, place: str, fault: str) -> None:
    """Whatever breaks wherever, the server that was there before serves, as it was, and is taken over then."""
    at, old = PLACES[place], start(clean, BY_HAND)
    clean.run(f"echo {old['pid']} > /run/old; {at.prepare}")
    words = ("engine.args.standin_load=2", "target.confirm_timeout=3", "unit.stop_timeout=4", *at.words)
    running = begin(launch, "up", *taking(old, *words), "--yes")
    at.reached(clean, running)
    FAULTS[fault].strike(clean, running)
    if clean.is_on():
        inside(clean, RELEASE, check=False)
    else:
        clean.boot()
        clean.run(RELEASE)
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGCONT)
    wait_until_over(clean)
    code = running.end()
    deadline = time.monotonic() + 20
    while clean.run(HEALTH, check=False).returncode and time.monotonic() < deadline:
        time.sleep(0.1)
    after = seen(clean)
    if place == "staging" and fault == "power cut":
        assert after["pid"] == 0  # nothing had been done yet: it went with the power, as it would have without us
        return
    print(f"{place}, {fault}: exit {code}")
    assert same(after, old), running.said()
    assert clean.run("ls -A /etc/launch/pending", check=False).stdout == ""
    launch("up", *taking(old), "--yes")
    assert_tuned(look(clean))


@pytest.mark.soak
@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_the_oldest_and_the_newest_systemd(suite: str) -> None:
    with Fleet.boot(1, suite=suite) as other:
        launch, (host,) = Launch(other), other.hosts
        for commands in (BY_HAND, UNIT_TEXT):
            old = start(host, commands)
            launch("up", *taking(old, "engine.args.standin_fault=crash"), "--yes", check=7)
            again = seen(host)
            assert again["digest"] == old["digest"]
            assert same(again, old) or commands is UNIT_TEXT  # its environment has an id of each start
            launch("up", *taking(old), "--yes")
            assert_tuned(look(host))
            launch("uninstall", *taking(old), "--yes")
            host.run(CLEAN)


@pytest.mark.soak
def test_a_power_cut_midway(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, BY_HAND)
    running = begin(launch, "up", *taking(old, "engine.args.standin_load=5"), "--yes")
    running.until(": starting")
    clean.power_cut()
    running.process.kill()
    running.end()
    clean.boot()
    deadline = time.monotonic() + 20
    while clean.run(HEALTH, check=False).returncode:
        assert time.monotonic() < deadline, clean.run("journalctl -b --no-pager -u launch-recover -u 'launch-again-*'")
    assert same(seen(clean), old)
    told = clean.run(f"journalctl --sync; journalctl -b -u {UNIT} -o cat").stdout
    assert "The server that was taken over is started again as launch-again-kimi_k2_5_int4.service" in told
    launch("up", *taking(old), "--yes")
    assert_tuned(look(clean))


@pytest.mark.soak
def test_something_that_starts_it_again(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, LOOP)
    try:
        told = launch("plan", *taking(old), check=3).stdout
        assert "(bash loop.sh) started it and may do so again" in told
        failed = launch("up", *taking(old), "--yes", check=7).stdout
        assert "(bash loop.sh) starts the server again that is taken over" in failed
        assert "something else has started it again" in failed
        assert start(clean, "true")["digest"] == old["digest"]
        shown = launch("uninstall", *taking(old), "--yes").stdout
        assert f": it runs, as process {seen(clean)['pid']}" in shown
        assert look(clean)["ActiveState"] in {"inactive", "failed"}
    finally:
        clean.run(f"kill $(cat {FOLDER}/pid)")


@pytest.mark.soak
def test_one_that_does_not_come_back_either(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, BY_HAND)
    with fault_file(clean, "crash"):
        failed = launch("up", *taking(old), "--yes", check=1).stdout
    assert f"start it by hand, as user llm in {FOLDER}: /usr/bin/python3 /opt/standin/standin.py" in failed
    assert f"its own lines: tail {LOG}" in failed
    assert SECRET not in failed
    kept = "/run/launch-again/kimi_k2_5_int4.json"
    assert f"(all of it, with the environment, is in {kept})" in failed
    assert clean.run(f"stat -c '%a %U' {kept}; grep -c {SECRET} {kept}").stdout.split() == ["600", "root", "1"]


@pytest.mark.soak
def test_what_is_not_taken_over(launch: Launch, clean: FleetHost) -> None:
    old = start(clean, BY_HAND)
    other = launch("plan", *REFERENCE, "takes_over=" + "0" * 64, check=3).stdout
    assert "the server that takes_over names is not there any more" in other
    assert f"port 8000 is taken by process {old['pid']} (" in other
    done = launch("up", *REFERENCE, "takes_over=" + "0" * 64, "--yes", check=1).stdout
    assert f"port 8000 is taken by process {old['pid']} (" in done
    moved = launch("up", *taking(old, "engine.port=8001"), "--yes", check=1).stdout
    assert f"process {old['pid']}, which takes_over names, does not listen on port 8001" in moved
    assert seen(clean) == old
