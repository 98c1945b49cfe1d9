"""The same deploy by other ways: this machine's own systemd, and a login that is not root."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import launcher
from launcher.paths import data_dir
from tests.system.tool import REFERENCE, UNIT, assert_tuned, look

if TYPE_CHECKING:
    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

#: What `launch` imports where it deploys to its own machine; all of it runs without compiled parts.
PACKAGES = ("hydra", "omegaconf", "antlr4", "yaml", "packaging", "jinja2", "markupsafe")


@pytest.fixture
def installed(host: FleetHost) -> str:
    """Put the tool on the host itself and return the command that runs it there."""
    target = host.root / "opt" / "launch"
    shutil.rmtree(target, ignore_errors=True)
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec
        assert spec.submodule_search_locations
        shutil.copytree(spec.submodule_search_locations[0], target / name, ignore=shutil.ignore_patterns("*.so"))
    shutil.copytree(Path(launcher.__file__).parent, target / "launcher")
    for name in ("conf", "templates", "systemd"):
        shutil.copytree(data_dir(name), target / "launcher" / name, dirs_exist_ok=True)
    return "cd /tmp && PYTHONPATH=/opt/launch python3 -m launcher"


def test_this_machine(installed: str, host: FleetHost) -> None:
    words = f"{' '.join(REFERENCE)} target=local engine.python=/opt/standin/python unit.restart_delay=1"
    assert "localhost" in host.run(f"{installed} plan {words}", check=False).stdout
    done = host.run(f"{installed} up {words} --yes")
    assert "proven in 4 processes" in done.stdout
    assert_tuned(look(host))
    assert "in sync" in host.run(f"{installed} status {words}").stdout


def test_a_login_with_sudo(launch: Launch, host: FleetHost) -> None:
    launch("up", *REFERENCE, "--yes", "target.user=ops")
    assert_tuned(look(host))


def test_a_login_without_sudo_is_told_what_helps(launch: Launch, host: FleetHost) -> None:
    host.run("mv /etc/sudoers.d /etc/sudoers.off; mkdir /etc/sudoers.d")
    try:
        done = launch("plan", *REFERENCE, "target.user=ops", check=1)
    finally:
        host.run("rm -r /etc/sudoers.d; mv /etc/sudoers.off /etc/sudoers.d")
    assert "target.user=root" in done.stdout
    assert host.run(f"systemctl cat {UNIT}", check=False).returncode != 0
