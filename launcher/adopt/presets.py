"""Which options of the groups fit what was found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from launcher.catalogue import nccl
from launcher.compose import options
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.compose import Layers
    from launcher.schema import Speculation

#: NCCL's own log: no part of a tuned set.
_LOG = ("debug", "debug_subsys", "debug_file")
_DEFAULT = "default"
_CACHED = re.compile(r"models--[^/]+?--([^/]+)")


@dataclass(frozen=True)
class Hw:
    """An option of ``hw``, and why it fits.

    Attributes:
        name: empty where none does.
        why: for people; a guess says that it is one.
        guessed: whether nothing of the input said it.
    """

    name: str = ""
    why: str = ""
    guessed: bool = False


def model(layers: Layers, path: str) -> str:
    """Return the model whose weights are in a folder of this name, wherever that lies."""
    name = base_name(path)
    return next((o for o, d in options.read(layers, "model").items() if base_name(str(d.get("path", ""))) == name), "")


def base_name(path: str) -> str:
    """Return what weights are called, in a folder, on a hub, or in a hub's cache."""
    cached = _CACHED.search(path)
    return (cached[1] if cached else PurePosixPath(path).name).lower()


def nccl_set(layers: Layers, wanted: Mapping[str, str], usual: str = "") -> str:
    """Return the option that leaves the fewest lines to write; the one that the hardware brings wins a tie."""
    tuned = {key: value for key, value in wanted.items() if key not in _LOG}
    sets = {name: _variables(data) for name, data in options.read(layers, "nccl").items()}
    cost = {name: _lines(found, tuned) for name, found in sets.items() if found is not None}
    exact = [name for name, lines in cost.items() if lines == 0]
    for name in (usual, _DEFAULT, *exact):
        if name in exact:
            return name
    best = min(cost, key=lambda name: (cost[name], name != usual), default=_DEFAULT)
    # The choice is a line of its own.
    return best if cost and cost[best] + 1 < len(tuned) else _DEFAULT


def _lines(found: Mapping[str, str], wanted: Mapping[str, str]) -> int:
    return sum(found.get(key) != wanted.get(key) for key in {*found, *wanted})


def _variables(data: Mapping[str, Any]) -> dict[str, str] | None:
    try:
        return {str(key): nccl.canonical(str(key), value) for key, value in data.items() if value is not None}
    except ConfigError:
        return None  # whoever chooses it is told


def speculation(layers: Layers, wanted: Speculation) -> str:
    """Return the option with these steps; a draft model may lie elsewhere."""
    if wanted.method == "off":
        return ""
    keys = ("method", "steps", "topk", "draft_tokens", "ngram_max")
    fits = {
        name: data
        for name, data in options.read(layers, "spec").items()
        if all(data.get(key, getattr(type(wanted), key)) == getattr(wanted, key) for key in keys)
    }
    same = [name for name, data in fits.items() if data.get("draft_model_path", "") == wanted.draft_model_path]
    return next(iter([*same, *fits]), "")


def hardware(layers: Layers, gpus: Sequence[str], variables: Mapping[str, str], degree: int) -> Hw:
    """Return the machine: by the names of its GPUs, or guessed from the set that only one machine brings."""
    machines = options.read(layers, "hw")
    if gpus:
        return _by_names(machines, gpus)
    tuned = {key: value for key, value in variables.items() if key not in _LOG}
    sets = {name: _variables(data) for name, data in options.read(layers, "nccl").items()}
    fits = [
        (name, brought)
        for name, data in machines.items()
        if (brought := _brings(data)) and tuned and sets.get(brought) == tuned and _part(data, "gpu_count") == degree
    ]
    if len(fits) != 1:
        return Hw()
    name, brought = fits[0]
    why = (
        f"the {len(tuned)} NCCL variables are exactly nccl={brought}, which hw={name} alone brings"
        f" ({degree} x {_part(machines[name], 'gpu')}), and the server uses {degree} GPUs"
    )
    return Hw(name, why, guessed=True)


def _by_names(machines: Mapping[str, Mapping[str, Any]], gpus: Sequence[str]) -> Hw:
    counted = [name for name, data in machines.items() if _part(data, "gpu_count") == len(gpus)]
    named = [name for name in counted if all(_is_gpu(str(_part(machines[name], "gpu")), gpu) for gpu in gpus)]
    best = sorted(named, key=lambda name: -len(str(_part(machines[name], "gpu"))))
    return Hw(best[0], f"{len(gpus)} x {gpus[0]}") if best else Hw()


def _is_gpu(said: str, found: str) -> bool:
    return bool(said) and re.search(rf"(?<!\w){re.escape(said)}(?!\w)", found) is not None


def usual_set(layers: Layers, hw: str) -> str:
    """Return the NCCL set that a machine brings."""
    return _brings(options.read(layers, "hw").get(hw, {}))


def _part(data: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - as the file says
    inner = data.get("hw", data)
    return inner.get(key) if isinstance(inner, dict) else None


def _brings(data: Mapping[str, Any]) -> str:
    """Return the NCCL set that a machine's file chooses."""
    for entry in data.get("defaults") or ():
        if isinstance(entry, dict) and isinstance(entry.get("override /nccl"), str):
            return str(entry["override /nccl"])
    return ""
