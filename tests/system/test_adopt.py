"""From a server that somebody started by hand to one that launch runs, by its two commands."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.system.test_takeover import BY_HAND, CLEAN, COMMAND, SECRET, seen, start
from tests.system.tool import assert_tuned, look

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fleet import FleetHost
    from tests.system.tool import Launch

pytestmark = pytest.mark.fleet

#: The stand-in as a package of an interpreter, so that its command line is that of the engine to the word.
PACKAGE = """
mkdir -p /opt/by_hand/sglang && cd /opt/by_hand/sglang && touch __init__.py && cat > launch_server.py <<'END'
import runpy, sys
sys.argv = ["/opt/standin/standin.py", "-m", "sglang.launch_server", *sys.argv[1:]]
runpy.run_path("/opt/standin/standin.py", run_name="__main__")
END
"""
START = COMMAND.replace("/opt/standin/python", "/usr/bin/python3").replace(" 'two words' ''", " kimi")


def test_adopted_and_taken_over(launch: Launch, host: FleetHost, tmp_path: Path) -> None:
    host.run(CLEAN + PACKAGE)
    old = start(host, BY_HAND.replace(COMMAND, START).replace("ODD=", "PYTHONPATH=/opt/by_hand ODD="))

    def run(*words: str, code: int) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    reach = [f"target.ssh_config={launch.fleet.ssh_config}", "target.connect_timeout=3"]
    told = run("adopt", "--host", "h1", *reach, "name=taken", code=0)
    assert "written: conf/deployment/taken.yaml" in told
    file = (tmp_path / "conf/deployment/taken.yaml").read_text()
    assert old["digest"] in file
    assert SECRET not in file
    assert "take over process" in run("plan", "taken", "unit.start_timeout=20", code=3)
    run("up", "taken", "unit.start_timeout=20", "--yes", code=0)
    unit = look(host, "launch-taken.service")
    assert str(seen(host)["pid"]) == unit["MainPID"] != str(old["pid"])
    assert_tuned(unit)
    ours = set(seen(host)["env"])
    lost = {entry for entry in old["env"] if entry and entry not in ours}
    assert not {entry.partition("=")[0] for entry in lost} & {"HF_TOKEN", "LD_LIBRARY_PATH", "PYTHONPATH"}, lost
    run("drift", "taken", "unit.start_timeout=20", code=0)
    run("uninstall", "taken", "--yes", code=0)
