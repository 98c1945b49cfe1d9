"""What is told of a container's options: what would go wrong on the host, and what to say against it."""

from __future__ import annotations

import pytest

from launcher.adopt.read import read

RUN = "docker run {} vllm/vllm-openai --model /models/m"
SERVICE = "services:\n  s:\n    image: vllm/vllm-openai\n    command: --model /models/m\n    {}\n"
GPUS = "deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, device_ids: {}}}]}}}}}}"

#: Options of `docker run`, the same in compose, and what is told.
CASES = [
    ("--gpus '\"device=2,3\"'", GPUS.format('["2", "3"]'), "say 'engine.gpus=[2,3]'"),
    ("--gpus device=4", GPUS.format("['4']"), "say 'engine.gpus=[4]'"),
    ("--gpus all", "ipc: host", "launch runs the server on the host itself"),
    ("-p 8080:8000", 'ports: ["8080:8000"]', "port 8080, not 8000"),
    ("-p 127.0.0.1:8080:8000/tcp", 'ports: ["127.0.0.1:8080:8000"]', "port 8080, not 8000"),
    ("-p 8000:8000", 'ports: ["8000:8000"]', "launch runs the server on the host itself"),
    ("-v /srv/m:/models:ro", 'volumes: ["/srv/m:/models:ro"]', "/models is /srv/m on the host"),
    ("-v /models:/models", 'volumes: ["/models:/models"]', "launch runs the server on the host itself"),
]


@pytest.mark.parametrize(("options", "service", "told"), CASES)
def test_what_the_host_has_otherwise_is_told(options: str, service: str, told: str) -> None:
    for text, name in ((RUN.format(options), "x.sh"), (SERVICE.format(service), "compose.yaml")):
        (server,) = read(text, name, None).servers
        assert any(told in remark.why for remark in server.remarks), text
