"""The exported files read by the tools that they are for: Compose, docker's client, a schema of Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fleet import Fleet
from tests.render.test_exports import BASE, DIGEST, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = [pytest.mark.fleet, pytest.mark.soak]

ENV = {f"X_{number}": value for number, value in enumerate(VALUES.values())}
TEMPLATE = r"engine.args.chat_template='{{ \$x }} $$ $HOME $(X_1) `id` \"é\" # : - '"
#: What is installed; pip takes about a minute.
VALIDATOR = "kubernetes-validate>=1.30"
#: An engine of docker that notes what it is asked to make. No engine is at work here: what is seen is docker's client.
ENGINE = r"""
import http.server, json, os, socketserver
class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.45")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)
    def do_HEAD(self):
        self.answer(200, {})
    do_GET = do_HEAD
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("/run/created.json", "wb").write(body)
        self.answer(201, {"Id": "0" * 64, "Warnings": []})
    def address_string(self):
        return "client"
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def get_request(self):
        return self.socket.accept()[0], ("client", 0)
Server("/run/engine.sock", Engine).serve_forever()
"""


@pytest.fixture(scope="module")
def host() -> Iterator[FleetHost]:
    with Fleet.boot(1, suite="trixie-containers") as fleet:
        yield fleet.hosts[0]


def rendered(folder: Path, form: str, env: dict[str, str], *more: str) -> tuple[Path, dict[str, Any]]:
    words = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    fixed = [*BASE, f"runtime.image=vllm/vllm-openai@{DIGEST}", TEMPLATE, f"target.out={folder}"]
    argv = [sys.executable, "-m", "launcher", "render", "--json", "--format", form, *fixed, *more, *words]
    (record,) = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return Path(record["folder"]) / record["export"]["files"][0], record


def test_compose_reads_the_same_set(host: FleetHost, tmp_path: Path) -> None:
    path, record = rendered(tmp_path, "compose", {**ENV, "X_LINES": "one\n two\n"}, "secrets.env.HF_TOKEN='file:/no'")
    place = host.root / "root/compose"
    place.mkdir()
    (place / path.name).write_bytes(path.read_bytes())
    command = f"cd /root/compose && X_1=wrong docker-compose --file {path.name} config --format json"
    missing = host.run(command, check=False)
    assert missing.returncode != 0
    assert "out.put_1.secrets.env" in missing.stderr
    (place / "out.put_1.secrets.env").write_text("HF_TOKEN='a$b'\n")
    (service,) = json.loads(host.run(command).stdout)["services"].values()
    # What Compose prints, it could read again: every $ of a value is doubled.
    assert [word.replace("$$", "$") for word in service["command"]] == record["argv"]
    found = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
    assert found == {**record["env"], "HF_TOKEN": "a$b"}
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == -1


def test_docker_s_client_reads_the_same_environment(host: FleetHost, tmp_path: Path) -> None:
    path, record = rendered(tmp_path, "env", ENV)
    (host.root / "root" / path.name).write_bytes(path.read_bytes())
    (host.root / "root/engine.py").write_text(ENGINE)
    host.run("systemd-run --unit engine python3 /root/engine.py; until [ -S /run/engine.sock ]; do sleep 0.1; done")
    host.run(f"docker --host unix:///run/engine.sock create --env-file /root/{path.name} image command")
    created = json.loads(host.run("cat /run/created.json; systemctl stop engine").stdout)
    assert dict(entry.split("=", 1) for entry in created["Env"]) == record["env"]


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; $LAUNCH_TEST_KUBERNETES_VALIDATE names one that is there."""
    if given := os.environ.get("LAUNCH_TEST_KUBERNETES_VALIDATE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("validator")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", VALIDATOR], check=True)
    return folder / "bin" / "kubernetes-validate"


@pytest.mark.parametrize("version", ["1.28", "1.34"])
def test_the_objects_fit_the_schema_of_kubernetes(validator: Path, tmp_path: Path, version: str) -> None:
    words = ["secrets.env.HF_TOKEN='file:/no'", "secrets.args.api_key='file:/no'", "runtime.mounts=['/a:/b:rw']"]
    path, _ = rendered(tmp_path, "k8s", ENV, *words)
    argv = [str(validator), "--strict", "--kubernetes-version", version, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = path.with_name("wrong.yaml")
    wrong.write_text(path.read_text().replace("failureThreshold:", "failureTreshold:"))
    assert subprocess.run([*argv[:-1], str(wrong)], capture_output=True, check=False).returncode != 0
