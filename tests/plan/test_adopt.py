"""What hosts tell of running servers, as found servers; no host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from launcher.adopt.found import Remark
from launcher.errors import HostError
from launcher.fleet.adopt import look as look_at
from launcher.schema import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOLD: dict[str, Any] = {
    "pid": 7,
    "engine": "vllm",
    "argv": ["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "m"],
    "env": {"NCCL_ALGO": "Ring"},
    "user": "llm",
    "working_directory": "/srv",
    "log_file": "/srv/log",
    "python": "/opt/venv/bin/python3",
    "unit": "",
    "container": "",
    "engine_version": "0.25.0",
    "nccl_version": "2.28.9",
    "argv_digest": "d",
    "since": "",
    "remarks": [["nice 5", "not carried over"]],
}


class Way:
    def __init__(self, host: str, answer: Mapping[str, Any]) -> None:
        self.host, self.answer = host, answer

    def call(self, request: Mapping[str, Any], _: Callable[[str], None]) -> Mapping[str, Any]:
        assert request == {"verb": "adopt"}
        return self.answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What each host answers; tests fill it."""
    told: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(
        "launcher.fleet.adopt.transports", lambda target: [Way(host, told[host]) for host in target.hosts]
    )
    return told


def answer(*servers: Mapping[str, Any], problems: tuple[str, ...] = ()) -> dict[str, Any]:
    remarks = [["launch-a.service", "process 3 is a deployment of launch already"]]
    return {"servers": list(servers), "gpus": ["NVIDIA H200"] * 2, "remarks": remarks, "problems": list(problems)}


def test_servers_in_the_order_of_the_hosts(answers: dict[str, dict[str, Any]]) -> None:
    answers["b"], answers["a"] = answer(TOLD, {**TOLD, "pid": 8, "unit": "llm.service"}), answer()
    found = look_at(["b", "a"], Target())
    assert [(s.where, s.hosts, s.name, s.unit) for s in found.servers] == [
        ("b, process 7", ("b",), "", ""),
        ("b, process 8", ("b",), "llm", "llm.service"),
    ]
    one = found.servers[0]
    assert one.argv == ("/opt/venv/bin/vllm", "serve", "m")  # as it was typed, without the script's interpreter
    assert (one.python, one.env, one.whole_env) == ("/opt/venv/bin/python3", {"NCCL_ALGO": "Ring"}, True)
    assert (one.engine_version, one.nccl_version, one.gpus) == ("0.25.0", "2.28.9", ("NVIDIA H200", "NVIDIA H200"))
    assert (one.user, one.working_directory, one.log_file, one.argv_digest) == ("llm", "/srv", "/srv/log", "d")
    assert one.remarks == (Remark("b, process 7", "nice 5", "not carried over"),)
    assert [(r.where, r.quote) for r in found.remarks] == [
        ("b", "launch-a.service"),
        ("a", "launch-a.service"),
        ("a", ""),
    ]


def test_a_container_gives_its_id(answers: dict[str, dict[str, Any]]) -> None:
    answers["a"] = answer(
        {**TOLD, "container": "docker abababababab", "argv": ["python3", "-m", "sglang.launch_server"]}
    )
    (one,) = look_at(["a"], Target()).servers
    assert (one.name, one.argv[0]) == ("abababababab", "python3")


def test_a_host_that_cannot_be_looked_at(answers: dict[str, dict[str, Any]]) -> None:
    answers["a"] = answer(problems=("systemd 219 is too old",))
    with pytest.raises(HostError, match="systemd 219 is too old"):
        look_at(["a"], Target())
