"""Patterns of hosts, read like Ansible's: names, groups, ``gpu*``, ``!gpu3``, ``&rack1``, ``~regex``, ``KEY=VALUE``."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from launcher.inventory.known import Inventory

_LABEL = re.compile(r"([A-Za-z_]\w*)=(.*)")


def is_pattern(text: str) -> bool:
    """Return whether a text is more than the name of one host or group."""
    return bool(re.search(r"[*?]", text) or text[:1] in ("!", "&", "~") or _LABEL.fullmatch(text))


def select(patterns: Sequence[str], inventory: Inventory, key: str) -> tuple[str, ...]:
    """Return the hosts that patterns name.

    What stands without ``!`` and ``&`` is joined in the order of the patterns, those of one pattern in the order of
    the inventory; then ``&`` keeps what both have, and ``!`` takes away, wherever they stand. With ``!`` and ``&``
    alone it begins with all hosts. ``KEY=VALUE`` are the hosts with this variable.

    Args:
        patterns: at least one.
        inventory: hosts and groups.
        key: where the patterns were written, for messages.

    Raises:
        ConfigError: a name that is not there, with the nearest; or nothing is left.
    """
    plain = [text for text in patterns if text[:1] not in ("!", "&")]
    found = dict.fromkeys(host for text in plain or ["all"] for host in _matches(text, inventory, key))
    for text in patterns:
        if text[:1] == "&":
            both = set(_matches(text[1:], inventory, key))
            found = {host: None for host in found if host in both}
    for text in patterns:
        if text[:1] == "!":
            for host in _matches(text[1:], inventory, key):
                found.pop(host, None)
    if not found:
        raise ConfigError(f"{key}: {', '.join(patterns)} leaves no host of {inventory.where}; {_known(inventory)}")
    return tuple(found)


def _matches(text: str, inventory: Inventory, key: str) -> Iterable[str]:
    label = _LABEL.fullmatch(text)
    if label:
        name, value = label.groups()
        if not any(name in variables for variables in inventory.hosts.values()):
            raise ConfigError(f"{key}: no host of {inventory.where} has a variable {name!r}")
        return [host for host, own in inventory.hosts.items() if name in own and fnmatch.fnmatchcase(own[name], value)]
    if text in inventory.groups:
        return inventory.groups[text]
    if text in inventory.hosts:
        return [text]
    test = _tester(text, key)
    if test is None:
        names = [*inventory.hosts, *inventory.groups]
        raise ConfigError(f"{key}: {inventory.where} has no host or group {text!r}{nearest(text, names)}")
    groups = [host for name, members in inventory.groups.items() if name != "all" and test(name) for host in members]
    return dict.fromkeys([*(host for host in inventory.hosts if test(host)), *groups])


def _tester(text: str, key: str) -> Callable[[str], bool] | None:
    """Return what a pattern matches, None for a plain name."""
    if text[:1] == "~":
        try:
            said = re.compile(text[1:])
        except re.error as error:
            raise ConfigError(f"{key}: {text!r} is no regular expression: {error}") from error
        return lambda name: bool(said.match(name))
    if re.search(r"[*?]", text):
        return lambda name: fnmatch.fnmatchcase(name, text)
    return None


def _known(inventory: Inventory) -> str:
    groups = [name for name in inventory.groups if name != "all"]
    hosts = list(inventory.hosts)
    told = f"hosts: {', '.join(hosts[:8])}{', …' if len(hosts) > 8 else ''}" if hosts else "it names no host"
    return f"{told}; groups: {', '.join(groups[:8])}" if groups else told
