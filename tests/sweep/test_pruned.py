"""Points that the collectives alone have shown to be worse are left out, and no others."""

from __future__ import annotations

import dataclasses

import pytest

from launcher.catalogue.measured import Measured
from launcher.compose import compose_sweep
from launcher.errors import ConfigError
from launcher.sweep.points import Points, build
from launcher.sweep.pruned import without
from tests.composing import packaged

WORDS = (
    *("+hw=h200x2", "model=kimi_k2_5_int4", "engine.tensor_parallel=2", "nccl.p2p_disable=1", "nccl.nvls_enable=0"),
    *("+spec=eagle3_2step", "bench=serve", "target=process"),
)
#: Bytes of a token of Kimi-K2.5.
TOKEN = 7168 * 2
DEFAULT = Measured(
    *("NVIDIA H200", 2, "nvlink", "off", "2.28.9", "NVLS_ENABLE=0", "", "all_reduce", TOKEN, 25.0, 24.5, 25.5, 2),
    *("2026-11-30", "a test"),
)


def points(*axes: str) -> Points:
    """Return the points of a sweep."""
    return build(compose_sweep([*WORDS, *axes], packaged()), (), lambda _, release: release.digest)


def rows(set_: str, **ratios: float) -> list[Measured]:
    """Return rows of NCCL's default and of a set that takes so many times as long at some numbers of tokens."""
    found = []
    for tokens, ratio in ratios.items():
        size = int(tokens[1:]) * TOKEN
        found.append(dataclasses.replace(DEFAULT, bytes=size))
        us, low, high = (ratio * time for time in (25.0, 24.5, 25.5))
        found.append(dataclasses.replace(DEFAULT, bytes=size, set=set_, us=us, us_low=low, us_high=high))
    return found


def labels(found: Points) -> list[str]:
    """Return what is measured."""
    return [candidate.point.label for candidate in found.candidates]


@pytest.mark.parametrize(
    ("ratios", "stays"),
    [
        ({"t1": 1.0, "t3": 1.0, "t2048": 3.0}, False),
        ({"t1": 1.0, "t3": 1.0, "t2048": 1.05}, True),  # within what may be noise
        ({"t1": 0.9, "t3": 1.0, "t2048": 3.0}, True),  # a trade: the server has to say
        ({"t1": 1.3, "t64": 0.9}, True),  # faster in a large batch alone
        ({}, True),  # nothing is known
    ],
)
def test_what_was_slower_somewhere_and_faster_nowhere_is_left_out(ratios: dict[str, float], stays: bool) -> None:
    found = without(points("nccl.algo=Ring,Tree"), rows("ALGO=Tree", **ratios))
    assert labels(found) == ["baseline", "nccl.algo=Ring", *(["nccl.algo=Tree"] if stays else [])]
    assert [out.label for out in found.left_out] == ([] if stays else ["nccl.algo=Tree"])
    if not stays:
        assert "measured 3.0 x slower" in found.left_out[0].reasons[0]
        assert found.left_out[0].reasons[0].endswith("[sweep.prune]")


def test_the_set_of_the_baseline_stays_whatever_it_is() -> None:
    slow = [*rows("ALGO=Tree", t1=2.0), *rows("ALGO=Ring", t1=2.0)]
    swept = points("nccl.algo=Tree", "engine.args.max_running_requests=8,16")
    assert labels(without(swept, slow)) == labels(swept)


def test_leaving_all_out_is_no_sweep() -> None:
    with pytest.raises(ConfigError, match=r"measure them all the same with sweep\.prune=false"):
        without(points("nccl.algo=choice(Tree)"), rows("ALGO=Tree", t1=2.0))
