"""From composed points to measured ones: equal ones are one, refused and inert ones are left out with the rule."""

from __future__ import annotations

import pytest

from launcher.compose import compose_sweep
from launcher.errors import ConfigError
from launcher.sweep.points import Points, build
from tests.composing import packaged


def built(*words: str, allow: tuple[str, ...] = ()) -> Points:
    return build(compose_sweep(words, packaged()), allow, lambda _, release: release.digest)


def labels(points: Points) -> list[str]:
    return [candidate.point.label for candidate in points.candidates]


def left(points: Points) -> dict[str, str]:
    return {out.label: " ".join(out.reasons) for out in points.left_out}


STEPS = "engine.args.num_continuous_decode_steps"


def test_inert_points_are_left_out_with_the_rule() -> None:
    points = built(f"{STEPS}=8,16", "nccl.algo=Ring,PAT")
    # SGLang's preset says 4; whatever it says, nothing reads it.
    assert labels(points) == ["baseline", f"{STEPS}=8 nccl.algo=Ring", f"{STEPS}=8 nccl.algo=PAT"]
    assert left(points) == {
        f"{STEPS}=16 nccl.algo={algo}": (
            f"differs from '{STEPS}=8 nccl.algo={algo}' only in {STEPS}, which does nothing here"
            " [engine-flag-inert]. To measure it: --allow engine-flag-inert"
        )
        for algo in ("Ring", "PAT")
    }


INERT: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "an inert flag beside the baseline": ((f"{STEPS}=4,8", "env.A=1,2"), "engine-flag-inert", ["env.A=1", "env.A=2"]),
    "a level without P2P": (
        ("nccl.p2p_level=SYS,PHB", "nccl.proto=LL,Simple", "nccl.p2p_disable=1"), "nccl-p2p-level-void",
        ["nccl.p2p_level=SYS nccl.proto=LL", "nccl.p2p_level=SYS nccl.proto=Simple"],
    ),
    "a level in the environment": (
        ("env.NCCL_P2P_LEVEL=SYS,PHB", "nccl.proto=LL,Simple", "nccl.p2p_disable=1"), "nccl-p2p-level-void",
        ["env.NCCL_P2P_LEVEL=SYS nccl.proto=LL", "env.NCCL_P2P_LEVEL=SYS nccl.proto=Simple"],
    ),
    "a flag for PCIe": (
        ("hw=rtx6000x8", "engine.args.disable_custom_all_reduce=false,true", "nccl.algo=Tree,PAT"),
        "custom-all-reduce-inert", ["nccl.algo=Tree", "nccl.algo=PAT"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "rule", "kept"), INERT.values(), ids=INERT.keys())
def test_what_is_inert(words: tuple[str, ...], rule: str, kept: list[str]) -> None:
    points = built(*words)
    assert points.left_out
    assert all(f"[{rule}]" in reason for reason in left(points).values())
    assert [any(part in label for label in labels(points)[1:]) for part in kept] == [True] * len(kept)
    assert len(points.candidates) == len(kept) + 1
    forced = built(*words, allow=(rule,))
    assert forced.left_out == ()
    assert len(forced.candidates) > len(points.candidates)


EFFECTIVE = {
    "another axis": ("nccl.algo=Ring,PAT",),
    "a version in which it works": (
        "engine=vllm", "engine.version=0.28.0", "engine.args.disable_cascade_attn=true,null",
    ),
    "a version that is not said": ("engine=vllm", "engine.args.disable_cascade_attn=true,null"),
    "a flag for NVLink": ("hw=h100x8", "engine.args.disable_custom_all_reduce=false,true"),
    "a level with P2P": ("nccl.p2p_level=SYS,PHB",),
}  # fmt: skip


@pytest.mark.parametrize("words", EFFECTIVE.values(), ids=EFFECTIVE.keys())
def test_what_is_not_certainly_inert_is_measured(words: tuple[str, ...]) -> None:
    assert built(*words).left_out == ()


def test_a_version_in_which_a_flag_is_inert() -> None:
    points = built("engine=vllm", "engine.version=0.33.0", "engine.args.disable_cascade_attn=true,null")
    assert list(left(points)) == ["engine.args.disable_cascade_attn=true"]
    assert "differs from 'baseline' only in engine.args.disable_cascade_attn" in left(points).popitem()[1]


def test_when_nothing_is_left() -> None:
    with pytest.raises(ConfigError) as caught:
        built(f"{STEPS}=8,16")
    assert len(caught.value.problems) == 2
    assert f"point '{STEPS}=8': differs from 'baseline' only in {STEPS}" in str(caught.value)


def test_equal_points_are_one_and_the_baseline_takes_over_what_was_chosen_for_it() -> None:
    points = built("+hw=rtx6000x8", "nccl.buffsize=16MiB,16777216,8MiB")
    assert labels(points) == ["baseline", "nccl.buffsize=8MiB"]
    assert points.candidates[0].point.aliases == ("nccl.buffsize=16MiB", "nccl.buffsize=16777216")
    assert points.candidates[0].point.choices == {"nccl.buffsize": "16MiB"}


def test_what_an_experiment_leaves_out_is_listed() -> None:
    points = built("experiment=nccl_pcie", "nccl.proto=LL", "nccl.max_nchannels=2", "nccl.algo=Ring,Tree")
    assert left(points) == {
        f"nccl.buffsize=4MiB nccl.algo={algo}": (
            "packaged conf/experiment/nccl_pcie.yaml: filter 1 leaves out nccl.proto=LL with nccl.buffsize=4MiB"
        )
        for algo in ("Ring", "Tree")
    }


def test_axes_of_the_client_are_handed_on() -> None:
    points = built("bench.kind=serve", "bench.loads.a.concurrency=1,8", "nccl.algo=Ring,PAT")
    assert (list(points.axes), list(points.client_axes)) == (["nccl.algo"], ["bench.loads.a.concurrency"])
    assert {len(candidate.deployment.bench.loads) for candidate in points.candidates} == {2}


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("nccl.buffsize=16MiB,4194304", ["16777216", None]),
        ("nccl.algo='Ring,Tree',PAT", ["Ring,Tree", None]),
        ("env.A='x y',z", ["x y", None]),
        ("nccl=default,pcie_ll_ring", [None]),
    ],
)
def test_what_a_choice_came_to_is_kept_where_it_is_spelled_otherwise(word: str, values: list[str | None]) -> None:
    points = built(word)
    assert [next(iter(c.point.values.values()), None) for c in points.candidates[1:]] == values
