"""A server as a job of a real Slurm: its environment arrives whole, or it does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.served import QUICK, free_port, marked, standin
from tests.slurm.cluster import Cluster, Job, script, until

NASTY = 'it\'s $HOME `id` "é" \\ # % ,=\n second line'
REFUSED = ("FAILED", "78:0")


@pytest.fixture(scope="module", autouse=True)
def limited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job whose time ends while the tests before the last one use the other node."""
    made = Rendered(tmp_path_factory.mktemp("limited"), "slurm.minutes=1", "unit.stop_timeout=58")
    job = cluster.submit(made.path)
    job.wait("proof:")
    return job


class Rendered:
    """The script of a stand-in server, and what a test asks of it."""

    def __init__(self, folder: Path, *words: str, fault: str = "", **env: str) -> None:
        python = standin(folder / "engine", fault)
        given = [word for name, value in {**QUICK, **env}.items() for word in ("-e", f"{name}={value}")]
        fixed = ["model=tiny", "engine=vllm", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "name=batch"]
        self.port = free_port()
        where = [f"engine.python={python}", f"engine.port={self.port}", "engine.host=127.0.0.1"]
        self.path = script(folder, [*fixed, *where, *given, *words])
        self.digest = self.path.parent.name

    def environments(self) -> list[dict[str, str]]:
        """Return the environment of the task and of each process of the server, by other means than launch's."""
        blocks = [Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") for pid in marked(self.digest)]
        return [dict(entry.partition("=")[::2] for entry in block if entry) for block in blocks]


def test_every_process_carries_the_release_and_nothing_of_the_shell(cluster: Cluster, tmp_path: Path) -> None:
    made = Rendered(tmp_path, STANDIN_NASTY=NASTY)
    job = cluster.submit(made.path, NCCL_ALGO="Tree", NCCL_LEAK="1", LD_LIBRARY_PATH="/nowhere", SHELL_S_OWN="1")
    said = job.wait("proof:")
    assert f"release {made.digest} complete, 14 variables" in said
    assert f"proof: release {made.digest}, 4 processes carry all 14 variables" in said
    assert "warning" not in said
    environments = made.environments()
    assert len(environments) == 5
    for env in environments:
        assert (env["NCCL_ALGO"], env["NCCL_PROTO"], env["STANDIN_NASTY"]) == ("Ring", "LL", NASTY)
        # The choice of Slurm's plugin for GPUs is kept: the release makes none.
        assert (env["CUDA_VISIBLE_DEVICES"], env["HOME"]) == ("0,1", "/root")
        assert not {"NCCL_LEAK", "LD_LIBRARY_PATH", "SHELL_S_OWN"} & set(env)
    job.cancel()
    assert job.ended()[0] == "CANCELLED"
    until(lambda: not marked(made.digest), lambda: str(marked(made.digest)))
    assert "the server ended with 0" in job.said()


def test_another_value_in_the_script_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    made = Rendered(tmp_path)
    made.path.write_text(
        made.path.read_text().replace("NCCL_ALGO='Ring'", "NCCL_ALGO='Tree'").replace("    2 ", "    4 ")
    )
    job = cluster.submit(made.path)
    assert job.ended() == REFUSED
    assert 'NCCL_ALGO is "Tree" (should be "Ring")' in job.said()
    assert "of the command is '4' (should be '2')" in job.said()


def test_what_the_shell_and_the_site_slip_in_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    made = Rendered(tmp_path)
    # Stands before the line in the script.
    job = cluster.submit(made.path, SBATCH_EXPORT="ALL", NCCL_LEAK="1")
    assert job.ended() == REFUSED
    assert "NCCL_LEAK is set, but the release does not set it" in job.said()
    cluster.leak.write_text("export NCCL_ALGO=Tree\nexport NCCL_CUMEM_ENABLE=0\nunset NCCL_PROTO\n")
    try:
        job = cluster.submit(made.path)
        assert job.ended() == REFUSED
    finally:
        cluster.leak.unlink()
    assert "NCCL_CUMEM_ENABLE is set, but the release does not set it" in job.said()
    assert "NCCL_ALGO is" not in job.said()  # the command of the task comes after the site's program


def test_a_file_of_nccl_that_would_add_to_the_release_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_ALGO=Tree\nNCCL_CUMEM_ENABLE=0\n")
    job = cluster.submit(Rendered(tmp_path, NCCL_CONF_FILE=str(conf)).path)
    assert job.ended() == REFUSED
    assert f"{conf} sets NCCL_CUMEM_ENABLE, which the release leaves unset: NCCL takes it" in job.said()
    assert "sets NCCL_ALGO" not in job.said()


def test_workers_that_lost_a_variable_end_the_job(cluster: Cluster, tmp_path: Path) -> None:
    made = Rendered(tmp_path, fault="strip_env")
    job = cluster.submit(made.path)
    assert job.ended() == REFUSED
    assert "REFUSED after the start" in job.said()
    until(lambda: not marked(made.digest), lambda: str(marked(made.digest)))


def test_a_server_that_crashes_fails_the_job_with_its_own_code(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(Rendered(tmp_path, fault="exit0").path)
    assert job.ended() == ("FAILED", "1:0")
    assert "the server ended during its start with 0" in job.said()


def test_after_a_lost_node_it_comes_back_proven(cluster: Cluster, tmp_path: Path) -> None:
    made = Rendered(tmp_path)
    job = cluster.submit(made.path)
    job.wait("proof:")
    node = job.facts()["NodeList"]
    cluster.control("update", f"nodename={node}", "state=down", "reason=test")
    job.wait("proof:", "proof:", seconds=45)
    assert job.facts()["Restarts"] == "1"
    job.cancel()
    job.ended()


def test_the_time_limit_is_told_to_the_server_first(limited: Job) -> None:
    limited.wait("the server ended with 0", seconds=60)
    assert limited.ended() == ("COMPLETED", "0:0")
