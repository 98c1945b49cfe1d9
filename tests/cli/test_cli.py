"""The command line: words in any order, exit codes, messages, and what is not imported."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher import __version__
from launcher.cli import main

DUMP = """#!{python}
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid()}}), flush=True)
sys.stdin.read() if "--wait" in sys.argv else None
time.sleep(30) if "--wait" in sys.argv else None
sys.exit(42)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A program that shows what it was started with, then exits 42."""
    path = tmp_path / "engine"
    path.write_text(DUMP.format(python=sys.executable))
    path.chmod(0o755)
    return path


def test_the_first_command_renders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+hw=rtx6000x8", "+spec=eagle3_2step", "target=render"]) == 0
    assert "launch up +hw=rtx6000x8 +spec=eagle3_2step target=ssh 'target" in capsys.readouterr().out
    assert main(["+hw=rtx6000x8", "+spec=eagle3_2step"]) == 0
    out = capsys.readouterr().out
    assert "NCCL_PROTO=LL" in out
    assert "launch up +hw=rtx6000x8 +spec=eagle3_2step target=ssh 'target.hosts=[HOST]'" in out
    (release,) = (folder / "rendered" / "kimi_k2_5_int4").iterdir()
    names = sorted(p.name for p in release.iterdir())
    assert names == [f"{release.name}.env", f"{release.name}.json", "launch-kimi_k2_5_int4.service"]
    assert (release / f"{release.name}.env").stat().st_mode & 0o077 == 0


def test_a_batch_script_lies_beside_the_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--format", "sbatch", "reference"]) == 0
    (script,) = folder.glob("rendered/kimi_k2_5_int4/*/kimi_k2_5_int4.sbatch")
    assert script.stat().st_mode & 0o077 == 0
    assert f"Next: sbatch {script.relative_to(folder)}" in capsys.readouterr().out
    assert len(list(script.parent.iterdir())) == 4


def test_what_no_batch_script_can_carry_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--format", "sbatch", "reference", "secrets.env.HF_TOKEN='file:/x'"]) == 2
    assert "secrets do not go into a batch script" in capsys.readouterr().err
    assert list(folder.glob("rendered/*/*")) == []
    assert main(["up", "--format", "sbatch", "reference"]) == 2
    assert "--format goes with render" in capsys.readouterr().err


def test_an_export_lies_beside_the_release_and_says_what_is_lost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["render", "--format", "compose", "reference", f"runtime.image=a/b@sha256:{'0' * 64}"]
    assert main(words) == 0
    (file,) = folder.glob("rendered/kimi_k2_5_int4/*/kimi_k2_5_int4.compose.yaml")
    assert file.stat().st_mode & 0o077 == 0
    out = capsys.readouterr().out
    assert "lost, compared with launch up\n    - " in out
    assert f"Next: docker compose --file {file.relative_to(folder)} up" in out
    assert main([*words, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["export"]["files"] == [file.name, f"{record['digest']}.program.py"]
    assert record["export"]["lost"]


def test_what_a_format_cannot_carry_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--format", "k8s", "reference"]) == 2
    assert "runtime.image is empty" in capsys.readouterr().err
    assert list(folder.glob("rendered/*/*")) == []


ORDERS = [
    ["plan", "+hw=rtx6000x8", "--json", "nccl.algo=PAT"],
    ["--json", "plan", "nccl.algo=PAT", "+hw=rtx6000x8"],
    ["nccl.algo=PAT", "+hw=rtx6000x8", "plan", "--json"],
]


@pytest.mark.parametrize("words", ORDERS)
def test_words_and_flags_in_any_order(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["env"]["NCCL_ALGO"] == "PAT"
    assert not (folder / "rendered").exists()  # plan writes nothing


def test_names_stand_behind_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "reference"]) == 0
    assert "--speculative-algorithm EAGLE3" in capsys.readouterr().out


def test_raw_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-e", "A=^lo,x=1e3", "-e", "B=", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["env"]["A"], record["env"]["B"]) == ("^lo,x=1e3", "")


WRONG = {
    "verb": (["pln"], "did you mean 'plan'"),
    "name for verb": (["reference"], "launch up reference"),
    "deployment": (["up", "refrence"], "did you mean 'reference'"),
    "deployment twice": (["plan", "reference", "reference"], "named twice"),
    "flag": (["--jsn"], "--jsn"),
    "-e without value": (["-e", "A"], "-e NAME=VALUE"),
    "-e with a bad name": (["-e", "1A=x"], "-e NAME=VALUE"),
    "-e twice": (["-e", "A=1", "-e", "A=2"], "twice"),
    "empty word": (["plan", ""], "is empty"),
    "-e and env": (["-e", "A=1", "env.A=2"], "contradicts"),
    "secret in clear": (["-e", "HF_TOKEN=x"], "secrets.env.HF_TOKEN=file:PATH"),
    "secret flag in clear": (["engine.args.api_key=x"], "secrets.args.api_key=file:PATH"),
    "systemd's own": (["-e", "MAINPID=1"], "systemd sets it"),
    "env as a map": (["env={A: 1_000}"], "env.NAME=VALUE"),
    "not UTF-8": (["-e", "A=\udcff"], "not UTF-8"),
    "infinite": (["engine.args.x=inf"], "no flag takes"),
    "no model": (["model.path="], "model.path is empty"),
    "mandatory": (["model.path='???'"], "model.path is missing"),
    "flag twice": (["engine.args.a_b=1", "engine.args.a-b=2"], "set it once"),
    "flag of speculation": (["+spec=eagle3_2step", "engine.args.speculative_num_steps=7"], "is already set"),
    "flag by another name": (["engine.args.tensor_parallel_size=2"], "is already set"),
    "fraction": (["engine.memory_fraction=1.5"], "must be 0 to 1"),
    "negative": (["engine.memory_fraction=-1"], "from 0 up"),
    "no host": (["up", "target=ssh"], "target.hosts is empty"),
    "host twice": (["up", "target=ssh", "target.hosts=[a,a]"], "more than once"),
    "no name": (["up", "target=ssh", "target.hosts=['']"], "target.hosts: '' is not a host"),
    "status without host": (["status"], "no host is named"),
    "drift without host": (["drift"], "no host is named"),
    "fix of another verb": (["plan", "--fix"], "--fix goes with drift"),
    "page of another verb": (["drift", "--html", "x"], "--html goes with status"),
    "reserved name": (["name=drift"], "launch-drift.service is the host's own check"),
    "sweep of status": (["status", "-m"], "-m does not go with status"),
    "ssh config": (["plan", "target=ssh", "target.hosts=a", "target.ssh_config=none"], "no such file"),
}


@pytest.mark.parametrize(("words", "part"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_usage_is_2(words: list[str], part: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, *(["--json"] if as_json else [])]) == 2
    said = capsys.readouterr()
    if as_json:
        record = json.loads(said.out)
        assert record["exit_code"] == 2
        assert part in record["message"]
    else:
        assert part in said.err
        assert said.err.startswith("launch: ")


def test_numbers_arrive_as_typed_and_order_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["engine.args.a=1_000", "engine.args.b=1e-5", "engine.args.c=1.10", "model.served_name=007"]
    records = []
    for order in (words, words[::-1]):
        assert main(["plan", "--json", *order]) == 0
        records += json.loads(capsys.readouterr().out)
    assert records[0] == records[1]
    assert " ".join(records[0]["argv"]).endswith("--a 1_000 --b 1e-5 --c 1.10")
    assert "007" in records[0]["argv"]


@pytest.mark.parametrize("shell", ["plan >/dev/full", "plan >&-", "plan | head -1"])
def test_output_that_goes_nowhere_is_no_traceback(shell: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m launcher {shell}"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "plan", "-e", "A=ü"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from launcher.cli import main; sys.exit(main(['plan']))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "does not exist any more" in done.stderr


def test_a_folder_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rendered").write_text("a file")
    assert main([]) == 1
    assert "target.out=rendered" in capsys.readouterr().err


def launch(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "launcher", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


def test_run_becomes_the_server(engine: Path) -> None:
    strange = {"NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "Tree", "MY_OWN": "kept"}
    process = launch("run", "+hw=rtx6000x8", f"engine.python={engine}", env=strange)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 42
    seen = json.loads(out)
    assert seen["pid"] == process.pid
    assert seen["argv"][:2] == ["-m", "sglang.launch_server"]
    assert seen["env"]["NCCL_ALGO"] == "Ring"
    assert seen["env"]["MY_OWN"] == "kept"
    assert "NCCL_P2P_DISABLE" not in seen["env"]
    assert "NCCL_P2P_DISABLE of this shell is not passed on" in err


def test_what_was_typed_for_a_secret_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["secrets.env.HF_TOKEN=hf_REAL"], ["secrets.env.A=hf_REAL,x"], ["secrets.env.A=^hf_REAL"]):
        assert main(["plan", *words]) == 2
        assert "hf_REAL" not in capsys.readouterr().err


def test_a_switch_with_token_in_its_name_is_no_secret() -> None:
    assert main(["plan", "-e", "HF_HUB_DISABLE_IMPLICIT_TOKEN=1"]) == 0


def test_false_switches_off_what_is_on_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", "engine=vllm", "engine.args.enable_prefix_caching=false"]) == 0
    assert "--no-enable-prefix-caching" in json.loads(capsys.readouterr().out)[0]["argv"]


def test_run_keeps_the_gpus_that_a_scheduler_gave(engine: Path) -> None:
    process = launch("run", f"engine.python={engine}", env={"CUDA_VISIBLE_DEVICES": "3", "CUDA_HOME": "/c"})
    out, _ = process.communicate(timeout=20)
    seen = json.loads(out)["env"]
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_HOME"]) == ("3", "/c")


@pytest.mark.parametrize("words", [["--config-dir", "~nosuch/x"], ["target.out='~nosuch/x'"], ["init", "70"]])
def test_odd_paths_and_names_are_no_traceback(words: list[str]) -> None:
    assert main(words) in {1, 2}


def test_run_hands_secrets_over(engine: Path, tmp_path: Path) -> None:
    words = ["secrets.env.HF_TOKEN='command:echo t0ken'", "secrets.args.api_key='command:echo k3y'"]
    process = launch("run", f"engine.python={engine}", *words, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    out, err = process.communicate(timeout=20)
    seen = json.loads(out)
    assert seen["env"]["HF_TOKEN"] == "t0ken"
    flag, name = seen["argv"][-2:]
    assert (flag, Path(name).read_text()) == ("--config", 'api-key: "k3y"\n')
    assert Path(name).stat().st_mode & 0o077 == 0
    assert "t0ken" not in err
    assert "k3y" not in err + out.replace("api-key", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 43), (signal.SIGKILL, -9)])
def test_run_passes_signals_on(engine: Path, number: int, code: int) -> None:
    process = launch("run", f"engine.python={engine}", "engine.args.wait=true")
    assert process.stdout
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code


def test_run_without_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "engine.python=/none"]) == 1
    assert "engine.python=/none cannot be used" in capsys.readouterr().err


NEVER = {
    "--help": ["hydra", "omegaconf", "fabric", "paramiko", "jinja2", "rich", "yaml"],
    "--version": ["hydra", "omegaconf", "fabric", "paramiko", "jinja2", "rich", "yaml"],
    "plan": ["fabric", "paramiko", "invoke"],
}


@pytest.mark.parametrize(("word", "modules"), NEVER.items(), ids=NEVER.keys())
def test_heavy_imports_only_where_used(word: str, modules: list[str]) -> None:
    code = (
        "import sys\nfrom launcher.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\nprint('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=True)
    loaded = done.stdout.rpartition("MODULES")[2].split()
    assert [m for m in modules if m in loaded] == []


def test_help_lists_groups_and_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--help", "--version"):
        with pytest.raises(SystemExit) as caught:
            main([word])
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "pcie_ll_ring" in out
    assert f"launch {__version__}" in out


def test_an_interrupt_is_no_traceback(tmp_path: Path) -> None:
    # A host that accepts and never answers: the look hangs until Ctrl-C.
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = ["plan", "target=ssh", "target.hosts=127.0.0.1", f"target.port={server.getsockname()[1]}"]
        process = launch(*words)
        connection, _ = server.accept()
        with connection:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=3)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_refused_connections_are_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "target=ssh", "target.hosts=127.0.0.1", "target.port=1"]) == 5
    assert "refused" in capsys.readouterr().out


def test_unknown_host_names_are_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "target=ssh", "target.hosts=no-such-host.invalid", "--json"]) == 5
    record = json.loads(capsys.readouterr().out)
    assert record["deployments"][0]["hosts"][0]["outcome"] == "unreachable"
    assert record["exit_code"] == 5
