"""The schemas for editors: every packaged file fits its own, and what is wrong in a file is seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from omegaconf._utils import get_yaml_loader

from launcher.cli.main import main
from launcher.compose import compose, find_layers
from launcher.editor import KINDS, schema_of
from launcher.editor.comments import comments
from launcher.paths import data_dir
from tests.composing import packaged

if TYPE_CHECKING:
    from pathlib import Path

CONF = data_dir("conf")
FILES = sorted(CONF.rglob("*.yaml"))


@pytest.fixture(scope="module")
def checkers() -> dict[str, jsonschema.Draft7Validator]:
    return {kind: jsonschema.Draft7Validator(schema_of(kind, packaged())) for kind in KINDS}


def read(text: str) -> Any:
    return yaml.load(text, Loader=get_yaml_loader())


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one(kind: str, checkers: dict[str, jsonschema.Draft7Validator]) -> None:
    jsonschema.Draft7Validator.check_schema(checkers[kind].schema)


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONF)) for path in FILES])
def test_every_packaged_file_fits(path: Path, checkers: dict[str, jsonschema.Draft7Validator]) -> None:
    kind = "deployment" if path.parent == CONF else path.parent.name
    found = read(path.read_text(encoding="utf-8"))
    assert [error.message for error in checkers[kind].iter_errors(found or {})] == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("hw", "gpu_memory_gb: ${gb}"),
        ("hw", "hw: {name: mine}\nengine: {args: {disable_custom_all_reduce: true}}"),
        ("nccl", "algo: null\nbuffsize: 16MiB\nproto: LL,LL128"),
        ("model", "path: ???"),
        ("engine", "gpus: [0, 1]\nargs: {own_flag: [a, 1], dtype: null}"),
        ("engine", "gpus: '0'"),
        ("bench", "batches: 8\nloads: {chat: {concurrency: 4, metric: tpot_ms}}"),
        ("deployment", "defaults:\n- /hw: mine\n- override /nccl: null\n- optional /spec@x: a\n- _self_\nenv: {A: 1}"),
        ("deployment", "drift: {accept: {old: {finding: drop-in, reason: known, until: '2027-01-31'}}}"),
        ("deployment", "secrets: {env: {HF_TOKEN: file:~/.hf}}"),
        ("experiment", "axes: {spec: [off, mtp], engine.args.x: [1, [a, b]], nccl.max_nchannels: 'range(2,18,2)'}"),
        ("experiment", "nccl: default\nsweep: {repeats: 3}\nunit.stop_timeout: 5\nbaseline: {nccl: {algo: null}}"),
        ("experiment", "pairs: [{nccl.algo: Ring}]\nfilters: [{nccl.algo: [Ring, Tree]}]\nenv.A: x"),
    ],
)
def test_what_is_right_fits(kind: str, text: str, checkers: dict[str, jsonschema.Draft7Validator]) -> None:
    assert [error.message for error in checkers[kind].iter_errors(read(text))] == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("hw", "gpus: 8"),
        ("hw", "gpu_count: eight"),
        ("hw", "gpu_count: -1"),
        ("hw", "gpu_count: true"),
        ("hw", "interconnect: pci"),
        ("hw", "hw: {gpus: 8}"),
        ("nccl", "algos: Ring"),
        ("nccl", "algo: [Ring]"),
        ("model", "path: 8"),
        ("model", "trust_remote_code: sometimes"),
        ("spec", "method: eagle"),
        ("spec", "method: eagle3\nengine: {port: 8001}"),
        ("engine", "name: sglan"),
        ("engine", "args: {x: {y: 1}}"),
        ("bench", "batches: [0]"),
        ("bench", "loads: {chat: {metric: tokens}}"),
        ("target", "kind: shh"),
        ("deployment", "unit: {stop_timeout: 1.5}"),
        ("deployment", "defaults:\n- override /ncl: default"),
        ("deployment", "defaults: {/hw: mine}"),
        ("deployment", "nccl: {algos: Ring}"),
        ("deployment", "env: {A: [1]}"),
        ("deployment", "drift: {accept: {old: {why: x}}}"),
        ("experiment", "axes: {nccl.algos: [Ring, Tree]}"),
        ("experiment", "axes: {nccl.algo: []}"),
        ("experiment", "axis: {nccl.algo: [Ring, Tree]}"),
        ("experiment", "unit.stop_timeout: soon"),
        ("experiment", "pairs: [{ncl.algo: Ring}]"),
        ("experiment", "filters: [{nccl.algos: Ring}]"),
        ("experiment", "baseline: {nccl: {algos: Ring}}"),
        ("experiment", "sweep: {repeat: 3}"),
    ],
)
def test_what_is_wrong_is_seen(kind: str, text: str, checkers: dict[str, jsonschema.Draft7Validator]) -> None:
    assert list(checkers[kind].iter_errors(read(text)))


def test_comments_of_the_source_describe_the_keys() -> None:
    unit = schema_of("deployment", packaged())["properties"]["unit"]
    assert unit["description"] == "Settings of the systemd unit; times are whole seconds."
    told = unit["properties"]["log_file"]["description"]
    assert told == "Empty: the journal. Else a file that both streams are appended to."
    assert unit["properties"]["stop_timeout"]["default"] == 120
    assert "description" not in unit["properties"]["stop_timeout"]
    assert comments()["Bench", "nccl_tests"].count("all_reduce_perf") == 1
    assert "noqa" not in " ".join(comments().values())


def test_options_of_ones_own_are_offered(tmp_path: Path) -> None:
    (tmp_path / "conf/hw").mkdir(parents=True)
    (tmp_path / "conf/hw/lab.yaml").write_text("name: lab\n")
    defaults = schema_of("deployment", find_layers([], {}, tmp_path))["properties"]["defaults"]
    assert "lab" in defaults["items"]["anyOf"][1]["properties"]["/hw"]["anyOf"][0]["enum"]


def test_the_line_for_the_language_server_stands_behind_the_package(tmp_path: Path) -> None:
    path = tmp_path / "conf/deployment/mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "# @package _global_\n# yaml-language-server: $schema=../deployment.schema.json\n"
        "defaults:\n  - override /engine: vllm\n  - _self_\nname: mine\n"
    )
    layers = find_layers([], {}, tmp_path)
    assert compose(["deployment=mine"], layers, {}).deployment.engine.name == "vllm"


def test_the_verb_prints_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "spec"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("spec", packaged())


@pytest.mark.parametrize(
    ("words", "part"), [([], ": hw, model"), (["spc"], "did you mean 'spec'"), (["hw", "nccl"], "one kind")]
)
def test_one_kind_is_named(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *words]) == 2
    assert part in capsys.readouterr().err
