"""Configuration of one's own: where it is found, what it may say, and how its mistakes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher import compose as composing
from launcher.cli import main
from launcher.compose import Composition, find_layers
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MINE = """\
# @package _global_
defaults:
  - /hw: rtx6000x8
  - override /nccl: mine
  - _self_
name: mine
engine:
  port: 9000
"""


def put(folder: Path, **files: str) -> Path:
    """Write files named GROUP__OPTION below a folder."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def composed(folder: Path, *words: str, dirs: tuple[str, ...] = (), **environ: str) -> Composition:
    return composing.compose(words, find_layers(dirs, environ, folder))


def test_a_deployment_file_in_the_working_folder(tmp_path: Path) -> None:
    put(tmp_path / "conf", deployment__mine=MINE, nccl__mine="algo: Tree")
    deployment = composed(tmp_path, "deployment=mine").deployment
    assert (deployment.name, deployment.engine.port, deployment.nccl) == ("mine", 9000, {"algo": "Tree"})
    assert composed(tmp_path, "deployment=mine", "nccl=default").deployment.nccl == {}
    assert composed(tmp_path, "deployment=mine", "engine.port=1").deployment.engine.port == 1


def test_the_nearer_folder_wins_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "conf", nccl__pcie_ll_ring="algo: Tree")
    put(tmp_path / "env", nccl__pcie_ll_ring="algo: PAT")
    put(tmp_path / "flag", nccl__pcie_ll_ring="algo: NVLS")
    one = composed(tmp_path, "+hw=rtx6000x8")
    assert one.deployment.nccl == {"algo": "Tree"}
    assert one.notes == ("conf/nccl/pcie_ll_ring.yaml stands before the file of that name in packaged conf",)
    two = composed(tmp_path, "+hw=rtx6000x8", LAUNCH_CONF="env")
    assert two.deployment.nccl == {"algo": "PAT"}
    three = composed(tmp_path, "+hw=rtx6000x8", dirs=("flag",), LAUNCH_CONF="env")
    assert three.deployment.nccl == {"algo": "NVLS"}
    assert three.notes[0].endswith("in env, conf, packaged conf")
    assert composed(tmp_path, "nccl=default").notes == ()


def test_a_foreign_conf_folder_is_not_ours(tmp_path: Path) -> None:
    put(tmp_path / "conf", nginx__site="x: y")
    assert composed(tmp_path).deployment.name == "kimi_k2_5_int4"


WRITTEN = ["on", "1e3", "007", "12:30", "0x10", "1_000", "1.10", "NO", "a,b", "^lo,docker0", "${X}", "a b", "x#y", "-1"]


@pytest.mark.parametrize("value", WRITTEN)
def test_env_maps_pass_unchanged(tmp_path: Path, value: str) -> None:
    text = f"# @package _global_\nenv:\n  X: {value}\n  Y: '{value}'\n"
    put(tmp_path / "conf", deployment__a=text)
    assert composed(tmp_path, "deployment=a").deployment.env == {"X": value, "Y": value}


def test_env_maps_merge_and_null_takes_away(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    put(conf, hw__h="# @package _global_\nenv:\n  A: '1'\n  B: '1'\n  C: '1'\n  D: '1'\n")
    put(conf, deployment__d="# @package _global_\nenv:\n  A: '2'\n  B: null\n")
    words = ("deployment=d", "hw=h", "env.C=3", "~env.D")
    assert composed(tmp_path, *words).deployment.env == {"A": "2", "C": "3"}


def test_files_inherit_environment_and_flags(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    base = "# @package _global_\nenv: {A: '1', B: on}\nengine:\n  args: {num_continuous_decode_steps: 1_0}\n"
    child = "# @package _global_\ndefaults: [base, _self_]\nenv: {A: '2'}\n"
    put(conf, deployment__base=base, deployment__child=child, engine__mine="defaults: [sglang, _self_]\nport: 9\n")
    one = composed(tmp_path, "deployment=child", "engine=mine")
    assert one.deployment.env == {"A": "2", "B": "on"}
    assert one.deployment.engine.port == 9
    assert one.deployment.engine.args["num_continuous_decode_steps"] == "1_0"
    assert one.sources.origins("env.B") == ["conf/deployment/base.yaml"]


def test_the_order_is_hydras(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    put(conf, hw__my="# @package _global_\nengine:\n  port: 9000\n  args: {num_continuous_decode_steps: 8}\n")
    one = composed(tmp_path, "hw=my")
    assert (one.deployment.engine.port, one.deployment.engine.args["num_continuous_decode_steps"]) == (9000, "8")
    assert one.sources.origins("engine.port")[0] == "conf/hw/my.yaml"


def test_interpolations_in_flags_are_resolved(tmp_path: Path) -> None:
    one = composed(tmp_path, "engine.args.ep_size='${engine.tensor_parallel}'")
    assert str(one.deployment.engine.args["ep_size"]) == "8"


def test_a_config_of_ones_own_may_list_other_groups(tmp_path: Path) -> None:
    text = "defaults: [{hw: h100x8}, {nccl: default}, {model: tiny}, {engine: vllm}, _self_]\nname: mine\n"
    put(tmp_path / "conf", config=text)
    assert composed(tmp_path).deployment.hw.name == "h100x8"
    assert composed(tmp_path, "+hw=a100x8", "target=local").deployment.hw.name == "a100x8"


WRONG = {
    "unknown key": (
        {"deployment__a": "# @package _global_\nengin:\n  port: 1\n"},
        ["conf/deployment/a.yaml", "'engine'"],
    ),
    "unknown inner key": ({"engine__a": "name: vllm\npython: /p\nuser: u\nprt: 1\n"}, ["conf/engine/a.yaml", "'port'"]),
    "bad type": ({"deployment__a": "# @package _global_\nengine:\n  port: x\n"}, ["conf/deployment/a.yaml", "'x'"]),
    "bad value": ({"nccl__a": "algo: Treee\n"}, ["conf/nccl/a.yaml", "'Tree'"]),
    "missing": ({"model__a": "name: a\n"}, ["model.path is missing"]),
    "no YAML": ({"nccl__a": "algo: [\n"}, ["conf/nccl/a.yaml:2", "no valid YAML"]),
    "tab": ({"nccl__a": "algo:\n\t- x\n"}, ["conf/nccl/a.yaml:2"]),
    "duplicate key": ({"nccl__a": "algo: Ring\nalgo: Tree\n"}, ["conf/nccl/a.yaml", "algo"]),
    "list for a map": ({"nccl__a": "- a\n"}, ["conf/nccl/a.yaml"]),
    "unknown option": ({"deployment__a": "# @package _global_\ndefaults:\n  - /hw: nope\n"}, ["hw/nope"]),
    "env list": ({"deployment__a": "# @package _global_\nenv:\n  X: [1]\n"}, ["conf/deployment/a.yaml:3", "env.X"]),
    "env is text": ({"deployment__a": "# @package _global_\nenv: x\n"}, ["conf/deployment/a.yaml", "env"]),
    "no package line": ({"deployment__a": "name: x\n"}, ["conf/deployment/a.yaml", "@package _global_"]),
    "interpolation": ({"nccl__a": "algo: ${nope}\n"}, ["nope"]),
    "not UTF-8": ({"nccl__a": "algo: \udcff\n"}, ["conf/nccl/a.yaml"]),
}


@pytest.mark.parametrize(("files", "parts"), WRONG.values(), ids=WRONG.keys())
def test_mistakes_are_named_with_their_file(tmp_path: Path, files: dict[str, str], parts: list[str]) -> None:
    for name, text in files.items():
        path = tmp_path / "conf" / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    ((group, option),) = (name.split("__") for name in files)
    with pytest.raises(ConfigError) as caught:
        composed(tmp_path, f"{group}={option}")
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_named_folders_must_be_there(tmp_path: Path) -> None:
    for dirs, environ in ((("none",), ""), ((), "none"), ((str(tmp_path),), "")):
        with pytest.raises(ConfigError, match=r"--config-dir|LAUNCH_CONF"):
            find_layers(dirs, {"LAUNCH_CONF": environ}, tmp_path)


def test_init_writes_what_then_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "prod"]) == 0
    assert "conf/deployment/prod.yaml" in capsys.readouterr().out
    assert main(["render", "prod"]) == 0
    assert "launch-prod.service" in capsys.readouterr().out
    assert main(["init", "prod"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["init", "Prod!"]) == 2
    assert main(["render", "all", "--json"]) == 0
    capsys.readouterr()
    assert main(["explain", "name", "prod"]) == 0
    assert "set by conf/deployment/prod.yaml" in capsys.readouterr().out


EXPLAINED = {
    "from a preset": ("nccl.algo", "Ring", ["packaged conf/nccl/pcie_ll_ring.yaml"], ["NCCL_ALGO=Ring"]),
    "by an override": (
        "engine.port",
        9,
        ["override 'engine.port=9'", "packaged conf/engine/sglang.yaml"],
        ["--port 9"],
    ),
    "built in": ("unit.stop_timeout", 120, [], ["TimeoutStopSec=120 (unit)"]),
    "a variable": ("env.A", "x", ["override 'env.A=x'"], ["A=x"]),
    "a flag": (
        "engine.args.disable_custom_all_reduce",
        True,
        ["packaged conf/hw/rtx6000x8.yaml"],
        ["--disable-custom-all-reduce"],
    ),
    "a fact only": ("hw.gpu_count", 8, ["packaged conf/hw/rtx6000x8.yaml"], []),
}


@pytest.mark.parametrize(("key", "value", "origins", "reaches"), EXPLAINED.values(), ids=EXPLAINED.keys())
def test_explain(
    key: str,
    value: object,
    origins: list[str],
    reaches: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    assert main(["explain", key, "+hw=rtx6000x8", "engine.port=9", "env.A=x", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("known") == [] or key in {"nccl.algo", "engine.args.disable_custom_all_reduce"}
    assert told == {"key": key, "value": value, "origins": origins, "reaches": reaches}


def test_explain_tells_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nccl.proto", "+hw=rtx6000x8"]) == 0
    out = capsys.readouterr().out
    assert "known: NCCL_PROTO: NCCL's own choice is" in out
    assert "known: nccl.proto=LL also holds for prefill" in out
    assert "2 x H200" in out


def test_explain_an_unknown_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nccl.alg", "+hw=rtx6000x8"]) == 2
    assert "did you mean 'algo'" in capsys.readouterr().err
