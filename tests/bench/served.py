"""Points that the stand-in serves on this machine, and what a test looks for afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.render import render
from launcher.sweep.points import Candidate
from launcher.sweep.record import Point
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

STANDIN = Path(__file__).parent.parent / "standin" / "standin.py"
#: The stand-in comes up at once, and its workers rename themselves as those of the real engines do.
QUICK = {"STANDIN_LOAD_SECONDS": "0.1", "STANDIN_WARMUP_SECONDS": "0.05"}


def standin(folder: Path, fault: str = "") -> Path:
    """Put a stand-in engine into a folder and return its interpreter; ``fault`` is named by no release."""
    folder.mkdir(exist_ok=True)
    shutil.copy(STANDIN, folder / "standin.py")
    (folder / "fault").write_text(fault)
    python = folder / "python"
    python.write_text(f"#!{sys.executable} {folder / 'standin.py'}\n")
    python.chmod(0o755)
    return python


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def candidate(
    python: Path | str,
    port: int,
    *words: str,
    engine: str = "vllm",
    env: Mapping[str, str] = QUICK,
    start: int = 15,
    stop: int = 5,
    ranks: int = 2,
) -> Candidate:
    """Return a point; the limits may be shorter than a release's."""
    deployment = compose(
        [
            *(
                "model=tiny",
                f"engine={engine}",
                f"engine.tensor_parallel={ranks}",
                "nccl=pcie_ll_ring",
                "target=process",
            ),
            *(f"engine.python={python}", f"engine.port={port}", "engine.host=127.0.0.1", *words),
        ],
        env,
    )
    release = render(deployment)
    unit = dataclasses.replace(deployment.unit, start_timeout=start, stop_timeout=stop)
    return Candidate(Point(release.digest, "p", {}), (), dataclasses.replace(deployment, unit=unit), release)


def marked(digest: str) -> dict[int, str]:
    """Return the living processes of a release with their titles, by other means than launch's."""
    found = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            block = Path(f"/proc/{pid}/environ").read_bytes()
            title = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            continue
        if f"LAUNCH_DIGEST={digest}".encode() in block.split(b"\0"):
            found[pid] = title
    return found


def living(pids: Iterable[int]) -> list[int]:
    """Return those of some processes that have not ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Return what a condition says as soon as it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
