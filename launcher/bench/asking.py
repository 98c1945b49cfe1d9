"""What `launcher.agent.load.run` is asked for: one run of a load against a deployment. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from launcher.bench import counters
from launcher.bench.clients.ask import Ask
from launcher.bench.clients.known import CLIENTS
from launcher.bench.log_patterns import patterns

if TYPE_CHECKING:
    from launcher.schema import Deployment, Load

#: Requests of a warm-up for each one in flight, as InferenceX does it.
_WARM = 2
#: Between the seeds of two loads, and of a run and its warm-up: the prompts have to be others.
_LOADS, _WARM_SEED = 1000, 500_000
#: Variables of the deployment that its client needs as well: where models lie, and whether the hub may be asked.
_SHARED = ("HF_", "TRANSFORMERS_", "HUGGINGFACE_", "SSL_CERT_", "REQUESTS_CA_")
#: And where the interpreter of the engine finds its packages, as long as the client runs in the same one.
_SAME = ("PYTHONPATH", "LD_LIBRARY_PATH", "VLLM_NO_USAGE_STATS")
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server that listens on all answers


def ask(deployment: Deployment, load: Load, number: int, run: int, version: str = "") -> Ask:
    """Return what the client is asked for.

    Args:
        deployment: that serves.
        load: with its number of requests.
        number: of the load, from 0.
        run: of that load, from 0. Each has prompts of its own, the same ones for every point.
        version: of the client.
    """
    engine, bench, model = deployment.engine, deployment.bench, deployment.model
    host = _ANY.get(engine.host, engine.host)
    return Ask(
        python=bench.client_python or engine.python,
        engine=engine.name,
        url=f"http://{f'[{host}]' if ':' in host else host}:{engine.port}",
        model=model.served_name or model.path,
        tokenizer=model.path,
        trust_remote_code=model.trust_remote_code,
        concurrency=load.concurrency,
        requests=load.requests,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        seed=1 + _LOADS * number + run,
        version=version,
        command=bench.command,
    )


def request(deployment: Deployment, asked: Ask, *, warm: bool) -> dict[str, Any]:
    """Return the request; whoever serves the point adds ``server``.

    Args:
        deployment: that serves.
        asked: of the client.
        warm: whether a run comes first that counts for nothing, under the same number of requests in flight.
    """
    client = CLIENTS[deployment.bench.client]
    before = dataclasses.replace(asked, requests=max(_WARM * asked.concurrency, 1), seed=asked.seed + _WARM_SEED)
    return {
        **version_request(deployment),
        "client": {"argv": client.command(asked), "result": client.result, "drop": list(client.drop)},
        "version": [],
        "warmup": client.command(before) if warm else [],
        "warmup_env": client.environment(before),
        "env": {**_shared(deployment), **client.environment(asked)},
    }


def version_request(deployment: Deployment) -> dict[str, Any]:
    """Return the request that only asks the client for its version; its ``version`` is empty where it has none."""
    client, engine = CLIENTS[deployment.bench.client], deployment.engine
    return {
        "client": {},
        "version": client.version(deployment.bench.client_python or engine.python),
        "warmup": [],
        "warmup_env": {},
        "env": _shared(deployment),
        "cwd": engine.working_directory,
        "user": engine.user,
        "timeout": deployment.bench.client_timeout,
        "flush": counters.FLUSH[engine.name],
        "pages": counters.pages(engine.name),
        "patterns": patterns(deployment),
    }


def _shared(deployment: Deployment) -> dict[str, str]:
    beginnings = _SHARED if deployment.bench.client_python else (*_SHARED, *_SAME)
    return {name: value for name, value in deployment.env.items() if name.startswith(beginnings)}
