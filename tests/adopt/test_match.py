"""Servers as they were started, and the deployments that they become."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from launcher.adopt import match, names
from launcher.adopt.found import Remark, Server
from launcher.errors import ConfigError
from tests.composing import packaged

if TYPE_CHECKING:
    from launcher.adopt.match import Adopted

_TUNED = (
    "NCCL_PROTO=LL NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS NCCL_MAX_NCHANNELS=16 NCCL_BUFFSIZE=16777216 NCCL_NTHREADS=512"
)
_REFERENCE = (
    "/opt/sglang/bin/python -m sglang.launch_server --model-path /mnt/models/Kimi-K2.5 --trust-remote-code --tp-size 8"
    " --mem-fraction-static 0.88 --host 0.0.0.0 --port 8000 --num-continuous-decode-steps 4 --disable-custom-all-reduce"
)
_EAGLE = (
    " --speculative-algorithm EAGLE3 --speculative-draft-model-path /mnt/models/Kimi-K2.5-eagle3"
    " --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
)
_SGLANG = "/opt/sglang/bin/python -m sglang.launch_server --model-path org/m"
_NEXTN = (
    f"{_SGLANG} --speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1"
    " --speculative-num-draft-tokens"
)
_VLLM = "/opt/vllm/bin/vllm serve org/m"
_ALWAYS = {"SPT_NOENV", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "LAUNCH_DEPLOYMENT, LAUNCH_DIGEST"}


def _server(line: str, **more: Any) -> Server:
    words, env = shlex.split(line), {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    server = Server(where="run.sh:1", argv=tuple(words), env=env, user="llm")
    return dataclasses.replace(server, **more)


def _adopt(line: str, overrides: tuple[str, ...] = (), **more: Any) -> Adopted:
    server = _server(line, **more)
    allow = ("nccl-bare-tree",) if "--allow" in overrides else ()
    told = match.said(tuple(word for word in overrides if word != "--allow"), {}, allow)
    return match.adopt(server, names.of([server])[0], packaged(), told)


def _rows(adopted: Adopted) -> dict[str, tuple[str, str, str]]:
    return {row.what: (row.kind, row.was, row.will) for row in adopted.compared.rows if row.what not in _ALWAYS}


def test_the_reference_server_becomes_its_options_and_nothing_else() -> None:
    adopted = _adopt(f"{_TUNED} {_REFERENCE}", hosts=("gpu1",), log_file="/var/log/kimi.log")
    assert adopted.wanted.options == {
        "hw": "rtx6000x8",
        "model": "kimi_k2_5_int4",
        "nccl": "pcie_ll_ring",
        "engine": "sglang",
        "target": "ssh",
    }
    body = adopted.text[adopted.text.index("name:") :]
    assert body == (
        "name: kimi_k2.5\nunit:\n  log_file: /var/log/kimi.log\ntarget:\n  hosts:\n    - gpu1\n"
    )  # fmt: skip
    assert adopted.wanted.hw.guessed
    assert "hw=rtx6000x8 is a guess, to be confirmed" in adopted.text
    assert _rows(adopted) == {}
    assert shlex.join(adopted.release.argv) == _REFERENCE
    tuned = dict(word.split("=") for word in _TUNED.split())
    assert {name: adopted.release.env[name] for name in tuned} == tuned


def test_the_speculation_of_the_reference_server_is_an_option() -> None:
    adopted = _adopt(f"EAGLE3_PROFILE=1 {_TUNED} {_REFERENCE}{_EAGLE}")
    assert adopted.wanted.options["spec"] == "eagle3_2step"
    assert "spec:\n  profile: true\n" in adopted.text
    assert _rows(adopted) == {}


@pytest.mark.parametrize(
    ("line", "more", "options"),
    [
        (_SGLANG, {}, {"model": None, "nccl": "default", "engine": "sglang"}),
        (_SGLANG, {"gpus": ("NVIDIA H200",) * 8}, {"hw": "h200x8", "model": None}),
        (_SGLANG, {"gpus": ("NVIDIA RTX PRO 6000 Blackwell Server Edition",) * 8}, {"hw": "rtx6000x8"}),
        (_SGLANG, {"gpus": ("NVIDIA H200",) * 4}, {"hw": None}),
        (_SGLANG, {"gpus": ("NVIDIA GH200",) * 8}, {"hw": None}),
        (f"{_TUNED} {_SGLANG} --tp 4", {}, {"hw": None, "nccl": "pcie_ll_ring"}),
        (f"{_TUNED} NCCL_DEBUG=WARN {_SGLANG} --tp 8", {}, {"hw": "rtx6000x8", "nccl": "pcie_ll_ring"}),
        (f"NCCL_CROSS_NIC=1 {_TUNED} {_SGLANG} --tp 8", {}, {"hw": None, "nccl": "pcie_ll_ring"}),
        (f"NCCL_NVLS_ENABLE=0 {_SGLANG}", {}, {"nccl": "nvlink_low_memory"}),
        (f"NCCL_CROSS_NIC=1 {_SGLANG}", {}, {"nccl": "default"}),
        ("/x/python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3/", {}, {"model": "deepseek_v3"}),
        ("/x/python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3-0324", {}, {"model": None}),
        (
            "/x/bin/vllm serve /hub/models--openai--gpt-oss-120b/snapshots/b5c939/",
            {},
            {"model": "gpt_oss_120b", "engine": "vllm"},
        ),
        (_SGLANG, {"hosts": ("ops@gpu1",)}, {"target": "ssh"}),
        (_SGLANG + _EAGLE.replace("steps 2", "steps 4").replace("tokens 3", "tokens 5"), {}, {"spec": None}),
    ],
)
def test_existing_options_are_used_where_they_match(
    line: str, more: dict[str, Any], options: dict[str, str | None]
) -> None:
    found = _adopt(line, **more).wanted.options
    assert {group: found.get(group) for group in options} == options


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        (f"{_SGLANG} --tp 2", "--tp-size 2"),
        (f"{_SGLANG} --tensor-parallel-size=2", "--tp-size 2"),
        (f"{_VLLM} -tp 2", "--tensor-parallel-size 2"),
        (f"{_VLLM} --gpu_memory_utilization=0.90", "--gpu-memory-utilization 0.9"),
        (f"{_VLLM} --max-model-l 4096", "--max-model-len 4096"),
        (f"{_VLLM} --max_model_len 1e5", "--max-model-len 1e5"),
        (f"{_VLLM} --no-enable-prefix-caching", "--no-enable-prefix-caching"),
        (f"{_VLLM} --enable-prefix-caching --no-enable-prefix-caching", "--no-enable-prefix-caching"),
        (f"{_VLLM} --max-model-len 1 --max-model-len 2", "--max-model-len 2"),
        (f"{_VLLM} --served-model-name a b", "--served-model-name a b"),
        (f"{_VLLM} -O3", "--optimization-level 3"),
        (f"{_VLLM} --compilation-config.mode 3", "--compilation-config '{\"mode\":3}'"),
        (
            f"{_VLLM} --compilation-config.cudagraph_mode=NONE --compilation-config.pass_config.fuse_norm true",
            '--compilation-config \'{"cudagraph_mode":"NONE","pass_config":{"fuse_norm":true}}\'',
        ),
        (f"{_VLLM} --nobody-knows 08 1:30 on", "--nobody-knows 08 1:30 on"),
        (f"{_VLLM} --seed -1", "--seed -1"),
        (f"{_VLLM} --chat-template ''", "--chat-template ''"),
        (f"{_SGLANG} --cuda-graph-bs 1 2 4", "--cuda-graph-bs 1 2 4"),
        (f"{_SGLANG} --cuda-graph-max-bs 08", "--cuda-graph-max-bs 08"),
        ("/x/python -m vllm.entrypoints.openai.api_server --model org/m --seed 1", "serve org/m"),
        ("/x/python /opt/vllm/bin/vllm serve org/m --seed 1", "--seed 1"),
        ("/x/bin/sglang serve --model-path org/m", "-m sglang.launch_server --model-path org/m"),
        (
            f'{_VLLM} --speculative-config \'{{"method": "mtp", "num_speculative_tokens": 1}}\'',
            '--speculative-config \'{"method":"mtp","num_speculative_tokens":1}\'',
        ),
        (
            f'{_VLLM} --speculative-config \'{{"method": "medusa", "num_speculative_tokens": 1}}\'',
            '--speculative-config \'{"method": "medusa", "num_speculative_tokens": 1}\'',
        ),
        (f"{_SGLANG} --speculative-algorithm EAGLE3 --speculative-num-steps 3", "EAGLE3 --speculative-num-steps 3"),
        (f"{_SGLANG} --mem-fraction-static 1.5", "--mem-fraction-static 1.5"),
    ],
)
def test_flags_mean_the_same(line: str, argv: str) -> None:
    adopted = _adopt(line)
    assert argv in shlex.join(adopted.release.argv)
    assert not [row for row in adopted.compared.rows if row.why == "you say so"]
    assert not [row for row in adopted.compared.rows if row.kind in ("cannot be said", "left out")]


@pytest.mark.parametrize(
    ("line", "more", "what", "row"),
    [
        (_SGLANG, {}, "--host", ("added", "", "127.0.0.1")),
        (_SGLANG, {}, "--port", ("added", "", "30000")),
        (_VLLM, {}, "--port", ("added", "", "8000")),
        (_VLLM, {}, "program", ("changed", "/opt/vllm/bin/vllm serve",
         "/opt/vllm/bin/python -m vllm.entrypoints.cli.main serve")),
        (f"NCCL_ALGO=Tree {_VLLM}", {}, "NCCL_ALGO", ("changed", "Tree", "Ring,Tree;allreduce:Tree")),
        (f"HF_TOKEN=hf_x {_VLLM}", {}, "HF_TOKEN", ("secret", "…", "secrets.env.HF_TOKEN")),
        (f"{_VLLM} --api-key=topsecret", {}, "--api-key", ("secret", "…", "secrets.args.api_key")),
        (f"HTTP_PROXY=http://u:p@x:1 {_VLLM}", {}, "HTTP_PROXY", ("secret", "…", "secrets.env.HTTP_PROXY")),
        (f"LAUNCH_X=1 {_VLLM}", {}, "LAUNCH_X", ("left out", "1", "")),
        (f"{_VLLM} --middleware a --middleware b", {}, "--middleware", ("cannot be said", "a", "")),
        (f"{_VLLM} --tokenizer=--x", {}, "--tokenizer", ("cannot be said", "--x", "")),
        (f"{_VLLM} --config c.yaml", {}, "--config", ("cannot be said", "c.yaml", "as it is")),
        (f"{_VLLM} stray", {}, "argument", ("left out", "stray", "")),
        (_VLLM, {"wrappers": (("numactl", "-N0"),)}, "numactl", ("cannot be said", "numactl -N0", "")),
        (_VLLM, {"image": "vllm/vllm-openai:v0.32.0"}, "image", ("cannot be said", "vllm/vllm-openai:v0.32.0", "")),
        (_VLLM, {"log_file": "out.log"}, "log", ("changed", "out.log", "journal")),
        (_VLLM, {"working_directory": "/a b"}, "engine.working_directory", ("cannot be said", "/a b", "")),
        (f"{_NEXTN} 9", {}, "--speculative-num-draft-tokens", ("changed", "9", "2")),
        (f"{_NEXTN} 2", {}, "--speculative-algorithm", ("changed", "NEXTN", "EAGLE")),
        ("/x/python -u -m sglang.launch_server --model org/m", {}, "options of python", ("left out", "-u", "")),
        (f"{_REFERENCE} --tp 3", {}, "model=…", ("left out", "", "")),
    ],
)  # fmt: skip
def test_every_difference_has_a_row(line: str, more: dict[str, Any], what: str, row: tuple[str, str, str]) -> None:
    adopted = _adopt(line, **more)
    assert _rows(adopted)[what] == row
    assert "topsecret" not in repr(adopted.compared)
    assert "topsecret" not in adopted.text


def test_a_process_leaves_its_session_behind() -> None:
    env = {
        "PATH": "/opt/vllm/bin:/usr/bin", "HOME": "/home/llm", "SSH_CONNECTION": "a b", "LS_COLORS": "x",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/cuda", "PYTHONPATH": "/p", "CUDA_HOME": "/cuda", "VIRTUAL_ENV": "/opt/vllm", "PWD": "/x",
        "VLLM_USE_V1": "1", "SLURM_JOB_ID": "7", "INVOCATION_ID": "9", "BASH_FUNC_which%%": "() { }", "SHLVL": "1",
    }  # fmt: skip
    adopted = _adopt(_VLLM, env=env, whole_env=True)
    kept = {"PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "VIRTUAL_ENV", "VLLM_USE_V1"}
    assert dict(adopted.deployment.env) == {name: value for name, value in env.items() if name in kept}
    told = {row.what for row in adopted.compared.rows if row.kind == "left out"}
    assert told == set(env) - kept


def test_what_a_text_sets_was_set_on_purpose() -> None:
    assert dict(_adopt(f"HOME=/data TERM=dumb {_VLLM}").deployment.env) == {"HOME": "/data", "TERM": "dumb"}


@pytest.mark.parametrize(
    ("line", "more", "missing"),
    [
        ("python3 -m sglang.launch_server --model org/m", {}, ("engine.python",)),
        ("vllm serve org/m", {"python": "/venv/bin/python"}, ()),
        ("vllm serve org/m", {"user": ""}, ("engine.python", "engine.user")),
        (_VLLM, {"user": "", "hosts": ("ops@gpu1", "ops@gpu2")}, ()),
        (_VLLM, {"user": "", "hosts": ("ops@gpu1", "gpu2")}, ("engine.user",)),
        (_VLLM, {"user": "Bad Name"}, ("engine.user",)),
        (_VLLM, {"image": "vllm/vllm-openai"}, ("engine.python",)),
    ],
)
def test_what_is_not_said_is_visibly_missing(line: str, more: dict[str, Any], missing: tuple[str, ...]) -> None:
    adopted = _adopt(line, **more)
    assert adopted.missing == missing
    assert [adopted.text.count(f"  {key.partition('.')[2]}: CHANGE-ME\n") for key in missing] == [1] * len(missing)


def test_what_the_input_does_not_know_is_told_and_can_be_said() -> None:
    line = (
        "HF_HOME='$DATA/hf' /opt/vllm/bin/vllm serve '$1' --port '${PORT}' --max-model-len '$LEN' --api-key '$KEY'"
        " --seed '$5'"
    )
    remarks = tuple(Remark("x", quote, "not set") for quote in ("$DATA", "$1", "${PORT}", "$LEN", "$KEY"))
    with pytest.raises(ConfigError, match=r"engine.port is '\$\{PORT\}'.*say it behind the command, as engine.port=8"):
        _adopt(line, remarks=remarks)
    adopted = _adopt(line, ("engine.port=8001", "engine.args.max_model_len=4096"), remarks=remarks)
    assert dict(adopted.unknown) == {"model.path": "$1", "env.HF_HOME": "$DATA/hf", "secrets.args.api_key": "$KEY"}
    assert adopted.wanted.secrets == {}
    assert adopted.deployment.engine.port == 8001
    assert adopted.deployment.engine.args["max_model_len"] == "4096"
    assert adopted.deployment.engine.args["seed"] == "$5"
    assert adopted.name == "server"


def test_overrides_are_written_into_the_file() -> None:
    line = "python3 -m sglang.launch_server --model org/m"
    adopted = _adopt(
        line, ("engine.python=/x/python", "engine.port=9000", "+hw=h100x8", "target=ssh", "target.hosts=[a]")
    )
    assert adopted.missing == ()
    assert "python: /x/python\n  user: llm\n" in adopted.text or "python: /x/python\n" in adopted.text
    assert adopted.wanted.options["hw"] == "h100x8"
    assert adopted.deployment.target.hosts == ("a",)
    assert _rows(adopted)["--port"] == ("added", "", "9000")


def test_an_allowed_tree_stays_bare() -> None:
    adopted = _adopt(f"NCCL_ALGO=Tree {_VLLM}", ("--allow",))
    assert adopted.release.env["NCCL_ALGO"] == "Tree"
    assert "allow:\n  - nccl-bare-tree\n" in adopted.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/x/python serve.py --model org/m", "starts no server that launch knows"),
        ("/x/python -m sglang.launch_server --tp 2", "names no model"),
        (f"{_VLLM} --port=0", "engine.port is '0'"),
        (f"{_VLLM} --port=70000", "engine.port=70000 is no port"),
        (f"{_VLLM} --port 99999999999999999999", "engine.port is '99999999999999999999'"),
        (f"{_VLLM} -tp all", "engine.tensor_parallel is 'all'"),
        (f"{_VLLM} --config x --api-key hidden", "secret flags (api_key)"),
        (f"{_VLLM} --hf-token 'hid\nden'", "looks like a secret"),
        (f"{_VLLM} --override {'x' * 200000}", "131071"),
    ],
)
def test_what_no_deployment_can_be_is_refused_with_the_reason(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _adopt(line)
    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ([{"unit": "kimi.service"}], ["kimi"]),
        ([{"unit": "launch-prod.service"}], ["prod"]),
        ([{"name": "LLM Server #1"}], ["llm_server_1"]),
        ([{"name": "all"}, {"name": "drift"}, {"name": "9b"}], ["all_server", "drift_server", "s_9b"]),
        ([{}, {}], ["m_30000", "m_30000_2"]),
        ([{"name": "a"}, {"name": "a"}, {"name": "a_30000"}], ["a_30000", "a_30000_2", "a_30000_3"]),
        ([{"name": "日本"}], ["m"]),
    ],
)
def test_names_are_derived_and_differ(servers: list[dict[str, Any]], found: list[str]) -> None:
    assert names.of([_server(f"{_SGLANG} --port 30000", **more) for more in servers]) == found
