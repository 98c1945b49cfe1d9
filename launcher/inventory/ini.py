"""Ansible's INI inventories: hosts, ``[group]``, ``[group:children]``, ``[group:vars]`` (ansible-core 2.19)."""

from __future__ import annotations

import re
import shlex

from launcher.errors import ConfigError
from launcher.inventory.known import ALL, Read, ranges

_SECTION = re.compile(r"\[([^:\[\]]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_UNGROUPED = "ungrouped"


def read(text: str, where: str) -> Read:
    """Read an INI inventory.

    Raises:
        ConfigError: names the line.
    """
    found = Read()
    section, kind = _UNGROUPED, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line, at = raw.strip(), f"{where}:{number}"
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and (named := _SECTION.fullmatch(line)):
            section, kind = named[1].strip(), named[2] or ""
            if kind not in ("", "children", "vars"):
                raise ConfigError(f"{at}: [{section}:{kind}] is no section; known: [GROUP], :children and :vars")
            found.group(section)
        elif kind == "vars":
            name, sign, value = line.partition("=")
            if not sign:
                raise ConfigError(f"{at}: {line!r} is no NAME=VALUE")
            found.group(section).variables[name.strip()] = _plain(value.strip())
        elif kind == "children":
            child = line.split("#")[0].split(";")[0].strip()
            found.group(child)
            found.group(section).children[child] = None
        else:
            _hosts(found, section, line, at)
    return found


def _hosts(found: Read, section: str, line: str, at: str) -> None:
    try:
        first, *rest = shlex.split(line, comments=True)
    except ValueError as error:
        raise ConfigError(f"{at}: a quote is not closed: {line!r}") from error
    variables: dict[str, str] = {}
    for word in rest:
        name, sign, value = word.partition("=")
        if not sign:
            raise ConfigError(f"{at}: {word!r} behind a host is no NAME=VALUE")
        variables[name] = value
    # A port behind the name, as in gpu1:2222; the colons of a range and of IPv6 addresses are none.
    with_port = re.fullmatch(r"((?:[^:\[\]]|\[[^\[\]]*\])+):(\d+)", first)
    if with_port:
        first = with_port[1]
        variables.setdefault("ansible_port", with_port[2])
    # A bracket at the begin is an address, not a range.
    names = [first] if first.startswith("[") or (first.count(":") > 1 and "[" not in first) else ranges(first, at)
    for name in names:
        found.host(name).update(variables)
        if section not in (_UNGROUPED, ALL):
            found.group(section).hosts[name] = None


def _plain(value: str) -> str:
    """Return a value of a section of variables without the quotes that it may stand in."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
