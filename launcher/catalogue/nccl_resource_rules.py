"""What NCCL does with channels, buffers, peer-to-peer levels and time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalogue import nccl
from launcher.catalogue.nccl_rules import MIB, RUNS, number
from launcher.catalogue.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.schema import Deployment


def _min_above_max(d: Deployment) -> Iterator[str]:
    low, high = number(d, "min_nchannels"), number(d, "max_nchannels")
    if low and high and low > high:
        yield f"nccl.min_nchannels={low} is above nccl.max_nchannels={high}: NCCL would make {low} channels."


def _min_ctas(d: Deployment) -> Iterator[str]:
    low, high = number(d, "min_ctas"), number(d, "max_ctas")
    if low and high and low > high:
        yield f"nccl.min_ctas={low} is above nccl.max_ctas={high}: NCCL lowers it to {high}."


def _buffer_memory(d: Deployment) -> Iterator[str]:
    size, channels = number(d, "buffsize"), number(d, "max_nchannels") or number(d, "min_nchannels")
    if size and channels:
        total = 2 * channels * (size + 5.2 * MIB) / 1024 / MIB
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
    channels = number(d, "max_nchannels")
    if channels and not number(d, "min_nchannels"):
        yield f"nccl.max_nchannels={channels} is a limit for collectives only; see nccl.max_p2p_nchannels for the rest."


def _memory_pool(d: Deployment) -> Iterator[str]:
    if d.nccl.get("cumem_enable") == "0" and d.nccl.get("nvls_enable") == "1":
        yield "nccl.nvls_enable=1 needs nccl.cumem_enable=1."


def _channel_cap(d: Deployment) -> Iterator[str]:
    version = nccl.version_of(d.engine.nccl_version)
    for key in ("min_nchannels", "max_nchannels"):
        if version and version < (2, 25) and number(d, key) > 32:
            yield f"nccl.{key}={d.nccl[key]}: NCCL {d.engine.nccl_version} makes 32 at most."


def _chunk(d: Deployment) -> Iterator[str]:
    if number(d, "chunk_size") >= MIB:
        yield f"nccl.chunk_size={d.nccl['chunk_size']} is 1 MiB or more."


def _odd_buffer(d: Deployment) -> Iterator[str]:
    size = number(d, "buffsize")
    if size and size & (size - 1):
        yield f"nccl.buffsize={size} is no power of two."


def _ll128_buffer(d: Deployment) -> Iterator[str]:
    size = number(d, "ll128_buffsize")
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
    if 1 <= number(d, "ib_timeout") < 14:
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


RULES = (
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
        f"{RUNS}: the level is never reported as read; tinygrad/open-gpu-kernel-modules#29",
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
        f"{RUNS}: NCCL made 4 channels; NVIDIA/nccl#1598",
        _channels_noop,
    ),
    Rule(
        "nccl-channels-cap",
        "warn",
        "Up to NCCL 2.24 the cap is 32 channels, then 64; what is above is cut without an error.",
        "NCCL source tags 2.3.5 to 2.30.7 (MAXCHANNELS)",
        _channel_cap,
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
        "nccl-nvls-without-cumem",
        "warn",
        "NVLS, multi-node NVLink and symmetric memory need cuMem.",
        "NCCL source 2.21 to 2.30; lightseekorg/tokenspeed PR 1127",
        _memory_pool,
    ),
)
