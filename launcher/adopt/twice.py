"""Servers of one text that want the same port of the same host: one took the other's place, or they cannot both run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import flags, program
from launcher.adopt.common_flags import NAMES
from launcher.adopt.found import Remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.found import Server


def told(servers: Sequence[Server]) -> list[Server]:
    """Return servers with a remark at each that wants what an earlier one has."""
    first: dict[tuple[object, ...], str] = {}
    found = []
    for server in servers:
        wants = (server.hosts, *_port(server))
        if wants in first:
            why = (
                f"the same port as the server of {first[wants]}: if this one took its place, delete that one's file;"
                " if both are to run on one host, give one an engine.port of its own"
            )
            server = replace(server, remarks=(*server.remarks, Remark(server.where, "", why)))
        first.setdefault(wants, server.where)
        found.append(server)
    return found


def _port(server: Server) -> tuple[str, str]:
    """Return the port that the command names, with the engine where it leaves that to its default."""
    start = program.read(server.argv)
    if start is None:
        return "", server.where
    option = flags.read(start.engine, start.words).get(NAMES[start.engine]["engine.port"])
    return ("", option.values[0]) if option and option.values else (start.engine, "")
