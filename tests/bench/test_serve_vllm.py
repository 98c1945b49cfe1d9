"""A real engine and its real client: vLLM's CPU build under one load, with its own counters as the witness."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from launcher.agent import load as agent
from launcher.agent import wait
from launcher.bench import asking, counters, gates, rows
from launcher.bench.clients.known import CLIENTS
from launcher.bench.loads import loads
from launcher.host import bundle
from launcher.render import render
from tests.agent.gloo import PYTHON, site
from tests.bench.served import free_port
from tests.composing import compose
from tests.engines import vllm_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.render import Release
    from launcher.schema import Deployment

pytestmark = pytest.mark.fleet

LOAD = "bench.loads={short: {concurrency: 2, requests: 12, input_tokens: 32, output_tokens: 16}}"
PATIENCE = 180


class Served:
    """The server, its release, and what the client needs to be found."""

    def __init__(self, folder: Path) -> None:
        model = folder / "tiny"
        self.env = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": site(), "LANG": "C.UTF-8"}
        subprocess.run(
            [PYTHON, "-c", vllm_cpu.TINY.replace("MODEL", str(model))], env=self.env, check=True, timeout=120
        )
        given = {
            "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.deployment: Deployment = compose(
            [
                *("model=tiny", f"model.path={model}", "engine=vllm", f"engine.python={PYTHON}", "nccl=pcie_ll_ring"),
                *("engine.host=127.0.0.1", f"engine.port={free_port()}", "engine.memory_fraction=0.05", "bench=serve"),
                *("engine.args.load_format=dummy", "engine.args.enforce_eager=true", LOAD),
                "engine.args.kv_cache_memory_bytes=64M",
            ],
            given,
        )
        self.release: Release = render(self.deployment)
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.release.argv,
                env={**self.env, **self.release.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.manifest = json.loads(self.release.manifest.text)
        deadline = time.monotonic() + PATIENCE
        while wait.request(self.manifest, "", "GET", "/health")[0] != 200:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)

    def stop(self) -> None:
        """End it; vLLM's workers survive their main process."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served"))
    try:
        yield one
    finally:
        one.stop()


def test_a_load_of_a_real_server(server: Served) -> None:
    deployment = server.deployment
    (load,) = loads(deployment).values()
    version = agent.run({**asking.version_request(deployment), **around(server)}, lambda _: None)["version"]
    assert version == "0.32.0+cpu"
    asked = asking.ask(deployment, load, 0, 0, version)
    request = {**asking.request(deployment, asked, warm=True), **around(server)}
    with bundle.informed():
        answer = agent.run(request, lambda _: None)
    assert answer["outcome"] == "measured", (answer["message"], answer["stderr"])
    # The four processes of vLLM carry the release, and the client has left nothing.
    assert (answer["contradictions"], answer["proven"], answer["left"]) == ([], 4, 0)
    assert len(answer["processes_after"]) == 4
    # Without the warm-up: what the client says is what the server counted.
    counted = counters.counted("vllm", answer["before"], answer["after"])
    result = CLIENTS["vllm"].read(answer["result"], asked)
    assert (result.completed, result.failed) == (12, 0)
    assert counted.output_tokens == result.output_tokens == 12 * 16
    assert counted.prompt_tokens == result.input_tokens
    assert (counted.cached_tokens, counted.preemptions) == (0, 0)
    assert math.isnan(counted.acceptance_length)
    assert counters.sums(answer["before"]["/metrics"]["lines"])["vllm:generation_tokens_total"] == 4 * 16
    wanted = gates.Wanted(12, 32, 16, deployment.bench.cache_hits)
    row = rows.row(CLIENTS["vllm"], asked, wanted, load, answer)
    assert row.invalid == ()
    assert row.value == result.output_tokens_per_s > 10
    assert row.figures["e2e_ms_mean"] >= row.figures["ttft_ms_mean"] > 0
    # vLLM has the way to empty its cache in its development mode alone.
    assert {one["status"] for one in answer["flushed"]} == {404}
    assert row.unknown == ()


def around(server: Served) -> dict[str, object]:
    """Return what whoever serves adds to a request."""
    env = {"PYTHONPATH": server.env["PYTHONPATH"], "HF_HUB_OFFLINE": "1"}
    log = {"file": str(server.log)}
    where = {"manifest": server.manifest, "main": server.process.pid, "log": log}
    return {"user": "", "env": env, "server": where}
