"""Which messages a deployment sends in a step: sizes, counts and what its clients get of it."""

from __future__ import annotations

import pytest

from launcher.bench.steps import Size, Step, sizes, steps, verify_tokens
from launcher.errors import ConfigError
from tests.composing import compose

KIMI = ("+hw=rtx6000x8", "+spec=eagle3_2step")
VLLM = ("engine=vllm", "+hw=rtx6000x8")
#: `model=tiny` says 1; two ranks have something to say to each other.
TINY = ("model=tiny", "engine.tensor_parallel=2")


def named(*words: str) -> dict[str, Step]:
    return {step.workload.name: step for step in steps(compose(words))}


def reduced(step: Step) -> tuple[int, int]:
    """Return bytes and count of a step's all-reduces."""
    ((size, count),) = [(size, count) for size, count in step.sizes if size.collective == "all_reduce"]
    return size.bytes, count


def gathered(step: Step) -> Size:
    ((size, count),) = [(size, count) for size, count in step.sizes if size.collective == "all_gather"]
    assert count == 1
    return size


# --- sizes and counts

SIZES = {
    "decode-1": (14336, 122),  # 7168 numbers of two bytes, 61 layers x 2
    "decode-8": (8 * 14336, 122),
    "decode-64": (64 * 14336, 122),
    "verify-1": (43008, 122),  # 3 tokens
    "verify-8": (8 * 43008, 122),
    "verify-64": (64 * 43008, 122),
    "prefill-8192": (8192 * 14336, 122),
}


def test_kimi_with_eagle() -> None:
    found = named(*KIMI)
    assert {name: reduced(step) for name, step in found.items()} == SIZES
    details = found["verify-1"].workload.details
    assert (details["tokens"], details["allreduces"], details["bytes"]) == (3, 122, 43008)
    kinds = {step.workload.kind for step in found.values()}
    assert kinds == {"decode", "verify", "prefill"}
    assert all(name.startswith(step.workload.kind) for name, step in found.items())
    assert {step.workload.unit for step in found.values()} == {"us"}


def test_without_speculation_there_is_no_verify() -> None:
    assert not [name for name in named("+hw=rtx6000x8") if name.startswith("verify")]


DTYPES = {"bfloat16": 256, "float16": 256, "float32": 512}


@pytest.mark.parametrize(("dtype", "width"), DTYPES.items())
def test_width_of_the_type(dtype: str, width: int) -> None:
    assert reduced(named(*TINY, f"bench.dtype={dtype}")["decode-1"]) == (width, 4)


def test_equal_sizes_are_measured_once_and_as_often_as_most_need() -> None:
    # 4 sequences, and 2 of which each has 2 tokens to verify: the same message.
    found = steps(compose([*TINY, "engine=vllm", "+spec=mtp", "model.mtp=present", "bench.batches=[2,4]"]))
    assert len([step for step in found if reduced(step)[0] == 4 * 256]) == 2
    measured = sizes(found)
    assert len(measured) == len({size for size, _ in measured})
    assert dict(measured)[Size("all_reduce", 512, 1024)] == 4
    gathers = [count for size, count in measured if size.collective == "all_gather"]
    assert set(gathers) == {1}


# --- tokens of a verify step

VERIFY = {
    "off": (("+hw=rtx6000x8",), 0),
    "sglang eagle3": (KIMI, 3),
    "sglang eagle3 without a number": ((*KIMI, "spec.draft_tokens=0"), 3),
    "sglang eagle3 five": (("+hw=rtx6000x8", "+spec=eagle3_5step"), 6),
    "sglang tree": ((*KIMI, "spec.topk=4", "spec.draft_tokens=8"), 8),
    "sglang mtp": (("model=deepseek_v3", "+spec=mtp"), 2),
    "sglang ngram": (("+hw=rtx6000x8", "+spec=ngram"), 5),
    "vllm eagle3": ((*VLLM, "+spec=eagle3_2step"), 3),
    "vllm eagle3 five": ((*VLLM, "+spec=eagle3_5step"), 6),
    "vllm ngram": ((*VLLM, "+spec=ngram"), 6),
    "vllm mtp": (("engine=vllm", "model=deepseek_v3", "+spec=mtp"), 2),
}


@pytest.mark.parametrize(("words", "tokens"), VERIFY.values(), ids=VERIFY.keys())
def test_tokens_of_a_verify_step(words: tuple[str, ...], tokens: int) -> None:
    assert verify_tokens(compose(words)) == tokens
    found = named(*words)
    assert ("verify-1" in found) == bool(tokens)
    if tokens:
        assert found["verify-1"].workload.details["tokens"] == tokens
        assert reduced(found["verify-1"])[0] == tokens * reduced(found["decode-1"])[0]


# --- chunks of a prefill


def memory(engine: str, gigabytes: int, *words: str) -> tuple[str, ...]:
    return (*TINY, f"engine={engine}", f"hw.gpu_memory_gb={gigabytes}", *words)


CHUNKS = {
    "sglang 24": (memory("sglang", 24), [2048]),
    "sglang 34": (memory("sglang", 34), [2048]),
    "sglang 35": (memory("sglang", 35), [4096]),
    "sglang 59": (memory("sglang", 59), [4096]),
    "sglang 60": (memory("sglang", 60), [8192]),
    "sglang 96": (memory("sglang", 96), [8192]),
    "sglang 159": (memory("sglang", 159), [8192]),
    "sglang 160": (memory("sglang", 160), [16384]),
    "sglang 288": (memory("sglang", 288), [16384]),
    "sglang unknown": (memory("sglang", 0), [8192]),
    "vllm 24": (memory("vllm", 24), [2048]),
    "vllm 69": (memory("vllm", 69), [2048]),
    "vllm 70": (memory("vllm", 70), [8192]),
    "vllm 288": (memory("vllm", 288), [8192]),
    "vllm unknown": (memory("vllm", 0), [8192]),
    "sglang's flag": (memory("sglang", 24, "engine.args.chunked_prefill_size=6144"), [6144]),
    "sglang's flag with a gap": (memory("sglang", 24, "engine.args.chunked_prefill_size=6_144"), [6144]),
    "the flag of the other engine": (memory("sglang", 24, "engine.args.max_num_batched_tokens=512"), [2048]),
    "vllm's flag": (memory("vllm", 24, "engine.args.max_num_batched_tokens=512"), [512]),
    "vllm's flag for people": (memory("vllm", 24, "engine.args.max_num_batched_tokens=4K"), [4096]),
    "vllm's flag in thousands": (memory("vllm", 24, "engine.args.max_num_batched_tokens=4k"), [4000]),
    "own number before all": (
        memory("vllm", 24, "engine.args.max_num_batched_tokens=512", "bench.prefill_tokens=[128,256]"),
        [128, 256],
    ),
    "own number before SGLang's flag": (
        memory("sglang", 24, "engine.args.chunked_prefill_size=512", "bench.prefill_tokens=[64]"),
        [64],
    ),
}


@pytest.mark.parametrize(("words", "tokens"), CHUNKS.values(), ids=CHUNKS.keys())
def test_chunk_of_a_prefill(words: tuple[str, ...], tokens: list[int]) -> None:
    found = [step for step in steps(compose(words)) if step.workload.kind == "prefill"]
    assert [step.workload.name for step in found] == [f"prefill-{number}" for number in tokens]
    assert [reduced(step)[0] for step in found] == [number * 256 for number in tokens]


PRESETS = {"l40sx8": 4096, "rtx4090x8": 2048, "rtx6000x8": 8192, "h200x8": 8192, "b200x8": 16384}


@pytest.mark.parametrize(("hardware", "tokens"), PRESETS.items())
def test_chunk_of_a_preset(hardware: str, tokens: int) -> None:
    assert f"prefill-{tokens}" in named(f"+hw={hardware}")


# --- logits


def test_logits_are_gathered_once_a_step() -> None:
    found = named(*KIMI)
    assert gathered(found["decode-1"]) == Size("all_gather", 163840 // 8, 163840 * 2)
    assert gathered(found["verify-8"]) == Size("all_gather", 24 * 163840 // 8, 24 * 163840 * 2)
    # Of a prefill chunk only the last token is sampled from.
    assert gathered(found["prefill-8192"]) == gathered(found["decode-1"])


def test_a_vocabulary_that_cannot_be_divided_is_padded() -> None:
    found = named("model=tiny", "engine.tensor_parallel=4", "model.vocab_size=510")
    assert gathered(found["decode-1"]) == Size("all_gather", 128, 128 * 4 * 2)


def test_an_unknown_vocabulary_is_left_out() -> None:
    found = named(*TINY, "model.vocab_size=0")
    assert {size.collective for step in found.values() for size, _ in step.sizes} == {"all_reduce"}


# --- what a step gives

YIELDS = {"decode-1": 1, "decode-8": 8, "verify-1": 2.4, "verify-8": 8 * 2.4, "prefill-8192": 0}


def test_what_a_step_gives_its_clients() -> None:
    found = named(*KIMI, "bench.acceptance_length=2.4", "bench.step_ms={decode-1: 17.5, verify-8: 20}")
    assert {name: found[name].workload.details["yields"] for name in YIELDS} == pytest.approx(YIELDS)
    assert [found[name].workload.details["step_ms"] for name in ("decode-1", "verify-8", "decode-8")] == [17.5, 20, 0]


def test_an_unknown_acceptance_gives_nothing() -> None:
    assert named(*KIMI)["verify-8"].workload.details["yields"] == 0


# --- refusals

REFUSED = {
    "one GPU": (("model=tiny",), ["engine.tensor_parallel=1: one GPU talks to nobody"]),
    "no shape": (
        (*TINY, "model.layers=0", "model.hidden_size=0", "model.allreduces_per_layer=0"),
        ["set model.layers=", "set model.hidden_size=", "set model.allreduces_per_layer="],
    ),
    "unknown workload": ((*TINY, "bench.step_ms={decode-2: 3}"), ["bench.step_ms.decode-2", "known: decode-1, "]),
    "no number": ((*TINY, "bench.step_ms={decode-1: fast}"), ["bench.step_ms.decode-1=fast is no number"]),
    "a switch": ((*TINY, "bench.step_ms={decode-1: true}"), ["is no number of milliseconds"]),
    "no time": ((*TINY, "bench.step_ms={decode-1: 0}"), ["bench.step_ms.decode-1=0 is no number"]),
    "batch twice": ((*TINY, "bench.batches=[1,8,1]"), ["name decode-1 twice"]),
    "chunk twice": ((*TINY, "bench.prefill_tokens=[64,64]"), ["name prefill-64 twice"]),
    "no batches": ((*TINY, "bench.batches=[]"), ["bench.batches is empty"]),
    "no sequences": ((*TINY, "bench.batches=[0]"), ["bench.batches"]),
    "negative sequences": ((*TINY, "bench.batches=[-1]"), ["bench.batches"]),
    "no tokens": ((*TINY, "bench.prefill_tokens=[0]"), ["bench.prefill_tokens"]),
}  # fmt: skip


@pytest.mark.parametrize(("words", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(words: tuple[str, ...], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        steps(compose(words))
    assert [part for part in parts if part not in str(caught.value)] == []
