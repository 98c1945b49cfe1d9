"""The flags that keys of the deployment set, by engine, and what the engines take where one is not given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher.adopt.secret import holds_secret
from launcher.adopt.table import SHOWN, Row
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.adopt.flags import Flags, Option
    from launcher.adopt.program import Program

#: Canonical names, by engine and key.
NAMES: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "model.path": "--model-path",
        "model.served_name": "--served-model-name",
        "model.trust_remote_code": "--trust-remote-code",
        "engine.tensor_parallel": "--tp-size",
        "engine.memory_fraction": "--mem-fraction-static",
        "engine.host": "--host",
        "engine.port": "--port",
    },
    "vllm": {
        "model.path": "--model",
        "model.served_name": "--served-model-name",
        "model.trust_remote_code": "--trust-remote-code",
        "engine.tensor_parallel": "--tensor-parallel-size",
        "engine.memory_fraction": "--gpu-memory-utilization",
        "engine.host": "--host",
        "engine.port": "--port",
    },
}
#: What an engine takes for a flag that is not there (SGLang 0.5.6 to 0.5.23, vLLM 0.25 to 0.33); launch writes it out.
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "sglang": {"--host": "127.0.0.1", "--port": "30000", "--tp-size": "1"},
    "vllm": {"--host": "0.0.0.0", "--port": "8000", "--tensor-parallel-size": "1"},  # noqa: S104 - every address
}
_EXAMPLES = {"engine.port": 8000, "engine.tensor_parallel": 8}
_ALONE = "a word that belongs to no flag"


@dataclass(frozen=True)
class Common:
    """What the engine-independent keys are set to, and the flags that are left."""

    path: str
    served_name: str
    trust_remote_code: bool
    tensor_parallel: int
    memory_fraction: float
    host: str
    port: int
    rest: Flags
    rows: tuple[Row, ...] = field(default=())


def read(program: Program, flags: Flags, given: Mapping[str, str]) -> Common:
    """Take the flags that have keys of their own out of a command line.

    Args:
        program: what stands before them.
        flags: all of them.
        given: numbers by key, for those that the command does not know, such as ``--port $PORT``.

    Raises:
        ConfigError: no model is named, or a value is none that the key can have.
    """
    names, defaults = NAMES[program.engine], DEFAULTS[program.engine]
    rows: list[Row] = []
    words = list(flags.words)
    path = words.pop(0) if program.positional and words else _one(flags.get(names["model.path"]))
    if not path.strip():
        raise ConfigError("the command names no model")
    rows += [Row("left out", "argument", SHOWN if holds_secret(word) else word, "", _ALONE) for word in words]
    taken = [names["model.path"], f"--no-{names['model.trust_remote_code'][2:]}"]

    def value(key: str) -> str:
        option = flags.get(names[key])
        taken.append(names[key])
        return defaults[names[key]] if option is None else _one(option)

    served, fraction = flags.get(names["model.served_name"]), flags.get(names["engine.memory_fraction"])
    taken += [o.flag for o in (served,) if o and len(o.values) == 1 and o.values[0]]
    taken += [o.flag for o in (fraction,) if o and _fraction(o)]
    trusted = flags.get(names["model.trust_remote_code"])
    return Common(
        path=path,
        served_name=_one(served),
        trust_remote_code=trusted is not None,
        tensor_parallel=_whole("engine.tensor_parallel", value("engine.tensor_parallel"), given),
        memory_fraction=_fraction(fraction) if fraction else 0.0,
        host=value("engine.host"),
        port=_whole("engine.port", value("engine.port"), given),
        rest=flags.without(*taken, names["model.trust_remote_code"]),
        rows=tuple(rows),
    )


def _one(option: Option | None) -> str:
    return option.values[0] if option and len(option.values) == 1 else ""


def _whole(key: str, text: str, given: Mapping[str, str]) -> int:
    if _is_whole(text):
        return int(text)
    if _is_whole(given.get(key, "")):
        return int(given[key])
    hint = f"say it behind the command, as {key}={_EXAMPLES[key]}"
    raise ConfigError(f"{key} is {text!r}, and launch takes a whole number from 1 up: {hint}")


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0


def _fraction(option: Option) -> float:
    """Return a fraction that the key can have, 0 for any other value: such a one stays a plain flag."""
    try:
        value = float(_one(option))
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and 0 < value <= 1 else 0.0
