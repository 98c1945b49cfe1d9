"""slurmctld, two slurmd and munged from the distribution's packages, with a configuration and folders of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
#: Two character devices stand for two GPUs: Slurm looks at no more of them than that.
_GRES = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"
#: Prints what the file `leak` holds into the environment of each task, as sites do in such a program.
_PROLOG = '#!/bin/sh\n[ -e "{folder}/leak" ] && cat "{folder}/leak"\nexit 0\n'
_CONF = """\
ClusterName=launch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
MpiDefault=none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=5
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=500 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=500 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def obstacle() -> str:
    """Say in one line why there can be no Slurm here; "" where nothing is known to be in the way."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"Slurm needs {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge" if missing else ""


class Cluster:
    """Running daemons; leaving the context ends them."""

    def __init__(self) -> None:
        # munged and slurmd want folders that all may enter, which those of pytest are not.
        self.folder = Path(tempfile.mkdtemp(prefix="launch-slurm-"))
        self.folder.chmod(0o755)
        self.leak = self.folder / "leak"
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _begin(self) -> None:
        host, sockets = socket.gethostname().partition(".")[0], [socket.create_server(("127.0.0.1", 0)) for _ in "123"]
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        (self.folder / "slurm.conf").write_text(_CONF.format(host=host, ports=ports, folder=self.folder))
        (self.folder / "gres.conf").write_text(_GRES)
        # Of the two plugins the one that needs no systemd; nothing here uses control groups.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "plugstack.conf").touch()
        (self.folder / "prolog").write_text(_PROLOG.format(folder=self.folder))
        (self.folder / "prolog").chmod(0o755)
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        words = [f"--{name}={self.folder / file}" for name, file in files.items()]
        self._start("munged", "--foreground", "--force", f"--log-file={self.folder / 'munged.log'}", *words)
        until(lambda: (self.folder / "munge.socket").exists(), self.logs)
        self._start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._nodes[node] = self._start("slurmd", "-D", "-N", node)
        until(lambda: self._ask("sinfo", "-h", "-o", "%T", check=False).split() == ["idle"], self.logs)

    def kill_node(self, job: str) -> str:
        """Kill the daemon of the node that a job runs on, as a power cut does, and return the node's name."""
        node = self._ask("squeue", "-h", "-o", "%N", "-j", job).strip()
        self._nodes[node].kill()
        self._nodes[node].wait()
        # Slurm would find out by itself after SlurmdTimeout, which is five minutes.
        self.control("update", f"nodename={node}", "state=down", "reason=test")
        return node

    def revive(self, node: str) -> None:
        """Start the daemon of a node again."""
        self._nodes[node] = self._start("slurmd", "-D", "-N", node)
        self.control("update", f"nodename={node}", "state=resume")
        until(lambda: self._ask("sinfo", "-h", "-o", "%T", check=False).split() == ["idle"], self.logs)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{words[0]}-{len(self._daemons)}.log").open("wb") as log:
            started = subprocess.Popen(words, env=self._env({}), stdout=log, stderr=log, start_new_session=True)
        self._daemons.append(started)
        return started

    def _end(self) -> None:
        if (self.folder / "slurm.conf").exists() and len(self._daemons) > 1:
            self._ask("scancel", "--state=RUNNING,PENDING", "--user=root", check=False)
            # A daemon that goes first leaves the job's own one, and with it the server.
            deadline = time.monotonic() + 20
            while self._ask("squeue", "-h", check=False).strip() and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _env(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), **more}

    def _ask(self, *words: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(words, env=self._env(env or {}), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """Return the last lines of the daemons."""
        return "\n".join("\n".join(p.read_text(errors="replace").splitlines()[-15:]) for p in self.folder.glob("*.log"))

    def submit(self, script: Path, *options: str, **env: str) -> Job:
        """Submit a script, from a shell with further variables."""
        output = script.parent / "out"
        words = ("sbatch", "--parsable", f"--output={output}", *options, str(script))
        return Job(self, self._ask(*words, env=env).strip(), output)

    def control(self, *words: str) -> str:
        """Return what scontrol says."""
        return self._ask("scontrol", *words)

    def cancel(self, number: str) -> None:
        """End a job as a user does."""
        self._ask("scancel", number)


class Job:
    """A job of the cluster."""

    def __init__(self, cluster: Cluster, number: str, output: Path) -> None:
        self._cluster, self.number, self._output = cluster, number, output

    def said(self) -> str:
        """Return the lines of launch in the job's output, without the name of the node."""
        text = self._output.read_text(errors="replace") if self._output.exists() else ""
        return "\n".join(re.findall(r"^launch: n\d: (.*)", text, re.MULTILINE))

    def facts(self) -> dict[str, str]:
        """Return what Slurm says of it."""
        return dict(re.findall(r"(\w+)=(\S+)", self._cluster.control("show", "job", self.number)))

    def wait(self, *lines: str, seconds: float = 90) -> str:
        """Wait until launch has said these so often; return all that it said."""
        until(lambda: all(self.said().count(line) >= lines.count(line) for line in lines), self.told, seconds)
        return self.said()

    def ended(self) -> tuple[str, str]:
        """Wait for its end; return state and exit code."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(lambda: self.facts()["JobState"] in over, self.told)
        return self.facts()["JobState"], self.facts()["ExitCode"]

    def cancel(self) -> None:
        """End it as a user does."""
        self._cluster.cancel(self.number)

    def told(self) -> str:
        """Return what is known of it, for a test that fails."""
        text = self._output.read_text(errors="replace") if self._output.exists() else "no output"
        return f"{self.facts()}\n{text}\n{self._cluster.logs()}"


def until(true: Callable[[], bool], told: Callable[[], str], seconds: float = 90) -> None:
    """Wait for something, or fail with what is told."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def script(folder: Path, words: Sequence[str]) -> Path:
    """Render a batch script as a user does, and return where it lies."""
    from launcher.cli import main

    assert main(["render", "--format", "sbatch", f"target.out={folder / 'rendered'}", *words]) == 0
    (path,) = folder.glob("rendered/*/*/*.sbatch")
    return path
