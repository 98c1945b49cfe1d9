"""Releases in other tools' formats: each tool's own reading of the files gives the release back, unchanged."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.cli.parser import FORMATS
from launcher.cli.prepare import Programs
from launcher.errors import ConfigError
from launcher.host import bundle
from launcher.render import render
from launcher.render.exports import Export, export
from tests.bench.served import QUICK, free_port, marked, standin
from tests.composing import compose

if TYPE_CHECKING:
    from launcher.schema import Deployment

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
IMAGE = f"runtime.image='vllm/vllm-openai@{DIGEST}'"
BASE = ("model=tiny", "engine=vllm", "engine.tensor_parallel=2", "name=out.put_1", "engine.python=/usr/bin/python3")
#: Writes down its arguments and environment.
RECORDER = '#!/bin/sh\ncat > "$0.program"\nprintf \'%s\\0\' "$@" > "$0.words"\ncat /proc/$$/environ > "$0.env"\n'
CONTAINERS = ("compose", "k8s", "quadlet")
TYPED = ("compose", "k8s")
OTHERS = tuple(form for form in FORMATS if form != "sbatch")


def composed(*words: str, **env: str) -> Deployment:
    given = {word.partition("=")[0] for word in words}
    return compose([*(word for word in (*BASE, IMAGE) if word.partition("=")[0] not in given), *words], env)


def made(form: str, deployment: Deployment) -> Export:
    return export(form, deployment, render(deployment), Programs())


def text(form: str, *words: str, **env: str) -> str:
    return made(form, composed(*words, **env)).files[0].text


# --- each tool's reading


def by_shell(folder: Path, deployment: Deployment) -> tuple[list[str], dict[str, str]]:
    """Run the script with a recorder in place of the interpreter."""
    script, recorder = folder / "script", folder / "recorder"
    script.write_text(made("shell", deployment).files[0].text)
    subprocess.run(["sh", script], env={"PATH": "/usr/bin:/bin"}, check=True)
    words = (folder / "recorder.words").read_text().split("\0")[:-1]
    entries = (folder / "recorder.env").read_text().split("\0")
    env = dict(entry.split("=", 1) for entry in entries if entry)
    assert words[:4] == ["-I", "-X", "utf8", "-"]
    assert recorder.with_suffix(".program").read_text().rstrip("\n") == bundle.task_program(
        render(deployment).manifest.text, "shell"
    ).rstrip("\n")
    return words[4:], {name: value for name, value in env.items() if name not in ("PATH", "PWD", "OLDPWD", "_")}


def by_compose(deployment: Deployment) -> tuple[list[str], dict[str, str]]:
    service = yaml.safe_load(made("compose", deployment).files[0].text)["services"]["server"]
    assert service["entrypoint"] == ["/usr/bin/python3", "-I", "-X", "utf8", "/launch/program.py"]
    return [once(word) for word in service["command"]], {k: once(v) for k, v in service["environment"].items()}


def once(text: str) -> str:
    """Interpolate as Compose does where no variable is set; a lone ``$`` would be one."""
    assert re.fullmatch(r"([^$]|\$\$)*", text, re.DOTALL), text
    return text.replace("$$", "$")


def by_k8s(deployment: Deployment) -> tuple[list[str], dict[str, str]]:
    container = pod(deployment)["containers"][0]
    assert container["command"] == ["/usr/bin/python3", "-I", "-X", "utf8", "/launch/program.py"]
    env: dict[str, str] = {}
    for entry in container["env"]:
        env[entry["name"]] = expanded(entry["value"], env)
    return [expanded(word, env) for word in container["args"]], env


def pod(deployment: Deployment) -> dict[str, Any]:
    workload = yaml.safe_load(made("k8s", deployment).files[0].text.partition("\n---\n")[2])
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def expanded(text: str, env: dict[str, str]) -> str:
    """Expand as the kubelet does: ``$$`` is ``$``, ``$(NAME)`` a variable that is set before, all else as it is."""
    found = re.sub(r"\$(\$|\(([^)]*)\))", lambda m: "$" if m[1] == "$" else env.get(m[2], m[0]), text, flags=re.DOTALL)
    return str(found)


def by_env_file(deployment: Deployment) -> tuple[list[str], dict[str, str]]:
    lines = made("env", deployment).files[0].text.split("\n")
    entries = [line.partition("=")[::2] for line in lines if line and line[0] != "#"]
    return list(render(deployment).argv), dict(entries)


VALUES = {
    "quotes": 'it\'s "so"',
    "a shell's characters": "$HOME ${X} `id` $(id) $$ \\ \\\\ ! * ? ~ & ; | < > ( ) { } [ ] # %",
    "a variable that is set before": "$(LAUNCH_DIGEST) $$(LAUNCH_DIGEST) ${LAUNCH_DIGEST:-x} $LAUNCH_DIGEST",
    "a template": "{{ lookup('env', 'HOME') }} {% raw %}",
    "blanks": "  two  \t tab ",
    "unicode": "Größe 模型 🚀 \u00a0 \u2028 \x85",
    "empty": "",
    "an option": "--export=ALL",
    "a comment": "# none",
    "commas and signs": "a=b,c=d: e",
    **{
        f"what YAML could take for something else: {word}": word
        for word in ("yes", "NO", "on", "y", "null", "~", "12", "-1", "0o14", "0x1F", "1e3")
    },
    **{f"so too: {word}": word for word in ("1_000", "1:30", ".5", ".inf", "2026-01-01", "=", "<<", "- a", "*a", "&a")},
    **{f"and: {word}": word for word in ("!x", "%x", "@x", "`x", "|", ">-", "{a: b}", "[a]", "? a", "true", "Null")},
}
LINES = "one\n#two\nLAUNCH_PROGRAM\n"


def test_any_value_arrives_as_it_is(tmp_path: Path) -> None:
    assert_arrives(tmp_path, *VALUES.values())


def test_lines_arrive_where_they_can(tmp_path: Path) -> None:
    assert_arrives(tmp_path, LINES)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"], include_characters="\n\t$()")), max_size=20)
)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_values_arrive_as_they_are(tmp_path: Path, values: list[str]) -> None:
    assert_arrives(tmp_path, *values)


def assert_arrives(folder: Path, *values: str) -> None:
    recorder = folder / "recorder"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    env = {f"X_{number}": value for number, value in enumerate(values)}
    deployment = composed(f"target.python={recorder}", r"engine.args.chat_template='{{ \$x }} $$ `id` \"é\" #'", **env)
    release = render(deployment)
    wanted = list(release.argv), dict(release.env)
    assert by_shell(folder, deployment) == wanted
    assert by_compose(deployment) == wanted
    assert by_k8s(deployment) == wanted
    if not any("\n" in value for value in values):
        assert by_env_file(deployment) == wanted


def test_what_is_text_stands_in_quotes_whatever_it_looks_like() -> None:
    """PyYAML reads YAML 1.1; the tools read 1.2 and parts of both: quotes leave nothing to them."""
    for form in TYPED:
        shown = text(form, **{f"X_{number}": value for number, value in enumerate(VALUES.values())})
        for value in ("0o14", "1e3", "y", "NO", "1:30"):
            assert f': "{value}"\n' in shown


# --- what the files ask of their tools


def test_a_service_of_compose() -> None:
    words = ["runtime.mounts=[/data,'/cache:/root/.cache:rw']", "unit.stop_timeout=60", "spec=eagle3_2step"]
    (service,) = yaml.safe_load(text("compose", *words, "spec.draft_model_path=/mnt/draft"))["services"].values()
    assert [(v["source"], v["target"], v["read_only"]) for v in service["volumes"][1:]] == [
        ("/mnt/models/tiny", "/mnt/models/tiny", True),
        ("/mnt/draft", "/mnt/draft", True),
        ("/data", "/data", True),
        ("/cache", "/root/.cache", False),
    ]
    assert service["image"] == f"vllm/vllm-openai@{DIGEST}"
    assert service["ulimits"]["memlock"] == -1
    assert (service["ipc"], service["network_mode"], service["stop_grace_period"]) == ("host", "host", "60s")
    (devices,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert devices == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert "http://127.0.0.1:8000/health" in service["healthcheck"]["test"][-1]


def test_a_pod_of_kubernetes() -> None:
    deployment = composed("unit.start_timeout=95", "unit.stop_timeout=60")
    config, workload = yaml.safe_load_all(made("k8s", deployment).files[0].text)
    container = pod(deployment)["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 100
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000, "scheme": "HTTP"}
    assert workload["spec"]["strategy"] == {"type": "Recreate"}
    assert pod(deployment)["terminationGracePeriodSeconds"] == 60
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod(deployment)["volumes"]
    assert pod(deployment)["enableServiceLinks"] is False
    assert workload["metadata"]["name"] == "launch-out-put-1"
    assert config["metadata"]["name"] in str(pod(deployment)["volumes"])
    assert config["data"]["program.py"] == bundle.task_program(render(deployment).manifest.text, "container")


def test_files_of_an_ansible_play_are_copied_and_never_looked_at_as_templates() -> None:
    deployment = composed(STANDIN_X="{{ 1 + 1 }}")
    release, found = render(deployment), made("ansible", deployment)
    names = {file.path for file in found.files}
    assert names == {
        "out.put_1.ansible.yaml",
        "agent.py",
        "launch.slice",
        "launch.target",
        "launch-gpu-prepare.service",
    }
    (play,) = yaml.safe_load(found.files[0].text)
    items = [item for task in play["tasks"] if "ansible.builtin.copy" in task for item in task["loop"]]
    wanted = {file.path: f"{file.mode:04o}" for file in release.files}
    assert {item["dest"]: item["mode"] for item in items if item["dest"] in wanted} == wanted
    assert {item["src"] for item in items} <= names | {file.path.rpartition("/")[2] for file in release.files}
    assert "1 + 1" not in found.files[0].text
    assert "ansible.builtin.template" not in found.files[0].text


SECRETS = ("secrets.env.HF_TOKEN='file:/no/such'", "secrets.args.api_key='command:false'")
REFERENCES = {
    "compose": ("./out.put_1.secrets.env", "/run/launch/out.put_1/secrets.yaml"),
    "k8s": ("secretKeyRef", "/run/launch/out.put_1"),
    "quadlet": ("podman secret create launch-out.put_1-HF_TOKEN FILE", "type=env,target=HF_TOKEN"),
    "ansible": ("launch_secrets_out_put_1[item]", "no_log: true"),
    "env": ("# secret, to be set by other means: HF_TOKEN", "# secret flag, not in the command: --api_key"),
}


@pytest.mark.parametrize("form", REFERENCES)
def test_secrets_are_named_and_not_read(form: str) -> None:
    shown = text(form, *SECRETS)
    assert all(part in shown for part in REFERENCES[form]), shown


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_lost_stands_in_the_file(form: str) -> None:
    found = made(form, composed())
    comment = " ".join(line[2:].strip() for line in found.files[0].text.splitlines() if line.startswith("# "))
    assert len(found.lost) >= 4
    for sentence in (*found.lost, *found.kept):
        assert " ".join(sentence.split()) in comment
    assert bool(found.kept) == (form != "env")


@pytest.mark.parametrize("form", OTHERS)
def test_the_same_release_gives_the_same_bytes(form: str) -> None:
    assert made(form, composed()) == made(form, composed())


NODES = ["engine.args.nnodes=2"]
REFUSED: dict[str, tuple[tuple[str, ...], list[str], str]] = {
    "several nodes": (("shell", "compose", "k8s", "quadlet", "ansible"), NODES, "has another command on each"),
    "no image": (CONTAINERS, ["runtime.image=''"], "runtime.image=NAME@sha256:DIGEST"),
    "no name of an image": (CONTAINERS, ["runtime.image='a b'"], "runtime.image='a b' is no image"),
    "a colon in the model's path": (CONTAINERS, ["model.path='/m:x'"], "model.path: '/m:x' must be an absolute path"),
    "a mount without an end": (CONTAINERS, ["runtime.mounts=['/a:/b:wr']"], "'/a:/b:wr' must be PATH, PATH:TARGET"),
    "a mount of a name": (CONTAINERS, ["runtime.mounts=[cache]"], "runtime.mounts: 'cache' must be an absolute path"),
    "two mounts in one place": (CONTAINERS, ["runtime.mounts=['/a:/c','/b:/c']"], "two folders for /c"),
    "GPUs by index": (("k8s",), ["engine.gpus=['0','1']"], "Kubernetes chooses the GPUs of a pod"),
    "a server for itself": (("k8s",), ["engine.host=127.0.0.1"], "engine.host=0.0.0.0"),
    "secret flags": (("shell",), ["secrets.args.api_key='file:/x'"], "Use launch run"),
    "lines": (("env", "quadlet"), ["env.STANDIN_X='a\nb'"], "env.STANDIN_X: holds the end of a line"),
    "a long line": (("env",), [f"env.STANDIN_X='{'x' * 65536}'"], "env.STANDIN_X: longer than 65534 bytes"),
}


@pytest.mark.parametrize(("forms", "words", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(forms: tuple[str, ...], words: list[str], reason: str) -> None:
    deployment = composed(*words)
    for form in forms:
        with pytest.raises(ConfigError) as caught:
            made(form, deployment)
        assert reason in str(caught.value)


def test_the_question_of_the_format_changes_no_release() -> None:
    assert render(composed()).digest == render(compose(list(BASE))).digest
    assert render(compose(["deployment=reference"])).digest == "b02d8946092318d1"


# --- the script at work


def test_the_script_serves_and_proves(tmp_path: Path) -> None:
    python, port, token = standin(tmp_path / "engine"), free_port(), tmp_path / "token"
    token.write_text("hf_x\n")
    where = [
        f"engine.python={python}",
        f"engine.port={port}",
        "engine.host=127.0.0.1",
        f"target.python={sys.executable}",
    ]
    deployment = composed(*where, f"secrets.env.HF_TOKEN='file:{token}'", STANDIN_X="it's $HOME", **QUICK)
    (script,) = made("shell", deployment).files
    path = tmp_path / script.path
    path.write_text(script.text)
    digest = render(deployment).digest
    with subprocess.Popen(["sh", path], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "proof:" in line:
                break
        else:
            raise AssertionError("no proof")
        blocks = [Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in marked(digest)]
        process.terminate()
        rest = process.stderr.read()
    assert f"release {digest}, 4 processes carry all" in line
    assert len(blocks) == 5
    assert all({"HF_TOKEN=hf_x", "STANDIN_X=it's $HOME"} <= set(block) for block in blocks)
    assert "the server ended with 0" in rest
    assert marked(digest) == {}


ARRIVING: dict[str, tuple[dict[str, str], str, str]] = {
    "a fact of the image": ({"NCCL_VERSION": "2.21.5-1", "CUDA_VERSION": "12.8.1"}, "", "NCCL_VERSION"),
    "a setting of the image": ({"NCCL_P2P_DISABLE": "1"}, "come from the image (docker inspect IMAGE)", ""),
    "no secret": ({"HF_TOKEN": ""}, "the secret HF_TOKEN did not arrive", ""),
}


@pytest.mark.parametrize(("env", "said", "unsaid"), ARRIVING.values(), ids=ARRIVING)
def test_what_an_image_brings(env: dict[str, str], said: str, unsaid: str) -> None:
    deployment = composed("engine.python=/no/such/python", "secrets.env.HF_TOKEN='file:/x'")
    release = render(deployment)
    program = bundle.task_program(release.manifest.text, "container")
    done = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-", *release.argv],
        input=program,
        env={**release.env, "HF_TOKEN": "hf_x", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 78
    assert (said or "/no/such/python cannot be started") in done.stderr
    assert not unsaid or unsaid not in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    words = ["secrets.env.A_TOKEN='file:~/.a b'", 'secrets.env.B_TOKEN="command:pass show b | head -1"']
    script = tmp_path / "script.sh"
    script.write_text(text("shell", *words, **{f"X_{number}": value for number, value in enumerate(VALUES.values())}))
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
