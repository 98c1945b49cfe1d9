"""A deployment that runs exactly what was applied, as the judges of drift see it: a record and an observation."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from launcher.agent import systemd
from launcher.agent.manifest import parse
from launcher.host.requests import needs
from launcher.render import render
from launcher.render.intent import intent
from tests.composing import compose


class Live(NamedTuple):
    """What a test changes: the record, the observation, and the files that deployments share."""

    record: dict[str, Any]
    seen: dict[str, Any]
    shared: list[dict[str, Any]]


DEPLOYMENT = compose(["+hw=rtx6000x8", "secrets.env.HF_TOKEN=file:/x"])
RELEASE = render(DEPLOYMENT)
MANIFEST = parse(RELEASE.manifest.text, "x")
UNIT = RELEASE.unit_name
MAIN = 715
SECRET = "/etc/launch/kimi_k2_5_int4/secrets/HF_TOKEN"
AT = 1_790_000_000
GPU = {"bus": "0:1", "index": 0, "driver": "580.95", "name": "NVIDIA RTX PRO 6000 Blackwell", "power_limit_w": 600}
GPUS = [
    {
        **GPU,
        "bus": f"0:{i}",
        "index": i,
        "pcie_width_max": 16,
        "ecc": True,
        "mig": False,
        "pids": [],
        "memory_mib": 97887,
    }
    | {"pcie_generation": 5, "pcie_generation_max": 5, "pcie_width": 16, "power_default_w": 600, "load_percent": 0}
    | {"persistence": True, "virtualization": "None"}
    for i in range(8)
]
ROWS = [["X" if i == j else "SYS" for j in range(8)] for i in range(8)]


def entry(path: str, text: str, mode: int) -> dict[str, Any]:
    return {"path": path, "text": text, "mode": mode, "group": "root"}


def file(text: str, mode: int = 0o644, ctime: float = AT + 5) -> dict[str, Any]:
    """A regular file of root's, as `unit_files.state` tells it."""
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return {"kind": "file", "sha256": digest, "content": content, "mode": mode, "owner": "0:0", "ctime": ctime}


def record() -> dict[str, Any]:
    return {
        "deployment": MANIFEST["name"],
        "digest": RELEASE.digest,
        "at": AT,
        "files": [entry(f.path, f.text, f.mode) for f in RELEASE.files],
        "secrets": [SECRET],
        "needs": needs(DEPLOYMENT),
        "intent": json.loads(json.dumps(intent(DEPLOYMENT, ["+hw=rtx6000x8"], "anna@laptop"))),
        "baseline": {
            "loaded": {k: systemd.plain(k, v) for k, v in loaded().items() if k in systemd.SETTINGS},
            "limits": {"Max locked memory": "unlimited unlimited", "Max open files": "524288 524288"},
            "libraries": ["/opt/venv/lib/libnccl.so.2"],
            "drop_ins": {"/usr/lib/systemd/system/service.d/10-vendor.conf": file("[Service]\nNice=1\n")["sha256"]},
            "preload": "",
            "interpreter": {"real": "/usr/bin/python3.11", "mark": "1", "sha256": "ab", "ctime": 1.0},
            "nccl": nccl(),
            "facts": facts(),
        },
        "manifest": MANIFEST,
    }


def loaded() -> dict[str, Any]:
    return {
        "LoadState": "loaded",
        "LoadError": ["", ""],
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "FragmentPath": RELEASE.unit.path,
        "DropInPaths": [],
        "MainPID": MAIN,
        "InvocationID": "c0ffee",
        "NRestarts": 0,
        "ControlGroup": f"/launch.slice/{UNIT}",
        "StateChangeTimestamp": (AT + 60) * 1_000_000,
        "ExecMainStartTimestamp": (AT + 60) * 1_000_000,
        "ExecMainCode": 0,
        "ExecMainStatus": 0,
        "NeedDaemonReload": False,
        "ExecStart": [["/usr/bin/python3", ["/usr/bin/python3", "guard", "--", "x"], False, 1, 2, 3]],
        "Environment": [],
        "EnvironmentFiles": [[RELEASE.env_file.path, False]],
        "UnsetEnvironment": [],
        "User": "llm",
        "MemoryMax": 2**64 - 1,
        "LimitMEMLOCK": 2**64 - 1,
    }


def process(pid: int = MAIN, title: str = "", **env: str) -> dict[str, Any]:
    argv = list(MANIFEST["argv"])
    return {
        "pid": pid,
        "start": b"1",
        "title": title or " ".join(argv),
        "env": {**MANIFEST["env"], "INVOCATION_ID": "c0ffee", "HF_TOKEN": "very-secret", **env},
        "cut": False,
        "argv": [title] if title else argv,
        "since": AT + 60.0,
        "exe": "/usr/bin/python3.11",
        "limits": {"Max locked memory": "unlimited unlimited", "Max open files": "524288 524288"},
        "libraries": [{"path": "/opt/venv/lib/libnccl.so.2", "gone": False}],
    }


def nccl() -> dict[str, Any]:
    return {"proved": ["NCCL_ALGO", "NCCL_PROTO"], "contradicted": [], "silent": [], "versions": ["2.28.9"]}


def facts() -> dict[str, Any]:
    return {
        "gpus": [dict(gpu) for gpu in GPUS],
        "topology": ROWS,
        "p2p_read": [["X" if i == j else "OK" for j in range(8)] for i in range(8)],
        "acs": {"bridges": 8, "on": []},
        "iommu": {"mode": "off", "groups": 0},
        "numa_nodes": 2,
        "shm": {"size_mib": 100_000, "free_mib": 100_000},
        "kernel": {"version": "6.8.0-1", "parameters": []},
        "engine": {"versions": {"sglang": "0.5.23", "torch": "2.14"}, "libnccl": []},
        "unknown": {},
    }


def observation() -> dict[str, Any]:
    return {
        "now": AT + 100.0,
        "files": {f.path: file(f.text, f.mode) for f in RELEASE.files} | {SECRET: file("x", 0o600)},
        "namesakes": {},
        "drop_ins": {
            "/usr/lib/systemd/system/service.d/10-vendor.conf": {
                **file("[Service]\nNice=1\n"),
                "settings": [("Nice", "1")],
            }
        },
        "wanted": True,
        "unfinished": False,
        "loaded": {**loaded(), "DropInPaths": ["/usr/lib/systemd/system/service.d/10-vendor.conf"]},
        "manager": {"environment": {"PATH": "/usr/bin", "LANG": "C.UTF-8"}, "version": 252, "defaults": {}},
        "processes": [process(), process(716, "sglang::scheduler_TP0"), process(717, "sglang::scheduler_TP1")],
        "mark": json.dumps({"digest": RELEASE.digest, "pid": MAIN, "invocation": "c0ffee"}).encode(),
        "listeners": [],
        "gpu_jobs": [],
        "inputs": {},
        "interpreter": {"real": "/usr/bin/python3.11", "mark": "2", "sha256": "ab", "ctime": AT + 50.0},
        "nccl": nccl(),
        "facts": facts(),
    }


def shared() -> list[dict[str, Any]]:
    path = "/usr/local/lib/launch/agent.py"
    return [{"path": path, "mode": 0o644, "text": "", "sha256": file("agent")["sha256"], "seen": file("agent")}]
