"""Every rule has a configuration that it hits and one that it must not, and the reference case passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.catalogue import rules
from launcher.catalogue.rules_table import table
from launcher.cli import main
from launcher.errors import ConfigError
from launcher.render import render
from tests.composing import compose

PCIE, NVLINK = "+hw=rtx6000x8", "+hw=h100x8"
DETERMINISTIC = "engine.args.enable_deterministic_inference=true"
SYMMETRIC = "engine.args.enable_symm_mem=true"
ALLOWED = "allow=[nccl-bare-tree]"

#: Rule: a configuration that it hits, and one beside it that it must leave alone.
CASES: dict[str, tuple[list[str], list[str]]] = {
    "nccl-bare-tree": (["nccl.algo=Tree"], ["nccl.algo='Ring,Tree;allreduce:Tree'"]),
    "nccl-bare-tree-raw": (["env.NCCL_ALGO=Tree"], ["env.NCCL_ALGO=Tree", "engine.nccl_version=2.21.5"]),
    "nccl-algo-prefix-only": (["nccl.algo='allreduce:Tree'"], ["nccl.algo='Ring;allreduce:Tree'"]),
    "nccl-ll128-pcie": ([PCIE, "nccl.proto='LL,LL128'"], [PCIE, "nccl.proto='^LL,LL128'"]),
    "nccl-min-above-max-channels": (
        ["nccl.min_nchannels=16", "nccl.max_nchannels=2"],
        ["nccl.min_nchannels=2", "nccl.max_nchannels=2"],
    ),
    "nccl-min-above-max-ctas": (["nccl.min_ctas=16", "nccl.max_ctas=2"], ["nccl.min_ctas=2", "nccl.max_ctas=16"]),
    "nccl-proto-ll": (["nccl.proto=LL"], ["nccl.proto=Simple"]),
    "nccl-buffer-memory": (
        ["nccl.buffsize=16MiB", "nccl.max_nchannels=32"],
        ["nccl.buffsize=4MiB", "nccl.max_nchannels=2"],
    ),
    "nccl-p2p-level-void": (["nccl.p2p_level=SYS", "nccl.p2p_disable=1"], ["nccl.p2p_level=SYS", "nccl.p2p_disable=0"]),
    "nccl-p2p-iommu": ([PCIE, "nccl.p2p_level=SYS"], [NVLINK, "nccl.p2p_level=SYS"]),
    "nccl-channels-limit": (["nccl.max_nchannels=32"], ["nccl.max_nchannels=2", "nccl.min_nchannels=2"]),
    "nccl-channels-cap": (
        ["nccl.max_nchannels=64", "engine.nccl_version=2.21.5"],
        ["nccl.max_nchannels=64", "engine.nccl_version=2.28.9"],
    ),
    "nccl-nvls-alone": (["nccl.algo=NVLS"], ["nccl.algo='Ring,NVLS'"]),
    "nccl-chunk-size": (["nccl.chunk_size=1MiB"], ["nccl.chunk_size=512KiB"]),
    "nccl-buffsize-odd": (["nccl.buffsize=1000000"], ["nccl.buffsize=1MiB"]),
    "nccl-ll128-buffsize": (["nccl.ll128_buffsize=123000"], ["nccl.ll128_buffsize=122880"]),
    "nccl-p2p-off-nvlink": ([NVLINK, "nccl.p2p_disable=1"], [PCIE, "nccl.p2p_disable=1"]),
    "nccl-ib-timeout-short": (["nccl.ib_timeout=2"], ["nccl.ib_timeout=22"]),
    "nccl-mnnvl-off": (
        ["+hw=gb200x4", "engine.tensor_parallel=4", "nccl.cumem_enable=0"],
        ["+hw=gb200x4", "engine.tensor_parallel=4", "nccl.cumem_enable=1"],
    ),
    "nccl-level-words": (
        ["nccl.p2p_level=NVL", "engine.nccl_version=2.5.6"],
        ["nccl.p2p_level=NVL", "engine.nccl_version=2.28.9"],
    ),
    "nccl-ll128-network": ([NVLINK, "nccl.proto=LL128", "nccl.ib_disable=1"], [NVLINK, "nccl.proto=LL128"]),
    "env-nearly-known": (["env.CUDA_VISIBLE_DEVICE=0"], ["env.MY_OWN_NAME=1"]),
    "vllm-expandable-segments": (
        ["engine=vllm", NVLINK, "env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
        ["engine=vllm", PCIE, "env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
    ),
    "vllm-symmetric-graphs": (
        ["engine=vllm", "env.VLLM_USE_NCCL_SYMM_MEM=1"],
        ["engine=vllm", "env.VLLM_USE_NCCL_SYMM_MEM=1", "engine.args.enforce_eager=true"],
    ),
    "sglang-symmetric-contexts": (
        [SYMMETRIC, "engine.args.dcp_size=4", "engine.nccl_version=2.29.7"],
        [SYMMETRIC, "engine.args.dcp_size=4", "engine.nccl_version=2.30.7"],
    ),
    "vllm-two-blackwells": (
        ["engine=vllm", "+hw=rtx5090x8", "engine.tensor_parallel=2"],
        ["engine=vllm", "+hw=rtx5090x8", "engine.tensor_parallel=4"],
    ),
    "sglang-draft-tree": (
        ["+spec=eagle3_2step", "spec.topk=4", "spec.draft_tokens=8", "env.SGLANG_ENABLE_SPEC_V2=1"],
        ["+spec=eagle3_2step", "env.SGLANG_ENABLE_SPEC_V2=1"],
    ),
    "vllm-batch-invariant-231": (
        ["engine=vllm", "engine.version=0.25.0", "engine.nccl_version=2.31.2", "env.VLLM_BATCH_INVARIANT=1"],
        ["engine=vllm", "engine.version=0.33.0", "engine.nccl_version=2.31.2", "env.VLLM_BATCH_INVARIANT=1"],
    ),
    "nccl-version": (
        ["nccl.allgatherv_enable=1", "engine.nccl_version=2.28.9"],
        ["nccl.allgatherv_enable=1", "engine.nccl_version=2.30.7"],
    ),
    "nccl-other-reader": (["nccl.tests_device=0"], ["nccl.algo=Ring"]),
    "nccl-raw-value": (["env.NCCL_ALGOO=Ring"], ["env.NCCL_NTHREADS=512"]),
    "nccl-debug-quiet": (["nccl.debug=WARN"], ["nccl.debug=INFO"]),
    "nccl-nvls-without-cumem": (
        ["nccl.nvls_enable=1", "nccl.cumem_enable=0"],
        ["nccl.nvls_enable=0", "nccl.cumem_enable=0"],
    ),
    "nccl-measured-slower": (
        ["+hw=h200x2", "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "nccl.p2p_disable=1"],
        [PCIE, "engine.tensor_parallel=2", "nccl=pcie_ll_ring", "nccl.p2p_disable=1"],
    ),
    "engine-forces": (["env.CUDA_DEVICE_MAX_CONNECTIONS=1"], ["env.CUDA_DEVICE_MAX_CONNECTIONS=8"]),
    "sglang-symmetric-memory": ([SYMMETRIC, "nccl.cumem_enable=0"], [SYMMETRIC, "nccl.cumem_enable=1"]),
    "sglang-deterministic": ([DETERMINISTIC, "nccl.algo=Ring"], [DETERMINISTIC, "nccl.proto=Simple"]),
    "vllm-batch-invariant": (
        ["engine=vllm", "env.VLLM_BATCH_INVARIANT=1", "nccl.proto=LL"],
        ["engine=vllm", "env.VLLM_BATCH_INVARIANT=0", "nccl.proto=LL"],
    ),
    "engine-flag-missing": (
        ["engine.version=0.5.23", "engine.args.cuda_graph_max_bs=8"],
        ["engine.version=0.5.17", "engine.args.cuda_graph_max_bs=8"],
    ),
    "engine-flag-unknown": (["engine.args.enable_metric=true"], ["engine.args.enable_metrics=true"]),
    "engine-flag-inert": ([], ["engine.args.num_continuous_decode_steps=null"]),
    "custom-all-reduce-inert": ([PCIE], [PCIE, "engine.args.disable_custom_all_reduce=null"]),
    "custom-all-reduce-off": ([NVLINK, "engine.args.disable_custom_all_reduce=true"], [NVLINK]),
    "custom-all-reduce-on": ([NVLINK, "nccl.algo=Ring"], [PCIE]),
    "sglang-pcie-ipc": (
        [PCIE, "env.SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"],
        ["nccl.max_nchannels=2", "env.SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"],
    ),
    "sglang-speculation-cap": (["+spec=ngram"], ["+spec=ngram", "engine.args.max_running_requests=48"]),
    "draft-of-another-model": (["+spec=eagle3_2step", "model=llama3_3_70b"], ["+spec=eagle3_2step"]),
    "workers-unreadable": (["env.SPT_NOENV="], ["env.SPT_NOENV=1"]),
    "sglang-graph-register": (["nccl.graph_register=1"], ["nccl.graph_register=0"]),
    "runtime-image-tag": (
        ["runtime.image='vllm/vllm-openai:v0.25.0'"],
        [f"runtime.image='vllm/vllm-openai@sha256:{'0' * 64}'"],
    ),
}


def hits(words: list[str]) -> set[str]:
    return {finding.rule for finding in rules.check(compose(words))}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {rule.id for rule in rules.all_rules()}


@pytest.mark.parametrize(("rule", "bad", "good"), [(k, *v) for k, v in CASES.items()], ids=CASES.keys())
def test_a_rule_hits_and_leaves_alone(rule: str, bad: list[str], good: list[str]) -> None:
    assert rule in hits(bad)
    assert rule not in hits(good)


@pytest.mark.parametrize("rule", [r for r in rules.all_rules() if r.severity == "refuse"], ids=lambda r: r.id)
def test_a_refusal_names_rule_source_and_way_out_and_can_be_forced(
    rule: rules.Rule, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = CASES[rule.id][0]
    assert main(["plan", *words]) == 2
    said = capsys.readouterr().err
    assert rule.source in said
    assert f"--allow {rule.id}" in said
    assert main(["plan", "--allow", rule.id, *words]) == 0
    assert f"[{rule.id}]" in capsys.readouterr().err
    assert main(["check", *words]) == 2


def test_what_is_forced_stands_in_the_manifest() -> None:
    assert '"nccl-bare-tree"' in render(compose(["nccl.algo=Tree", ALLOWED])).manifest.text


def test_the_reference_case_passes_with_warnings_that_teach() -> None:
    findings = rules.check(compose([PCIE, "+spec=eagle3_2step"]))
    assert not rules.refusals(findings)
    assert {f.rule for f in findings if f.severity == "warn"} == {"nccl-proto-ll", "engine-flag-inert"}


TREES = {
    "bare": ("Tree", [], "Ring,Tree;allreduce:Tree"),
    "forced": ("Tree", [ALLOWED], "Tree"),
    "prefix only": ("'allreduce:Tree'", [], "Ring,Tree;allreduce:Tree"),
    "whole": ("'Ring;allreduce:Tree'", [], "Ring;allreduce:Tree"),
    "ring": ("Ring", [], "Ring"),
    "before 2.24": ("Tree", ["engine.nccl_version=2.21.5"], "Tree"),
}


@pytest.mark.parametrize(("value", "words", "rendered"), TREES.values(), ids=TREES.keys())
def test_every_collective_keeps_an_algorithm(value: str, words: list[str], rendered: str) -> None:
    assert render(compose([f"nccl.algo={value}", *words])).env["NCCL_ALGO"] == rendered


@pytest.mark.parametrize(
    ("name", "part"), [("nccl-bare-tre", "did you mean 'nccl-bare-tree'"), ("nccl-p2p-iommu", "refuses nothing")]
)
def test_a_wrong_allow_is_refused(name: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        rules.check(compose([f"allow=[{name}]"]))


def test_the_page_is_the_rules() -> None:
    page = Path(__file__).parents[2] / "docs" / "rules.md"
    assert page.read_text(encoding="utf-8") == table()


def test_check_as_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["check", "--json", "nccl.min_nchannels=2", "nccl.max_nchannels=1"]) == 2
    record = json.loads(capsys.readouterr().out)
    assert record["exit_code"] == 2
    refused = [f["rule"] for f in record["deployments"][0]["findings"] if f["severity"] == "refuse"]
    assert refused == ["nccl-min-above-max-channels"]
