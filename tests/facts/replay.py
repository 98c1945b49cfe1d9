"""Machines for the tests of facts: recorded and made-up tools on the PATH, and made-up trees of /proc and /sys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from launcher.agent import facts

HERE = Path(__file__).parent
H200 = HERE / "recorded" / "h200x2"
RTX6000 = HERE / "made_up" / "rtx6000x8"


def tools(folder: Path, *machines: Path) -> Path:
    """Make a folder of stand-in tools that print what these machines printed; later ones win."""
    folder.mkdir(exist_ok=True)
    for machine in machines:
        for file in machine.iterdir():
            shutil.copy(file, folder)
            tool = folder / file.name.split("_")[0]
            shutil.copy(HERE / "stand_in", tool)
            tool.chmod(0o755)
    return folder


def tool(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


def text(machine: Path, name: str) -> str:
    return (machine / name).read_text()


def write(root: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def card(root: Path, port: str, address: str, iommu: str | None) -> None:
    """Add an NVIDIA GPU below a port to /sys, in a group of the IOMMU or in none."""
    device = root / "sys/devices/pci0000:00" / port / address
    write(device, {"vendor": "0x10de\n", "class": "0x030200\n"})
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / address).symlink_to(device)
    if iommu is not None:
        number = len(list((root / "sys/kernel/iommu_groups").glob("*")))
        write(root, {f"/sys/kernel/iommu_groups/{number}/type": f"{iommu}\n"})
        (device / "iommu_group").symlink_to(root / f"sys/kernel/iommu_groups/{number}")


def parsed(machine: Path, p2p: Path | None = None) -> dict[str, Any]:
    """Return the facts that the tools of a machine tell, as they arrive from a host."""
    found = {
        "gpus": facts.gpus(text(machine, "nvidia-smi_-q_-x")),
        "topology": facts.matrix(text(machine, "nvidia-smi_topo_-m")),
        "p2p_read": facts.matrix(text(p2p or machine, "nvidia-smi_topo_-p2p_r")),
        "unknown": {},
    }
    result: dict[str, Any] = json.loads(json.dumps(found))
    return result
