"""Little models in folders and caches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from launcher.agent.obstacle import Obstacle

SHARDS = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))


def tensors(size: int = 256) -> bytes:
    """Return a safetensors file of two tensors."""
    half = size // 2
    entries = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "U8", "shape": [size - half], "data_offsets": [half, size]},
        "a": {"dtype": "U8", "shape": [half], "data_offsets": [0, half]},
    }
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def model(folder: Path) -> Path:
    """Write a model of three shards, with an index, into a folder that is there."""
    for number, name in enumerate(SHARDS):
        (folder / name).write_bytes(tensors(100 + number))
    index = {"metadata": {}, "weight_map": {f"layer.{number}": name for number, name in enumerate(SHARDS)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def hub(cache: Path, name: str) -> Path:
    """Write a model into a cache of the hub, and return its snapshot."""
    repository = cache / f"models--{name.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs/main").write_text(commit)
    return model(repository / "snapshots" / commit)


def texts(rows: Iterable[Obstacle]) -> list[tuple[str, str]]:
    """Return ids and severities."""
    return [(row.id, row.severity) for row in rows]
