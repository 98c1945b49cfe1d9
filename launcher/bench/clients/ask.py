"""What any measuring program is asked to do, and what a client is to launch."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from launcher.bench.result import ResultError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.bench.result import ClientResult


@dataclass(frozen=True)
class Ask:
    """One run of a client.

    Attributes:
        python: interpreter that has it.
        engine: that serves.
        url: where, without a path.
        model: name under which the model is served.
        tokenizer: path or name of it.
        trust_remote_code: of the tokenizer.
        concurrency: requests in flight.
        requests: of this run.
        input_tokens: of each prompt, random ones.
        output_tokens: of each answer, whatever the model would like to say.
        seed: of the prompts; another one for each run, or the prefix cache answers.
        version: of the client, as far as known.
        command: of the configuration, for the client of that name.
    """

    python: str
    engine: Literal["sglang", "vllm"]
    url: str
    model: str
    tokenizer: str
    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int = 0
    trust_remote_code: bool = False
    version: str = ""
    command: str = ""


@dataclass(frozen=True)
class Client:
    """One measuring program.

    Attributes:
        name: for people.
        version: gives the command that prints its version; [] when there is none to ask for.
        command: gives the command of a run; words may hold the folder that it runs in.
        read: gives the result from the text.
        environment: gives variables of its own.
        result: its file in that folder; empty: its standard output.
        drop: keys that are left out of the kept result: they hold the server's arguments, and so its secrets.
        takes_key: whether it can be given the key of a server without showing it to everybody on the host.
    """

    name: str
    version: Callable[[str], list[str]]
    command: Callable[[Ask], list[str]]
    read: Callable[[str, Ask], ClientResult]
    environment: Callable[[Ask], dict[str, str]] = lambda _: {}
    result: str = ""
    drop: tuple[str, ...] = ()
    takes_key: bool = True


def version_of(distribution: str) -> Callable[[str], list[str]]:
    """Return what makes the command that tells the version of an installed distribution, without importing it."""
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return lambda python: [python, "-c", code]


def release(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with; () when it is not known."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def load_json(text: str, keys: tuple[str, ...], client: str) -> dict[str, Any]:
    """Return an object that has some keys.

    Raises:
        ResultError: it is no JSON, no object, or a key is missing.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ResultError(f"the result of {client} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ResultError(f"the result of {client} is no JSON object")
    missing = [key for key in keys if key not in found]
    if missing:
        raise ResultError(f"the result of {client} lacks {', '.join(missing)}")
    return found


def count(found: Mapping[str, Any], key: str, client: str) -> int:
    """Return a number of requests or tokens.

    Raises:
        ResultError: it is none.
    """
    value = found[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ResultError(f"the result of {client} says {key}={value!r}, which is no number of anything")
    return int(value)
