"""Commands around an engine: what is taken off, what it changes, and what is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from launcher.adopt import secret
from launcher.adopt.read import read

if TYPE_CHECKING:
    from pathlib import Path

M = "python -m sglang.launch_server --model-path m"
V = "vllm serve m"

#: Text, the fields of the one server in it that are not empty, and pieces of its remarks.
ONE: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (f"nohup {V} > a.log 2>&1 &", {"log_file": "a.log", "wrappers": (("nohup",),)}, ()),
    (f"{V} --nnodes 2", {"argv": ("vllm", "serve", "m", "--nnodes", "2")}, ("--nnodes 2",)),
    (f"{V} --nnodes=2", {"argv": ("vllm", "serve", "m", "--nnodes=2")}, ("--nnodes 2",)),
    (f"{V} --nnodes 1", {"argv": ("vllm", "serve", "m", "--nnodes", "1")}, ()),
    (f"{V} &>> a.log &", {"log_file": "a.log"}, ()),
    (f"{V} > /dev/null 2>&1", {}, ()),
    (f"{V} > a.log --port 1 2>&1 &", {"argv": ("vllm", "serve", "m", "--port", "1"), "log_file": "a.log"}, ()),
    (f"{V} 2> err.log", {}, ("2> err.log",)),
    (f"{V} 2>&1 | tee -a a.log", {"log_file": "a.log"}, ()),
    (f"{V} | grep -v x", {}, ("grep -v x",)),
    (f"exec > all.log 2>&1\n{V}", {"log_file": "all.log"}, ()),
    (f"cd /srv/a && cd ../b && {V}", {"working_directory": "/srv/b"}, ()),
    (f"cd /srv; (cd x; true); {V}", {"working_directory": "/srv"}, ()),
    (f"cd ~/x && {V}", {"working_directory": "~/x"}, ("~/x",)),
    (f"source /opt/v/bin/activate\n{V}", {"python": "/opt/v/bin/python"}, ()),
    (f"cd /opt && . v/bin/activate && {V}", {"working_directory": "/opt", "python": "/opt/v/bin/python"}, ()),
    (f"source v/bin/activate; {V}", {}, ("source v/bin/activate",)),
    (f"source nowhere.sh; {V}", {}, ("source nowhere.sh",)),
    (f"conda activate x && {V}", {}, ("conda activate x",)),
    (f"conda activate /opt/x && {V}", {"python": "/opt/x/bin/python"}, ()),
    (
        f"conda run -n x --no-capture-output {V}",
        {"wrappers": (("conda", "run", "-n", "x", "--no-capture-output"),)},
        ("conda run -n x",),
    ),
    (f"conda run -p /e {V}", {"python": "/e/bin/python", "wrappers": (("conda", "run", "-p", "/e"),)}, ()),
    (f"uv run --with x {V}", {"wrappers": (("uv", "run", "--with", "x"),)}, ("uv run --with x",)),
    ("uvx --from v vllm serve m", {"argv": ("vllm", "serve", "m"), "wrappers": (("uvx", "--from", "v"),)}, ("uvx",)),
    (f"poetry run {V}", {"wrappers": (("poetry", "run"),)}, ("poetry run",)),
    (f"/opt/v/bin/{M}", {"python": "/opt/v/bin/python"}, ()),
    (f"/opt/v/bin/{V}", {"python": "/opt/v/bin/python"}, ("/opt/v/bin/vllm",)),
    (f"/usr/local/bin/{V}", {}, ("/usr/local/bin/vllm",)),
    (f"./v/bin/{V}", {}, ("./v/bin/vllm",)),
    (
        f"numactl -N 0 --membind=0 taskset -c 0-3 nice -n 5 {V}",
        {"wrappers": (("numactl", "-N", "0", "--membind=0"), ("taskset", "-c", "0-3"), ("nice", "-n", "5"))},
        (),
    ),
    (f"chrt -f 10 ionice -c2 -n 0 {V}", {"wrappers": (("chrt", "-f", "10"), ("ionice", "-c2", "-n", "0"))}, ()),
    (f"timeout -k 5 2h {V}", {"wrappers": (("timeout", "-k", "5", "2h"),)}, ("timeout -k 5 2h",)),
    (
        f"nsys profile -o out -t cuda,nvtx --force-overwrite true {V}",
        {"wrappers": (("nsys", "profile", "-o", "out", "-t", "cuda,nvtx", "--force-overwrite", "true"),)},
        ("nsys profile",),
    ),
    (
        "torchrun --nproc-per-node 8 --nnodes=1 -m sglang.launch_server --model-path m",
        {
            "argv": ("python3", "-m", "sglang.launch_server", "--model-path", "m"),
            "wrappers": (("torchrun", "--nproc-per-node", "8", "--nnodes=1"),),
        },
        ("torchrun --nproc-per-node 8",),
    ),
    (
        "/v/python -m torch.distributed.run --nproc_per_node=8 -m sglang.launch_server --tp 8",
        {
            "argv": ("/v/python", "-m", "sglang.launch_server", "--tp", "8"),
            "python": "/v/python",
            "wrappers": (("/v/python", "-m", "torch.distributed.run", "--nproc_per_node=8"),),
        },
        ("torch.distributed.run",),
    ),
    (
        "accelerate launch --num_processes 8 -m vllm.entrypoints.openai.api_server --model m",
        {
            "argv": ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            "wrappers": (("accelerate", "launch", "--num_processes", "8"),),
        },
        ("accelerate launch",),
    ),
    (f"export A=1; sudo {V}", {"user": "root"}, ("sudo",)),
    (f"export A=1; sudo -u llm -E B=2 {V}", {"user": "llm", "env": {"A": "1", "B": "2"}}, ("sudo",)),
    (f"A=1 C=3 sudo --preserve-env=A -u llm {V}", {"user": "llm", "env": {"A": "1"}}, ("sudo",)),
    (f"su - llm -c '{V} --x 1'", {"user": "llm", "argv": ("vllm", "serve", "m", "--x", "1")}, ()),
    (f"runuser -u llm -- {V}", {"user": "llm"}, ()),
    (f"gosu llm:llm {V}", {"user": "llm", "wrappers": (("gosu",),)}, ()),
    (
        f"systemd-run --unit=a --uid=llm --setenv=A=b -p LimitMEMLOCK=infinity {V}",
        {
            "unit": "a.service",
            "user": "llm",
            "env": {"A": "b"},
            "wrappers": (("systemd-run", "--unit=a", "--uid=llm", "--setenv=A=b", "-p", "LimitMEMLOCK=infinity"),),
        },
        ("LimitMEMLOCK=infinity",),
    ),
    (f"ssh h '{V}'", {"hosts": ("h",)}, ()),
    (f"ssh -l ann -p 2222 -i k h {V}", {"hosts": ("ann@h:2222",)}, ()),
    (f"ssh -p 22 ann@h -t '{V}'", {"hosts": ("ann@h",)}, ()),
    (f"ssh -p 23 fd00::1 {V}", {"hosts": ("[fd00::1]:23",)}, ()),
    (f"ssh -J jump h '{V}'", {"hosts": ("h",)}, ("ssh -J jump",)),
    (f"ssh a \"ssh b '{V}'\"", {"hosts": ("b",)}, ("ssh b",)),
    (f"export A=1; ssh h '{V}'", {"hosts": ("h",)}, ("A=1",)),
    (f"ssh $H '{V}'", {"hosts": ("$H",)}, ("$H",)),
    (f"pdsh -w a,b[1-2] '{V}'", {"hosts": ("a", "b[1-2]")}, ("pdsh -w a,b[1-2]",)),
    (f"tmux new -d -s x -c /srv '{V}'", {"working_directory": "/srv"}, ()),
    (f"tmux send-keys -t x 'A=1 {V}' Enter", {"env": {"A": "1"}}, ()),
    (f"tmux new -s x -d \\; send-keys '{V}' C-m", {}, ()),
    (
        f"screen -L -Logfile a.log -dmS x {V}",
        {"log_file": "a.log", "wrappers": (("screen", "-L", "-Logfile", "a.log", "-dmS", "x"),)},
        (),
    ),
    (f"screen -S x -X stuff '{V}\n'", {}, ()),
    (f"bash -lc '{V}'", {}, ("bash -lc",)),
    ("V=$M; vllm serve $V", {"argv": ("vllm", "serve", "$M")}, ("$M",)),
    ('vllm serve "$M" --x ${N:-8}', {"argv": ("vllm", "serve", "$M", "--x", "8")}, ("$M", "${N:-8}")),
    ("vllm serve m --h $(hostname -i):1", {"argv": ("vllm", "serve", "m", "--h", "$(hostname -i):1")}, ("$(hostname",)),
    ("vllm serve <MODEL> --x 1", {"argv": ("vllm", "serve", "<MODEL>", "--x", "1")}, ("<MODEL>",)),
    ("vllm serve ~/m", {"argv": ("vllm", "serve", "~/m")}, ("~/m",)),
    ('vllm serve m "$@"', {"argv": ("vllm", "serve", "m", "$@")}, ("$@",)),
    ("$PY -m sglang.launch_server", {"argv": ("$PY", "-m", "sglang.launch_server")}, ("$PY",)),
    (f"export P=/x:$P; {V}", {"env": {"P": "/x:$P"}}, ("$P",)),
    (f"NCCL_ALGO=Ring\n{V}", {}, ("NCCL_ALGO=Ring",)),
    (f"unset NCCL_ALGO; env -u B {V}", {"unset": ("NCCL_ALGO", "B")}, ()),
    (f"if [ -e x ]; then export A=1; fi\n{V}", {}, ("[ -e x ]",)),
    (f"export A=1; [ -e x ] && export A=2\n{V}", {"env": {"A": "$A"}}, ("[ -e x ]",)),
    (f"if [ -e x ]; then {V}; fi", {}, ("[ -e x ]",)),
    (f"while true; do {V}; sleep 1; done", {}, ("while true",)),
    (f"until {V}; do sleep 1; done", {}, ("until",)),
    (f"for x in $XS; do {V} --x $x; done", {"argv": ("vllm", "serve", "m", "--x", "$x")}, ("for x in $XS",)),
    (f"module load cuda; ulimit -l unlimited; {V}", {}, ("module load cuda", "ulimit -l unlimited")),
    (f"export $(cat .env | xargs); {V}", {}, ("$(cat .env",)),
    (
        f"srun -N 1 --gres gpu:8 -w n1 --export=ALL,A=1 {V}",
        {
            "env": {"A": "1"},
            "hosts": ("n1",),
            "wrappers": (("srun", "-N", "1", "--gres", "gpu:8", "-w", "n1", "--export=ALL,A=1"),),
        },
        ("srun",),
    ),
    (f"#!/bin/bash\n#SBATCH --nodes=2\n{V}", {}, ("#SBATCH --nodes=2",)),
    (f"sbatch --wrap='{V}'", {}, ("sbatch",)),
    (
        f"ray job submit --address x -- {V}",
        {"wrappers": (("ray", "job", "submit", "--address", "x", "--"),)},
        ("ray job",),
    ),
    (
        f"mpirun -np 8 --mca btl tcp -x A=1 {V}",
        {"env": {"A": "1"}, "wrappers": (("mpirun", "-np", "8", "--mca", "btl", "tcp", "-x", "A=1"),)},
        ("mpirun",),
    ),
    (
        f"docker run --gpus all -e A=1 --env B -w /w --name n img:1 {V}",
        {
            "env": {"A": "1", "B": "$B"},
            "image": "img:1",
            "working_directory": "/w",
            "name": "n",
            "wrappers": (
                ("docker", "run", "--gpus", "all", "-e", "A=1", "--env", "B", "-w", "/w", "--name", "n", "img:1"),
            ),
        },
        ("--gpus all", "-e B"),
    ),
    (
        f"export B=2; docker run -eB img bash -c 'exec {V}'",
        {"env": {"B": "2"}, "image": "img", "wrappers": (("docker", "run", "-eB", "img"), ("exec",))},
        (),
    ),
    (
        "docker run vllm/vllm-openai:v0.12.0 --model m",
        {
            "argv": ("vllm", "serve", "--model", "m"),
            "image": "vllm/vllm-openai:v0.12.0",
            "wrappers": (("docker", "run", "vllm/vllm-openai:v0.12.0"),),
        },
        ("vllm/vllm-openai",),
    ),
    (
        "docker run vllm/vllm-openai:v0.6.3 --model m",
        {
            "argv": ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            "image": "vllm/vllm-openai:v0.6.3",
            "wrappers": (("docker", "run", "vllm/vllm-openai:v0.6.3"),),
        },
        ("vllm/vllm-openai",),
    ),
    (
        "docker run --entrypoint vllm i serve m",
        {"image": "i", "argv": ("vllm", "serve", "m"), "wrappers": (("docker", "run", "--entrypoint", "vllm", "i"),)},
        (),
    ),
    (f"docker exec -d box {V}", {"name": "box", "wrappers": (("docker", "exec", "-d", "box"),)}, ("docker exec",)),
    (
        f"apptainer exec --nv --env A=1 i.sif {V}",
        {"env": {"A": "1"}, "image": "i.sif", "wrappers": (("apptainer", "exec", "--nv", "--env", "A=1", "i.sif"),)},
        (),
    ),
    (
        f"cat > x.sh <<'EOF'\n{V} --x $A\nEOF\nexport A=1\nbash x.sh",
        {"argv": ("vllm", "serve", "m", "--x", "1"), "env": {"A": "1"}, "where": "-:2"},
        (),
    ),
    (
        f"sudo tee /etc/systemd/system/a.service <<EOF\n[Service]\nExecStart={V}\nEOF",
        {"unit": "a.service", "name": "a", "where": "-:3"},
        (),
    ),
    ("  1  cd /a\n  2  vllm serve m\n", {"working_directory": "/a", "where": "-:2"}, ()),
    ("(v) ann@gpu1:~$ vllm serve m\nINFO started\n", {}, ()),
]
EMPTY: dict[str, Any] = {
    "env": {}, "unset": (), "hosts": (), "user": "", "working_directory": "", "log_file": "", "wrappers": (),
    "python": "", "image": "", "unit": "", "name": "",
}  # fmt: skip


@pytest.mark.parametrize(("text", "fields", "told"), ONE)
def test_one_server(text: str, fields: dict[str, Any], told: tuple[str, ...]) -> None:
    found = read(text, "-", None)
    assert len(found.servers) == 1, found
    server = found.servers[0]
    expected = {**EMPTY, **fields}
    assert {name: getattr(server, name) for name in expected} == expected
    quotes = [remark.quote for remark in server.remarks]
    assert [piece for piece in told if not any(piece in quote for quote in quotes)] == []
    assert bool(told) == bool(quotes), quotes
    assert found.remarks == ()


#: Text without a server, and a piece of the remark on it; empty: nothing is worth a remark.
NONE = [
    ("", ""),
    ("# nothing\n\n", ""),
    ("echo vllm; sleep 1; curl http://x", ""),
    ("command -v vllm; which sglang", ""),
    ("pip install vllm", "pip install vllm"),
    ("python -m sglang_router.launch_router --x", "sglang_router"),
    ("python -m sglang.bench_serving", "bench_serving"),
    ("vllm bench serve --model m", "vllm bench"),
    ("vllm chat", "vllm chat"),
    ("vllm serve --help=all", "vllm serve --help=all"),
    ("python -m sglang.launch_server -h", "-h"),
    ("trtllm-serve m", "trtllm-serve"),
    ("ray start --head", "ray start"),
    ("serve run app:app", "serve run"),
    ("mystery --x vllm serve m", "mystery"),
    ("docker run --strange x img vllm serve m", "--strange"),
    ("docker compose up -d", "docker compose up"),
    ("bash nowhere.sh", "nowhere.sh"),
    ("ssh gpu1", "ssh gpu1"),
    ("sudo -i", "sudo -i"),
    ("nvidia-smi -pm 1", "nvidia-smi -pm 1"),
    ("exit 1\nvllm serve m", "vllm serve m"),
    ("vllm serve 'm", "vllm serve"),
    ("vllm serve m )", "vllm serve m"),
    ("apiVersion: v1\nkind: Pod\n", "apiVersion"),
    ("#!/usr/bin/env python3\nos.system('vllm serve m')", "vllm serve m"),
    ('eval "$X"', "eval"),
    ("f() { f; }; f", "f"),
]


@pytest.mark.parametrize(("text", "told"), NONE)
def test_no_server(text: str, told: str) -> None:
    found = read(text, "-", None)
    assert found.servers == ()
    assert any(told in remark.quote for remark in found.remarks) if told else found.remarks == ()


def test_a_command_that_only_the_host_knows_says_what_it_may_be() -> None:
    text = '[ "$D" = 1 ] && C="vllm serve m --x" || C="vllm serve m"\nenv $C --y'
    found = read(text, "-", None)
    assert found.servers == ()
    assert any("only the host knows" in remark.why and "vllm serve m" in remark.why for remark in found.remarks)


def test_several_servers_in_order() -> None:
    text = "export A=1\nvllm serve a &\nexport B=2\nvllm serve b &\nunset A\nvllm serve c\n"
    servers = read(text, "x.sh", None).servers
    assert [(server.where, server.argv[-1], dict(server.env)) for server in servers] == [
        ("x.sh:2", "a", {"A": "1"}),
        ("x.sh:4", "b", {"A": "1", "B": "2"}),
        ("x.sh:6", "c", {"B": "2"}),
    ]


LINES = [
    ('ssh h "cd /a\nexport A=1\nvllm serve m"', "x.sh:3"),
    ('ssh h "cd /a && \\\n  cd /b\nvllm serve m"', "x.sh:3"),
    ("echo\nssh h <<'EOF'\n\nvllm serve m\nEOF", "x.sh:4"),
    ("X='a\nb'\n\nvllm serve m", "x.sh:4"),
    ("bash -c 'echo é\n\n  vllm serve m'", "x.sh:3"),
    ('A=x; bash -c "echo ${A}\nvllm serve m"', "x.sh:2"),
    ("f() {\n  vllm serve m\n}\n\nf", "x.sh:2"),
]


@pytest.mark.parametrize(("text", "where"), LINES)
def test_line_of_the_file(text: str, where: str) -> None:
    assert [server.where for server in read(text, "x.sh", None).servers] == [where]


SECRETS = [
    "nope --api-key s3cret vllm",
    "nope --api-key=s3cret",
    "nope HF_TOKEN=s3cret x",
    "nope 'OPENAI_API_KEY=s3cret' x",
    "nope -H 'Authorization: Bearer s3cret'",
    "nope https://user:s3cret@host/x",
    "nope hf_s3cretAAAAAAAAAAAAAAAA",
    "nope -H 'Authorization: Basic s3cret'",
    "nope -H 'X-API-Key: s3cret'",
    'nope \'{"password": "s3cret"}\'',
    'nope \'os.environ["HF_TOKEN"] = "s3cret"\'',
    "nope HEADERS=api-key=s3cret",
    "nope DB_PWD=s3cret PASS=s3cret",
    "nope curl -u me:s3cret http://x",
    "nope wandb login s3cret",
    "nope docker login -u me -p s3cret",
    "nope sshpass -p s3cret ssh h x",
    "nope setenv HF_TOKEN s3cret",
    "nope set -gx HF_TOKEN s3cret",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked_in_quotes(text: str) -> None:
    found = read(text, "-", None)
    assert [remark.quote.startswith("nope") for remark in found.remarks] == [True]
    assert "s3cret" not in found.remarks[0].quote


#: Values that only look as if they held a secret.
OPEN = [
    ("EXTRA", "--tokenizer-mode auto --max-model-len 1"),
    ("X_CONFIG", '{"eos_token": "</s>", "think_end_token": "x", "temperature": 0.6}'),
    ("PWD", "/srv"),
    ("PYTHONPATH", "/a:/b"),
    ("ENDPOINT", "http://host:4317/v1"),
    ("HF_TOKEN", "1"),
    ("EXTRA", "--api-key $KEY"),
]


@pytest.mark.parametrize(("name", "value"), OPEN)
def test_what_is_no_secret_stays_in_sight(name: str, value: str) -> None:
    assert not secret.is_secret_variable(name, value)


def test_a_password_of_ssh_is_kept_nowhere() -> None:
    found = read("sshpass -p s3cret ssh root@h 'vllm serve m'", "-", None)
    assert [server.hosts for server in found.servers] == [("root@h",)]
    assert "s3cret" not in repr(found)


def test_secrets_stay_in_the_server() -> None:
    server = read("HF_TOKEN=s3cret vllm serve m --api-key s3cret2", "-", None).servers[0]
    assert (server.env["HF_TOKEN"], server.argv[-1]) == ("s3cret", "s3cret2")


def test_files_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.sh").write_text("export A=1\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link.sh").symlink_to(tmp_path / "secret.sh")
    for name in ("../secret.sh", str(tmp_path / "secret.sh"), "link.sh"):
        (server,) = read(f"source {name}\nvllm serve m", "x.sh", inner).servers
        assert (server.env, len(server.remarks)) == ({}, 1)
