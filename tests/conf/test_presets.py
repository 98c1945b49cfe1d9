"""The packaged presets: each composes and renders, names its source, and stays within its group."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from launcher.catalogue import nccl
from launcher.compose import compose_sweep
from launcher.errors import RenderError
from launcher.paths import EXPERIMENT, data_dir
from launcher.render import render
from launcher.schema import Bench, Engine, Hardware, Model, Runtime, Speculation, Target
from launcher.sweep.points import build
from tests.composing import compose, compose_points, packaged

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.schema import Deployment

CONF = data_dir("conf")
FILES = sorted(path for path in CONF.glob("*/*.yaml") if path.parent.name != EXPERIMENT)
EXPERIMENTS = sorted(CONF.glob(f"{EXPERIMENT}/*.yaml"))
CLASSES: dict[str, type] = {
    "hw": Hardware, "model": Model, "spec": Speculation, "engine": Engine, "target": Target, "bench": Bench,
    "runtime": Runtime,
}  # fmt: skip
#: Groups whose figures need a source.
SOURCED = ("hw", "nccl", "model", "spec")
ENGINES = ("sglang", "vllm")


def options(group: str) -> list[str]:
    return sorted(p.stem for p in (CONF / group).glob("*.yaml"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def words_for(group: str, option: str) -> list[str]:
    # Multi-token prediction needs a model that has it.
    needed = {("spec", "mtp"): ["model=deepseek_v3"], ("runtime", "podman"): ["runtime.image=a/b:1"]}
    return [f"{group}={option}", *needed.get((group, option), [])]


def chosen(group: str, option: str) -> Deployment:
    return compose(words_for(group, option))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "engine"], ids=name_of)
def test_every_preset_composes_and_renders_with_both_engines(path: Path, engine: str) -> None:
    words = [*words_for(path.parent.name, path.stem), f"engine={engine}", "engine.tensor_parallel=1"]
    release = render(compose(words))
    # An image has its engine elsewhere than a host.
    wanted = "/usr/bin/python3" if path.stem == "podman" else f"/opt/{engine}/bin/python"
    assert wanted in release.argv


@pytest.mark.parametrize("model", options("model"))
@pytest.mark.parametrize("hw", options("hw"))
def test_every_model_renders_on_every_machine_that_has_the_gpus(hw: str, model: str) -> None:
    deployment = compose([f"hw={hw}", f"model={model}"])
    if deployment.model.tensor_parallel > deployment.hw.gpu_count:
        with pytest.raises(RenderError, match=f"more than the {deployment.hw.gpu_count} GPUs"):
            render(deployment)
    else:
        argv = render(deployment).argv
        assert argv[argv.index("--tp-size") + 1] == str(deployment.model.tensor_parallel)


@pytest.mark.parametrize("path", [*(p for p in FILES if p.parent.name in SOURCED), *EXPERIMENTS], ids=name_of)
def test_every_preset_names_its_source(path: Path) -> None:
    assert re.search(r"^# Source: \S", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "deployment"], ids=name_of)
def test_no_preset_reaches_outside_its_group(path: Path) -> None:
    group = path.parent.name
    text = path.read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text) or {}
    if group == "runtime" and "engine" in content:
        # Where the engine is in an image, and who may start a container: no flag of the engine.
        assert set(content) == {group, "engine"}
        assert set(content["engine"]) == {"python", "user"}
        content = content[group]
    elif re.match(r"# @package _global_\n", text):
        assert set(content) <= {"defaults", group, "engine"}
        assert set(content.get("engine", {})) <= {"args"}  # flags that this hardware needs
        assert [list(entry) for entry in content["defaults"]] == [["override /nccl"]]
        assert content["defaults"][0]["override /nccl"] in options("nccl")
        content = content[group]
    known = {f.name for f in dataclasses.fields(CLASSES[group])} if group in CLASSES else set(nccl.variables())
    assert set(content) <= known


@pytest.mark.parametrize("group", ["hw", "nccl", "spec"])
def test_a_choice_changes_nothing_but_its_group(group: str) -> None:
    # The model decides name and degree too, so it is held still.
    base = compose(["model=deepseek_v3"])
    for option in options(group):
        deployment = compose([f"{group}={option}", "model=deepseek_v3"])
        same: dict[str, Any] = {group: getattr(base, group)}
        if group == "hw":
            same |= {"nccl": base.nccl, "engine": dataclasses.replace(deployment.engine, args=base.engine.args)}
        assert dataclasses.replace(deployment, **same) == base, option


@pytest.mark.parametrize("hw", options("hw"))
def test_hardware_is_named_as_its_file_and_plausible(hw: str) -> None:
    machine = chosen("hw", hw).hw
    assert machine.name == hw
    assert hw.endswith(f"x{machine.gpu_count}")
    assert machine.gpu.startswith("NVIDIA ")
    assert machine.gpu_memory_gb >= 24
    assert machine.interconnect != "unknown"
    assert machine.interconnect == "pcie" or machine.p2p == "possible"


def test_only_the_reference_machine_brings_a_tuned_set() -> None:
    assert {hw for hw in options("hw") if chosen("hw", hw).nccl} == {"rtx6000x8"}


def test_sets_that_leave_everything_to_nccl() -> None:
    assert {name for name in options("nccl") if not chosen("nccl", name).nccl} == {"default", "efa"}


@pytest.mark.parametrize("name", options("nccl"))
def test_no_set_holds_names_of_a_site(name: str) -> None:
    site = {"ib_hca", "socket_ifname", "oob_net_ifname", "ib_tc", "ib_sl", "topo_file", "graph_file"}
    assert not site & set(chosen("nccl", name).nccl)


@pytest.mark.parametrize("name", options("model"))
def test_degrees_divide_the_heads(name: str) -> None:
    model = chosen("model", name).model
    limit = model.max_tensor_parallel or model.attention_heads
    assert model.name == name
    for degree in {model.tensor_parallel, limit}:
        assert model.attention_heads % degree == 0
        # More ranks than heads copies them, so one has to be a multiple of the other.
        assert model.kv_heads % degree == 0 or degree % model.kv_heads == 0
    assert model.tensor_parallel <= limit <= model.attention_heads
    assert model.attention_heads % model.kv_heads == 0


# layers, hidden size, attention heads, key-value heads kept, degree, all-reduces a pass, entries of the output layer
SHAPES = {
    "kimi_k2_5_int4": (61, 7168, 64, 1, 8, 122, 163840),
    "deepseek_v3": (61, 7168, 128, 1, 8, 122, 129280),
    "qwen3_235b_a22b": (94, 4096, 64, 4, 8, 188, 151936),
    "llama3_3_70b": (80, 8192, 64, 8, 8, 160, 128256),
    "gpt_oss_120b": (36, 2880, 64, 8, 2, 72, 201088),
    "tiny": (2, 128, 4, 2, 1, 4, 512),
}


def test_shapes_of_the_models() -> None:
    found = {}
    for name in options("model"):
        m = chosen("model", name).model
        total = m.layers * m.allreduces_per_layer
        heads = m.attention_heads, m.kv_heads
        found[name] = (m.layers, m.hidden_size, *heads, m.tensor_parallel, total, m.vocab_size)
    assert found == SHAPES


# name as nvidia-smi prints it, GPUs, GB each, interconnect, P2P with the stock driver
MACHINES = {
    "a100x8": ("NVIDIA A100-SXM4-80GB", 8, 80, "nvlink", "possible"),
    "b200x8": ("NVIDIA B200", 8, 180, "nvlink", "possible"),
    "gb200x4": ("NVIDIA GB200", 4, 186, "nvlink", "possible"),
    "h100x8": ("NVIDIA H100 80GB HBM3", 8, 80, "nvlink", "possible"),
    "h200x2": ("NVIDIA H200", 2, 141, "nvlink", "possible"),
    "h200x8": ("NVIDIA H200", 8, 141, "nvlink", "possible"),
    "l40sx8": ("NVIDIA L40S", 8, 48, "pcie", "unknown"),
    "rtx4090x8": ("NVIDIA GeForce RTX 4090", 8, 24, "pcie", "impossible"),
    "rtx5090x8": ("NVIDIA GeForce RTX 5090", 8, 32, "pcie", "impossible"),
    "rtx6000x8": ("NVIDIA RTX PRO 6000 Blackwell", 8, 96, "pcie", "possible"),
}


def test_facts_of_the_machines() -> None:
    found = {}
    for name in options("hw"):
        h = chosen("hw", name).hw
        found[name] = (h.gpu, h.gpu_count, h.gpu_memory_gb, h.interconnect, h.p2p)
    assert found == MACHINES


# --- experiments


@pytest.mark.parametrize("path", EXPERIMENTS, ids=name_of)
def test_every_experiment_can_be_measured_on_the_reference_machine(path: Path) -> None:
    words = ["+hw=rtx6000x8", "+spec=eagle3_2step", f"{EXPERIMENT}={path.stem}"]
    composed = compose_sweep(words, packaged())
    points = build(composed, (), lambda _, release: release.digest)
    assert composed.baseline.composition.deployment.bench.kind != "off"
    assert {out.label for out in points.left_out} == {label for label, _ in composed.filtered}  # no rule refuses one
    assert len(points.candidates) > 2


def test_the_sweep_of_the_reference_team() -> None:
    points = compose_points(["+hw=rtx6000x8", f"{EXPERIMENT}=nccl_pcie"])
    assert len(points) == 45
    found = [(d.nccl.get("algo"), d.nccl.get("proto"), d.nccl["max_nchannels"], d.nccl["buffsize"]) for _, d in points]
    assert ("Tree", "Simple", "2", "4194304") in found
    assert (None, None, "16", "16777216") in found
    assert {size for _, proto, _, size in found if proto == "LL"} == {"16777216"}
    assert {(d.nccl["p2p_level"], d.nccl["nthreads"], d.bench.kind) for _, d in points} == {("SYS", "512", "allreduce")}
