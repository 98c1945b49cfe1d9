"""The exported playbook, run by a real ansible-playbook against a real host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.tool import WIPE, journal, look

if TYPE_CHECKING:
    from tests.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.soak]

#: What is installed; pip takes about a minute.
ANSIBLE = "ansible-core>=2.16,<3"
UNIT = "launch-played.service"
VALUE = 'it\'s $HOME {{ 1 + 1 }} %n "q" \\ é'


@pytest.fixture(scope="module")
def playbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; $LAUNCH_TEST_ANSIBLE names one that is there."""
    if given := os.environ.get("LAUNCH_TEST_ANSIBLE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("ansible")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", ANSIBLE], check=True)
    return folder / "bin" / "ansible-playbook"


class Play:
    """A rendered playbook, and ansible-playbook aimed at one host."""

    def __init__(self, fleet: Fleet, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._inventory, self._variables = folder / "inventory", folder / "secrets.json"
        self._inventory.write_text(
            f"h1 ansible_ssh_common_args='-F {fleet.ssh_config}' ansible_python_interpreter=/usr/bin/python3\n"
        )
        self._variables.write_text(json.dumps({"launch_secrets_played": {"HF_TOKEN": "hf_x", "arg.api_key": "sk_y"}}))

    def render(self, *words: str) -> Path:
        fixed = ["model=tiny", "engine=vllm", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "name=played"]
        fixed += [
            "engine.python=/opt/standin/python",
            "unit.start_timeout=20",
            "unit.restart_delay=1",
            "-e",
            f"X={VALUE}",
        ]
        fixed += ["secrets.env.HF_TOKEN='file:/no'", "secrets.args.api_key='file:/no'", f"target.out={self._folder}"]
        argv = [sys.executable, "-m", "launcher", "render", "--json", "--format", "ansible", *fixed, *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return Path(json.loads(done.stdout)[0]["folder"]) / "played.ansible.yaml"

    def run(self, path: Path) -> subprocess.CompletedProcess[str]:
        argv = [
            str(self._program),
            "--inventory",
            str(self._inventory),
            "--extra-vars",
            f"@{self._variables}",
            str(path),
        ]
        env = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_a_play_deploys_restarts_and_fails_as_the_unit_does(fleet: Fleet, playbook: Path, tmp_path: Path) -> None:
    host = fleet.hosts[0]
    host.run(WIPE)
    play = Play(fleet, playbook, tmp_path)
    path = play.render()
    done = play.run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"proof: release {path.parent.name}, 4 processes carry all" in done.stdout
    assert "sk_y" not in done.stdout + done.stderr
    first = look(host, UNIT)
    assert {(p["env"]["X"], p["env"]["HF_TOKEN"], p["env"]["NCCL_ALGO"]) for p in first["processes"].values()} == {
        (VALUE, "hf_x", "Ring")
    }
    again = play.run(path)
    assert "changed=0" in again.stdout, again.stdout
    assert look(host, UNIT)["MainPID"] == first["MainPID"]
    assert play.run(play.render("nccl.nthreads=256")).returncode == 0
    second = look(host, UNIT)
    assert {p["env"]["NCCL_NTHREADS"] for p in second["processes"].values()} == {"256"}
    failed = play.run(play.render("engine.args.standin_fault=crash"))
    assert failed.returncode != 0
    assert "NOT READY" in failed.stdout
    host.run("sed -i s/Ring/Tree/ /etc/launch/played/*.env")
    assert host.run(f"systemctl restart {UNIT}", check=False).returncode != 0
    assert 'NCCL_ALGO is "Tree" (should be "Ring")' in journal(host, UNIT)
    host.run(WIPE)
