"""The environment of a server that was found, sorted into the places that a configuration has for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt.kept_variables import left_out
from launcher.adopt.secret import is_secret_variable
from launcher.adopt.table import SHOWN, Row
from launcher.catalogue import nccl
from launcher.errors import ConfigError
from launcher.render import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.adopt.found import Server


@dataclass(frozen=True)
class Variables:
    """Where each variable goes.

    Attributes:
        nccl: by key, where launch writes the very same text.
        gpus: of CUDA_VISIBLE_DEVICES, where it is a list of indices.
        profile: whether EAGLE3_PROFILE=1 is set.
        secrets: name and value, for files of their own.
        env: all others, as they are.
        rows: what becomes of those that are nowhere here.
    """

    nccl: Mapping[str, str]
    gpus: tuple[str, ...]
    profile: bool
    secrets: Mapping[str, str]
    env: Mapping[str, str]
    rows: tuple[Row, ...]


def sort(server: Server, degree: int) -> Variables:
    """Return where each variable of a server goes.

    Args:
        server: as it was started.
        degree: of tensor parallelism; a list of fewer GPUs is no `engine.gpus`.
    """
    gone = left_out(server.env, whole=server.whole_env)
    rows = [Row("left out", name, _shown(name, server.env[name]), "", reason) for name, reason in gone.items()]
    rest = {name: value for name, value in server.env.items() if name not in gone}
    secrets = {name: value for name, value in rest.items() if is_secret_variable(name, value)}
    for name, value in [*secrets.items()]:
        if not value.strip("\n") or not value.rstrip("\n").isprintable():
            del secrets[name]
            rows.append(Row("cannot be said", name, SHOWN, "", "a secret of more than one line: set it another way"))
        del rest[name]
    for name, value in [*rest.items()]:
        if problems := encode.check_environment({name: value}):
            del rest[name]
            rows.append(Row("cannot be said", name, SHOWN, "", problems[0].partition(": ")[2]))
    gpus = _gpus(rest.get("CUDA_VISIBLE_DEVICES", ""), degree)
    if gpus:
        del rest["CUDA_VISIBLE_DEVICES"]
    profile = rest.get("EAGLE3_PROFILE") == "1"
    if profile:
        del rest["EAGLE3_PROFILE"]
    variables = {_key(name): value for name, value in rest.items() if _is_exact(name, value)}
    env = {name: value for name, value in rest.items() if _key(name) not in variables or not name.startswith("NCCL_")}
    return Variables(variables, gpus, profile, secrets, env, tuple(rows))


def _shown(name: str, value: str) -> str:
    return SHOWN if is_secret_variable(name, value) else value


def _gpus(value: str, degree: int) -> tuple[str, ...]:
    found = tuple(value.split(","))
    plain = all(gpu.isascii() and gpu.isdigit() and str(int(gpu)) == gpu for gpu in found)
    return found if plain and len(set(found)) == len(found) >= degree else ()


def _key(name: str) -> str:
    return name.removeprefix(nccl.PREFIX).lower()


def _is_exact(name: str, value: str) -> bool:
    """Whether a key of ``nccl`` would be rendered as this text; any other text stays in ``env``, as it is."""
    if not name.startswith(nccl.PREFIX) or name != name.upper():
        return False
    try:
        return nccl.canonical(_key(name), value) == value
    except ConfigError:
        return False
