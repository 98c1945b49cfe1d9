"""What SGLang and vLLM do with a deployment: overwritten variables, inert and changed flags, ways past NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalogue import engines, environment, nccl
from launcher.catalogue.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.schema import Deployment


def _flag(d: Deployment, name: str) -> object:
    """Return the value of an engine's flag, None when it is not set."""
    for key, value in d.engine.args.items():
        if key.replace("-", "_") == name and value is not False:
            return value
    return None


def _variables(d: Deployment) -> dict[str, tuple[str, str]]:
    """Return key and value of every variable that the deployment sets."""
    found = {f"NCCL_{key.upper()}": (f"nccl.{key}", value) for key, value in d.nccl.items()}
    return found | {name: (f"env.{name}", value) for name, value in d.env.items()}


#: How the table says that a variable is written in any case (column ``when``).
_ALWAYS = ("forced", "forced at import")


def _forced(d: Deployment) -> Iterator[str]:
    given = _variables(d)
    version = nccl.version_of(d.engine.version)
    for row in environment.rows("engine_additions.csv"):
        if row["engine"] != d.engine.name or row["when"] not in _ALWAYS or row["value"] == environment.ANY:
            continue
        since, until = nccl.version_of(row["since"]), nccl.version_of(row["until"])
        if (row["until"] and not version) or (version and (version < since or (until and version > until))):
            continue  # an older release than the newest known, or another than the one named
        key, value = given.get(row["name"], ("", row["value"]))
        if value != row["value"]:
            yield f"{key}={value}: {d.engine.name} sets {row['name']}={row['value']} itself; take it out."


def _symmetric_memory(d: Deployment) -> Iterator[str]:
    for flag, keys in (("enable_symm_mem", ("cumem_enable", "nvls_enable")), ("enable_nccl_nvls", ("nvls_enable",))):
        for key in keys:
            if d.engine.name == "sglang" and _flag(d, flag) and d.nccl.get(key, "1") != "1":
                yield f"nccl.{key}={d.nccl[key]} beside engine.args.{flag}: SGLang overwrites it with 1."


def _deterministic(d: Deployment) -> Iterator[str]:
    keys = [k for k in ("algo", "min_nchannels", "max_nchannels") if k in d.nccl]
    if (
        d.engine.name == "sglang"
        and _flag(d, "enable_deterministic_inference")
        and d.engine.tensor_parallel > 1
        and keys
    ):
        yield f"engine.args.enable_deterministic_inference overwrites {', '.join(f'nccl.{k}' for k in keys)}."


def _batch_invariant(d: Deployment) -> Iterator[str]:
    taken = ("algo", "proto", "nthreads", "min_nchannels", "max_nchannels", "nvls_enable", "collnet_enable")
    keys = [k for k in taken if k in d.nccl]
    if d.engine.name == "vllm" and d.env.get("VLLM_BATCH_INVARIANT") == "1" and keys:
        yield f"env.VLLM_BATCH_INVARIANT=1 overwrites {', '.join(f'nccl.{k}' for k in keys)}."


def _inert(d: Deployment) -> Iterator[str]:
    version = d.engine.version or engines.versions(d.engine.name)[-1]
    for row in engines.inert(d.engine.name):
        span = engines.order(row.since), engines.order(row.until)
        name = row.flag.removeprefix("--").replace("-", "_")
        newest = row.until == engines.versions(d.engine.name)[-1]
        applies = span[0] <= engines.order(version) and (newest or engines.order(version) <= span[1])
        if row.condition.startswith("always") and applies and _flag(d, name) is not None:
            yield f"engine.args.{name}={_flag(d, name)} does nothing in {d.engine.name} {version}: {row.condition[8:]}."


def _unknown_flags(d: Deployment, *, known: bool) -> Iterator[str]:
    """Yield flags that the engine lacks, where its version is (or is not) one whose source was read."""
    engine = d.engine
    if engines.is_known(engine.name, engine.version) != known:
        return
    for group, args in (("engine.args", engine.args), ("secrets.args", d.secrets.args)):
        for key in args:
            flag = "--" + key.replace("_", "-")
            if (group == "secrets.args" or args[key] not in (None, False)) and (
                reason := engines.unknown_flag(engine.name, flag, engine.version or None)
            ):
                yield f"{group}.{key}: {reason}"


def _refused_flags(d: Deployment) -> Iterator[str]:
    return _unknown_flags(d, known=True)


def _doubtful_flags(d: Deployment) -> Iterator[str]:
    return _unknown_flags(d, known=False)


def _custom_inert(d: Deployment) -> Iterator[str]:
    if _flag(d, "disable_custom_all_reduce") and d.hw.interconnect == "pcie" and d.engine.tensor_parallel > 2:
        yield "engine.args.disable_custom_all_reduce changes nothing on more than two PCIe GPUs."


def _custom_off(d: Deployment) -> Iterator[str]:
    if _flag(d, "disable_custom_all_reduce") and d.hw.interconnect == "nvlink" and d.engine.tensor_parallel > 1:
        yield f"engine.args.disable_custom_all_reduce on hw={d.hw.name}: decode goes through NCCL and gets slower."


def _custom_on(d: Deployment) -> Iterator[str]:
    tuned = [k for k in ("algo", "proto") if k in d.nccl]
    off = _flag(d, "disable_custom_all_reduce")
    if tuned and not off and d.hw.interconnect == "nvlink" and d.engine.tensor_parallel > 1:
        yield f"{', '.join(f'nccl.{k}' for k in tuned)} do not reach decode while the engine's own all-reduce is on."


def _pcie_ipc(d: Deployment) -> Iterator[str]:
    if d.env.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") == "1" and {"algo", "proto"} & set(d.nccl):
        yield "env.SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1: nccl.algo and nccl.proto no longer reach decode."


def _running_requests(d: Deployment) -> Iterator[str]:
    if d.engine.name == "sglang" and d.spec.method != "off" and _flag(d, "max_running_requests") is None:
        yield "speculation caps running requests at 48: give a baseline engine.args.max_running_requests=48 as well."


def _draft_of_another(d: Deployment) -> Iterator[str]:
    if d.spec.method == "eagle3" and d.spec.draft_for and d.spec.draft_for != d.model.name:
        yield f"spec.draft_model_path={d.spec.draft_model_path} was trained for {d.spec.draft_for}, not {d.model.name}."


def _unreadable_workers(d: Deployment) -> Iterator[str]:
    if d.env.get("SPT_NOENV") == "":
        yield "env.SPT_NOENV is empty: renamed workers will be unknown and never proven."


def _graph_register(d: Deployment) -> Iterator[str]:
    if d.engine.name == "sglang" and d.nccl.get("graph_register") == "1":
        yield "nccl.graph_register=1: SGLang warns of hangs when captured graphs are replayed."


def _segments(d: Deployment) -> Iterator[str]:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    own = not _flag(d, "disable_custom_all_reduce") and not (
        d.hw.interconnect == "pcie" and d.engine.tensor_parallel > 2
    )
    for name in names:
        on = "expandable_segments:true" in d.env.get(name, "").lower().replace(" ", "")
        if d.engine.name == "vllm" and on and own and d.engine.tensor_parallel > 1:
            yield f"env.{name} has expandable_segments: set engine.args.disable_custom_all_reduce=true."


def _symmetric_graphs(d: Deployment) -> Iterator[str]:
    if d.engine.name == "vllm" and d.env.get("VLLM_USE_NCCL_SYMM_MEM") == "1" and not _flag(d, "enforce_eager"):
        yield "env.VLLM_USE_NCCL_SYMM_MEM=1 while graphs are captured."


def _symmetric_contexts(d: Deployment) -> Iterator[str]:
    size = _flag(d, "dcp_size")
    version = nccl.version_of(d.engine.nccl_version)
    if (
        d.engine.name == "sglang"
        and _flag(d, "enable_symm_mem")
        and size not in (None, 1, "1")
        and version < (2, 30, 7)
    ):
        yield f"engine.args.enable_symm_mem with engine.args.dcp_size={size}, before NCCL 2.30.7."


def _two_blackwells(d: Deployment) -> Iterator[str]:
    new = "RTX PRO 6000" in d.hw.gpu or "RTX 50" in d.hw.gpu
    if d.engine.name == "vllm" and new and d.engine.tensor_parallel == 2 and not _flag(d, "disable_custom_all_reduce"):
        yield f"two {d.hw.gpu} on PCIe: set engine.args.disable_custom_all_reduce=true."


def _tree_of_drafts(d: Deployment) -> Iterator[str]:
    if d.engine.name != "sglang" or d.spec.topk <= 1:
        return
    if d.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in {"1", "true"}:
        yield f"spec.topk={d.spec.topk} beside env.SGLANG_ENABLE_SPEC_V2: set spec.topk=1."
    backend = str(_flag(d, "attention_backend") or "")
    if d.model.kv_heads == 1 and backend in {"flashinfer", "flashmla", "trtllm_mla"}:
        where = f"engine.args.attention_backend={backend} on latent attention"
        yield f"spec.topk={d.spec.topk} with {where}: set spec.topk=1."


def _invariant_231(d: Deployment) -> Iterator[str]:
    version, library = nccl.version_of(d.engine.version), nccl.version_of(d.engine.nccl_version)
    old = version and version <= (0, 25, 0)
    if d.engine.name == "vllm" and d.env.get("VLLM_BATCH_INVARIANT") == "1" and old and library >= (2, 31):
        yield f"env.VLLM_BATCH_INVARIANT=1 with vLLM {d.engine.version} on NCCL {d.engine.nccl_version}."


def _tagged_image(d: Deployment) -> Iterator[str]:
    if d.runtime.image and "@sha256:" not in d.runtime.image:
        yield f"runtime.image={d.runtime.image}: name it by its digest, NAME@sha256:DIGEST."


_SGLANG = "SGLang 0.5.6 to 0.5.23 source"
RULES = (
    Rule(
        "engine-forces",
        "refuse",
        "The engine overwrites this variable before it starts its workers, so the value could never be in force.",
        "launcher/catalogue/engine_additions.csv: sources of SGLang to 0.5.23 and vLLM to 0.33, recorded runs",
        _forced,
    ),
    Rule(
        "sglang-symmetric-memory",
        "refuse",
        "With symmetric memory or NVLS asked for, SGLang sets NCCL_CUMEM_ENABLE and NCCL_NVLS_ENABLE to 1 in any case.",
        f"{_SGLANG}, _set_envs_and_config",
        _symmetric_memory,
    ),
    Rule(
        "sglang-deterministic",
        "refuse",
        "Deterministic inference sets NCCL_ALGO=allreduce:tree, and from 0.5.20 the numbers of channels, by itself.",
        "SGLang 0.5.3 to 0.5.23 source, attention_hook.py",
        _deterministic,
    ),
    Rule(
        "vllm-batch-invariant",
        "refuse",
        "Batch-invariant mode sets algorithm, protocol, threads and channels by itself.",
        "vLLM 0.20 to 0.33 source, batch_invariant.py",
        _batch_invariant,
    ),
    Rule(
        "engine-flag-missing",
        "refuse",
        "The engine of this version ends at its start: unrecognized arguments.",
        "launcher/catalogue/engine_flags.csv: the sources of six SGLang and four vLLM releases; vLLM 0.32.0, run",
        _refused_flags,
    ),
    Rule(
        "engine-flag-unknown",
        "warn",
        "No release that was read has it; engine.version would make it certain.",
        "launcher/catalogue/engine_flags.csv: the sources of six SGLang and four vLLM releases",
        _doubtful_flags,
    ),
    Rule(
        "engine-flag-inert",
        "warn",
        "The engine accepts the flag and does nothing with it; sweeping it measures noise.",
        "launcher/catalogue/engine_inert.csv, with source lines; sgl-project/sglang#23131",
        _inert,
    ),
    Rule(
        "custom-all-reduce-inert",
        "inform",
        "Both engines refuse their own all-reduce there and use NCCL; the flag only silences a warning.",
        "SGLang 0.5.23 and vLLM 0.33 source, custom_all_reduce.py; vllm-project/vllm#56128",
        _custom_inert,
    ),
    Rule(
        "custom-all-reduce-off",
        "inform",
        "On two NVLinked H200 the engine's own all-reduce made decode 14 % (batch 1) and 10 % (batch 8) faster.",
        "SGLang 0.5.17, NCCL 2.28.9, 2 x H200",
        _custom_off,
    ),
    Rule(
        "custom-all-reduce-on",
        "inform",
        "Small messages take the engine's own kernels past NCCL; only prefill and large batches see the set.",
        "SGLang 0.5.17, NCCL 2.28.9, 2 x H200",
        _custom_on,
    ),
    Rule(
        "sglang-pcie-ipc",
        "inform",
        "Decode-sized messages then go through FlashInfer's PCIe kernel; it falls back to NCCL with a log line only.",
        "SGLang 0.5.23 source; sgl-project/sglang PR 34528",
        _pcie_ipc,
    ),
    Rule(
        "sglang-speculation-cap",
        "inform",
        "Without the same cap a baseline without speculation is a different server.",
        f"{_SGLANG}, arg_groups/speculative_hook.py",
        _running_requests,
    ),
    Rule(
        "draft-of-another-model",
        "warn",
        "A draft model guesses well only for the model that it was trained on; another vocabulary does not load.",
        "EAGLE-3 (arXiv 2503.01840); the preset's own note",
        _draft_of_another,
    ),
    Rule(
        "vllm-expandable-segments",
        "warn",
        "vLLM's own all-reduce cannot export such memory: its workers die in custom_all_reduce.cuh.",
        "vllm-project/vllm#42609, #56193, #43923",
        _segments,
    ),
    Rule(
        "vllm-symmetric-graphs",
        "warn",
        "Windows are registered during the capture, and the engine does not come up.",
        "vllm-project/vllm#54626 (NCCL 2.29.7, B300), #28901",
        _symmetric_graphs,
    ),
    Rule(
        "sglang-symmetric-contexts",
        "warn",
        "Decode was silently wrong for small batches (GSM8K 0.10 in place of 0.58).",
        "sgl-project/sglang PR 37768; fixed in NCCL 2.30.7",
        _symmetric_contexts,
    ),
    Rule(
        "vllm-two-blackwells",
        "warn",
        "vLLM's own all-reduce is on for exactly two PCIe GPUs and died on sm_120 when graphs were captured.",
        "vllm-project/vllm#47751",
        _two_blackwells,
    ),
    Rule(
        "sglang-draft-tree",
        "warn",
        "These take one branch of drafts only, and fail with more.",
        "sgl-project/sglang#13352 (spec v2: 'Requires topk 1'), #4425",
        _tree_of_drafts,
    ),
    Rule(
        "vllm-batch-invariant-231",
        "refuse",
        "vLLM's own NCCL_ALGO=allreduce:tree leaves the others without an algorithm; the engine dies at its warm-up.",
        "vllm-project/vllm#58179, with the error; vLLM to 0.25.0 source",
        _invariant_231,
    ),
    Rule(
        "workers-unreadable",
        "warn",
        "setproctitle writes the new title over the environment block, so that /proc no longer tells what it was.",
        "setproctitle 1.3; SGLang 0.5.17 and vLLM 0.25.0, recorded /proc",
        _unreadable_workers,
    ),
    Rule(
        "sglang-graph-register",
        "warn",
        "From 0.5.23 SGLang sets it to 0 whenever graphs of several ranks are captured, and warns of an explicit 1.",
        "SGLang 0.5.23 source, parallel_hook.py",
        _graph_register,
    ),
    Rule(
        "runtime-image-tag",
        "warn",
        "A tag can be moved: the next pull brings another engine, another NCCL and another environment of the image.",
        "OCI distribution specification 1.1: a tag is a pointer that may be changed, a digest is the content's own",
        _tagged_image,
    ),
)
