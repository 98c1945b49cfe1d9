"""The exported Quadlet file through podman's own generator, and as a container that is guarded and proven."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exports import podman
from tests.fleet import Fleet
from tests.system.tool import WIPE, look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = [pytest.mark.fleet, pytest.mark.soak]

UNIT = "launch-boxed.service"
VALUE = '  it\'s $HOME ${X} %n "q" \\ # é  '
TEMPLATE = r"engine.args.chat_template='{{ \$x }} $$ $HOME %n %% `id` \"é\" \\ # ;'"
#: Writes down what podman would have been given by systemd.
RECORDER = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done > /run/podman.words\n"


@pytest.fixture(scope="module")
def host() -> Iterator[FleetHost]:
    with Fleet.boot(1, suite="trixie-containers") as fleet:
        podman.prepare(fleet.hosts[0])
        yield fleet.hosts[0]


class Rendered:
    """An exported release, and what puts it on a host."""

    def __init__(self, folder: Path, *words: str, image: str = podman.IMAGE, **env: str) -> None:
        given = {"STANDIN_LOAD_SECONDS": "0.1", "X": VALUE, **env}
        fixed = ["model=tiny", "engine=vllm", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "name=boxed"]
        fixed += [f"engine.python={podman.PYTHON}", f"runtime.image={image}", "unit.restart_delay=1"]
        fixed += ["unit.start_timeout=40", "unit.stop_timeout=10", f"target.out={folder}"]
        fixed += [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
        argv = [sys.executable, "-m", "launcher", "render", "--json", "--format", "quadlet", *fixed, *words]
        (record,) = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
        self.argv: list[str] = record["argv"]
        self.env: dict[str, str] = record["env"]
        self.folder = Path(record["folder"])
        self.digest: str = record["digest"]

    def put_on(self, host: FleetHost) -> None:
        """Do what `launch render` says comes next, but for the start."""
        folder = host.root / "etc/launch/boxed"
        folder.mkdir(parents=True, exist_ok=True)
        (host.root / "etc/containers/systemd").mkdir(parents=True, exist_ok=True)
        for name in (f"{self.digest}.container.env", f"{self.digest}.program.py"):
            (folder / name).write_bytes((self.folder / name).read_bytes())
        quadlet = self.folder / "launch-boxed.container"
        (host.root / "etc/containers/systemd" / quadlet.name).write_bytes(quadlet.read_bytes())
        host.run(f"systemctl daemon-reload; systemctl stop {UNIT}")


def said(host: FleetHost) -> str:
    return host.run(f"journalctl --sync; journalctl --unit {UNIT} --output cat --no-pager --lines 60").stdout


def test_argv_and_environment_come_through_the_generator(host: FleetHost, tmp_path: Path) -> None:
    made = Rendered(tmp_path, TEMPLATE)
    made.put_on(host)
    unit = host.run(f"cat /run/systemd/generator/{UNIT}").stdout
    assert "Type=notify" in unit
    # systemd itself reads the generated line and starts a recorder with it.
    host.run(f"mkdir -p /run/rec && cat > /run/rec/podman <<'EOF'\n{RECORDER}EOF\nchmod +x /run/rec/podman")
    copied = unit.replace("/usr/bin/podman run", "/run/rec/podman run").replace("Type=notify", "Type=oneshot")
    copied = copied.replace("Restart=always", "Restart=no")
    (host.root / "etc/systemd/system/recorded.service").write_text(copied)
    host.run("systemctl daemon-reload && systemctl start recorded.service")
    words = host.run("cat /run/podman.words").stdout.split("\0")[:-1]
    assert words[-len(made.argv) :] == made.argv
    assert words[-len(made.argv) - 1] == podman.IMAGE
    assert f'--entrypoint=["{podman.PYTHON}", "-I", "-X", "utf8", "/launch/program.py"]' in words
    assert {"--ipc=host", "--device", "nvidia.com/gpu=all", "--sdnotify=container"} <= set(words)
    # And podman itself reads the environment file.
    file = words[words.index("--env-file") + 1]
    create = f"podman inspect --format '{{{{json .Config.Env}}}}' $(podman create --env-file {file} {podman.IMAGE} x)"
    env = dict(entry.split("=", 1) for entry in json.loads(host.run(create).stdout))
    assert {name: env.get(name) for name in made.env} == made.env
    host.run("rm /etc/systemd/system/recorded.service; podman rm --all --force; systemctl daemon-reload")


def test_a_container_is_guarded_and_proven(host: FleetHost, tmp_path: Path) -> None:
    made = Rendered(tmp_path)
    made.put_on(host)
    host.run(f"systemctl start {UNIT}", timeout=120)
    text = said(host)
    assert f"proof: release {made.digest}, 4 processes carry all" in text
    assert "launch: h1: warning" not in text
    seen = look(host, UNIT)
    boxed = [p["env"] for p in seen["processes"].values() if p["env"].get("LAUNCH_DIGEST") == made.digest]
    # The program that started the server, the server, and its workers: by the host's own look.
    assert len(boxed) >= 5
    assert all({name: env.get(name) for name in made.env} == made.env for env in boxed)
    assert {env["STANDIN_DEVICES"] for env in boxed} == {"all"}
    host.run(f"systemctl stop {UNIT}", timeout=60)
    assert "the server ended with 0" in said(host)
    assert host.run("podman ps --all --quiet").stdout == ""


WRONG = {
    "a changed file": (
        "sed -i s/NCCL_ALGO=Ring/NCCL_ALGO=Tree/ /etc/launch/boxed/*.env",
        'NCCL_ALGO is "Tree" (should',
    ),
    "an argument more": (
        "sed -i 's/^Exec=.*/& --seed 1/' /etc/containers/systemd/launch-boxed.container",
        "the command has",
    ),
    "a variable more": (
        "sed -i 's/^Network=.*/&\\nEnvironment=NCCL_P2P_DISABLE=1/' /etc/containers/systemd/launch-boxed.container",
        "NCCL_P2P_DISABLE is set, but the release does not set it",
    ),
}


@pytest.mark.parametrize(("change", "reason"), WRONG.values(), ids=WRONG)
def test_what_differs_is_refused_for_good(host: FleetHost, tmp_path: Path, change: str, reason: str) -> None:
    Rendered(tmp_path).put_on(host)
    host.run(f"{change}; systemctl daemon-reload")
    assert host.run(f"systemctl start {UNIT}", check=False, timeout=120).returncode != 0
    assert reason in said(host)
    host.run("sleep 2")
    seen = look(host, UNIT)
    assert (seen["ActiveState"], seen["ExecMainStatus"]) == ("failed", "78")
    host.run(f"systemctl reset-failed {UNIT}")


def test_what_the_image_brings_is_refused(host: FleetHost, tmp_path: Path) -> None:
    podman.change(host, "localhost/standin:leak", "ENV NCCL_P2P_DISABLE=1")
    made = Rendered(tmp_path, image="localhost/standin:leak")
    made.put_on(host)
    assert host.run(f"systemctl start {UNIT}", check=False, timeout=120).returncode != 0
    assert "come from the image (docker inspect IMAGE)" in said(host)
    host.run(f"systemctl reset-failed {UNIT}; {WIPE}")
