"""A server taken apart: its program, its flags and its variables, each in the place that a configuration has for it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt import common_flags, flags, program, speculation, variables
from launcher.adopt.secret import is_secret_flag
from launcher.adopt.table import SHOWN, Row
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.adopt.common_flags import Common
    from launcher.adopt.flags import Option
    from launcher.adopt.found import Server
    from launcher.adopt.program import Program
    from launcher.adopt.variables import Variables
    from launcher.schema import Speculation

_CONFIG = (
    "host, port, tensor parallelism and model may stand in this file, which was not read; launch writes them out, and"
    " what is written out wins: compare"
)


@dataclass(frozen=True)
class Apart:
    """The parts of a server.

    Attributes:
        args: flags without keys of their own.
        secret_args: values of secret flags, by key.
        unknown: values that hold something that the input does not know, by key of the deployment.
        rows: what is in none of them.
    """

    program: Program
    common: Common
    spec: Speculation
    args: tuple[Option, ...]
    secret_args: Mapping[str, str]
    variables: Variables
    unknown: Mapping[str, str]
    rows: tuple[Row, ...]

    @property
    def known_secrets(self) -> dict[str, str]:
        """The secrets whose values the input says."""
        every = {
            **{f"secrets.env.{key}": (key, value) for key, value in self.variables.secrets.items()},
            **{f"secrets.args.{key}": (key, value) for key, value in self.secret_args.items()},
        }
        return dict(pair for key, pair in every.items() if key not in self.unknown)


def read(server: Server, given: Mapping[str, str]) -> Apart:
    """Return the parts of a server.

    Args:
        server: as it was started.
        given: values of single keys that the user named.

    Raises:
        ConfigError: it is no server that launch knows, or says something that no deployment can.
    """
    found = program.read(server.argv)
    if found is None:
        raise ConfigError("this starts no server that launch knows: SGLang or vLLM")
    all_flags = flags.read(found.engine, found.words, server.engine_version, found.positional)
    common = common_flags.read(found, all_flags, given)
    spec, rest = speculation.read(found.engine, common.rest)
    sorted_out = variables.sort(server, common.tensor_parallel)
    spec = dataclasses.replace(spec, profile=sorted_out.profile)
    secret_args, args, rows = _secret_flags(rest.options)
    args, broken = _carried(args)
    rows += broken
    why = "given more than once, and each counts; a configuration says a flag once"
    rows += [Row("cannot be said", option.written, " ".join(option.values), "", why) for option in rest.lost]
    if config := rest.get("--config"):
        rows.append(Row("cannot be said", "--config", " ".join(config.values), "as it is", _CONFIG))
    unknown = _unknown(server, common, args, secret_args, sorted_out)
    return Apart(found, common, spec, args, secret_args, sorted_out, unknown, (*common.rows, *rows))


def _unknown(
    server: Server,
    common: Common,
    args: tuple[Option, ...],
    secret_args: Mapping[str, str],
    sorted_out: Variables,
) -> dict[str, str]:
    """Return the values with pieces that whoever read the input has told to be unknown."""
    pieces = {remark.quote for remark in server.remarks if remark.quote.startswith(("$", "`", "~"))}
    values = {
        "model.path": common.path,
        "model.served_name": common.served_name,
        "engine.host": common.host,
        **{f"engine.args.{option.key}": " ".join(option.values) for option in args},
        **{f"env.{name}": value for name, value in sorted_out.env.items()},
        **{f"secrets.env.{name}": value for name, value in sorted_out.secrets.items()},
        **{f"secrets.args.{key}": value for key, value in secret_args.items()},
    }
    return {key: value for key, value in values.items() if any(piece in value for piece in pieces)}


def _carried(options: tuple[Option, ...]) -> tuple[tuple[Option, ...], list[Row]]:
    """Return the flags that a configuration can say, and rows for the others."""
    rows: list[Row] = []
    kept: list[Option] = []
    for option in options:
        if any(map(flags.is_flag, option.values)):
            why = "launch writes a flag and its value as two words, and the engine would take this value for a flag"
        elif not re.fullmatch(r"[A-Za-z0-9._]*[A-Za-z0-9][A-Za-z0-9._]*", option.key):
            why = "no name of a flag that a configuration can have"
        elif option.name != f"--{option.key.replace('_', '-')}":
            why = f"launch writes flags with dashes: this would become --{option.key.replace('_', '-')}"
        else:
            kept.append(option)
            continue
        rows.append(Row("cannot be said", option.written, " ".join(option.values), "", why))
    return tuple(kept), rows


def _secret_flags(options: tuple[Option, ...]) -> tuple[dict[str, str], tuple[Option, ...], list[Row]]:
    """Return the values of secret flags by their keys, and all other flags."""
    secrets: dict[str, str] = {}
    rows: list[Row] = []
    for option in options:
        if not is_secret_flag(option.name, option.values):
            continue
        value, *more = option.values
        if not value or not value.isprintable() or not re.fullmatch(r"[A-Za-z_]\w*", option.key, re.ASCII):
            raise ConfigError(f"{option.written} looks like a secret, and launch cannot carry it: take it out first")
        secrets[option.key] = value
        if more:
            why = f"launch carries one value of a secret flag: {len(more)} more are left out"
            rows.append(Row("cannot be said", option.written, SHOWN, SHOWN, why))
    if secrets and any(option.flag == "--config" for option in options):
        raise ConfigError(
            f"secret flags ({', '.join(secrets)}) reach the engine by --config, and it has a --config of its own:"
            " move that file's settings into the command, or the secret into it"
        )
    kept = tuple(option for option in options if not is_secret_flag(option.name, option.values))
    return secrets, kept, rows
