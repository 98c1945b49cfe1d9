"""Whatever the input: servers, remarks with a place and a reason, or a `ConfigError`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.adopt.found import Found
from launcher.adopt.read import kind, read
from launcher.errors import ConfigError

PIECES = [
    *"'\"\\$`;&|(){}[]<>*~!#=%\n\t \0é",
    *(
        "\ud800",
        "\U00010348",
        "${",
        "$(",
        "$((",
        "))",
        "$'",
        "<<EOF\n",
        "EOF\n",
        "&&",
        "||",
        "[[",
        "]]",
        "2>&1",
        "> log ",
    ),
    *("if ", "then ", "else ", "fi\n", "for i in ", "do ", "done\n", "case x in ", "esac\n", "f() {", "function g "),
    *("export ", "unset ", "A=", "A+=(", "${A[@]}", "eval ", "source x ", "cd ", "exec ", "set -a\n", "read x\n"),
    *("vllm serve m ", "python3 -m sglang.launch_server ", "--config c.yaml ", "ssh h ", "env -u ", "sudo -u x "),
    *("docker run -e A=1 i ", "tmux new -d ", "bash -c ", "srun -n 1 ", "torchrun ", "numactl -N 0 ", "screen -dmS x "),
    *(
        "[Service]\n",
        "ExecStart=",
        "Environment=",
        "services:\n",
        "  a:\n",
        "    image: i\n",
        "    command: ",
        "&a ",
        "*a ",
    ),
    *(
        "<<: *a\n",
        "- ",
        "model: m\n",
        "model-path: m\n",
        "```\n",
        "```yaml\n",
        "# X\n\n",
        "    vllm serve m\n",
        "!!int ''\n",
    ),
]
NAMES = st.sampled_from(["-", "x.sh", "x.md", "x.service", "x.yaml", "x.txt", "x.py"])


def check(text: str, name: str, folder: Path | None) -> None:
    try:
        found = read(text, name, folder)
    except ConfigError as error:
        assert str(error).startswith(name)  # noqa: PT017 - either is right
        return
    assert isinstance(found, Found)
    for remark in (*found.remarks, *(remark for server in found.servers for remark in server.remarks)):
        assert remark.where.rpartition(":")[2].isdigit()
        assert remark.why
        assert "\n" not in remark.quote
    assert all(server.argv for server in found.servers)


@settings(max_examples=400, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join), name=NAMES)
def test_pieces_of_every_kind(text: str, name: str) -> None:
    check(text, name, None)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200), name=NAMES)
def test_any_text(text: str, name: str) -> None:
    check(text, name, None)


CORPUS = sorted(
    path for path in (Path(__file__).parent / "corpus").glob("*/*/*") if path.is_file() and path.suffix != ".json"
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_broken_pieces_of_the_corpus(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(CORPUS))
    text = path.read_text()
    start, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    piece = data.draw(st.sampled_from(PIECES))
    broken = data.draw(
        st.sampled_from([text[:start] + piece + text[start:], text[:start] + text[end:], text[start:end]])
    )
    check(broken, path.name, path.parent)


LARGE = [
    ("vllm serve m\n" * 5_000, "x.sh"),
    ("é\n" * 20_000 + "vllm serve m\n", "x.sh"),
    ("A=" + "x" * 1_000_000 + "\nvllm serve $A", "x.sh"),
    ("vllm serve " + "{a,b}" * 2000, "x.sh"),
    ("vllm serve " + "{" * 100_000, "x.sh"),
    ("vllm serve '" + "x\n" * 100_000, "x.sh"),
    ("for i in {1..200}; do for j in {1..200}; do for k in {1..200}; do echo; done; done; done", "x.sh"),
    ("f() { f; f; f; }; f", "x.sh"),
    ("services:\n" + "".join(f"  s{n}:\n    image: i\n    command: vllm serve m\n" for n in range(2000)), "x.yaml"),
    ("a: &a [x, x]\n" + "".join(f"{n}: &{n} [*a, *a]\n" for n in "bcdefghijklmnop"), "x.yaml"),
    ("[" * 50_000, "x.yaml"),
    ("[Service]\nExecStart=" + "vllm serve m ; " * 5_000, "x.service"),
    ("> " * 20_000, "x.md"),
    ("`vllm serve m --x 1` " * 5_000, "x.md"),
]


@pytest.mark.parametrize(("text", "name"), LARGE, ids=range(len(LARGE)))
def test_large_input_is_read_in_seconds(text: str, name: str) -> None:
    start = time.process_time()
    check(text, name, None)
    assert time.process_time() - start < 20


KINDS = [
    ("#!/bin/bash\nservices:\n", "-", "shell"),
    ("vllm serve m", "-", "shell"),
    ("[Unit]\nA=b\n[Service]\n", "-", "unit"),
    ("# c\n\n[Service]\nExecStart=x", "x", "unit"),
    ("cat <<EOF\n[Service]\nEOF\n", "-", "shell"),
    ("cat <<EOF\nservices:\nEOF\n", "-", "shell"),
    ("services:\n  a:\n", "-", "compose"),
    ("version: '3'\nservices:\n  a:\n", "x.yml", "compose"),
    ("apiVersion: v1\nkind: Pod\n", "x.yaml", "kubernetes"),
    ("model: m\nport: 1\n", "-", "engine"),
    ("text\n```\nx\n```\n", "-", "markdown"),
    ("# A\n\ntext\n\n## B\n\ntext", "-", "markdown"),
    ("x", "README.md", "markdown"),
    ("import os", "x.py", "program"),
    ("FROM x\nCMD vllm", "Dockerfile", "program"),
]


@pytest.mark.parametrize(("text", "name", "expected"), KINDS)
def test_kind(text: str, name: str, expected: str) -> None:
    assert kind(text, name) == expected


def test_nothing_is_run_and_no_network_is_used(tmp_path: Path) -> None:
    text = f"touch {tmp_path}/a; $(touch {tmp_path}/b) `touch {tmp_path}/c`; eval 'touch {tmp_path}/d'; vllm serve m"
    program = (
        "import socket, subprocess, os, sys\n"
        "def no(*_): raise SystemExit('it ran something')\n"
        "socket.socket = subprocess.Popen = os.system = os.execve = os.posix_spawn = os.fork = no\n"
        "from launcher.adopt.read import read\n"
        "print(len(read(sys.argv[1], '-', None).servers))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, text], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert (done.stdout, list(tmp_path.iterdir())) == ("1\n", []), done.stderr


def test_parsers_are_loaded_only_when_needed() -> None:
    program = "import sys, launcher.adopt.read; print([n for n in sys.modules if n in ('tree_sitter', 'markdown_it')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
