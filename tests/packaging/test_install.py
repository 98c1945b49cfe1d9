"""Every way to install gives the same `launch`: the prescribed commands work from any folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.interpreters import found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
PRESCRIBED = (["+hw=rtx6000x8", "+spec=eagle3_2step"], ["-m", "nccl.algo=Ring,Tree"])
#: Folders of the checkout, and where their files are in the wheel.
DATA = {"conf": "launcher/conf", "templates": "launcher/templates", "systemd": "launcher/systemd"}


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program and return what it printed; a failure shows all of it."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """What a release of the project consists of."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for environments, gone afterwards: pytest would keep its own for three more runs."""
    with tempfile.TemporaryDirectory(prefix="launch-packaging-") as path:
        yield Path(path).resolve()


@pytest.fixture(scope="module")
def built(folder: Path) -> Built:
    """The sdist, and the wheel that was built from it."""
    out = folder / "dist"
    run(sys.executable, "-m", "build", "--outdir", out, CHECKOUT, cwd=folder)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def around(folder: Path) -> dict[str, str]:
    """The environment for uv: it trusts the machine's authorities, as pip does, and leaves no locks in /tmp."""
    return os.environ | {"UV_SYSTEM_CERTS": "1", "TMPDIR": str(folder)}


@pytest.fixture(scope="module")
def installers(folder: Path) -> Path:
    """Where the programs uv and pipx are."""
    return pip_install(folder / "installers", "uv", "pipx")


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, str]:
    """The files that the commands of this checkout write."""
    place = folder / "expected"
    place.mkdir()
    code = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from launcher.cli import main; sys.exit(main())"
    return written([sys.executable, "-c", code], place)


def pip_install(environment: Path, *what: str | Path) -> Path:
    """Make an environment, let pip install something there, and return its folder of programs.

    Uncompiled: most of what is installed is never run, and compiling it takes longer than all the rest.
    """
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment.parent)
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin/python", "--disable-pip-version-check")
    run(*pip, "install", "--no-compile", "--quiet", *what, cwd=environment.parent)
    return environment / "bin"


def foreign(home: Path) -> dict[str, str]:
    """Return the environment of a user who knows nothing of this checkout."""
    return {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}


def written(launch: list[str | Path], place: Path) -> dict[str, str]:
    """Run the prescribed commands in an empty folder; return every file there with its digest."""
    home = place / "home"
    work = place / "work"
    home.mkdir()
    work.mkdir()
    for words in PRESCRIBED:
        run(*launch, *words, cwd=work, env=foreign(home))
    assert not list(home.iterdir())
    assert [path.name for path in work.iterdir()] == ["rendered"]
    files = sorted(path for path in work.rglob("*") if path.is_file())
    return {str(path.relative_to(work)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_works(bin_folder: Path, place: Path, expected: dict[str, str]) -> None:
    """Assert that an installed ``launch`` does what the one of the checkout does."""
    assert len(expected) == 3  # one release; a sweep that names no machine writes nothing
    assert written([bin_folder / "launch"], place) == expected


def origin(bin_folder: Path, place: Path) -> Path:
    """Return where the package lies that an environment's Python imports."""
    code = "import launcher; print(launcher.__file__)"
    return Path(run(bin_folder / "python", "-I", "-c", code, cwd=place, env=foreign(place)).strip())


def test_the_wheel_has_everything_that_runs_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = [*(CHECKOUT / "launcher").rglob("*.py"), *(CHECKOUT / "launcher").rglob("*.csv")]
    wanted = {str(path.relative_to(CHECKOUT)) for path in package}
    for source, target in DATA.items():
        files = [path for path in (CHECKOUT / source).rglob("*") if path.is_file()]
        assert files
        wanted |= {f"{target}/{path.relative_to(CHECKOUT / source)}" for path in files}
    assert wanted <= names
    assert {
        "launcher/py.typed",
        "launcher/conf/config.yaml",
        "launcher/templates/unit.service.j2",
        "launcher/systemd/launch.target",
        "launcher/agent/main.py",
        "launcher/catalogue/nccl.csv",
    } <= names
    assert {name.split("/")[0] for name in names} == {"launcher"}
    assert not [name for name in names if {"tests", "__pycache__"} & set(name.split("/"))]


def test_the_sdist_has_the_tests_too(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"tests/all", "tests/conftest.py", "conf/config.yaml", "LICENSE", "README.md", "CHANGELOG.md"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "rendered", "dist"))]


def wheel(built: Built) -> list[str | Path]:
    return [built.wheel]


def sdist(built: Built) -> list[str | Path]:
    return [built.sdist]


def editable(_: Built) -> list[str | Path]:
    return ["--editable", CHECKOUT]


@pytest.mark.parametrize("what", [wheel, sdist, editable])
def test_pip(
    what: Callable[[Built], list[str | Path]], built: Built, folder: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    bin_folder = pip_install(folder / what.__name__, *what(built))
    assert origin(bin_folder, tmp_path).is_relative_to(CHECKOUT if what is editable else bin_folder.parent)
    assert_works(bin_folder, tmp_path, expected)


def test_uv_tool(
    installers: Path, around: dict[str, str], folder: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    env = around | {"UV_TOOL_DIR": str(folder / "uv"), "UV_TOOL_BIN_DIR": str(folder / "uv-bin")}
    run(installers / "uv", "tool", "install", "--python", sys.executable, CHECKOUT, cwd=tmp_path, env=env)
    assert_works(folder / "uv-bin", tmp_path, expected)


def test_pipx(installers: Path, around: dict[str, str], folder: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    names = ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR", "PIPX_COMPLETION_DIR")
    env = around | {name: str(folder / "pipx" / name.lower()) for name in names} | {"PIP_NO_COMPILE": "1"}
    run(installers / "pipx", "install", "--python", sys.executable, CHECKOUT, cwd=tmp_path, env=env)
    assert_works(folder / "pipx/pipx_bin_dir", tmp_path, expected)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_every_python(
    version: tuple[int, int],
    built: Built,
    installers: Path,
    around: dict[str, str],
    folder: Path,
    tmp_path: Path,
    expected: dict[str, str],
) -> None:
    python = found().get(version)
    if python is None:
        pytest.skip(f"no Python {version[0]}.{version[1]} here")
    environment = folder / f"python-{version[0]}.{version[1]}"
    uv = installers / "uv"
    run(uv, "venv", "--python", python.path, environment, cwd=folder, env=around)
    run(uv, "pip", "install", "--python", environment / "bin/python", built.wheel, cwd=folder, env=around)
    assert_works(environment / "bin", tmp_path, expected)


def test_too_old_a_python_is_refused(built: Built, installers: Path, folder: Path) -> None:
    old = [python for version, python in found().items() if version < (3, 11)]
    if not old:
        pytest.skip("no Python older than 3.11 here")
    environment = folder / "python-old"
    run(installers / "uv", "venv", "--python", old[-1].path, environment, cwd=folder)
    command = (installers / "uv", "pip", "install", "--python", environment / "bin/python", built.wheel)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Python>=3.11" in done.stderr
