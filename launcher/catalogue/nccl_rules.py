"""What NCCL does with settings that look right; every rule names where that was seen."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from launcher.catalogue import environment, nccl
from launcher.catalogue.rules import Rule
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.schema import Deployment

RUNS = "NCCL 2.28.9 on 2 x H200, SGLang 0.5.17 and vLLM 0.25.0, random weights, P2P off"
MIB = 1024 * 1024


def number(d: Deployment, key: str) -> int:
    """Return the value of an NCCL variable that is a whole number, 0 where it is not set."""
    value = d.nccl.get(key, "")
    return int(value) if value.lstrip("-").isdigit() else 0


def _lists(d: Deployment, key: str) -> list[list[str]]:
    """Return the lists of an ALGO or PROTO expression that name what is on; a caret's names what is off."""
    entries = [entry.split(":")[-1] for entry in d.nccl.get(key, "").lower().split(";")]
    return [entry.split(",") for entry in entries if entry and not entry.startswith("^")]


def _has_ll128(d: Deployment) -> bool:
    """Return whether NCCL_PROTO leaves LL128 on: named, or not named behind a caret, which overrides NCCL's check."""
    value = d.nccl.get("proto", "").lower()
    excluded = [entry.split(":")[-1][1:].split(",") for entry in value.split(";") if entry.split(":")[-1][:1] == "^"]
    return any("ll128" in words for words in _lists(d, "proto")) or any("ll128" not in words for words in excluded)


def _bare_tree(d: Deployment) -> Iterator[str]:
    value = d.nccl.get("algo", "")
    rendered = nccl.per_collective(value, d.engine.nccl_version)
    if value.lower() == "tree" and rendered != value and "NCCL_ALGO" not in d.env:
        yield f"nccl.algo={value} is rendered as NCCL_ALGO={rendered}."


def _raw_tree(d: Deployment) -> Iterator[str]:
    value = d.env.get("NCCL_ALGO", "")
    if value.lower() == "tree" and nccl.per_collective(value, d.engine.nccl_version) != value:
        yield f"env.NCCL_ALGO={value} reaches NCCL as it is: set nccl.algo={value}, which is completed."


def _prefix_only(d: Deployment) -> Iterator[str]:
    value = d.nccl.get("algo", "")
    if ":" in value and ":" in value.split(";")[0]:
        yield f"nccl.algo={value} names no list for the other collectives; it is rendered with Ring,Tree before it."


def _ll128(d: Deployment) -> Iterator[str]:
    if _has_ll128(d) and d.hw.interconnect == "pcie":
        yield f"nccl.proto={d.nccl['proto']} on hw={d.hw.name}, which has no NVLink: set nccl.proto=LL or Simple."


def _proto_ll(d: Deployment) -> Iterator[str]:
    if d.nccl.get("proto", "").lower() == "ll":
        yield "nccl.proto=LL also holds for prefill and large batches: measure them before you keep it."


def _by_version(d: Deployment) -> Iterator[str]:
    version = nccl.version_of(d.engine.nccl_version)
    for key in d.nccl if version else ():
        variable = nccl.variables()[key]
        since, removed = nccl.version_of(variable.since), nccl.version_of(variable.removed)
        if since and version < since:
            yield f"nccl.{key}: NCCL {d.engine.nccl_version} does not read it yet (from {variable.since})."
        if removed and version >= removed:
            yield f"nccl.{key}: NCCL {d.engine.nccl_version} does not read it any more (until {variable.removed})."


def _foreign(d: Deployment) -> Iterator[str]:
    for key in d.nccl:
        variable = nccl.variables()[key]
        if variable.reader not in {"nccl", ""}:
            yield f"nccl.{key}: {variable.name} is not read by NCCL but by {variable.reader}."


def _raw(d: Deployment) -> Iterator[str]:
    for name, value in d.env.items():
        if not name.startswith("NCCL_"):
            continue
        key = name[5:].lower()
        if key not in nccl.variables():
            yield f"env.{name}: NCCL reads no such variable and says nothing{nearest(key, nccl.variables())}."
            continue
        try:
            if nccl.canonical(key, value) != value:
                yield f"env.{name}={value}: write nccl.{key}={value}, which is brought into the form that NCCL reads."
        except ConfigError as error:
            yield f"env.{name}: {error.problems[0].removeprefix(f'nccl.{key}')}".replace(": =", "=")


def _silent(d: Deployment) -> Iterator[str]:
    value = d.nccl.get("debug", d.env.get("NCCL_DEBUG", "INFO"))
    if value.upper() not in {"INFO", "TRACE", "ABORT"}:
        yield f"NCCL_DEBUG={value}: the log will not show which settings each rank took."


def _nvls_only(d: Deployment) -> Iterator[str]:
    if any(words and set(words) <= {"nvls", "nvlstree"} for words in _lists(d, "algo")):
        yield f"nccl.algo={d.nccl['algo']}: name Ring or Tree beside NVLS."


def _ll128_network(d: Deployment) -> Iterator[str]:
    several = any(k in ("nnodes", "node_rank") and v for k, v in d.engine.args.items())
    if _has_ll128(d) and (several or d.nccl.get("ib_disable") == "1"):
        yield f"nccl.proto={d.nccl['proto']} also holds between hosts."


def _nearly_known(d: Deployment) -> Iterator[str]:
    known = environment.settings()
    for name in d.env:
        if name not in known and not name.startswith("NCCL_"):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if close:
                yield f"env.{name}: did you mean {close[0]}?"


RULES = (
    Rule(
        "nccl-bare-tree",
        "warn",
        "From NCCL 2.24 a bare Tree leaves all-gather and broadcast without an algorithm: both engines die at their"
        " start with a message that blames memory.",
        f"{RUNS}: 'no algorithm/protocol available for function AllGather'; NVIDIA/nccl#317",
        _bare_tree,
    ),
    Rule(
        "nccl-bare-tree-raw",
        "refuse",
        "From NCCL 2.24 a bare Tree leaves all-gather and broadcast without an algorithm: both engines die at their"
        " start.",
        f"{RUNS}: 'no algorithm/protocol available for function AllGather'",
        _raw_tree,
    ),
    Rule(
        "nccl-algo-prefix-only",
        "inform",
        "From NCCL 2.31 a set NCCL_ALGO first clears every function that it does not name.",
        "NCCL 2.31 source (development branch); vllm-project/vllm PR 58179",
        _prefix_only,
    ),
    Rule(
        "nccl-ll128-pcie",
        "refuse",
        "LL128 relies on NVLink's order of stores: on PCIe it can corrupt data up to NCCL 2.30, and leaves no protocol"
        " from 2.31.",
        "NVIDIA/nccl#740, #831, #1261, PR 1081; NCCL 2.31 source",
        _ll128,
    ),
    Rule(
        "nccl-proto-ll",
        "warn",
        "Half of LL's payload is flags. Against NCCL's own choice the tuned set with LL cost 2.4 x the time to first"
        " token at 8k and 35 % of step time at batch 64, and gained nothing measurable at batch 1 to 8.",
        f"{RUNS}, median of 5 to 7",
        _proto_ll,
    ),
    Rule(
        "nccl-version",
        "warn",
        "NCCL ignores names that it does not know, without a word.",
        "launcher/catalogue/nccl.csv: source tags 2.3.5 to 2.30.7, binaries to 2.32.3",
        _by_version,
    ),
    Rule(
        "nccl-other-reader",
        "inform",
        "Another program reads this name; NCCL's log will not prove it.",
        "launcher/catalogue/nccl.csv, column reader",
        _foreign,
    ),
    Rule(
        "nccl-raw-value",
        "warn",
        "NCCL turns what it cannot read into something else, or ignores it, mostly without a line in the log.",
        "launcher/catalogue/nccl.csv, column on_invalid; NCCL 2.28.9 logs",
        _raw,
    ),
    Rule(
        "nccl-nvls-alone",
        "warn",
        "NVLS does not take every data type; a function that has nothing else fails when it meets one.",
        "NVIDIA/nccl#1898: no algorithm for AllReduce of ncclInt64",
        _nvls_only,
    ),
    Rule(
        "nccl-ll128-network",
        "warn",
        "LL128 forced over a network gave wrong sums, although each host has NVLink.",
        "NVIDIA/nccl#831 (TCP, A100), #2053 (GH200)",
        _ll128_network,
    ),
    Rule(
        "env-nearly-known",
        "inform",
        "A name that nobody reads changes nothing, without a word.",
        "NERSC/podman-hpc#136: the first letter was lost",
        _nearly_known,
    ),
    Rule(
        "nccl-debug-quiet",
        "inform",
        "NCCL_DEBUG=INFO costs about 190 lines a start and no speed, and is the only proof from the library itself.",
        RUNS,
        _silent,
    ),
)
