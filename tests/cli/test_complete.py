"""What a shell may offer at the cursor: the answer itself, without a shell."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from launcher.catalogue import rules
from launcher.cli import completion, parser, verbs
from launcher.cli.complete import complete
from launcher.cli.main import main
from launcher.completion.line import cut_of_bash, of_bash
from launcher.errors import ConfigError
from launcher.layers import find_layers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BREAKS = " \t\n\"'><=;|&(:"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a deployment on vLLM, another folder of configuration, and two sweeps."""
    files = {
        "conf/deployment/chat.yaml": "# @package _global_\ndefaults:\n  - override /engine: vllm\n  - _self_\n",
        "conf/deployment/own.yaml": "# @package _global_\ndefaults:\n  - override /engine: mine\n  - _self_\n",
        "conf/engine/mine.yaml": "name: vllm\npython: /opt/mine/bin/python\n",
        "conf/hw/rtx_lab.yml": "name: rtx_lab\n",
        "other/spec/deep.yaml": "method: eagle3\n",
        "results/20270102-100000-aa/sweep.json": "{}",
        "results/20270101-100000-bb/sweep.json": "{}",
        "elsewhere/20270103-100000-cc/sweep.json": "{}",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def offered(words: Sequence[str], folder: Path) -> list[str]:
    return [candidate.text for candidate in complete(words, {}, folder).candidates]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], ["status"]),
        (["-m", "pl"], ["plan"]),
        (["up", "ch"], ["chat"]),
        (["up", "chat", "ch"], []),
        (["status", "al"], ["all", "allow="]),
        (["--json", "status", "chat", "--yes", "re"], ["reference"]),
        (["uninstal", "refe"], []),
        (["+h"], ["+hw=", "+hw."]),
        (["up", "tar"], ["target=", "target."]),
        (["hw=rtx"], ["hw=rtx4090x8", "hw=rtx5090x8", "hw=rtx6000x8", "hw=rtx_lab"]),
        (["+hw=rtx_"], ["+hw=rtx_lab"]),
        (["--config-dir", "other", "+spec=de"], ["+spec=deep"]),
        (["--config-dir", "nowhere", "+spec=o"], ["+spec=off"]),
        (["deployment=ch"], ["deployment=chat"]),
        (["experiment=nccl_pcie_"], ["experiment=nccl_pcie_serve"]),
        (["unit.st"], ["unit.start_timeout=", "unit.stop_timeout="]),
        (["++unit.sl"], ["++unit.slice="]),
        (["nccl.alg"], ["nccl.algo="]),
        (["nccl.launch_mode="], ["nccl.launch_mode=PARALLEL", "nccl.launch_mode=GROUP"]),
        (["nccl.nothing="], []),
        (["nccl.proto=L"], ["nccl.proto=LL", "nccl.proto=LL128"]),
        (["nccl.proto=LL,S"], []),
        (["-m", "nccl.proto=LL,"], ["nccl.proto=LL,LL128", "nccl.proto=LL,Simple"]),
        (["-m", "+hw=h200x2,h200x"], ["+hw=h200x2,h200x8"]),
        (["target.kind=s"], ["target.kind=ssh", "target.kind=slurm"]),
        (["bench.loads.chat.metric=t"], ["bench.loads.chat.metric=tpot_ms", "bench.loads.chat.metric=ttft_ms"]),
        (["bench.loads.chat.c"], ["bench.loads.chat.concurrency="]),
        (["unit.nccl_conf="], ["unit.nccl_conf=true", "unit.nccl_conf=false"]),
        (["unit.stop_timeout="], []),
        (["secrets.env.HF_TOKEN=f"], ["secrets.env.HF_TOKEN=file:"]),
        (["engine.args.disable_custom"], ["engine.args.disable_custom_all_reduce="]),
        (["engine.args.enable_metrics="], ["engine.args.enable_metrics=true", "engine.args.enable_metrics=false"]),
        (["engine.args.max_num_seq"], []),
        (["engine=vllm", "engine.args.max_num_seq"], ["engine.args.max_num_seqs="]),
        (["engine.name=vllm", "engine.args.max_num_seq"], ["engine.args.max_num_seqs="]),
        (["up", "chat", "engine.args.max_num_seq"], ["engine.args.max_num_seqs="]),
        (["up", "own", "engine.args.max_num_seq"], ["engine.args.max_num_seqs="]),
        (["engine=nothing", "engine.args.max_num_seq"], []),
        (["explain", "unit.sl"], ["unit.slice"]),
        (["explain", "unit.slice", "ch"], ["chat"]),
        (["results", "2027"], ["20270102-100000-aa", "20270101-100000-bb"]),
        (["results", "sweep.out=elsewhere", "2027"], ["20270103-100000-cc"]),
        (["-m", "--resume=20270101"], ["--resume=20270101-100000-bb"]),
        (["--al"], ["--allow"]),
        (["drift", "--f"], ["--fix"]),
        (["up", "--fi"], []),
        (["up", "--res"], []),
        (["-m", "--res"], ["--resume", "--resume-failed"]),
        (["--allow", "nccl-bare"], ["nccl-bare-tree", "nccl-bare-tree-raw"]),
        (["--allow=gpu"], ["--allow=gpu-busy"]),
        (["render", "--format", "q"], ["quadlet"]),
        (["render", "--format=k"], ["--format=k8s"]),
        (["-e", "hw="], []),
        (["completion", "z"], ["zsh"]),
        (["init", ""], []),
    ],
)
def test_offers(words: list[str], expected: list[str], folder: Path) -> None:
    assert offered(words, folder) == expected


@pytest.mark.parametrize(
    "words", [["adopt", "x"], ["adopt", "a.sh", ""], ["status", "--html", "x"], ["--html=x"], ["--config-dir", ""]]
)
def test_files_are_left_to_the_shell(words: list[str], folder: Path) -> None:
    assert complete(words, {}, folder).files


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [
        (["unit."], True),
        (["+hw"], True),
        (["secrets.env.X="], True),
        (["-m", "nccl.proto=S"], True),
        (["nccl.proto=S"], False),
        (["sta"], False),
    ],
)
def test_no_blank_where_the_word_goes_on(words: list[str], goes_on: bool, folder: Path) -> None:
    assert complete(words, {}, folder).goes_on is goes_on


def test_folders_of_the_environment_count(folder: Path) -> None:
    found = complete(["+spec=de"], {"LAUNCH_CONF": str(folder / "other")}, folder)
    assert [candidate.text for candidate in found.candidates] == ["+spec=deep"]


def test_every_verb_and_every_group_is_offered(folder: Path) -> None:
    assert offered([""], folder) == list(parser.VERBS)
    assert {*parser.VERBS} == {*verbs.VERBS, completion.VERB}
    options = find_layers([], {}, folder).options("model")
    assert offered(["model="], folder) == [f"model={option}" for option in options]


@pytest.mark.parametrize("verb", parser.VERBS)
@pytest.mark.parametrize("sweep", [[], ["-m"]], ids=["", "-m"])
def test_offered_flags_go_with_the_verb(verb: str, sweep: list[str], folder: Path) -> None:
    values = {"-e": "A=1", "--format": "sbatch", "--search": "", "--resume": ""}
    takes = {name for flag in parser.flags() if flag.nargs != 0 for name in flag.option_strings}
    flags = offered([*sweep, verb, "-"], folder)
    assert "--json" in flags
    for flag in flags:
        if flag in ("-h", "--help", "--version"):
            continue
        words = [*sweep, verb, flag, *([values.get(flag, "x")] if flag in takes else [])]
        assert parser.parse([word for word in words if word]).verb == verb


@pytest.mark.parametrize(("name", "value"), [(rule, "x") for rule in rules.forced()])
def test_offered_rules_can_be_forced(name: str, value: str) -> None:
    rules._check_allowed([name])
    with pytest.raises(ConfigError):
        rules._check_allowed([name + value])


@pytest.mark.parametrize(
    ("text", "words", "cut"),
    [
        ("launch ", [""], 0),
        ("launch", [""], 0),
        ("launch sta", ["sta"], 0),
        ("launch up  chat ", ["up", "chat", ""], 0),
        ("launch +hw=rtx", ["+hw=rtx"], 4),
        ("launch secrets.env.X=file:a", ["secrets.env.X=file:a"], 19),
        ("launch 'target.hosts=[a,b]' +hw=", ["target.hosts=[a,b]", "+hw="], 4),
        ("launch 'target.kind=s", ["target.kind=s"], 0),
        ('launch "target.kind=s', ["target.kind=s"], 0),
        ("launch 'a b", ["a b"], 0),
        ("launch adopt my\\ file", ["adopt", "my file"], 0),
        ("launch adopt my\\", ["adopt", "my"], 0),
        ("launch adopt my\\ ", ["adopt", "my "], 0),
    ],
)
def test_a_line_of_bash(text: str, words: list[str], cut: int) -> None:
    assert of_bash(text) == words
    assert cut_of_bash(text, BREAKS) == cut


def test_the_entry_prints_what_is_behind_the_last_break(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["__complete", "bash", "launch -m nccl.proto=LL,S", BREAKS]) == 0
    assert capsys.readouterr().out == ":nospace\nLL,Simple\n"
    assert main(["__complete", "fish", "'target.kind=ss"]) == 0
    assert capsys.readouterr().out == "target.kind=ssh\n"
    assert main(["__complete", "zsh", "adopt", ""]) == 0
    assert capsys.readouterr().out == ":files\n"


@pytest.mark.parametrize("words", [["completion"], ["completion", "bsh"], ["completion", "bash", "zsh"]])
def test_one_shell_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert ": bash, zsh, fish" in error
    assert ("did you mean 'bash'" in error) is (words[1:] == ["bsh"])


@pytest.mark.parametrize("words", [[], ["bash"], ["bash", "launch x"], ["zsh"], ["fish", ""], ["tcsh", "x"]])
def test_an_entry_that_somebody_types_is_no_traceback(words: list[str], folder: Path) -> None:
    assert main(["__complete", *words]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["__complete", "fish", "nccl.algo="],
        ["__complete", "fish", "engine.args.a"],
        ["__complete", "fish", "--allow", ""],
        ["__complete", "fish", "up", ""],
        ["completion", "bash"],
    ],
)
def test_an_answer_needs_neither_hydra_nor_yaml(words: list[str], folder: Path) -> None:
    heavy = "{'hydra', 'omegaconf', 'yaml', 'rich', 'fabric', 'jinja2', 'scipy', 'markdown_it'}"
    code = f"import sys; from launcher.cli import main; main(sys.argv[1:]); sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.count("\n") > 3
    assert done.stderr == "set()\n"
