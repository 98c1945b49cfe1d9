"""A shell command of the configuration that measures by itself and prints JSON.

It is told what to do by variables: ``LAUNCH_URL`` (as http://127.0.0.1:8000), ``LAUNCH_MODEL``, ``LAUNCH_TOKENIZER``,
``LAUNCH_CONCURRENCY``, ``LAUNCH_REQUESTS``, ``LAUNCH_INPUT_TOKENS``, ``LAUNCH_OUTPUT_TOKENS`` and ``LAUNCH_SEED``; the
key of a server that asks for one is in ``OPENAI_API_KEY``. The last line of its standard output that begins with ``{``
is its result, or else all of it; it needs ``completed``, ``duration_s`` and ``output_tokens``. ``failed`` and every
other field of `launcher.bench.result.ClientResult` is taken where it is there; rates that are not given are worked out
from these.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from launcher.bench.clients.ask import Ask, Client, count, load_json
from launcher.bench.result import ClientResult, ResultError, figure

_NEEDED = ("completed", "duration_s", "output_tokens")
_FIELDS = [f.name for f in dataclasses.fields(ClientResult)]


def command(ask: Ask) -> list[str]:
    """Return the shell with the command."""
    return ["/bin/sh", "-c", ask.command]


def environment(ask: Ask) -> dict[str, str]:
    """Return what the command is told."""
    told = {
        "URL": ask.url,
        "MODEL": ask.model,
        "TOKENIZER": ask.tokenizer,
        "CONCURRENCY": ask.concurrency,
        "REQUESTS": ask.requests,
        "INPUT_TOKENS": ask.input_tokens,
        "OUTPUT_TOKENS": ask.output_tokens,
        "SEED": ask.seed,
    }
    return {f"LAUNCH_{name}": str(value) for name, value in told.items()}


def read(text: str, _: Ask) -> ClientResult:
    """Return what the command printed.

    Raises:
        ResultError: there is no such JSON in it.
    """
    lines = [line for line in text.splitlines() if line.startswith("{")]
    # One object over several lines begins with a bare brace.
    last = text if not lines or lines[-1].strip() == "{" else lines[-1]
    found = load_json(last[last.find("{") :] if "{" in last else last, _NEEDED, CLIENT.name)
    given: dict[str, Any] = {name: figure(found[name]) for name in _FIELDS if name in found}
    given["completed"] = count(found, "completed", CLIENT.name)
    given["failed"] = count(found, "failed", CLIENT.name) if "failed" in found else -1
    duration, tokens = given["duration_s"], given["output_tokens"]
    if not all(map(math.isfinite, (duration, tokens))):
        raise ResultError(f"the result of {CLIENT.name} has no number of seconds or of tokens")
    if duration > 0:
        given.setdefault("output_tokens_per_s", tokens / duration)
        given.setdefault("requests_per_s", given["completed"] / duration)
    return ClientResult(**given)


CLIENT = Client("bench.command", lambda _: [], command, read, environment)
