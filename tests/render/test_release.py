"""Deployments to releases: the reference case flag by flag, digests, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from launcher.agent.manifest import parse
from launcher.errors import RenderError
from launcher.render import Release, render
from tests.composing import compose

if TYPE_CHECKING:
    from pathlib import Path

BASELINE = (
    "/opt/sglang/bin/python -m sglang.launch_server --model-path /mnt/models/Kimi-K2.5 --trust-remote-code"
    " --tp-size 8 --mem-fraction-static 0.88 --host 0.0.0.0 --port 8000 --num-continuous-decode-steps 4"
    " --disable-custom-all-reduce"
)
EAGLE = (
    " --speculative-algorithm EAGLE3 --speculative-draft-model-path /mnt/models/Kimi-K2.5-eagle3"
    " --speculative-num-steps {steps} --speculative-eagle-topk 1 --speculative-num-draft-tokens {tokens}"
)
TUNED = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
}
ADDED = {"SPT_NOENV": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV", "LAUNCH_DEPLOYMENT": "kimi_k2_5_int4"}


def rendered(*words: str, **env: str) -> Release:
    return render(compose(words, env))


def env_of(release: Release) -> dict[str, str]:
    return {name: value for name, value in release.env.items() if name != "LAUNCH_DIGEST"}


def test_the_baseline_server_flag_by_flag() -> None:
    release = rendered("+hw=rtx6000x8")
    assert list(release.argv) == BASELINE.split()
    assert env_of(release) == {**TUNED, **ADDED}


COMMANDS = {
    "eagle3 2 steps": (["+spec=eagle3_2step"], BASELINE + EAGLE.format(steps=2, tokens=3)),
    "eagle3 5 steps": (["+spec=eagle3_5step"], BASELINE + EAGLE.format(steps=5, tokens=6)),
    "ngram": (["+spec=ngram"], BASELINE + " --speculative-algorithm NGRAM --speculative-num-draft-tokens 5"),
    "multi-token prediction": (
        ["+spec=mtp", "model=deepseek_v3"],
        BASELINE.replace("Kimi-K2.5", "DeepSeek-V3")
        + " --speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1"
        " --speculative-num-draft-tokens 2",
    ),
    "another draft": (
        ["+spec=eagle3_2step", "spec.draft_model_path=/d"],
        (BASELINE + EAGLE.format(steps=2, tokens=3)).replace("/mnt/models/Kimi-K2.5-eagle3", "/d"),
    ),
    "a flag more, a flag less": (
        ["engine.args.enable_metrics=true", "engine.args.num_continuous_decode_steps=null", "engine.args.x=[1,2]"],
        BASELINE.replace(" --num-continuous-decode-steps 4", "") + " --enable-metrics --x 1 2",
    ),
    "vllm": (
        ["engine=vllm"],
        (
            "/opt/vllm/bin/python -m vllm.entrypoints.cli.main serve /mnt/models/Kimi-K2.5 --trust-remote-code"
            " --tensor-parallel-size 8 --gpu-memory-utilization 0.88 --host 0.0.0.0 --port 8000"
            " --disable-custom-all-reduce"
        ),
    ),
}


@pytest.mark.parametrize(("words", "command"), COMMANDS.values(), ids=COMMANDS.keys())
def test_commands(words: list[str], command: str) -> None:
    assert list(rendered("+hw=rtx6000x8", *words).argv) == command.split()


def test_vllm_speculation_is_json() -> None:
    flag, value = rendered("engine=vllm", "+spec=eagle3_2step").argv[-2:]
    assert flag == "--speculative-config"
    assert json.loads(value) == {
        "method": "eagle3",
        "model": "/mnt/models/Kimi-K2.5-eagle3",
        "num_speculative_tokens": 2,
    }


def test_vllm_predicts_several_tokens_without_a_draft_model() -> None:
    words = ["engine=vllm", "+spec=mtp", "model=deepseek_v3"]
    assert json.loads(rendered(*words).argv[-1]) == {"method": "mtp", "num_speculative_tokens": 1}
    assert json.loads(rendered(*words, "spec.draft_model_path=/d", "spec.steps=2").argv[-1]) == {
        "method": "mtp",
        "model": "/d",
        "num_speculative_tokens": 2,
    }


def test_profile_timings() -> None:
    assert rendered("+spec=eagle3_2step", "spec.profile=true").env["EAGLE3_PROFILE"] == "1"


def test_what_launch_adds_can_be_set_otherwise() -> None:
    env = rendered("nccl.debug=WARN", SPT_NOENV="0").env
    assert (env["NCCL_DEBUG"], env["SPT_NOENV"]) == ("WARN", "0")


REFUSED = {
    "set twice": (["nccl.algo=Tree"], {"NCCL_ALGO": "Ring"}, "contradicts nccl.algo"),
    "ours": ([], {"LAUNCH_X": "1"}, "belong to launch"),
    "NUL": ([], {"X": "a\0"}, "env.X"),
    "flag twice": (["engine.args.tp_size=4"], {}, "engine.args.tp_size: --tp-size is already set"),
    "python": (["engine.python=python3"], {}, "engine.python"),
    "user": (["engine.user='a b'"], {}, "engine.user"),
    "port": (["engine.port=0"], {}, "engine.port"),
    "no draft": (["+spec=eagle3_2step", "spec.draft_model_path=''"], {}, "spec.draft_model_path is missing"),
    "draft tokens": (["+spec=eagle3_2step", "spec.draft_tokens=8"], {}, "set spec.draft_tokens=3"),
    "no own layers to draft with": (["+spec=mtp"], {}, "no layers for multi-token prediction"),
    "no own layers, vllm": (["+spec=mtp", "engine=vllm", "model=llama3_3_70b"], {}, "model.mtp=absent"),
    "mtp draft tokens": (["+spec=mtp", "model=deepseek_v3", "spec.steps=3"], {}, "set spec.draft_tokens=4"),
    "mtp tree": (["engine=vllm", "+spec=mtp", "model=deepseek_v3", "spec.topk=2"], {}, "one chain only"),
    "vllm tree": (["engine=vllm", "+spec=eagle3_2step", "spec.topk=2"], {}, "one chain only"),
    "log": (["unit.log_file=log"], {}, "unit.log_file"),
    "timeout": (["unit.start_timeout=1"], {}, "unit.start_timeout"),
    "more ranks than GPUs": (["hw=h200x2"], {}, "engine.tensor_parallel=8 is more than the 2 GPUs of hw=h200x2"),
    "more ranks than chosen GPUs": (["engine.gpus=[0,1]"], {}, "more than the 2 GPUs of engine.gpus"),
    "a GPU that is not there": (["hw=h200x2", "engine.tensor_parallel=2", "engine.gpus=[1,2]"], {}, "are 0 to 1"),
    "a GPU twice": (["engine.gpus=[0,0]", "engine.tensor_parallel=2"], {}, "names a GPU twice"),
    "heads": (["engine.tensor_parallel=3"], {}, "does not divide the 64 attention heads"),
    "slice": (["unit.slice=system.slice"], {}, "unit.slice"),
    "target python": (["target.python=python3"], {}, "target.python"),
}


@pytest.mark.parametrize(("words", "env", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_render(words: list[str], env: dict[str, str], part: str) -> None:
    with pytest.raises(RenderError) as caught:
        rendered(*words, **env)
    assert part in str(caught.value)


def test_the_same_deployment_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        words = [sys.executable, "-m", "launcher", "+hw=rtx6000x8", f"target.out={tmp_path / seed}"]
        subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / seed).glob("*/*/*")} for seed in ("1", "2"))
    assert one == two
    assert one["launch-kimi_k2_5_int4.service"].decode() == rendered("+hw=rtx6000x8").unit.text


SAME = {
    "order": ["+spec=off"],
    "where it goes": ["target=ssh", "target.hosts=[a]"],
    "facts about hardware": ["hw.gpu_memory_gb=97"],
    "the host's interpreter": ["target.python=/usr/bin/python3.12"],
}


@pytest.mark.parametrize("words", SAME.values(), ids=SAME.keys())
def test_digest_ignores_what_the_process_does_not_see(words: list[str]) -> None:
    assert rendered("+hw=rtx6000x8", *words).digest == rendered("+hw=rtx6000x8").digest


OTHER = {
    "variable": (["nccl.algo=Tree"], {}),
    "argument": (["engine.port=8001"], {}),
    "unit": (["unit.restart_delay=11"], {}),
    "raw": ([], {"X": "1"}),
    "name": (["name=other"], {}),
}


@pytest.mark.parametrize(("words", "env"), OTHER.values(), ids=OTHER.keys())
def test_digest_changes_with_what_the_process_sees(words: list[str], env: dict[str, str]) -> None:
    assert rendered("+hw=rtx6000x8", *words, **env).digest != rendered("+hw=rtx6000x8").digest


def test_manifest_reads_back() -> None:
    release = rendered("+hw=rtx6000x8")
    manifest = parse(release.manifest.text, "x")
    assert manifest["env"] == release.env
    assert tuple(manifest["argv"]) == release.argv
    assert manifest["digest"] == release.digest == release.env["LAUNCH_DIGEST"]


def test_unit_points_to_both_files_and_has_no_dash() -> None:
    release = rendered("+hw=rtx6000x8", "unit.log_file=/var/log/llm.log")
    lines = release.unit.text.splitlines()
    assert f"EnvironmentFile={release.env_file.path}" in lines
    assert "StandardOutput=append:/var/log/llm.log" in lines
    assert "SuccessExitStatus=SIGKILL" in lines
    assert next(line for line in lines if line.startswith("ExecStart=")).endswith(
        " ".join(f"'{word}'" for word in BASELINE.split())
    )


def test_vllm_needs_no_forgiven_kill() -> None:
    assert "SuccessExitStatus" not in rendered("engine=vllm").unit.text
