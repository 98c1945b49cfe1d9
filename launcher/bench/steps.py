"""Which collectives one step of a server does, and how large they are: pure arithmetic over a deployment.

With tensor parallelism over N GPUs every layer ends in all-reduces of its activations: tokens x hidden size. The output
layer is cut by its vocabulary, so the logits of the tokens that are sampled from are gathered once a step (SGLang
0.5.17 and vLLM 0.25.0, TUNING lines of NCCL 2.28.9: 31 to 250 KiB a rank at a vocabulary of 32000). Left out: the one
all-reduce of the embedding, those of a draft model (one layer a draft step), and what pipeline or expert parallelism
sends.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.errors import ConfigError
from launcher.sweep.record import Workload

if TYPE_CHECKING:
    from launcher.schema import Deployment

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
#: Tokens of a prefill chunk by GPU memory in GB, below which it holds (SGLang 0.5.6 to 0.5.23, server_args.py).
_SGLANG_CHUNKS = ((35, 2048), (60, 4096), (160, 8192))
_SGLANG_LARGEST = 16384
#: `vllm serve` on an H100 or larger; 2048 on smaller ones (vLLM 0.25 to 0.33, engine/arg_utils.py).
_VLLM_CHUNK, _VLLM_SMALL, _VLLM_LARGE_GB = 8192, 2048, 70
_UNITS = {"": 1, "k": 1000, "K": 1 << 10, "m": 1000**2, "M": 1 << 20}


@dataclass(frozen=True)
class Size:
    """One collective: ``bytes`` of the whole message, ``elements`` that each rank gives."""

    collective: str
    elements: int
    bytes: int


@dataclass(frozen=True)
class Step:
    """One workload: a step of the server, and its collectives with how often each is done."""

    workload: Workload
    sizes: tuple[tuple[Size, int], ...]


def steps(deployment: Deployment) -> tuple[Step, ...]:
    """Return the steps that a deployment is measured with.

    Raises:
        ConfigError: a fact of the model is missing, or there is nothing to communicate.
    """
    _check(deployment)
    found = [_step(deployment, "decode", b, b, f"decode, batch {b}", b) for b in deployment.bench.batches]
    each = verify_tokens(deployment)
    if each:
        length = deployment.bench.acceptance_length
        found += [
            _step(deployment, "verify", b, b * each, f"verify, batch {b} x {each} tokens", b * length)
            for b in deployment.bench.batches
        ]
    found += [_step(deployment, "prefill", t, t, f"prefill, chunk of {t} tokens", 0.0) for t in _chunks(deployment)]
    unknown = sorted(set(deployment.bench.step_ms) - {step.workload.name for step in found})
    if unknown:
        names = ", ".join(step.workload.name for step in found)
        raise ConfigError(f"bench.step_ms.{unknown[0]}: there is no such workload; known: {names}")
    doubles = [name for name, count in Counter(step.workload.name for step in found).items() if count > 1]
    if doubles:
        raise ConfigError(f"bench.batches or bench.prefill_tokens name {doubles[0]} twice")
    return tuple(found)


def sizes(steps: tuple[Step, ...]) -> tuple[tuple[Size, int], ...]:
    """Return every size once, with how often a step does it at most: what one trial measures."""
    counts: dict[Size, int] = {}
    for step in steps:
        for size, count in step.sizes:
            counts[size] = max(count, counts.get(size, 0))
    return tuple(counts.items())


def verify_tokens(deployment: Deployment) -> int:
    """Return how many tokens of a sequence one verify step looks at; 0 without speculation.

    SGLang calls them draft tokens, the first of them being the last accepted one; vLLM verifies its speculative tokens
    and one more.
    """
    spec = deployment.spec
    if spec.method == "off":
        return 0
    if deployment.engine.name == "sglang":
        return spec.draft_tokens or spec.steps + 1
    return (spec.draft_tokens if spec.method == "ngram" else spec.steps) + 1


def _check(deployment: Deployment) -> None:
    model, world = deployment.model, deployment.engine.tensor_parallel
    problems = [
        f"model.{key} is not known: bench=allreduce needs it for the size of its messages; set model.{key}=…"
        for key in ("layers", "hidden_size", "allreduces_per_layer")
        if not getattr(model, key)
    ]
    if world < 2:
        problems.append(f"engine.tensor_parallel={world}: one GPU talks to nobody, there is nothing to measure")
    if not deployment.bench.batches:
        problems.append("bench.batches is empty: name the numbers of sequences in a step, as [1,8,64]")
    problems += [
        f"bench.step_ms.{name}={value} is no number of milliseconds"
        for name, value in deployment.bench.step_ms.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0
    ]
    problems += _other_program(deployment)
    if problems:
        raise ConfigError(*problems)


def _other_program(deployment: Deployment) -> list[str]:
    """Return why nccl-tests cannot measure this, where they are to."""
    bench = deployment.bench
    if not bench.nccl_tests:
        return []
    key = f"bench.nccl_tests={bench.nccl_tests}"
    problems = []
    if not bench.nccl_tests.startswith("/"):
        problems.append(f"{key} is no absolute path: name the folder of nccl-tests' programs on the measured machine")
    if bench.backend != "nccl":
        problems.append(f"{key} measures with NCCL: leave out bench.backend={bench.backend}, or bench.nccl_tests")
    return problems


def _chunks(deployment: Deployment) -> tuple[int, ...]:
    """Return the tokens of a prefill chunk: as told, as the engine is told, or as it decides by itself."""
    if deployment.bench.prefill_tokens:
        return deployment.bench.prefill_tokens
    sglang = deployment.engine.name == "sglang"
    told = deployment.engine.args.get("chunked_prefill_size" if sglang else "max_num_batched_tokens")
    tokens = read_tokens(str(told or ""))
    if tokens:
        return (tokens,)
    memory = deployment.hw.gpu_memory_gb
    if not sglang:
        return (_VLLM_SMALL if 0 < memory < _VLLM_LARGE_GB else _VLLM_CHUNK,)
    if not memory:
        return (8192,)
    return (next((tokens for below, tokens in _SGLANG_CHUNKS if memory < below), _SGLANG_LARGEST),)


def read_tokens(text: str) -> int:
    """Return a number of tokens as the engines read it, 0 where there is none; vLLM knows 8k (8000) and 8K (8192)."""
    found = re.fullmatch(r"([0-9][0-9_]*)([kKmM]?)", text)
    return int(found[1]) * _UNITS[found[2]] if found else 0


def _step(deployment: Deployment, kind: str, number: int, tokens: int, text: str, yields: float) -> Step:
    model, world = deployment.model, deployment.engine.tensor_parallel
    width = _BYTES[deployment.bench.dtype]
    count = model.layers * model.allreduces_per_layer
    reduced = Size("all_reduce", tokens * model.hidden_size, tokens * model.hidden_size * width)
    found = [(reduced, count)]
    if model.vocab_size:
        # Of a prefill chunk only the last token is sampled from.
        elements = (1 if kind == "prefill" else tokens) * -(-model.vocab_size // world)
        found.append((Size("all_gather", elements, elements * world * width), 1))
    name = f"{kind}-{number}"
    given = deployment.bench.step_ms.get(name)
    details: dict[str, Any] = {
        "tokens": tokens,
        "allreduces": count,
        "bytes": reduced.bytes,
        # Tokens that a step gives to its clients; 0: not known.
        "yields": yields,
        "step_ms": float(given) if isinstance(given, int | float) else 0.0,
    }
    if deployment.bench.nccl_tests:  # never compared with what torch measures
        details["program"], text = "nccl-tests", f"{text} (nccl-tests: ranks are threads)"
    return Step(Workload(name, kind, text, "us", lower_is_better=True, details=details), tuple(found))
