"""The agent runs on the host's own Python, which may be as old as 3.8."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import launcher.agent
from launcher.host import bundle
from tests.packaging.interpreters import found

SOURCES = sorted(Path(launcher.agent.__file__).parent.glob("*.py"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The agent as it lies on a host."""
    path = tmp_path / "agent.py"
    path.write_text(bundle.program(), encoding="utf-8")
    return path


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_grammar_is_that_of_3_8(source: Path) -> None:
    ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("version", [(3, minor) for minor in range(8, 14)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_every_module_loads_and_usage_is_told(program: Path, version: tuple[int, int]) -> None:
    """As the unit starts it, with warnings as errors; loading compiles and imports every module."""
    python = found().get(version)
    if python is None:
        pytest.skip(f"no Python {version[0]}.{version[1]} here")
    for argv in ([], ["guard"], ["wait", "x"]):
        command = [str(python.path), "-W", "error", "-I", "-X", "utf8", str(program), *argv]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: agent.py guard MANIFEST")


@pytest.mark.parametrize("version", [(3, minor) for minor in range(8, 14)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_the_program_of_a_batch_job_loads_and_refuses(version: tuple[int, int]) -> None:
    """As a task of Slurm starts it: from standard input, with the manifest in it."""
    python = found().get(version)
    if python is None:
        pytest.skip(f"no Python {version[0]}.{version[1]} here")
    command = [str(python.path), "-W", "error", "-I", "-X", "utf8", "-", "server"]
    program = bundle.task_program("{}")
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert "REFUSED to start the server:" in done.stderr
    assert "the manifest of this program is no manifest" in done.stderr
