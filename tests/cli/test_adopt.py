"""`launch adopt`: what it reads, shows, writes and answers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.adopt.found import Found, Server
from launcher.cli import adopt_hosts, main

REFERENCE = """\
# Start

```bash
ssh ops@gpu1 "NCCL_PROTO=LL NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS NCCL_MAX_NCHANNELS=16 NCCL_BUFFSIZE=16777216 \\
  NCCL_NTHREADS=512 nohup /opt/sglang/bin/python -m sglang.launch_server --model-path /mnt/models/Kimi-K2.5 \\
  --trust-remote-code --tp-size 8 --mem-fraction-static 0.88 --host 0.0.0.0 --port 8000 \\
  --num-continuous-decode-steps 4 --disable-custom-all-reduce > /var/log/kimi.log 2>&1 &"
```
"""
SECRETS = "export HF_TOKEN=hf_hidden0hidden0hidden0\n/opt/v/bin/vllm serve org/m --api-key=topsecret --port 8001\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LAUNCH_CONF", raising=False)
    (tmp_path / "home").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def _pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_the_reference_line_becomes_a_deployment_that_plans(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.md").write_text(REFERENCE)
    assert main(["adopt", "plan.md", "name=prod"]) == 0
    out = capsys.readouterr().out
    assert "hw=rtx6000x8 is a guess, please confirm" in out
    assert "written: conf/deployment/prod.yaml" in out
    assert out.endswith("Next: launch plan prod\n\n")
    assert main(["render", "prod"]) == 0
    out = capsys.readouterr().out
    assert "NCCL_BUFFSIZE=16777216" in out
    assert "kimi_k2_5_int4 on rtx6000x8, sglang, speculation off" in out


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _pipe(monkeypatch, REFERENCE.encode())
    assert main(["adopt"]) == 0
    assert "written: conf/deployment/kimi_k2.5.yaml" in capsys.readouterr().out
    _pipe(monkeypatch, REFERENCE.encode())
    assert main(["adopt", "-"]) == 0
    assert "there already, the same: conf/deployment/kimi_k2.5.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_no_secret_is_shown_or_configured(folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    Path("run.sh").write_text(SECRETS)
    assert main(["adopt", "run.sh", "engine.user=llm", *flags]) == 0
    told = capsys.readouterr()
    for text in (told.out, told.err, Path("conf/deployment/m.yaml").read_text()):
        assert "hidden" not in text
        assert "topsecret" not in text
    kept = folder.parent / "home" / ".config" / "launch" / "secrets" / "m"
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "HF_TOKEN": "hf_hidden0hidden0hidden0\n",
        "api_key": "topsecret\n",
    }
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}


def test_the_record_says_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sh").write_text(f"{SECRETS}/opt/v/bin/vllm serve org/other --port 0\n")
    assert main(["adopt", "run.sh", "--json"]) == 2
    record = json.loads(capsys.readouterr().out)
    first, second = record["servers"]
    assert (first["name"], first["written"], first["missing"], first["secrets"]) == (
        "m",
        True,
        ["engine.user"],
        ["HF_TOKEN", "api_key"],
    )
    assert {row["kind"] for row in first["differences"]} == {"changed", "secret", "added"}
    assert first["text"] == Path("conf/deployment/m.yaml").read_text()
    assert not second["written"]
    assert second["error"].startswith("engine.port is '0', and launch takes a whole number from 1 up")
    assert record["exit_code"] == 2


def test_several_servers_get_files_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sh").write_text("".join(f"/v/bin/vllm serve org/m --port {port} &\n" for port in (8001, 8002)))
    assert main(["adopt", "run.sh", "name=prod"]) == 2
    assert "2 servers were found, and each has a name of its own: m_8001, m_8002" in capsys.readouterr().err
    assert main(["adopt", "run.sh", "engine.user=llm"]) == 0
    assert sorted(path.name for path in Path("conf/deployment").iterdir()) == ["m_8001.yaml", "m_8002.yaml"]
    assert main(["check", "all"]) == 0


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("run.sh", b"echo hello\n", 2, "no server was found"),
        ("run.sh", b"", 2, "no server was found"),
        ("run.sh", b"\x00vllm serve m", 2, "NUL byte"),
        ("run.sh", b"/v/bin/vllm serve org/m --x \xff\n", 2, "not UTF-8"),
        ("run.sh", "/v/bin/vllm serve org/m --served-model-name é\n".encode(), 0, ""),
        ("missing.sh", None, 2, "missing.sh"),
        ("run.sh", b"/v/bin/vllm serve org/m --port=0\n", 2, "engine.port is '0'"),
    ],
)
def test_what_cannot_be_adopted_is_told(
    capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, code: int, message: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    assert main(["adopt", name]) == code
    told = capsys.readouterr()
    assert message in told.err + told.out
    assert Path("conf").exists() == (code == 0)


def _running(host: str) -> Server:
    return Server(
        where=f"{host}, process 7",
        argv=("/opt/v/bin/python3", "-m", "sglang.launch_server", "--model-path", "/m/Kimi-K2.5", "--tp", "8"),
        env={"PATH": "/opt/v/bin:/usr/bin", "SSH_TTY": "/dev/pts/1", "HF_TOKEN": "hf_hidden0hidden0hidden0"},
        whole_env=True,
        hosts=(host,),
        user="ops",
        working_directory="/",
        python="/opt/v/bin/python3",
        engine_version="0.5.17",
        nccl_version="2.28.9",
        gpus=("NVIDIA H200",) * 8,
        argv_digest="d" * 64,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "gpu1", "--host", "gpu2", "target.user=ops"],
        ["target=ssh", "target.hosts=[gpu1,gpu2]", "target.user=ops"],
    ],
)
def test_running_servers_are_adopted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr(adopt_hosts, "look", lambda _, __: Found((_running("gpu1"), _running("gpu2"))))
    assert main(["adopt", *words]) == 0
    out = capsys.readouterr().out
    assert "hidden" not in out
    assert "SSH_TTY" in out
    assert "guess" not in out
    for number, host in ((1, "gpu1"), (2, "gpu2")):
        name = ("kimi_k2.5", "kimi_k2.5_2")[number - 1]
        text = Path(f"conf/deployment/{name}.yaml").read_text()
        assert "/hw: h200x8" in text
        assert "version: 0.5.17\n" in text or 'version: "0.5.17"\n' in text
        assert f"  hosts:\n    - {host}\n  user: ops\n" in text
        assert "working_directory" not in text
        assert f"takes_over: {'d' * 64}" in text
    assert main(["check", "all"]) == 0


def test_nothing_of_the_input_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sh").write_text(
        "X='\x1b[2J' /v/bin/vllm serve org/m --zz '\x1b[31m' --tokenizer=--\x1b[1m '\x1b]0;t\x07'\n"
    )
    main(["adopt", "run.sh", "engine.user=llm"])
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\\x1b" in told.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vllm serve a --port 1\nvllm serve b --port 1\n", 1),
        ("vllm serve a\nvllm serve a\n", 1),
        ("vllm serve a --port 1\nvllm serve b --port 2\n", 0),
        ("vllm serve a\npython -m sglang.launch_server --model a\n", 0),
        ("ssh h vllm serve a --port 1\nssh i vllm serve a --port 1\n", 0),
    ],
)
def test_two_servers_of_one_port_are_told(capsys: pytest.CaptureFixture[str], text: str, told: int) -> None:
    Path("x.sh").write_text(text)
    assert main(["adopt", "x.sh"]) == 0
    assert capsys.readouterr().out.count("the same port as the server of x.sh:1") == told


def test_the_hosts_that_were_named_are_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.sh").write_text("/opt/v/bin/vllm serve a\n")
    assert main(["adopt", "x.sh", "engine.user=llm", "target.hosts=[gpu1]"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("Next: launch plan a target=ssh\n\n")
    assert "# 0.0 in engine: not given" in out


def test_what_the_engine_decides_and_what_is_to_be_said_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.sh").write_text("/opt/v/bin/python -m sglang.launch_server --model ~/m --tp 2\n")
    assert main(["adopt", "x.sh", "engine.user=llm"]) == 0
    out = capsys.readouterr().out
    assert "# 0.0 and null in engine: not given" in out
    assert "Next: launch plan m model.path=… " in out


#: Adopts a file, and prints each program that is run, each connection, and each name that is looked up.
WATCHED = """
import sys
from launcher.cli import main
def hook(event, args):
    if event.startswith(("subprocess.", "socket.", "os.system", "os.exec", "os.posix_spawn", "os.fork")):
        print(event, args, file=sys.stderr)
sys.addaudithook(hook)
main(["adopt", "x.sh"])
"""


def test_nothing_of_the_input_is_run_or_looked_up() -> None:
    text = (
        "A=$(touch ran) \nB=`touch ran`\neval 'touch ran'\nsource <(touch ran)\n: ${X:=$(touch ran)}\ncat > ran <<< x\n"
        'ssh llm@host.invalid "cd /srv && vllm serve org/m --download-dir $(touch ran) > ran 2>&1"\n'
        "docker run image.invalid/vllm-openai vllm serve http://host.invalid/m --port 1\n"
    )
    Path("x.sh").write_text(text)
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True, timeout=60)
    assert "conf/deployment/m.yaml" in done.stdout
    assert [line for line in done.stderr.splitlines() if not line.startswith("launch: ")] == []
    assert {path.name for path in Path().iterdir()} == {"x.sh", "conf"}


def test_a_folder_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    assert main(["adopt", "sub"]) == 2
    assert "sub" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adopt", "run.sh", "deployment=reference"], "deployment= does not go with adopt"),
        (["adopt", "run.sh", "name=Prod"], "a name is a word of a-z"),
        (["adopt", "run.sh", "name=all"], "a name is a word of a-z"),
        (["adopt", "run.sh", "+hw=rtx600"], "did you mean 'rtx6000x8'?"),
        (["adopt", "run.sh", "engine.prot=1"], "did you mean 'port'?"),
        (["adopt", "run.sh", "engine=vllm"], "engine=vllm is vllm, and this server is sglang"),
        (["adopt", "run.sh", "--allow", "nothing"], "there is no such rule"),
        (["adopt", "run.sh", "run.sh"], "a file is named twice"),
        (["adopt", "run.sh", "-m"], "-m does not go with adopt"),
        (["adopt", "--host", "a", "--host", "a"], "--host names a host twice"),
        (["plan", "--host", "a"], "--host goes with adopt"),
    ],
)
def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    Path("run.sh").write_text("/v/bin/python -m sglang.launch_server --model-path org/m\n")
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not Path("conf").exists()


def test_a_name_that_is_taken_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf/deployment").mkdir(parents=True)
    Path("conf/deployment/m.yaml").write_text("# @package _global_\nname: m\n")
    Path("run.sh").write_text("/v/bin/python -m sglang.launch_server --model-path org/m\n")
    assert main(["adopt", "run.sh"]) == 2
    assert "conf/deployment/m.yaml is there already and says something else" in capsys.readouterr().err
    assert Path("conf/deployment/m.yaml").read_text() == "# @package _global_\nname: m\n"


def test_a_refusing_rule_does_not_stop_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sh").write_text("NCCL_PROTO=LL128 /v/bin/python -m sglang.launch_server --model-path org/m --tp 8\n")
    assert main(["adopt", "run.sh", "+hw=rtx6000x8", "engine.user=llm"]) == 0
    out = capsys.readouterr().out
    assert "will be refused: nccl.proto=LL128" in out
    assert "--allow nccl-ll128-pcie" in out
    assert main(["render", "m", "--allow", "nccl-ll128-pcie"]) == 0
    assert main(["render", "m"]) == 2
