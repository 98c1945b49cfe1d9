"""Which environment variables are settings of a server, and which ones an engine adds by itself.

``others.csv`` holds the settings that are not NCCL's, ``engine_additions.csv`` what SGLang and vLLM write into
the environment that their workers inherit. Each row names its source; both files are read at the first question.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from launcher.catalogue import nccl
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

ANY = "*"


@functools.cache
def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a data file beside this module."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def watched_prefixes() -> tuple[str, ...]:
    """Return the beginnings of names worth looking at on a host, whether or not the catalogue knows the name.

    Not every such name is a setting: CUDA_HOME and CUDA_VERSION describe an image. Not every one is harmless
    to show either: vLLM reads VLLM_API_KEY.
    """
    return (
        "NCCL_",
        "TORCH_NCCL_",
        "TORCH_SYMM_MEM_",
        "PYTORCH_",
        "CUDA_",
        "UCX_",
        "GLOO_",
        "NVSHMEM_",
        "OMP_",
        "TRTLLM_",
        "VLLM_",
        "SGLANG_",
        "SGL_",  # the old spelling, which SGLang copies to SGLANG_
        "EAGLE3_",
        "SPT_",
    )


@functools.cache
def settings() -> frozenset[str]:
    """Return every name that is known to change how a server behaves: NCCL's and the others."""
    return nccl.settings() | frozenset(row["name"] for row in rows("others.csv"))


@functools.cache
def additions(engine: str) -> Mapping[str, frozenset[str] | None]:
    """Return what an engine sets by itself: name to the values it may write, None for any value.

    All releases that were read are taken together; the columns `when`, `since` and `until` say more.
    """
    found: dict[str, set[str]] = {}
    known = rows("engine_additions.csv")
    for row in known:
        if row["engine"] == engine:
            found.setdefault(row["name"], set()).add(row["value"])
    if not found:
        engines = sorted({row["engine"] for row in known})
        message = f"no engine {engine!r}{nearest(engine, engines)} Known: {', '.join(engines)}"
        raise ConfigError(message)
    return MappingProxyType({n: None if ANY in values else frozenset(values) for n, values in found.items()})
