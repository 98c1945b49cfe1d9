"""The net below the readers: no line that names a server is lost without a word, and none is told twice."""

from __future__ import annotations

import pytest

from launcher.adopt.read import read

V = "vllm serve m --port 1"

LOST = [
    f"find . -name x -exec {V} \\;",
    f"watch -n 5 {V}",
    f"tee log < <({V})",
    f"OUT=$({V})",
    f"X=`{V}`",
    f"trap '{V}' USR1",
    f"up() {{ {V}; }}",
    f"cat <<EOF\n{V}\nEOF",
    f'echo "{V}"',
    f"# {V}",
    "sglang serve m | true > x",
    f"cat <<EOF\nvllm serve other\nEOF\n{V}",
    f"cat <<EOF\nvllm \\\n serve other\nEOF\n{V}",
    f"# Notes\n\nOn the first host, {V} runs.\n\n## More\n\nOn the second one nothing.\n",
]


@pytest.mark.parametrize("text", LOST)
def test_every_line_that_names_a_server_is_told(text: str) -> None:
    found = read(text, "-", None)
    lines = [line for line in text.split("\n") if "vllm" in line or "sglang" in line]
    places = {server.where for server in found.servers} | {remark.where for remark in found.remarks}
    assert places == {f"-:{text.split(chr(10)).index(line) + 1}" for line in lines}
    assert "m" in " ".join(
        [*(word for server in found.servers for word in server.argv), *(r.quote for r in found.remarks)]
    )


QUIET = [
    V,
    f"# {V}\n{V}",
    "vllm \\\n  serve m",
    f"A=1 \\\n  B=2 \\\n  {V}",
    'COMMAND=(vllm serve m)\n"${COMMAND[@]}" --port 1',
    f"up() {{\n  {V}\n}}\nup",
    f"ssh h <<'EOF'\ncd /x\n{V}\nEOF",
    f"```bash\n{V}\n```\n\nThe command `vllm serve` starts it.\n",
]


@pytest.mark.parametrize("text", QUIET)
def test_nothing_is_told_of_what_was_read(text: str) -> None:
    found = read(text, "-", None)
    assert (len(found.servers), found.remarks) == (1, ())


#: Text, and the variable that bash does not set by it.
OTHER_SHELLS = [
    ("set -x NCCL_ALGO Ring", "NCCL_ALGO"),
    ("set -gx NCCL_ALGO Ring", "NCCL_ALGO"),
    ("set -g -x NCCL_ALGO Ring", "NCCL_ALGO"),
    ("set --export API_KEY s3cret", "API_KEY"),
    ("set NCCL_ALGO=Ring", "NCCL_ALGO"),
    ("set API_KEY=s3cret", "API_KEY"),
    ("set -x", ""),
    ("set -euxo pipefail", ""),
    ("set -ex", ""),
    ("set -- A=1 b", ""),
    ("set -x -- A b", ""),
]


@pytest.mark.parametrize(("line", "name"), OTHER_SHELLS)
def test_a_variable_that_only_another_shell_sets_is_told(line: str, name: str) -> None:
    (server,) = read(f"{line}\n{V}", "-", None).servers
    assert dict(server.env) == {}
    assert [remark.quote for remark in server.remarks] == ([f"set … {name} …"] if name else [])
