"""`adopt`: from commands, units, containers and running processes to deployment files."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.adopt import match, names, twice, write
from launcher.adopt.found import Found
from launcher.cli import show_adopt
from launcher.cli.init import check_name
from launcher.cli.prepare import layers
from launcher.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from launcher.adopt.found import Server
    from launcher.adopt.match import Said
    from launcher.cli.parser import CommandLine
    from launcher.compose import Layers

_USAGE = (
    "adopt takes files, a text on standard input, or hosts: launch adopt start.sh, launch adopt < notes.md,"
    " launch adopt --host gpu1"
)


def adopt(line: CommandLine) -> int:
    """Write a deployment file for each server that was found; 2 where there is none, or one that cannot be written."""
    told = match.said(line.overrides, line.environment, line.allow)
    path = layers(line)
    found = _found(line, path, told)
    if not line.names:
        # Where servers were looked for; each file names the host of its own.
        values = tuple(value for value in told.values if value.lstrip("+").partition("=")[0] != "target.hosts")
        told = dataclasses.replace(told, values=values) if any(server.hosts for server in found.servers) else told
    if told.name and len(found.servers) > 1:
        raise ConfigError(
            f"name={told.name}: {len(found.servers)} servers were found, and each has a name of its own:"
            f" {', '.join(names.of(found.servers))}"
        )
    if told.name:
        check_name(f"name={told.name}", told.name)
    called = [told.name] if told.name and found.servers else names.of(found.servers)
    results = [_one(server, name, path, told) for server, name in zip(found.servers, called, strict=True)]
    return _finish(line, found, results)


def _found(line: CommandLine, path: Layers, told: Said) -> Found:
    """Read files, standard input and hosts.

    Raises:
        ConfigError: nothing to read is named, or a file cannot be read.
        LaunchError: a host cannot be looked at.
    """
    files = [name for name in line.names if name != "-"]
    reaches = bool(line.hosts) or (
        not line.names and ("target.hosts" in told.given or told.groups.get("target") == "local")
    )
    if not line.names and not reaches and sys.stdin.isatty():
        raise ConfigError(_USAGE)
    parts: list[Found] = []
    if files:
        parts.append(_files(files))
    if "-" in line.names or not (line.names or reaches):
        parts.append(_standard_input())
    if reaches:
        from launcher.cli.adopt_hosts import look

        parts.append(look(line, path))
    servers = tuple(server for part in parts for server in part.servers)
    return Found(servers, tuple(remark for part in parts for remark in part.remarks))


def _files(files: list[str]) -> Found:
    from launcher.adopt import read

    return _told(read.read_paths([Path(file) for file in files]))


def _standard_input() -> Found:
    from launcher.adopt import read

    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input: not UTF-8 at byte {error.start}: this is no text") from error
    if not text.strip():
        raise ConfigError(f"standard input is empty: {_USAGE}")
    return _told(read.read(text, "-", Path.cwd()))


def _told(found: Found) -> Found:
    return dataclasses.replace(found, servers=tuple(twice.told(found.servers)))


def _one(server: Server, name: str, path: Layers, told: Said) -> show_adopt.Result:
    """Adopt a server and write its file; why that cannot be is part of the result."""
    try:
        adopted = match.adopt(server, name, path, told)
    except ConfigError as error:
        return show_adopt.Result(name, server, error=str(error), code=error.exit_code)
    try:
        new = write.check(name, adopted.text, adopted.wanted.secrets, path)
        if new:
            write.write(name, adopted.text, adopted.wanted.secrets)
    except LaunchError as error:
        return show_adopt.Result(name, server, adopted, error=str(error), code=error.exit_code)
    return show_adopt.Result(name, server, adopted, written=new)


def _finish(line: CommandLine, found: Found, results: list[show_adopt.Result]) -> int:
    codes = [result.code for result in results]
    code = next((code for code in (1, 2) if code in codes), 0) if results else ConfigError.exit_code
    if line.json:
        record: dict[str, Any] = {
            "servers": [result.record() for result in results],
            "remarks": [dataclasses.asdict(remark) for remark in found.remarks],
            "exit_code": code,
        }
        print(json.dumps(record, indent=1))
        return code
    for result in results:
        show_adopt.result(result, line)
    show_adopt.remarks(found.remarks)
    if not results:
        print("launch: no server was found that launch runs (SGLang or vLLM); nothing was written", file=sys.stderr)
    return code
