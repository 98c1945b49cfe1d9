"""Ansible's inventories in YAML, and the JSON that ``ansible-inventory --list`` prints (ansible-core 2.19)."""

from __future__ import annotations

import json
from typing import Any

import yaml

from launcher.errors import ConfigError
from launcher.inventory.known import Read, ranges

_KEYS = ("hosts", "children", "vars")


class _Loader(yaml.SafeLoader):
    """Knows no tags but plain YAML's; what Ansible encrypted stays an opaque text."""


_Loader.add_multi_constructor("!", lambda _loader, _suffix, _node: "")


def load(text: str, where: str) -> object:
    """Return what a YAML file holds.

    Raises:
        ConfigError: it is no YAML; names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{where}{f':{mark.line + 1}' if mark else ''}: no valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where}: no valid YAML: {' '.join(str(error).split())}") from error


def read(data: object, where: str) -> Read:
    """Read the groups of a YAML inventory.

    Raises:
        ConfigError: names the group.
    """
    found = Read()
    for name, body in _mapping(data, where, "groups").items():
        _group(found, str(name), body, where, 0)
    return found


def _group(found: Read, name: str, body: object, where: str, depth: int) -> None:
    at = f"{where}: group {name!r}"
    if depth > 50:
        raise ConfigError(f"{at} is nested too deeply")
    group = found.group(name)
    parts = _mapping(body, at, "hosts, children and vars")
    if unknown := sorted(str(key) for key in parts if key not in _KEYS):
        raise ConfigError(f"{at} holds {', '.join(unknown)}; known: {', '.join(_KEYS)}")
    group.variables.update(_texts(parts.get("vars"), f"{at}, vars"))
    for pattern, own in _mapping(parts.get("hosts"), f"{at}, hosts", "hosts").items():
        for host in ranges(str(pattern), at):
            found.host(host).update(_texts(own, f"{at}, host {host!r}"))
            group.hosts[host] = None
    for child, inner in _mapping(parts.get("children"), f"{at}, children", "groups").items():
        group.children[str(child)] = None
        _group(found, str(child), inner, where, depth + 1)


def listed(text: str, where: str) -> Read:
    """Read what a dynamic inventory or ``ansible-inventory --list`` prints.

    Raises:
        ConfigError: it is no such JSON.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: printed no JSON: {error}") from error
    found = Read()
    top = _mapping(data, where, "groups")
    hosts = _mapping(_mapping(top.get("_meta"), where, "hostvars").get("hostvars"), where, "hosts")
    for name, body in top.items():
        if name == "_meta":
            continue
        group = found.group(name)
        parts = {"hosts": body} if isinstance(body, list) else _mapping(body, where, "hosts, children and vars")
        group.hosts.update(dict.fromkeys(map(str, parts.get("hosts") or [])))
        group.children.update(dict.fromkeys(map(str, parts.get("children") or [])))
        group.variables.update(_texts(parts.get("vars"), where))
        for host in group.hosts:
            found.host(host)
    for host, own in hosts.items():
        found.host(host).update(_texts(own, where))
    found.groups.pop("ungrouped", None)
    return found


def variables(data: object, where: str) -> dict[str, str]:
    """Return the plain variables of a mapping; lists and mappings are left out, for nothing here reads them."""
    return _texts(data, where)


def _texts(data: object, where: str) -> dict[str, str]:
    found = _mapping(data, where, "variables")
    return {str(key): _text(value) for key, value in found.items() if not isinstance(value, (dict, list))}


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(data: object, where: str, what: str) -> dict[Any, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where} holds {what}, not {json.dumps(data, default=str)[:60]}")
    return data
