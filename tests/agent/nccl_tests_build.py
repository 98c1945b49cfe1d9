"""A folder of nccl-tests without GPUs: both programs are the stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.agent.gloo import SIZES

STANDIN = Path(__file__).parent.parent / "standin/nccl_tests.py"


def build(folder: Path, *names: str) -> Path:
    """Make a folder with the programs, which everybody may run."""
    folder.mkdir(exist_ok=True)
    for name in names or ("all_reduce_perf", "all_gather_perf"):
        (folder / name).write_text("#!/usr/bin/python3\n" + STANDIN.read_text())
        (folder / name).chmod(0o755)
    return folder


def specification(folder: Path | str, **fields: Any) -> dict[str, Any]:
    """Return what `nccl_tests_run.run` measures.

    Args:
        folder: of the programs.
        fields: instead of the usual ones; ``standin``: how it misbehaves; those of ``rank`` by ``rank_NAME``.
    """
    env = {"PATH": os.defpath, "NCCL_ALGO": "Ring", "HF_TOKEN": "hf_secret", **fields.pop("env", {})}
    env["STANDIN"] = json.dumps(fields.pop("standin", {}))
    rank = {"backend": "nccl", "dtype": "bfloat16", "seconds": 0.15, "deadline": 30, "sizes": list(SIZES), "parts": 2}
    rank |= {name[5:]: fields.pop(name) for name in list(fields) if name.startswith("rank_")}
    usual = {"python": "/none", "program": "", "cwd": "", "user": "", "world": 2, "gpus": [], "deadline": 30}
    return {**usual, "nccl_tests": str(folder), "env": env, "rank": rank, **fields}
