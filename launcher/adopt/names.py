"""What the deployments are called: as the input calls its servers, else as they serve their models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.adopt import flags, presets, program
from launcher.adopt.common_flags import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.found import Server

_LONGEST = 48
#: Words that mean something else where a name stands, or that are units of launch's own.
_TAKEN = ("all", "on", "off", "yes", "no", "true", "false", "null", "none", "nan", "inf", "drift", "recover")


def of(servers: Sequence[Server]) -> list[str]:
    """Return a name for each server, no two of them alike."""
    wanted = [_base(server) for server in servers]
    found: list[str] = []
    for server, name in zip(servers, wanted, strict=True):
        more = [f"_{_port(server)}"] if wanted.count(name) > 1 and _port(server) else [""]
        more += [f"{more[0]}_{number}" for number in range(2, len(servers) + 2)]
        found.append(next(name + end for end in more if name + end not in found))
    return found


def _base(server: Server) -> str:
    unit = server.unit.rpartition("/")[2].removesuffix(".service").removeprefix("launch-")
    return next((name for text in (unit, server.name, *_said(server)) if (name := slug(text))), "server")


def _said(server: Server) -> list[str]:
    """Return what the command calls its model."""
    found = program.read(server.argv)
    if found is None:
        return []
    read = flags.read(found.engine, found.words, server.engine_version, found.positional)
    names = NAMES[found.engine]
    options = [read.get(names["model.served_name"]), read.get(names["model.path"])]
    said = [option.values[0] for option in options if option and option.values]
    said += read.words[: found.positional]
    return [presets.base_name(text) for text in said if "$" not in text and "`" not in text]


def _port(server: Server) -> str:
    found = program.read(server.argv)
    option = flags.read(found.engine, found.words).get("--port") if found else None
    return option.values[0] if option and option.values and option.values[0].isdigit() else ""


def slug(text: str) -> str:
    """Return a text as a name of a deployment: a-z, 0-9, '_' and '.', a letter first; empty where nothing is left."""
    name = re.sub(r"[^a-z0-9_.]+", "_", text.lower()).strip("_.")[:_LONGEST].rstrip("_.")
    if name and not name[0].isalpha():
        name = f"s_{name}"
    return f"{name}_server" if name in _TAKEN else name
