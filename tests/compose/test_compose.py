"""What composes, and what is refused with which words."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from launcher.errors import ConfigError
from launcher.paths import EXPERIMENT, data_dir
from tests.composing import compose, compose_points

if TYPE_CHECKING:
    from collections.abc import Sequence

TUNED = {
    "proto": "LL",
    "algo": "Ring",
    "p2p_level": "SYS",
    "max_nchannels": "16",
    "buffsize": "16777216",
    "nthreads": "512",
}


def test_prescribed_command_composes_the_reference_case() -> None:
    deployment = compose(["+hw=rtx6000x8", "+spec=eagle3_2step"])
    assert deployment.nccl == TUNED
    assert (deployment.engine.name, deployment.engine.port, deployment.engine.tensor_parallel) == ("sglang", 8000, 8)
    assert (deployment.spec.method, deployment.spec.steps, deployment.spec.draft_tokens) == ("eagle3", 2, 3)
    assert (deployment.hw.gpu_count, deployment.model.layers * deployment.model.allreduces_per_layer) == (8, 122)


@pytest.mark.parametrize(
    "words", list(itertools.permutations(["+hw=rtx6000x8", "+spec=eagle3_5step", "engine=vllm", "nccl.algo=Tree"]))
)
def test_order_does_not_matter(words: Sequence[str]) -> None:
    assert compose(words) == compose(sorted(words))


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_a_plus_is_never_needed_and_never_harms(plus: str) -> None:
    assert compose([f"{plus}hw=rtx6000x8", f"{plus}nccl.algo=Tree"]).nccl == {**TUNED, "algo": "Tree"}


def test_a_typed_group_beats_what_hardware_brings() -> None:
    assert compose(["+hw=rtx6000x8", "nccl=default"]).nccl == {}


def test_hardware_is_not_needed() -> None:
    deployment = compose([])
    assert (deployment.hw.name, deployment.nccl, deployment.spec.method) == ("unknown", {}, "off")


def test_a_deployment_file_and_a_choice_over_it() -> None:
    assert compose(["deployment=reference"]) == compose(["+hw=rtx6000x8", "+spec=eagle3_2step"])
    assert compose(["deployment=reference", "spec=off"]) == compose(["+hw=rtx6000x8"])


def test_removing_one_variable_of_a_set() -> None:
    assert "proto" not in compose(["+hw=rtx6000x8", "~nccl.proto"]).nccl
    assert "proto" not in compose(["+hw=rtx6000x8", "nccl.proto=null"]).nccl


RAW = ["on", "1e3", "007", "12:30", "0x10", "a,b", "^lo,docker0", "${X}", "NO", "", " ", 'say "hi"', "$HOME", "ü"]


@pytest.mark.parametrize("value", RAW)
def test_raw_environment_passes_unchanged(value: str) -> None:
    assert compose([], {"X": value}).env == {"X": value}


TYPED = ["on", "1e3", "007", "12:30", "0x10", "true", "1_000", "1.10", "null", "[a,b]", "{a:1}", "${X}"]


@pytest.mark.parametrize("value", TYPED)
def test_typed_environment_passes_unchanged(value: str) -> None:
    assert compose([f"env.X={value}"]).env == {"X": value}


def test_quotes_of_a_typed_variable_are_hydras() -> None:
    assert compose(["env.X='^lo,docker0'", 'env.Y=" a "']).env == {"X": "^lo,docker0", "Y": " a "}


def test_one_host_needs_no_list() -> None:
    assert compose(["target=ssh", "target.hosts=gpu1"]).target.hosts == ("gpu1",)


REFUSED = {
    "option": (["+hw=rtx6000"], ["'+hw=rtx6000'", "did you mean 'rtx6000x8'"]),
    "option of a default group": (["engine=vlm"], ["'engine=vlm'", "did you mean 'vllm'", "sglang"]),
    "group": (["+hww=rtx6000x8"], ["'+hww=rtx6000x8'", "did you mean 'hw'"]),
    "key": (["engine.prt=1"], ["'engine.prt=1'", "'prt' in 'engine'", "did you mean 'port'"]),
    "key behind +": (["+engine.prt=1"], ["'+engine.prt=1'", "did you mean 'port'"]),
    "key behind ++": (["++hw.gpu_cuont=1"], ["did you mean 'gpu_count'"]),
    "top key": (["++ehv.A=1"], ["'ehv'", "did you mean 'env'"]),
    "nccl key": (["+nccl.alg=Tree"], ["'+nccl.alg=Tree'", "did you mean 'algo'"]),
    "nccl value": (["nccl.algo=Treee"], ["'nccl.algo=Treee'", "did you mean 'Tree'"]),
    "nccl size": (["nccl.buffsize=4M"], ["'4M'", "KiB, MiB", "read it as 4"]),
    "int": (["engine.port=abc"], ["'engine.port=abc'", "whole number", "'abc'"]),
    "bool": (["model.trust_remote_code=5"], ["true or false"]),
    "float": (["engine.memory_fraction=much"], ["number", "'much'"]),
    "enum": (["spec.method=eagle"], ["'spec.method=eagle'", "did you mean 'eagle3'"]),
    "group as value": (["model={a: 1}"], ["choose one option by name"]),
    "value as group": (["engine.port={a: 1}"], ["a group of keys"]),
    "duplicate group": (["+hw=rtx6000x8", "hw=rtx6000x8"], ["contradicts", "'hw' once"]),
    "duplicate value": (["engine.port=1", "++engine.port=2"], ["contradicts", "'engine.port' once"]),
    "missing": (["~model.path"], ["model.path is missing", "set model.path="]),
    "grammar": (["nccl.socket_ifname=^lo"], ["cannot be read", "'nccl.socket_ifname=\"^lo\"'"]),
    "a list of other letters": (["env.A=ä,b"], ['env.A="ä,b"\'; in a list each such value does: \'env.A="ä",b\'']),
    "a list with nothing in it": (["env.A=a,,b"], ["in a list each such value does: 'env.A=a,\"\",b'"]),
    "sweep without -m": (["nccl.algo=Ring,Tree"], ["add -m", "'nccl.algo=\"Ring,Tree\"'"]),
    "interpolation": (["name=${foo}"], ["foo", "not found"]),
    "name": (["name=My-Server"], ["'My-Server'", "a-z"]),
    "hydra's own": (["hydra.run.dir=x"], ["'hydra'"]),
    "group removed": (["~spec"], ["cannot be removed"]),
    "package": (["hw@x=rtx6000x8"], ["'@'"]),
    "delete unknown": (["~nccl.algo"], ["nccl.algo", "does not exist"]),
}


@pytest.mark.parametrize(("words", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_a_hint(words: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(words)
    assert caught.value.exit_code == 2
    for part in parts:
        assert part in str(caught.value)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["engine.port=abc", "nccl.algo=Treee", "hw.gpuu=x"])
    assert len(caught.value.problems) == 3


def test_points_are_the_product_in_order() -> None:
    points = compose_points(["nccl.algo=Ring,Tree", "nccl.max_nchannels=2,16", "+hw=rtx6000x8"])
    assert [(d.nccl["algo"], d.nccl["max_nchannels"]) for _, d in points] == [
        ("Ring", "2"),
        ("Ring", "16"),
        ("Tree", "2"),
        ("Tree", "16"),
    ]


def test_a_bad_point_is_named() -> None:
    with pytest.raises(ConfigError, match=r"point 'nccl\.algo=Treee'"):
        compose_points(["nccl.algo=Ring,Treee"])


@pytest.mark.parametrize("path", sorted(data_dir("conf").glob("*/*.yaml")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_packaged_option_composes(path: object) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    word = f"{path.parent.name}={path.stem}"
    if path.parent.name == EXPERIMENT:
        assert compose_points([word])
    else:
        compose([word])
