"""`launch -m … target=slurm` on a real cluster: what is measured, lost with a node, and left after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.cli import main
from launcher.slurm import run
from launcher.sweep import journal
from tests.agent.nccl_tests_build import build
from tests.bench.served import QUICK, free_port, marked, standin
from tests.slurm.cluster import until
from tests.slurm.test_sweep import LOAD, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.sweep.record import Sweep
    from tests.slurm.cluster import Cluster

ONCE = ("target=slurm", "model=tiny", "engine.tensor_parallel=2", "sweep.repeats=1", "sweep.max_repeats=1")
SMALL = ("bench=allreduce", "bench.batches=[1]", "bench.prefill_tokens=[64]")
#: As the command, but for how often Slurm is asked.
COMMAND = (
    "import sys; from launcher.cli import main; from launcher.slurm import run;"
    " run.ASK = 1.0; sys.exit(main(sys.argv[1:]))"
)


class Started:
    """A sweep that runs beside the test."""

    def __init__(self, cluster: Cluster, folder: Path, *words: str, **env: str) -> None:
        self._cluster, self.folder, self._err = cluster, folder, folder / "err"
        given = {**os.environ, "SLURM_CONF": str(cluster.folder / "slurm.conf"), **env}
        with (folder / "out").open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "-m", *words, "--json"], cwd=folder, env=given, stdout=out, stderr=err
            )

    def said(self) -> str:
        return self._err.read_text()

    def wait(self, text: str) -> None:
        until(lambda: text in self.said() or self.process.poll() is not None, self.told, 90)
        assert text in self.said(), self.told()

    def ended(self) -> int:
        until(lambda: self.process.poll() is not None, self.told, 180)
        return self.process.returncode

    def told(self) -> str:
        logs = "\n".join(path.read_text() for path in self.folder.glob("results/*/jobs/*/*_log.out"))
        return f"{self.said()}\n{(self.folder / 'out').read_text()}\n{logs}\n{self._cluster.logs()}"


def sweep(folder: Path) -> Sweep:
    (found,) = folder.glob("results/*")
    return journal.load(found)


def ids(cluster: Cluster) -> list[str]:
    """Return the jobs that have not ended."""
    return cluster._ask("squeue", "-h", "-o", "%i").split()


def collectives(folder: Path) -> list[str]:
    """Return the words of a sweep of collectives; it waits wherever it runs while the folder has a file `gate`."""
    made = build(folder / "build")
    for program in made.iterdir():
        first, _, rest = program.read_text().partition("\n")
        held = f"import os, time\nwhile os.path.exists({str(folder / 'gate')!r}): time.sleep(0.1)\n"
        program.write_text(f"{first}\n{held}{rest}".replace("from __future__ import annotations\n", ""))
    return [*ONCE, *SMALL, f"bench.nccl_tests={made}"]


@pytest.fixture(scope="module", autouse=True)
def limited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A sweep on one node whose time is over; Slurm looks twice a minute, so the first tests run meanwhile."""
    folder = tmp_path_factory.mktemp("limited")
    (folder / "gate").touch()
    asked = ("slurm.jobs=1", "slurm.minutes=9", "slurm.extra=['--nodelist=n1']")
    started = Started(cluster, folder, *collectives(folder), "nccl.max_nchannels=2,4", *asked)
    started.wait("1 RUNNING")
    (id_,) = ids(cluster)
    cluster.control("update", f"jobid={id_}", "timelimit=1")
    cluster.control("update", f"jobid={id_}", "endtime=now")
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture(autouse=True)
def place(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURM_CONF", str(cluster.folder / "slurm.conf"))
    monkeypatch.setattr(run, "ASK", 1.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_point_beside_a_baseline_on_its_own_node(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", "nccl.max_nchannels=2,4", *collectives(place)]
    assert main(words) == 0, capsys.readouterr().err
    found = sweep(place)
    assert sorted(trial.order for trial in found.trials) == list(range(1, 7))
    for number, point in enumerate(found.points[1:], 1):
        trials = [trial for trial in found.trials if trial.host == f"job-{number}"]
        assert [trial.point for trial in trials] == [found.baseline.digest, point.digest, found.baseline.digest]
        assert len({(trial.facts["versions"]["node"], trial.facts["slurm job"]) for trial in trials}) == 1
        assert not any(reading.invalid for trial in trials for reading in trial.readings)
    said = capsys.readouterr()
    assert "2 jobs of Slurm, each on one node" in said.out
    assert "RUNNING" in said.err
    assert main([*words, "--resume"]) == 0
    assert len(sweep(place).trials) == 6
    assert len(list(place.glob("results/*/jobs/*"))) == 2


def test_nothing_of_the_shell_leaks_and_ctrl_c_leaves_no_job(cluster: Cluster, place: Path) -> None:
    leaks = {"NCCL_ALGO": "Tree", "NCCL_LEAK": "1", "LD_LIBRARY_PATH": "/nowhere", "SHELL_S_OWN": "1"}
    words = [
        *(*ONCE, "engine=vllm", "nccl=pcie_ll_ring", "nccl.max_nchannels=2,4", "slurm.jobs=1"),
        "slurm.extra=['--nodelist=n2']",
        *(f"engine.python={standin(place / 'engine')}", f"engine.port={free_port()}", "engine.host=127.0.0.1"),
        *(word for variable in QUICK.items() for word in ("-e", "=".join(variable))),
        *("bench=serve", "bench.client=command"),
        f"bench.command={sys.executable} {ROOT / 'tests' / 'standin' / 'client.py'}",
        *(f"bench.loads.decode.{key}={value}" for key, value in LOAD.items()),
    ]
    first = Started(cluster, place, *words, SBATCH_EXPORT="ALL", **leaks)
    first.wait('"point": "baseline"')
    (point,) = [point for point in sweep(place).points if point.choices.get("nccl.max_nchannels") == "2"]
    until(lambda: len(marked(point.digest)) >= 4, first.told)
    blocks = [Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") for pid in marked(point.digest)]
    for env in (dict(entry.partition("=")[::2] for entry in block if entry) for block in blocks):
        assert (env["NCCL_ALGO"], env["NCCL_MAX_NCHANNELS"], env["CUDA_VISIBLE_DEVICES"]) == ("Ring", "2", "0,1")
        assert not {"NCCL_LEAK", "LD_LIBRARY_PATH", "SHELL_S_OWN"} & set(env)
    first.process.send_signal(signal.SIGINT)
    assert first.ended() == 130
    said = first.said()
    assert re.search(r"cancelled: Slurm job \d+", said), said
    until(lambda: len(ids(cluster)) <= 1, first.told)  # the one whose time is over
    until(lambda: not marked(point.digest), first.told)
    before = sweep(place).trials
    second = Started(cluster, place, *words, "--resume")
    assert second.ended() == 0, second.told()
    trials = sweep(place).trials
    assert trials[: len(before)] == before
    counts = [sum(trial.point == point.digest for trial in trials) for point in sweep(place).points]
    assert counts == [3, 1, 1]  # the baseline once more at the begin of the second run, and at its end
    for trial in trials:
        assert trial.proof["NCCL_MAX_NCHANNELS"]["word"] == "proved"
        assert not trial.failure


def test_a_job_whose_time_is_over_is_a_failure_with_its_word(cluster: Cluster, limited: Started) -> None:
    assert limited.ended() == 1
    (trial,) = sweep(limited.folder).trials
    assert (trial.failure, trial.host, trial.facts["versions"]["node"]) == ("Slurm: TIMEOUT", "job-1", "n1")
    assert "raise slurm.minutes" in trial.message
    assert trial.evidence[0] == f"log: {trial.facts['log']}"
    assert any("baseline begins" in line for line in trial.evidence)
    assert "submitted once more" not in limited.said()
    assert ids(cluster) == []


def test_a_job_whose_node_dies_goes_on_elsewhere(cluster: Cluster, place: Path, limited: Started) -> None:
    limited.ended()  # both nodes are free
    (place / "gate").touch()
    started = Started(cluster, place, *collectives(place), "nccl.max_nchannels=2,4", "slurm.jobs=1")
    started.wait("1 RUNNING")
    until(lambda: bool(list(place.glob("results/*/jobs/job-1.1/begun.json"))), started.told)
    node = cluster.kill_node(ids(cluster)[0])
    try:
        started.wait(f"submitted once more, not on {node}")
        started.wait("jobs: 1 RUNNING")
        (place / "gate").unlink()
        assert started.ended() == 0, started.told()
    finally:
        cluster.revive(node)
    found = sweep(place)
    assert {trial.facts["versions"]["node"] for trial in found.trials} == {"n1", "n2"} - {node}
    assert [(trial.failure, trial.facts["versions"]["node"]) for trial in found.past] == [("Slurm: NODE_FAIL", node)]
    assert {trial.point for trial in found.trials} == {point.digest for point in found.points}
