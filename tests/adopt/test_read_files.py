"""Units, compose files, markdown and configurations of engines, with the files beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from launcher.adopt.read import read, read_paths
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.adopt.found import Found


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read_first(folder: Path, files: dict[str, str]) -> Found:
    """Read the first of some files, the others lie beside it."""
    put(folder, files)
    name = next(iter(files))
    return read(files[name], name, folder)


def quotes(found: Found) -> list[str]:
    remarks = (*found.remarks, *(remark for server in found.servers for remark in server.remarks))
    return [remark.quote for remark in remarks]


V = "/opt/v/bin/vllm serve m"
UNITS: list[tuple[dict[str, str], dict[str, Any], tuple[str, ...]]] = [
    (
        {"a.service": f"[Service]\nUser=llm\nWorkingDirectory=-/srv\nStandardOutput=append:/l/a\nExecStart={V}\n"},
        {"user": "llm", "working_directory": "/srv", "log_file": "/l/a", "unit": "a.service", "name": "a"},
        (),
    ),
    ({"a.service": f"[Service]\nExecStart={V} \\\n# no\n  --x 'a b' \\\n  \"c\\td\\x41\"\n"},
     {"argv": ("/opt/v/bin/vllm", "serve", "m", "--x", "a b", "c\tdA"), "where": "a.service:2"}, ()),
    ({"a.service": "[Service]\nEnvironment=A=1 \"B=x y\" 'C=%%'\nEnvironment=A=2\nUnsetEnvironment=B D\n"
                   f"ExecStart={V} ${{A}}x $A $$A\n"},
     {"env": {"A": "2", "C": "%"}, "unset": ("B", "D"),
      "argv": ("/opt/v/bin/vllm", "serve", "m", "2x", "2", "$A")}, ()),
    ({"a.service": f"[Service]\nEnvironment=\"X=--a 'b c'\"\nExecStart={V} $X ${{X}} ${{NO}} $NO\n"},
     {"env": {"X": "--a 'b c'"}, "argv": ("/opt/v/bin/vllm", "serve", "m", "--a", "b c", "--a 'b c'", "")},
     ("${NO}", "$NO")),
    ({"a.service": f"[Service]\nEnvironment=A=1\nEnvironmentFile=/etc/a.env\nExecStart={V}\n",
      "a.env": "A='2'\n# c\nB=x y\n"}, {"env": {"A": "2", "B": "x y"}}, ()),
    ({"a.service": f"[Service]\nEnvironmentFile=/etc/a.env\nExecStart={V} ${{P}}\n"},
     {"argv": ("/opt/v/bin/vllm", "serve", "m", "${P}")}, ("EnvironmentFile=/etc/a.env", "${P}")),
    ({"a.service": f"[Service]\nPassEnvironment=A\nExecStart={V}\n"}, {}, ("PassEnvironment=A",)),
    ({"a.service": "[Service]\nEnvironment=A=1\nExecStart=/bin/no\n",
      "a.service.d/10.conf": f"[Service]\nExecStart=\nExecStart={V}\n",
      "a.service.d/20.conf": "[Service]\nEnvironment=\nEnvironment=B=2\n"},
     {"env": {"B": "2"}, "where": "a.service.d/10.conf:3"}, ()),
    ({"a.service": f"[Service]\nExecStart=/bin/bash -c 'export A=1 && exec {V} --x \"a b\"'\n"},
     {"env": {"A": "1"}, "argv": ("/opt/v/bin/vllm", "serve", "m", "--x", "a b"), "wrappers": (("exec",),)}, ()),
    ({"a.service": f"[Service]\nExecStart=-:{V} $A\n"}, {"argv": ("/opt/v/bin/vllm", "serve", "m", "$A")}, ()),
    ({"a.service": f"[Service]\nExecStart=+{V}\n"}, {}, ("+",)),
    ({"v@1.service": f"[Service]\nExecStart={V} --port 800%i --n %n --p %p\n"},
     {"argv": ("/opt/v/bin/vllm", "serve", "m", "--port", "8001", "--n", "v@1.service", "--p", "v")}, ()),
    ({"v@.service": f"[Service]\nExecStart={V} --port 800%i\n"},
     {"argv": ("/opt/v/bin/vllm", "serve", "m", "--port", "800%i")}, ("ExecStart",)),
    ({"a.service": f"[Unit]\nAfter=network-online.target\nRequires=x.mount\n[Service]\nType=simple\nRestart=always\n"
                   f"LimitNOFILE=9\nExecStartPre=/bin/true\nExecStart={V}\n"},
     {}, ("Requires=x.mount", "Type=simple; Restart=always", "LimitNOFILE=9", "ExecStartPre=/bin/true")),
    ({"a.service": "[Service]\nExecStart=/usr/bin/docker run -e A=1 --name n img vllm serve m\n"},
     {"env": {"A": "1"}, "image": "img", "name": "n", "argv": ("vllm", "serve", "m"), "python": "",
      "wrappers": (("/usr/bin/docker", "run", "-e", "A=1", "--name", "n", "img"),)}, ()),
    ({"a.service": "[Service]\nEnvironment=P=1\nExecStart=/opt/run.sh\n", "run.sh": f"exec {V} --port $P\n"},
     {"env": {"P": "1"}, "argv": ("/opt/v/bin/vllm", "serve", "m", "--port", "1"), "where": "/opt/run.sh:1",
      "wrappers": (("exec",),)}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("files", "fields", "told"), UNITS)
def test_unit(tmp_path: Path, files: dict[str, str], fields: dict[str, Any], told: tuple[str, ...]) -> None:
    found = read_first(tmp_path, files)
    assert len(found.servers) == 1, found
    expected = {"env": {}, "unset": (), "wrappers": (), "python": "/opt/v/bin/python", **fields}
    assert {name: getattr(found.servers[0], name) for name in expected} == expected
    said = [quote for quote in quotes(found) if "/opt/v/bin/vllm" not in quote or "ExecStart" in quote]
    assert [piece for piece in told if not any(piece in quote for quote in said)] == []
    assert bool(told) == bool(said), said


BAD_UNITS = [
    (f"[Service]\nExecStart={V} 'open\n", "ExecStart"),
    (f"[Service]\nExecStart={V} \\d\n", "ExecStart"),
    ("[Service]\nnonsense\n", "nonsense"),
    ("[Container]\nImage=vllm/vllm-openai\n", "a.service"),
    ("[program:x]\ncommand=vllm serve m\n", "command=vllm serve m"),
]


@pytest.mark.parametrize(("text", "told"), BAD_UNITS)
def test_unit_that_starts_nothing(text: str, told: str) -> None:
    found = read(text, "a.service", None)
    assert found.servers == ()
    assert any(told in quote for quote in quotes(found))


def test_a_unit_and_its_drop_ins_by_name(tmp_path: Path) -> None:
    put(tmp_path, {"a.service": f"[Service]\nExecStart={V}\n", "x/20.conf": "[Service]\nEnvironment=A=2\n",
                   "x/10.conf": "[Service]\nEnvironment=A=1\n"})  # fmt: skip
    found = read_paths([tmp_path / "x/20.conf", tmp_path / "a.service", tmp_path / "x/10.conf"])
    assert [dict(server.env) for server in found.servers] == [{"A": "2"}]


COMPOSE: list[tuple[dict[str, str], dict[str, Any], tuple[str, ...]]] = [
    ({"c.yaml": "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model m --j '{\"a\":1}'\n"},
     {"argv": ("vllm", "serve", "--model", "m", "--j", '{"a":1}'), "name": "a", "where": "c.yaml:3"}, ()),
    ({"c.yaml": "services:\n  a:\n    image: i\n    container_name: n\n    user: '1000'\n    working_dir: /w\n"
                "    environment:\n      - A=1\n      - B\n    command: [vllm, serve, m, --port, 8000]\n"},
     {"argv": ("vllm", "serve", "m", "--port", "8000"), "env": {"A": "1", "B": "$B"}, "name": "n", "user": "1000",
      "working_directory": "/w"}, ("B",)),
    ({"c.yaml": "services:\n  a:\n    image: i\n    environment: {A: yes, B: 010, C: ~, D: '$$x'}\n"
                "    command: vllm serve m\n"},
     {"argv": ("vllm", "serve", "m"), "env": {"A": "yes", "B": "010", "C": "$C", "D": "$x"}}, ("C",)),
    ({"c.yaml": "services:\n  a:\n    image: i:${T:-1}\n    command: vllm serve ${M} --x ${N:-2} $O\n",
      ".env": "M='a b'\nT=3\n"},
     {"argv": ("vllm", "serve", "a", "b", "--x", "2", "$O"), "image": "i:3"}, ("${N:-2}", "$O")),
    ({"c.yaml": "services:\n  a:\n    image: i\n    env_file: [e.env, {path: no.env}]\n    environment: {A: 2}\n"
                "    command: vllm serve m\n", "e.env": "A=1\nB=\"x\"\n"},
     {"argv": ("vllm", "serve", "m"), "env": {"A": "2", "B": "x"}}, ("env_file: no.env",)),
    ({"c.yaml": "x-e: &e\n  A: 1\nservices:\n  a: &a\n    image: i\n    environment:\n      <<: *e\n      B: 2\n"
                "    command: vllm serve m\n"},
     {"argv": ("vllm", "serve", "m"), "env": {"A": "1", "B": "2"}}, ()),
    ({"c.yaml": "services:\n  a:\n    extends: {file: b.yaml, service: base}\n    environment: [B=2]\n"
                "    command: vllm serve m\n", "b.yaml": "services:\n  base:\n    image: i\n    environment: {A: 1}\n"},
     {"argv": ("vllm", "serve", "m"), "env": {"A": "1", "B": "2"}, "image": "i"}, ()),
    ({"c.yaml": "services:\n  a:\n    image: i\n    entrypoint: [bash, -c]\n    environment: {P: 1}\n"
                "    command: ['exec vllm serve m --port $$P']\n    ipc: host\n    restart: always\n"},
     {"argv": ("vllm", "serve", "m", "--port", "1"), "env": {"P": "1"}}, ("ipc: host", "restart")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "fields", "told"), COMPOSE)
def test_compose(tmp_path: Path, files: dict[str, str], fields: dict[str, Any], told: tuple[str, ...]) -> None:
    found = read_first(tmp_path, files)
    assert len(found.servers) == 1, found
    expected = {"env": {}, "user": "", **fields}
    assert {name: getattr(found.servers[0], name) for name in expected} == expected
    said = [quote for quote in quotes(found) if quote != "vllm/vllm-openai"]
    assert [piece for piece in told if not any(piece in quote for quote in said)] == []
    assert bool(told) == bool(said), said


def test_a_service_that_is_no_engine_is_told() -> None:
    found = read("services:\n  db:\n    image: redis\n", "c.yml", None)
    assert (found.servers, quotes(found)) == ((), ["db: redis"])


MARKDOWN = """# Serving

Run `vllm serve meta/x --port 1`, or see `vllm serve` and `python -m sglang.launch_server`.

```bash
export NCCL_PROTO=LL
# A comment in the block
$ vllm serve a \\
    --x 1
```

1. then

   ```console
   ann@gpu1:~$ vllm serve b
   INFO: started vllm serve z
   ```

Indented:

    vllm serve c

```yaml
services:
  z:
    image: vllm/vllm-openai
    command: --model d
```

```ini
[Service]
ExecStart=/opt/v/bin/vllm serve e
```

```python
from vllm import LLM
```

```json
{"a": 1}
```
"""


def test_markdown() -> None:
    found = read(MARKDOWN, "plan.md", None)
    assert [(server.where, server.argv[2:], dict(server.env)) for server in found.servers] == [
        ("plan.md:3", ("meta/x", "--port", "1"), {}),
        ("plan.md:8", ("a", "--x", "1"), {"NCCL_PROTO": "LL"}),
        ("plan.md:15", ("b",), {"NCCL_PROTO": "LL"}),
        ("plan.md:21", ("c",), {"NCCL_PROTO": "LL"}),
        ("plan.md:26", ("--model", "d"), {}),
        ("plan.md:32", ("e",), {}),
    ]
    told = [[remark.quote for remark in server.remarks] for server in found.servers]
    assert told[:4] == [[], [], ["NCCL_PROTO=LL"], ["NCCL_PROTO=LL"]]
    assert [remark.quote for remark in found.remarks] == ["from vllm import LLM"]


def test_markdown_is_known_by_its_fences() -> None:
    assert [server.where for server in read("text\n\n```\nvllm serve m\n```\n", "-", None).servers] == ["-:4"]


ENGINE = [
    (
        "vllm serve m --config c.yaml --port 9",
        ("port: 8\ntensor-parallel-size: 2\ntrust-remote-code: true\nenable-prefix-caching: false\n"
        "allowed-origins: [a, b]\nspeculative-config:\n  method: x\n"),
        ("vllm", "serve", "m", "--tensor-parallel-size", "2", "--trust-remote-code", "--no-enable-prefix-caching",
         "--allowed-origins", "a", "b", "--speculative-config", '{"method": "x"}', "--port", "9"),
    ),
    (
        "python -m sglang.launch_server --config=c.yaml --tp 2",
        "model-path: m\ntp-size: 8\nport: 1\ntrust-remote-code: true\nenable-metrics: false\n",
        ("python", "-m", "sglang.launch_server", "--model-path", "m", "--port", "1", "--trust-remote-code",
         "--tp", "2"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("command", "config", "argv"), ENGINE)
def test_config_of_an_engine_is_merged(tmp_path: Path, command: str, config: str, argv: tuple[str, ...]) -> None:
    found = read_first(tmp_path, {"x.sh": command, "c.yaml": config})
    assert [server.argv for server in found.servers] == [argv]
    assert [remark.quote for remark in found.servers[0].remarks] == ["--config c.yaml"]


ALONE = [
    ("model-path: m\ntp-size: 8\nmem-fraction-static: 0.9\n", "sglang"),
    ("model: m\ntensor-parallel-size: 8\ngpu-memory-utilization: 0.9\n", "vllm"),
]


@pytest.mark.parametrize(("text", "engine"), ALONE)
def test_config_of_an_engine_alone(text: str, engine: str) -> None:
    (server,) = read(text, "c.yaml", None).servers
    assert engine in " ".join(server.argv)
    assert ("m" in server.argv, len(server.remarks)) == (True, 1)


def test_other_yaml_is_told() -> None:
    found = read("a: 1\nb: 2\n", "c.yaml", None)
    assert (found.servers, len(found.remarks)) == ((), 1)


REFUSED: list[tuple[str, bytes, str]] = [
    ("a.sh", b"vllm\0serve", "a.sh:1: a NUL byte"),
    ("a.sh", b"x\n\xff\xfe", "a.sh:2: not UTF-8"),
    ("a.sh", b"x" * (3 * 1024 * 1024), "a.sh: 3145728 bytes"),
    ("a.yaml", b"services:\n  a: [\n", "a.yaml:3: not valid YAML"),
    ("a.yaml", b"services: 1\n", "a.yaml:1"),
    ("a.yaml", b"services:\n  - a\n", "a.yaml:2: services: is not a mapping"),
    ("a.yaml", b"model: &a [*a\n", "a.yaml:"),
    ("a.sh", b"(" * 100000, "a.sh"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_cannot_be_read_at_all_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        found = read_paths([tmp_path / name])
    except ConfigError as error:
        assert str(error).removeprefix(f"{tmp_path}/").startswith(message)  # noqa: PT017 - either is right for some
    else:
        assert found.servers == ()
        assert any(message in remark.where for remark in found.remarks)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_paths([tmp_path / "a.sh"])
    with pytest.raises(ConfigError, match="a folder"):
        read_paths([tmp_path])
