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

_RUNS = "NCCL 2.28.9 on 2 x H200, SGLang 0.5.17 and vLLM 0.25.0, random weights, P2P off"
_MIB = 1024 * 1024


def _number(d: Deployment, key: str) -> int:
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


def _min_above_max(d: Deployment) -> Iterator[str]:
    low, high = _number(d, "min_nchannels"), _number(d, "max_nchannels")
    if low and high and low > high:
        yield f"nccl.min_nchannels={low} is above nccl.max_nchannels={high}: NCCL would make {low} channels."


def _min_ctas(d: Deployment) -> Iterator[str]:
    low, high = _number(d, "min_ctas"), _number(d, "max_ctas")
    if low and high and low > high:
        yield f"nccl.min_ctas={low} is above nccl.max_ctas={high}: NCCL lowers it to {high}."


def _proto_ll(d: Deployment) -> Iterator[str]:
    if d.nccl.get("proto", "").lower() == "ll":
        yield "nccl.proto=LL also holds for prefill and large batches: measure them before you keep it."


def _buffer_memory(d: Deployment) -> Iterator[str]:
    size, channels = _number(d, "buffsize"), _number(d, "max_nchannels") or _number(d, "min_nchannels")
    if size and channels:
        total = 2 * channels * (size + 5.2 * _MIB) / 1024 / _MIB
        if total >= 0.5:
            yield f"nccl.buffsize={size} with {channels} channels takes up to {total:.1f} GiB of each GPU."


def _p2p_level_without(d: Deployment) -> Iterator[str]:
    level = d.nccl.get("p2p_level")
    if level and d.hw.p2p == "impossible":
        cure = "a patched one: hw.p2p=possible"
        yield f"nccl.p2p_level={level} does nothing on hw={d.hw.name}: its stock driver has no P2P ({cure})."
    elif level and d.nccl.get("p2p_disable") == "1":
        yield f"nccl.p2p_level={level} does nothing beside nccl.p2p_disable=1."


def _p2p_across_the_host(d: Deployment) -> Iterator[str]:
    level = d.nccl.get("p2p_level", "")
    if level.upper() in {"SYS", "PHB"} and d.hw.interconnect != "nvlink" and d.nccl.get("p2p_disable") != "1":
        yield f"nccl.p2p_level={level} needs a host without translating IOMMU (iommu=off or pt) and with ACS off."


def _channels_noop(d: Deployment) -> Iterator[str]:
    channels = _number(d, "max_nchannels")
    if channels and not _number(d, "min_nchannels"):
        yield f"nccl.max_nchannels={channels} is a limit for collectives only; see nccl.max_p2p_nchannels for the rest."


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


def _memory_pool(d: Deployment) -> Iterator[str]:
    if d.nccl.get("cumem_enable") == "0" and d.nccl.get("nvls_enable") == "1":
        yield "nccl.nvls_enable=1 needs nccl.cumem_enable=1."


def _channel_cap(d: Deployment) -> Iterator[str]:
    version = nccl.version_of(d.engine.nccl_version)
    for key in ("min_nchannels", "max_nchannels"):
        if version and version < (2, 25) and _number(d, key) > 32:
            yield f"nccl.{key}={d.nccl[key]}: NCCL {d.engine.nccl_version} makes 32 at most."


def _nvls_only(d: Deployment) -> Iterator[str]:
    if any(words and set(words) <= {"nvls", "nvlstree"} for words in _lists(d, "algo")):
        yield f"nccl.algo={d.nccl['algo']}: name Ring or Tree beside NVLS."


def _chunk(d: Deployment) -> Iterator[str]:
    if _number(d, "chunk_size") >= _MIB:
        yield f"nccl.chunk_size={d.nccl['chunk_size']} is 1 MiB or more."


def _odd_buffer(d: Deployment) -> Iterator[str]:
    size = _number(d, "buffsize")
    if size and size & (size - 1):
        yield f"nccl.buffsize={size} is no power of two."


def _ll128_buffer(d: Deployment) -> Iterator[str]:
    size = _number(d, "ll128_buffsize")
    if size and (size % 120 or (size // 120) & (size // 120 - 1)):
        yield f"nccl.ll128_buffsize={size} is not 120 times a power of two."


def _p2p_off_nvlink(d: Deployment) -> Iterator[str]:
    if d.hw.interconnect != "nvlink" or d.engine.tensor_parallel < 2:
        return
    if d.nccl.get("p2p_disable") == "1":
        yield f"nccl.p2p_disable=1 on hw={d.hw.name}."
    elif d.nccl.get("p2p_level", "").upper() in {"LOC", "0"}:
        yield f"nccl.p2p_level={d.nccl['p2p_level']} on hw={d.hw.name}."


def _short_timeout(d: Deployment) -> Iterator[str]:
    if 1 <= _number(d, "ib_timeout") < 14:
        exponent = d.nccl["ib_timeout"]
        yield f"nccl.ib_timeout={exponent} is 4 us x 2^{exponent}; NCCL's own was never below 14."


def _no_nvlink_domain(d: Deployment) -> Iterator[str]:
    if "GB200" in d.hw.gpu or "GB300" in d.hw.gpu:
        off = [k for k in ("cumem_enable", "mnnvl_enable") if d.nccl.get(k) == "0"]
        if off:
            yield f"{', '.join(f'nccl.{k}=0' for k in off)} on hw={d.hw.name}."


def _level_words(d: Deployment) -> Iterator[str]:
    version = nccl.version_of(d.engine.nccl_version)
    level = d.nccl.get("p2p_level", "")
    if version and version < (2, 6) and level.isalpha():
        yield f"nccl.p2p_level={level}: NCCL {d.engine.nccl_version} knows numbers only."


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
        f"{_RUNS}: 'no algorithm/protocol available for function AllGather'; NVIDIA/nccl#317",
        _bare_tree,
    ),
    Rule(
        "nccl-bare-tree-raw",
        "refuse",
        "From NCCL 2.24 a bare Tree leaves all-gather and broadcast without an algorithm: both engines die at their"
        " start.",
        f"{_RUNS}: 'no algorithm/protocol available for function AllGather'",
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
        "nccl-min-above-max-channels",
        "refuse",
        "The minimum wins, without any warning.",
        "NCCL 2.28.9 log: MIN 16 with MAX 2 gave 16 channels",
        _min_above_max,
    ),
    Rule(
        "nccl-min-above-max-ctas",
        "warn",
        "Here, unlike for channels, the maximum wins.",
        "NCCL source, 2.18 to 2.30",
        _min_ctas,
    ),
    Rule(
        "nccl-proto-ll",
        "warn",
        "Half of LL's payload is flags. Against NCCL's own choice the tuned set with LL cost 2.4 x the time to first"
        " token at 8k and 35 % of step time at batch 64, and gained nothing measurable at batch 1 to 8.",
        f"{_RUNS}, median of 5 to 7",
        _proto_ll,
    ),
    Rule(
        "nccl-buffer-memory",
        "inform",
        "Each channel holds its buffers (BUFFSIZE + 5.2 MiB) in both directions, memory that the KV cache then lacks.",
        "NVIDIA/nccl#559, #295, #1685; NCCL source",
        _buffer_memory,
    ),
    Rule(
        "nccl-p2p-level-void",
        "warn",
        "Without P2P all traffic goes through host memory, whatever the level says.",
        f"{_RUNS}: the level is never reported as read; tinygrad/open-gpu-kernel-modules#29",
        _p2p_level_without,
    ),
    Rule(
        "nccl-p2p-iommu",
        "inform",
        "With a translating IOMMU or ACS redirect, P2P across the host hangs or gives wrong data.",
        "NVIDIA/nccl#2079; tinygrad/open-gpu-kernel-modules#45; local-inference-lab/rtx6kpro#15",
        _p2p_across_the_host,
    ),
    Rule(
        "nccl-channels-limit",
        "inform",
        "It changes nothing where NCCL makes fewer, and does not limit send and receive.",
        f"{_RUNS}: NCCL made 4 channels; NVIDIA/nccl#1598",
        _channels_noop,
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
        "nccl-channels-cap",
        "warn",
        "Up to NCCL 2.24 the cap is 32 channels, then 64; what is above is cut without an error.",
        "NCCL source tags 2.3.5 to 2.30.7 (MAXCHANNELS)",
        _channel_cap,
    ),
    Rule(
        "nccl-nvls-alone",
        "warn",
        "NVLS does not take every data type; a function that has nothing else fails when it meets one.",
        "NVIDIA/nccl#1898: no algorithm for AllReduce of ncclInt64",
        _nvls_only,
    ),
    Rule(
        "nccl-chunk-size",
        "warn",
        "Reported and reproduced by a maintainer: wrong results and Xid 31.",
        "NVIDIA/nccl#2408",
        _chunk,
    ),
    Rule(
        "nccl-buffsize-odd",
        "warn",
        "Buffers that the threads do not divide gave wrong sums.",
        "NVIDIA/nccl#698 (1000000 bytes)",
        _odd_buffer,
    ),
    Rule(
        "nccl-ll128-buffsize",
        "warn",
        "Lines of LL128 carry 120 bytes; another size hung at once.",
        "NVIDIA/nccl#1739 (123000 bytes)",
        _ll128_buffer,
    ),
    Rule(
        "nccl-p2p-off-nvlink",
        "warn",
        "The GPUs then talk through host memory in spite of NVLink: 1060 us against 152 us for 29 MB on two H200.",
        "NVIDIA/nccl-tests#228; NCCL 2.28.9 on 2 x H200",
        _p2p_off_nvlink,
    ),
    Rule(
        "nccl-ib-timeout-short",
        "warn",
        "A retry that comes too early breaks the connection (error 12) under load.",
        "areal-project/AReaL#640; NVIDIA/nccl#902",
        _short_timeout,
    ),
    Rule(
        "nccl-mnnvl-off",
        "warn",
        "Without cuMem there is no NVLink between the hosts of a rack: 506 us became 1350 us for 112 MiB.",
        "lightseekorg/tokenspeed PR 1127 (GB200)",
        _no_nvlink_domain,
    ),
    Rule(
        "nccl-level-words",
        "warn",
        "Up to NCCL 2.5 a word here was read as 0, which switches P2P off.",
        "NVIDIA/nccl#332",
        _level_words,
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
        _RUNS,
        _silent,
    ),
    Rule(
        "nccl-nvls-without-cumem",
        "warn",
        "NVLS, multi-node NVLink and symmetric memory need cuMem.",
        "NCCL source 2.21 to 2.30; lightseekorg/tokenspeed PR 1127",
        _memory_pool,
    ),
)
