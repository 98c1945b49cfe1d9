"""Changes as transactions, on real hosts: whatever is broken in whatever phase, one release serves completely."""

from __future__ import annotations

import json
import queue
import re
import signal
import socket
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher import __version__
from tests.fleet import Fleet
from tests.system.change_tool import (
    COMMON_DISK,
    CONFIG,
    FAULTS,
    NAME,
    NEW,
    PATIENCE,
    PHASES,
    RELEASE,
    UNIT_FILE,
    assert_whole,
    begin,
    fault_file,
    inside,
    settled,
    state,
    wait_until_over,
    waits_for_word,
)
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch, assert_tuned, look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet


def deployed(launch: Launch, *hosts: str) -> str:
    """Deploy the old release, and return its digest."""
    done = launch("up", *REFERENCE, "--yes", "--json", hosts=hosts or ("h1",))
    digest: str = json.loads(done.stdout)["deployments"][0]["digest"]
    return digest


# --- faults in every phase ---


def cell(launch: Launch, host: FleetHost, phase: str, fault: str) -> str:
    """Break one thing in one phase of a change; return what the host serves then, and assert that all of it does."""
    at, breaks, name = PHASES[phase], FAULTS[fault], host.name
    old = deployed(launch, name)
    host.run(f"{breaks.prepare}\n{at.prepare}")
    words = ("up", *NEW, *at.words, f"target.confirm_timeout={PATIENCE}", "--yes")
    running = begin(launch, *words, hosts=[name])
    at.reached(host, running)
    breaks.strike(host, running)
    if host.is_on():
        inside(host, RELEASE, check=False)
    else:
        breaks.mend(host)
        host.run(RELEASE)
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGCONT)
    wait_until_over(host)
    if fault == "cable unplugged":
        breaks.mend(host)
    code = running.end()
    seen = settled(host)
    if fault not in {"power cut", "cable unplugged"}:
        breaks.mend(host)
    return judge(launch, host, old, seen, code, running.said())


def judge(launch: Launch, host: FleetHost, old: str, seen: dict[str, Any], code: int, said: str) -> str:
    """Assert that a host is whole after a fault, boots what it serves, and takes the change then."""
    word = "put back at boot"
    if seen["pending"]:  # nothing could be written, not even the old unit: it is told, and kept for later
        assert (code, "are not back" in said) == (1, True), said
        assert len(seen["running"]) <= 1, seen
    else:
        word = "old" if seen["running"] == {old} else "new"
        assert_whole(seen, old if word == "old" else next(iter(seen["running"])))
        assert launch("drift", *NEW, hosts=[host.name], check=None).returncode == (3 if word == "old" else 0)
    host.run(COMMON_DISK)
    host.power_cut()
    host.boot()
    after = settled(host)
    assert_whole(after, old if seen["pending"] else next(iter(seen["running"])))
    launch("up", *NEW, "--yes", hosts=[host.name])
    assert "nothing to change" in launch("plan", *NEW, hosts=[host.name]).stdout
    final = state(host)
    assert_whole(final, final["unit"])
    assert final["unit"] != old
    return f"{word}, exit {code}" if code >= 0 else word


def run_cells(launch: Launch, hosts: list[FleetHost], cells: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Try every cell, three at a time; what fails is told of all of them together."""
    free: queue.SimpleQueue[FleetHost] = queue.SimpleQueue()
    for host in hosts:
        free.put(host)

    def one(phase: str, fault: str) -> str:
        host, start = free.get(), time.monotonic()
        try:
            tidy(host)
            found = cell(launch, host, phase, fault)
        except Exception:  # noqa: BLE001 - an assertion, a time limit: shown in the table and at the end
            return f"FAILED\n{phase}, {fault}: {traceback.format_exc()}"
        else:
            print(f"{phase}, {fault}: {found}; {time.monotonic() - start:.0f} s", flush=True)
            return found
        finally:
            tidy(host)
            free.put(host)

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(cells, pool.map(lambda pair: one(*pair), cells), strict=True))


def tidy(host: FleetHost) -> None:
    """Make a host as it was before, whatever happened to it."""
    host.plug()
    if inside_is_bound(host):
        host.power_cut()
    host.boot()
    host.run(f"{RELEASE}\numount /etc/launch 2>/dev/null\n{WIPE}")


def inside_is_bound(host: FleetHost) -> bool:
    return not host.is_on() or "/etc " in inside(host, "cut -d' ' -f5 /proc/self/mountinfo | sed 's/$/ /'")


#: One of each fault, one of each phase; all of them are in test_every_fault_in_every_phase, the cable in test_attacks.
CELLS = [
    ("stopped", "change killed"),
    ("looking", "change stopped"),
    ("starting", "read-only"),
    ("switched", "power cut"),
    ("staging", "disk full"),
    ("proven", "client killed"),
]


def test_a_fault_in_a_phase(launch: Launch, hosts: list[FleetHost]) -> None:
    done = run_cells(launch, hosts, CELLS)
    assert not [text for text in done.values() if text.startswith("FAILED")], "\n".join(done.values())


@pytest.mark.soak
def test_every_fault_in_every_phase(launch: Launch, hosts: list[FleetHost]) -> None:
    done = run_cells(launch, hosts, [(phase, fault) for fault in FAULTS for phase in PHASES])
    MATRIX.write_text(matrix(done, hosts[0]), encoding="utf-8")
    assert not [text for text in done.values() if text.startswith("FAILED")], "\n".join(done.values())


MATRIX = Path(__file__).resolve().parents[2] / "docs/transactions-matrix.md"
HEAD = """\
# Faults in every phase

Written by `pytest tests/system/test_transactions.py --run-soak -k every_fault_in_every_phase` on {date}: {versions}.

Each cell is one change on a host of its own kernel namespace with its own systemd, broken once. It tells what the host
serves afterwards and the client's exit code, and holds only where all of this was found: every process of the unit
carries that one release; unit, environment file and record belong together and nothing of the change is left; the
host boots the same release after a power cut; `launch up` then brings the new one.
*Put back at boot*: nothing could be written, so what was there before stays noted, is told, and returns at the next
boot or `up`.

Each run of the tests tries six of them: one of each fault, one of each phase.

| fault | {phases} |
| --- |{lines}
"""


def matrix(done: Mapping[tuple[str, str], str], host: FleetHost) -> str:
    """Return the results as a page."""
    systemd = host.run("systemctl --version | head -1").stdout.strip()
    versions = f"launch {__version__}, {systemd}, {host.run('python3 --version').stdout.strip()}"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    text = HEAD.format(date=date, versions=versions, phases=" | ".join(PHASES), lines=" --- |" * len(PHASES))
    cells = {fault: " | ".join(done[phase, fault].split("\n")[0] for phase in PHASES) for fault in FAULTS}
    return text + "".join(f"| {fault} | {row} |\n" for fault, row in cells.items())


# --- the server's own faults, beside those of test_deploy ---

CLASSES = {"hangs": ("hang", "timeout: "), "ends with 0": ("exit0", "ended by itself: ")}


@pytest.mark.parametrize(("fault", "words"), CLASSES.values(), ids=CLASSES.keys())
def test_a_failed_start_is_told_by_its_class(launch: Launch, host: FleetHost, fault: str, words: str) -> None:
    old = deployed(launch)
    failing = (f"engine.args.standin_fault={fault}", "unit.start_timeout=12", "unit.stop_timeout=3")
    running = begin(launch, "up", *REFERENCE, *failing, "--yes")
    assert running.end() == 7, running.said()
    assert words in running.said()
    assert "next: " in running.said()
    assert f"the old release again, restarted; {old} proven in 4 processes" in running.said()
    assert_whole(state(host), old)


# --- power cuts ---

RECOVERED = "a change was cut short by the end of the system: rolled back, the last good release starts"


def cut_while_it_waits(launch: Launch, host: FleetHost) -> None:
    running = begin(launch, "up", *NEW, "target.confirm_timeout=60", "--yes")
    running.until(": starting")
    running.process.send_signal(signal.SIGSTOP)
    waits_for_word(host)
    host.power_cut()
    running.process.kill()
    running.end()
    host.boot()


def test_a_power_cut_before_the_first_release_is_confirmed(launch: Launch, host: FleetHost) -> None:
    cut_while_it_waits(launch, host)
    seen = state(host)
    assert (seen["running"], seen["unit"], seen["applied"], seen["pending"]) == (set(), "", "", [])
    assert RECOVERED in host.run(f"journalctl --sync; journalctl -b -u {UNIT} -o cat").stdout
    launch("up", *NEW, "--yes")
    assert_whole(state(host), state(host)["unit"])


def test_a_power_cut_before_the_second_release_is_confirmed(launch: Launch, host: FleetHost) -> None:
    old = deployed(launch)
    cut_while_it_waits(launch, host)
    assert_whole(settled(host), old)
    assert RECOVERED in host.run(f"journalctl --sync; journalctl -b -u {UNIT} -o cat").stdout
    assert "in sync" in launch("status", *REFERENCE).stdout


# --- history and rollback ---


def test_history_and_rollback(launch: Launch, host: FleetHost) -> None:
    first = deployed(launch)
    launch("up", *REFERENCE, "nccl.max_nchannels=8", "--yes")
    second = state(host)["unit"]
    launch("up", *REFERENCE, "engine.args.standin_fault=crash", "--yes", check=7)
    told = launch("history", *REFERENCE).stdout
    assert f"1  {first}" in told
    assert f"2  {second}" in told
    assert "up: good, in force" in told
    assert "rolled back" in told
    assert launch("rollback", *REFERENCE, check=3).stdout.count("NCCL_MAX_NCHANNELS: 8 -> 16") == 1  # without --yes
    assert f"release {first} proven" in launch("rollback", *REFERENCE, "--yes").stdout
    assert_whole(state(host), first)
    done = launch("rollback", "9", *REFERENCE, "--yes", check=1)
    assert "h1 has no generation 9 to return to; it has 1, 2, 3" in done.stderr + done.stdout
    assert "launch uninstall" in launch("rollback", "0", *REFERENCE, "--yes", check=1).stderr
    # The files of a release may be gone: the generation holds them.
    host.run(f"rm /etc/launch/{NAME}/{second}.*")
    launch("rollback", "2", *REFERENCE, "--yes")
    assert_whole(state(host), second)
    assert "drift" not in launch("status", *REFERENCE, "nccl.max_nchannels=8").stdout.lower()


def test_a_rollback_without_its_secrets_is_refused(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    token.chmod(0o600)
    launch("up", *REFERENCE, f"secrets.env.HF_TOKEN=file:{token}", "--yes")
    launch("up", *REFERENCE, "--yes")
    before = look(host)["MainPID"]
    host.run(f"rm /etc/launch/{NAME}/secrets/HF_TOKEN")
    done = launch("rollback", *REFERENCE, "--yes", check=1)
    assert "generation 1 needs secrets that are not here any more" in done.stdout
    assert f"/etc/launch/{NAME}/secrets/HF_TOKEN" in done.stdout
    assert look(host)["MainPID"] == before


@pytest.mark.soak
def test_ten_generations_are_kept(launch: Launch, host: FleetHost) -> None:
    digests = []
    for number in range(1, 13):
        launch("up", *REFERENCE, "-e", f"T_NUMBER={number}", "--yes")
        digests.append(state(host)["unit"])
    assert state(host)["generations"] == digests[2:]
    left = host.run(f"cd /etc/launch/{NAME} && ls *.env").stdout.split()
    assert sorted(left) == sorted(f"{digest}.env" for digest in digests[2:])
    launch("rollback", "3", *REFERENCE, "--yes")
    assert_whole(state(host), digests[2])
    assert "it has 4, 5" in launch("rollback", "1", *REFERENCE, "--yes", check=1).stderr


# --- generation 0 ---

TREE = r"""
find /etc /usr/local -xdev -type f -printf '%p %m %U:%G %T@ ' -exec sha256sum {} \;
find /etc /usr/local -xdev ! -type f -printf '%p %y %m %U:%G %l\n'
"""
BY_HAND = f"""
mkdir -p {UNIT_FILE}.d /etc/llm
printf 'NCCL_ALGO=Tree\\nNAME=x\\n' > /etc/llm/server.env
chmod 640 /etc/llm/server.env; chown root:llm /etc/llm/server.env
cat > {UNIT_FILE} <<'END'
[Unit]
Description=by hand
[Service]
EnvironmentFile=/etc/llm/server.env
ExecStart=/bin/sleep 99999
[Install]
WantedBy=multi-user.target
END
printf '[Service]\\nEnvironment=A=b\\n' > {UNIT_FILE}.d/10-a.conf
touch -d '2021-02-03 04:05:06.123' {UNIT_FILE} {UNIT_FILE}.d/10-a.conf /etc/llm/server.env
systemctl daemon-reload; systemctl enable --now {UNIT}
"""


def tree(host: FleetHost) -> list[str]:
    return sorted(line for line in host.run(TREE).stdout.splitlines() if line)


def test_what_was_there_before_returns_to_the_byte(launch: Launch, host: FleetHost) -> None:
    host.run(BY_HAND)
    try:
        before = tree(host)
        launch("up", *REFERENCE, "--yes")
        assert_tuned(look(host))
        launch("up", *REFERENCE, "nccl.algo=PAT", "--yes")
        launch("uninstall", *REFERENCE, "--yes")
        assert tree(host) == before
        shown = f"systemctl is-active {UNIT}; systemctl is-enabled {UNIT}; systemctl show -P Environment {UNIT}"
        states = host.run(shown)
        assert states.stdout.split() == ["active", "enabled", "A=b"]
        titles = [" ".join(p["title"]) for p in look(host)["processes"].values()]
        assert titles == ["/bin/sleep 99999"]
    finally:
        host.run(f"systemctl disable --now {UNIT}; rm -rf /etc/llm {UNIT_FILE}*; systemctl daemon-reload", check=False)


def test_nothing_of_ours_is_left_where_nothing_was(launch: Launch, host: FleetHost) -> None:
    before = tree(host)
    launch("up", *REFERENCE, "--yes")
    launch("uninstall", *REFERENCE, "--yes")
    assert tree(host) == before
    assert host.run("ls -d /run/launch* /etc/launch /usr/local/lib/launch 2>/dev/null", check=False).stdout in {
        "",
        "/run/launch.lock\n",
    }
    assert look(host)["processes"] == {}
    assert "not deployed here" in launch("uninstall", *REFERENCE, "--yes", check=1).stdout


# --- several operators ---


def race(launch: Launch, host: FleetHost, number: int) -> None:
    both = [begin(launch, "up", *REFERENCE, "-e", f"T_RACE={number}{who}", "--yes") for who in "ab"]
    codes = [running.end() for running in both]
    said = "\n".join(running.said() for running in both)
    assert codes.count(0) == 1, said
    lost = codes[1 - codes.index(0)]
    assert lost == 6 or (lost == 1 and "the host was changed since the plan was made" in said), said
    seen = state(host)
    assert_whole(seen, seen["unit"])
    values = {process["env"]["T_RACE"] for process in look(host)["processes"].values()}
    assert values == {f"{number}{'ab'[codes.index(0)]}"}


def test_of_two_operators_one_applies(launch: Launch, host: FleetHost) -> None:
    for number in range(3):
        race(launch, host, number)


@pytest.mark.soak
def test_of_two_operators_one_applies_fifty_times(launch: Launch, host: FleetHost) -> None:
    for number in range(50):
        race(launch, host, number)


def test_the_lease_names_its_owner_and_can_be_broken(launch: Launch, host: FleetHost) -> None:
    old = deployed(launch)
    first = begin(launch, "up", *REFERENCE, "engine.args.standin_load=8", "--yes")
    first.until(": starting")
    second = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes", check=6)
    assert "is changing this host (up kimi_k2_5_int4)" in second.stdout
    assert "--break-lease" in second.stdout
    assert "CHANGING: " in launch("status", *REFERENCE, check=None).stdout
    third = launch("up", *REFERENCE, "nccl.algo=PAT", "--break-lease", "--yes")
    assert "ending the change of " in third.stderr
    assert first.end() == 7, first.said()
    assert "the change was ended from outside" in first.said()
    assert f"{old} proven in 4 processes" in first.said()
    assert {p["env"]["NCCL_ALGO"] for p in look(host)["processes"].values()} == {"PAT"}
    assert_whole(state(host), state(host)["unit"])


def test_status_follows_a_change(launch: Launch, host: FleetHost) -> None:
    running = begin(launch, "up", *NEW, "--yes")
    running.until(": starting")
    told = launch("status", *NEW, "--follow")
    assert "h1: starting" in told.stderr
    assert running.end() == 0, running.said()
    assert "in sync" in launch("status", *NEW).stdout


def test_a_second_interrupt_takes_the_change_back(launch: Launch, host: FleetHost) -> None:
    old = deployed(launch)
    running = begin(launch, "up", *REFERENCE, "engine.args.standin_load=8", "--yes")
    running.until(": starting")
    running.process.send_signal(signal.SIGINT)
    running.until("Ctrl-C again")
    time.sleep(0.5)
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 7, running.said()
    assert "taking the change back" in running.said()
    assert_whole(state(host), old)


# --- worlds ---


def test_a_world_goes_back_together(launch: Launch, hosts: list[FleetHost]) -> None:
    names = ["h1", "h2"]
    old = deployed(launch, *names)
    with fault_file(hosts[1], "crash@--standin-load"):
        done = launch("up", *NEW, "--yes", hosts=names, check=7)
    assert "h2 could not go on" in done.stdout
    for host in hosts[:2]:
        assert_whole(state(host), old)
    launch("up", *NEW, "--yes", hosts=names)
    assert {state(host)["unit"] for host in hosts[:2]} != {old}


def test_a_failed_canary_stops_the_roll_out(launch: Launch, hosts: list[FleetHost]) -> None:
    names = [host.name for host in hosts]
    old = deployed(launch, *names)
    before = [look(host)["InvocationID"] for host in hosts]
    with fault_file(hosts[0], "crash@--standin-load"):
        done = launch("up", *NEW, "target.hosts_per_world=1", "--yes", hosts=names, check=7)
        assert done.stdout.count("not begun, since a world before it failed") == 2
        assert [look(host)["InvocationID"] for host in hosts][1:] == before[1:]
        assert [state(host)["unit"] for host in hosts] == [old, old, old]
        launch("up", *NEW, "target.hosts_per_world=1", "target.max_failures=1", "--yes", hosts=names, check=8)
    assert_whole(state(hosts[0]), old)
    (new,) = {state(host)["unit"] for host in hosts[1:]}
    for host in hosts[1:]:
        assert_whole(state(host), new)


@pytest.mark.soak
def test_eight_hosts_in_four_worlds() -> None:
    with Fleet.boot(8) as fleet:
        launch, names = Launch(fleet), [host.name for host in fleet.hosts]
        deployed(launch, *names)
        with fault_file(fleet.host("h4"), "crash@--standin-load"):
            words = (*NEW, "target.hosts_per_world=2", "--yes")
            done = launch("up", *words, hosts=names, check=8)
        units = [state(host)["unit"] for host in fleet.hosts]
        assert units[0] == units[1] != units[2]
        assert len(set(units[2:])) == 1
        assert done.stdout.count("not begun") == 4
        for host in fleet.hosts:
            assert_whole(state(host), state(host)["unit"])
        launch("up", *words, hosts=names)
        assert len({state(host)["unit"] for host in fleet.hosts}) == 1


# --- how long ---


def moments(host: FleetHost) -> list[tuple[float, str]]:
    """Return the unit's journal, each line with its second since boot."""
    argv = (
        f"journalctl --sync; journalctl -o short-monotonic -b --no-pager -u {UNIT} _SYSTEMD_UNIT={UNIT} + UNIT={UNIT}"
    )
    lines = (re.match(r"\[ *([\d.]+)\] (.*)", line) for line in host.run(argv).stdout.splitlines())
    return [(float(line.group(1)), line.group(2)) for line in lines if line]


def between(seen: Sequence[tuple[float, str]], first: str, then: str) -> float:
    """Return the seconds from the last line with one text to the next line with another."""
    index, begin_ = max((i, at) for i, (at, text) in enumerate(seen) if first in text)
    return next(at for at, text in seen[index:] if then in text) - begin_


def test_the_old_server_is_down_for_moments(launch: Launch, host: FleetHost) -> None:
    deployed(launch)
    launch("up", *REFERENCE, "nccl.algo=PAT", "--yes")
    switch = between(moments(host), "Stopping launch-", "Starting launch-")
    launch("up", *REFERENCE, "engine.args.standin_fault=exit0", "--yes", check=7)
    back = between(moments(host), "leaving with 0 during load", "Starting launch-")
    print(f"down between stop and start: {switch:.2f} s; from the failure to the old server's start: {back:.2f} s")
    assert switch < 5
    assert back < 10


# --- clients, hooks, preflight ---


def test_clients_are_told_of_and_waited_for(launch: Launch, host: FleetHost) -> None:
    deployed(launch)
    with socket.create_connection((host.address, 8000)):
        done = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes")
    assert "1 connection" in done.stderr
    with socket.create_connection((host.address, 8000)) as client:
        running = begin(launch, "up", *REFERENCE, "unit.drain_seconds=30", "--yes")
        running.until("draining: 1 connection")
        time.sleep(1)
        assert "stopping the old server" not in running.said()
        client.close()
    assert running.end() == 0, running.said()
    assert "will be cut" not in running.said()


def test_hooks(launch: Launch, host: FleetHost) -> None:
    deployed(launch)
    before_stop, after_start = "touch /run/hook-before", "ls /run/hook-before && touch /run/hook-after"
    hooks = (f"unit.before_stop='{before_stop}'", f"unit.after_start='{after_start}'")
    launch("up", *REFERENCE, "nccl.algo=PAT", *hooks, "--yes")
    host.run("ls /run/hook-before /run/hook-after && rm /run/hook-*")
    before = look(host)
    good = state(host)["unit"]
    done = launch("up", *REFERENCE, "unit.before_stop='echo the router says no; exit 3'", "--yes", check=7)
    assert "unit.before_stop failed" in done.stdout
    assert "the router says no" in done.stdout
    assert "the old server, which was not touched" in done.stdout
    assert look(host)["MainPID"] == before["MainPID"]
    assert_whole(state(host), good)
    done = launch("up", *REFERENCE, "unit.after_start='exit 4'", "--yes", check=7)
    assert "unit.after_start failed" in done.stdout
    assert_whole(state(host), good)


def test_a_missing_shard_is_found_while_the_old_server_serves(launch: Launch, host: FleetHost) -> None:
    old = deployed(launch)
    before = look(host)["MainPID"]
    index = Path(CONFIG).with_name("model.safetensors.index.json")
    host.run(f"""echo '{{"weight_map": {{"a": "model.safetensors", "b": "model-2.safetensors"}}}}' > {index}""")
    try:
        done = launch("up", *REFERENCE, "nccl.algo=PAT", "--yes", check=1)
        assert "model-2.safetensors" in done.stdout
        assert look(host)["MainPID"] == before
        assert_whole(state(host), old)
        id_ = re.findall(r"model-2\.safetensors.*\[([a-z-]+)\]", done.stdout)[0]
        launch("up", *REFERENCE, "nccl.algo=PAT", "--allow", id_, "--yes")
    finally:
        host.run(f"rm {index}")
    assert look(host)["MainPID"] != before
