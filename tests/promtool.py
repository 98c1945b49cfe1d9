"""Prometheus' own tool, taken out of Debian's package: nothing is installed, no daemon is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.fleet import base

if TYPE_CHECKING:
    from pathlib import Path


def promtool() -> str:
    """Return the path of promtool; skips the test where it cannot be had, and fails it with LAUNCH_REQUIRE_FLEET=1."""
    path, obstacle = _found()
    if obstacle and os.environ.get("LAUNCH_REQUIRE_FLEET") == "1":
        pytest.fail(f"LAUNCH_REQUIRE_FLEET=1, but {obstacle}", pytrace=False)
    if obstacle:
        pytest.skip(obstacle)
    return path


def check_metrics(text: str) -> str:
    """Return everything that promtool says against metrics."""
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    return said or (f"exit {done.returncode}" if done.returncode else "")


@cache
def _found() -> tuple[str, str]:
    """Return the path, or what is in the way."""
    here = shutil.which("promtool")
    if here:
        return here, ""
    kept = base.cache() / "promtool"
    if kept.exists():
        return str(kept), ""
    if os.geteuid() != 0 or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "", "there is no promtool here, and to download it takes root and apt-get"
    with base.locked(kept):
        try:
            if not kept.exists():
                _download(kept)
        except subprocess.CalledProcessError as error:
            return "", f"promtool cannot be downloaded: {error.stderr.decode('utf-8', 'replace').strip()[-300:]}"
    return str(kept), ""


def _download(kept: Path) -> None:
    growing = kept.with_name(".promtool.growing")
    shutil.rmtree(growing, ignore_errors=True)
    growing.mkdir()
    try:
        subprocess.run(["apt-get", "download", "--quiet", "prometheus"], cwd=growing, capture_output=True, check=True)
        (package,) = growing.glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, growing / "root"], capture_output=True, check=True)
        (growing / "root/usr/bin/promtool").rename(kept)
    finally:
        shutil.rmtree(growing, ignore_errors=True)
