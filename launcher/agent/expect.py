"""What a host is against what `hw` expects of it. Pure: the facts are data that the agent reported.

A field of `hw` that says nothing gives no finding. What the host could not tell about a field that says something is
`unknown`, never a difference. Some faults need no expectation: a link narrower than it could be, a lowered power
limit, MIG; they are found wherever GPUs are.
"""

from __future__ import annotations

from re import escape, search
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

#: `hw` of a deployment, and what `facts.facts` found.
Hardware = Mapping[str, Any]
Facts = Mapping[str, Any]
Gpus = Sequence[Mapping[str, Any]]

#: A field that is not there says as little as an empty one: what is deployed may be older than this agent.
_SAYS_NOTHING = {
    **dict.fromkeys(("gpu_count", "gpu_memory_gb", "pcie_generation", "numa_nodes", "power_limit_w"), 0),
    **dict.fromkeys(("interconnect", "p2p"), "unknown"),
    "gpu": "",
}

#: A data sheet's gigabytes against what the driver leaves of them, in GiB.
_MEMORY_TOLERANCE = 0.07
#: From here on a GPU counts as busy, and then its link must run at full speed.
_BUSY_PERCENT = 20
#: What NCCL may take of /dev/shm for each GPU where there is no P2P: 16 channels of 9.6 MB (its own default buffers)
#: for the ring, and room for the tree.
_SHM_MIB_PER_GPU = 256
_NOT_VIRTUAL = ("", "None", "N/A")
_P2P_WORDS = {
    "CNS": " (chipset not supported)",
    "GNS": " (GPU not supported)",
    "TNS": " (topology not supported)",
    "NS": " (not supported)",
    "DR": " (disabled in the driver's settings)",
    "U": " (unknown)",
}


class Difference(NamedTuple):
    """One difference; its text names what is and what should be. Severities: ``warn``, ``inform``, ``unknown``."""

    id: str
    severity: str
    text: str


class _Look(NamedTuple):
    """A part of the facts: what `hw` says about it, and how it is judged."""

    name: str
    id: str
    said: Callable[[Hardware], List[str]]
    judge: Callable[[Hardware, Facts], Iterator[Difference]]


def differences(hw: Hardware, facts: Facts) -> List[Difference]:
    """Return where a host differs from what is expected of it; ``hw`` has the fields of `schema.Hardware`."""
    hw = {**_SAYS_NOTHING, **hw}
    found: List[Difference] = []
    for look in _LOOKS:
        said = look.said(hw)
        if facts.get(look.name) is not None:
            found += look.judge(hw, facts)
        elif said:
            reason = facts.get("unknown", {}).get(look.name, "the host was not asked")
            found.append(Difference(look.id, "unknown", f"{', '.join(said)}: {reason}"))
    return found


def _said(hw: Hardware, *fields: str) -> List[str]:
    values = ((field, hw[field]) for field in fields)
    return [f"hw.{field}={value}" for field, value in values if value not in (0, "", "unknown")]


def _pcie_p2p(hw: Hardware) -> List[str]:
    """Return what is said of P2P where it has to cross PCIe; over NVLink neither IOMMU nor ACS is in the way."""
    return (
        _said(hw, "p2p") if hw["p2p"] == "possible" and hw["interconnect"] != "nvlink" and hw["gpu_count"] != 1 else []
    )


def _gpus(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    gpus: Gpus = facts["gpus"]
    if hw["gpu_count"] and len(gpus) != hw["gpu_count"]:
        severity = "warn" if len(gpus) < hw["gpu_count"] else "inform"
        yield Difference("hw-gpu-count", severity, f"{len(gpus)} GPUs; hw.gpu_count={hw['gpu_count']}")
    for judge in (_name, _memory, _generation, _width, _power, _mig, _persistence):
        yield from judge(hw, gpus)


def _each(gpus: Gpus, tell: Callable[[Mapping[str, Any]], Optional[str]]) -> Iterator[str]:
    """Yield what is told of GPUs, once for all that share it."""
    told: Dict[str, List[Mapping[str, Any]]] = {}
    for gpu in gpus:
        text = tell(gpu)
        if text:
            told.setdefault(text, []).append(gpu)
    for text, alike in told.items():
        which = ", ".join(str(gpu["index"]) for gpu in alike)
        every = len(alike) == len(gpus) and len(gpus) > 1
        yield f"{f'all {len(gpus)} GPUs' if every else f'GPU {which}'}: {text}"


def _unsaid(gpus: Gpus, field: str, id_: str, said: str) -> Iterator[Difference]:
    """Yield a finding when the driver does not tell a field that `hw` speaks of."""
    for text in _each(gpus, lambda gpu: "nvidia-smi does not say" if gpu[field] is None else None):
        yield Difference(id_, "unknown", f"{text}; {said}")


def _name(hw: Hardware, gpus: Gpus) -> Iterator[Difference]:
    # As whole words: an L40 is no L40S.
    pattern = rf"(?<!\w){escape(hw['gpu'])}(?!\w)"
    for text in _each(
        gpus, lambda gpu: None if search(pattern, gpu["name"] or "") else gpu["name"] or "without a name"
    ):
        if hw["gpu"]:
            yield Difference("hw-gpu-name", "warn", f"{text}; hw.gpu={hw['gpu']}")


def _memory(hw: Hardware, gpus: Gpus) -> Iterator[Difference]:
    def tell(gpu: Mapping[str, Any]) -> Optional[str]:
        mib = gpu["memory_mib"]
        right = mib is None or abs(mib / 1024 - hw["gpu_memory_gb"]) <= _MEMORY_TOLERANCE * hw["gpu_memory_gb"]
        return None if right else f"{mib} MiB ({mib / 1024:.0f} GiB) of memory"

    if hw["gpu_memory_gb"]:
        said = f"hw.gpu_memory_gb={hw['gpu_memory_gb']}"
        yield from (Difference("hw-gpu-memory", "warn", f"{text}; {said}") for text in _each(gpus, tell))
        yield from _unsaid(gpus, "memory_mib", "hw-gpu-memory", said)


def _generation(hw: Hardware, gpus: Gpus) -> Iterator[Difference]:
    def beside(gpu: Mapping[str, Any], sign: int) -> Optional[str]:
        most = gpu["pcie_generation_max"]
        differs = most is not None and (most - hw["pcie_generation"]) * sign > 0
        return f"PCIe generation {most} at most" if differs else None

    def lowered(gpu: Mapping[str, Any], *, busy: bool) -> Optional[str]:
        now, most = gpu["pcie_generation"], gpu["pcie_generation_max"]
        if now is None or most is None or now >= most or ((gpu["load_percent"] or 0) >= _BUSY_PERCENT) != busy:
            return None
        return f"PCIe generation {now} now, {most} at most"

    if hw["pcie_generation"]:
        said = f"hw.pcie_generation={hw['pcie_generation']}"
        for text in _each(gpus, lambda gpu: beside(gpu, -1)):
            yield Difference("hw-pcie-generation", "warn", f"{text}, by the slot or the firmware; {said}")
        for text in _each(gpus, lambda gpu: beside(gpu, 1)):
            yield Difference("hw-pcie-generation", "inform", f"{text}; {said}")
        yield from _unsaid(gpus, "pcie_generation_max", "hw-pcie-generation", said)
    for text in _each(gpus, lambda gpu: lowered(gpu, busy=True)):
        yield Difference("hw-pcie-generation-now", "warn", f"{text}, under load")
    for text in _each(gpus, lambda gpu: lowered(gpu, busy=False)):
        yield Difference("hw-pcie-generation-now", "inform", f"{text}: an idle GPU lowers it to save power")


def _width(_: Hardware, gpus: Gpus) -> Iterator[Difference]:
    def tell(gpu: Mapping[str, Any]) -> Optional[str]:
        now, most = gpu["pcie_width"], gpu["pcie_width_max"]
        return f"{now} PCIe lanes now, {most} at most" if now is not None and now < (most or 0) else None

    for text in _each(gpus, tell):
        yield Difference("hw-pcie-width", "warn", f"{text}: look at the slot, the riser and the firmware's bifurcation")


def _power(hw: Hardware, gpus: Gpus) -> Iterator[Difference]:
    def tell(gpu: Mapping[str, Any]) -> Optional[str]:
        now, default = gpu["power_limit_w"], gpu["power_default_w"]
        lowered = now is not None and now < max(default or 0, hw["power_limit_w"])
        return f"power limit {now} W" + (f", {default} W by default" if default else "") if lowered else None

    said = f"; hw.power_limit_w={hw['power_limit_w']}" if hw["power_limit_w"] else ""
    yield from (Difference("hw-power-limit", "warn", f"{text}{said}") for text in _each(gpus, tell))
    if said:
        yield from _unsaid(gpus, "power_limit_w", "hw-power-limit", said[2:])


def _mig(hw: Hardware, gpus: Gpus) -> Iterator[Difference]:
    severity = "inform" if hw["gpu_count"] in (0, 1) else "warn"
    for text in _each(gpus, lambda gpu: "MIG is on" if gpu["mig"] else None):
        yield Difference("hw-mig", severity, f"{text}: an engine gets a part of a GPU, and parts have no P2P")


def _persistence(_: Hardware, gpus: Gpus) -> Iterator[Difference]:
    for text in _each(gpus, lambda gpu: "persistence mode is off" if gpu["persistence"] is False else None):
        what = "limits of power and clocks are lost, and the next start is slower, when the last process leaves"
        yield Difference("hw-persistence", "inform", f"{text}: {what}")


def _where(rows: Sequence[Sequence[str]], wanted: Callable[[str], bool]) -> str:
    """Return in words between which GPUs a matrix has such a cell, "" if nowhere."""
    cells = [(i, j, cell) for i, row in enumerate(rows) for j, cell in enumerate(row) if i != j]
    hits = [(i, j) for i, j, cell in cells if wanted(cell)]
    if not hits:
        return ""
    more = f" and {len(hits) - 1} pairs more" if len(hits) > 1 else ""
    return "between any two GPUs" if len(hits) == len(cells) else f"from GPU {hits[0][0]} to {hits[0][1]}{more}"


def _interconnect(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    link = {"nvlink": "no NVLink", "pcie": "NVLink"}.get(hw["interconnect"])
    where = _where(facts["topology"], lambda cell: cell.startswith("NV") == (link == "NVLink"))
    if link and where:
        yield Difference("hw-interconnect", "warn", f"{link} {where}; hw.interconnect={hw['interconnect']}")


def _p2p(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    rows, said = facts["p2p_read"], f"; hw.p2p={hw['p2p']}"
    for state in sorted({cell for row in rows for cell in row} - {"X"}):
        text = f"nvidia-smi topo -p2p r says {state}{_P2P_WORDS.get(state, '')} {_where(rows, state.__eq__)}{said}"
        if hw["p2p"] == "possible" and state != "OK":
            yield Difference("hw-p2p", "unknown" if state == "U" else "warn", text)
        elif hw["p2p"] == "impossible" and state == "OK":
            yield Difference("hw-p2p", "inform", text)


def _iommu(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    said, mode = _pcie_p2p(hw), facts["iommu"]["mode"]
    if said and mode == "translated":
        text = "the IOMMU translates the GPUs' addresses: P2P over PCIe hangs or brings wrong data; boot with iommu=pt"
        yield Difference("hw-iommu", "warn", f"{text} or without it; {said[0]}")
    elif said and mode is None:
        groups = facts["iommu"]["groups"]
        yield Difference("hw-iommu", "unknown", f"the IOMMU is on ({groups} groups), in an unknown mode; {said[0]}")


def _acs(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    said, on = _pcie_p2p(hw), facts["acs"]["on"]
    if said and on:
        names = ", ".join(on[:4]) + (f" and {len(on) - 4} more" if len(on) > 4 else "")
        text = f"ACS is on in {names}: P2P goes through the processor, or hangs; {said[0]}"
        yield Difference("hw-acs", "warn", text)
    elif said and any(gpu["virtualization"] not in _NOT_VIRTUAL for gpu in facts.get("gpus") or ()):
        yield Difference(
            "hw-acs", "unknown", f"this is a virtual machine, which does not see its host's ACS; {said[0]}"
        )


def _numa(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    if hw["numa_nodes"] and facts["numa_nodes"] != hw["numa_nodes"]:
        yield Difference("hw-numa-nodes", "warn", f"{facts['numa_nodes']} NUMA nodes; hw.numa_nodes={hw['numa_nodes']}")


def _shm(hw: Hardware, facts: Facts) -> Iterator[Difference]:
    count = hw["gpu_count"] or len(facts.get("gpus") or ())
    wanted, size, free = count * _SHM_MIB_PER_GPU, facts["shm"]["size_mib"], facts["shm"]["free_mib"]
    if count > 1 and free < wanted:
        text = f"{size} MiB in /dev/shm, {free} of them free; NCCL may want {wanted} for {count} GPUs without P2P"
        yield Difference("hw-shm", "warn" if size < wanted else "inform", text)


_GPU_FIELDS = ("gpu", "gpu_count", "gpu_memory_gb", "pcie_generation", "power_limit_w")
_LOOKS = (
    _Look("gpus", "hw-gpus", lambda hw: _said(hw, *_GPU_FIELDS), _gpus),
    _Look(
        "topology",
        "hw-interconnect",
        lambda hw: _said(hw, "interconnect") if hw["gpu_count"] != 1 else [],
        _interconnect,
    ),
    _Look("p2p_read", "hw-p2p", lambda hw: _said(hw, "p2p") if hw["gpu_count"] != 1 else [], _p2p),
    _Look("iommu", "hw-iommu", _pcie_p2p, _iommu),
    _Look("acs", "hw-acs", _pcie_p2p, _acs),
    _Look("numa_nodes", "hw-numa-nodes", lambda hw: _said(hw, "numa_nodes"), _numa),
    _Look("shm", "hw-shm", lambda hw: _said(hw, "gpu_count") if hw["gpu_count"] > 1 else [], _shm),
)
