"""Hosts and groups as an inventory describes them; plain data, whatever file it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - part of the public shape
from dataclasses import dataclass, field
from itertools import product

from launcher.errors import ConfigError

#: The group of all hosts; Ansible's name for it.
ALL = "all"


@dataclass
class Group:
    """One group as its file says: hosts and child groups by name in the file's order, and variables."""

    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Read:
    """What one inventory file says, before groups are resolved."""

    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def host(self, name: str) -> dict[str, str]:
        """Return the variables of a host, which is known from now on."""
        return self.hosts.setdefault(name, {})

    def group(self, name: str) -> Group:
        """Return a group, which is known from now on."""
        return self.groups.setdefault(name, Group())


@dataclass(frozen=True)
class Inventory:
    """Resolved: every host once, in the order of the file.

    Attributes:
        where: the file, for messages.
        hosts: variables by host, those of its groups included.
        groups: members by group, those of its children included; `all` among them.
    """

    where: str
    hosts: Mapping[str, Mapping[str, str]]
    groups: Mapping[str, tuple[str, ...]]


def resolve(read: Read, where: str, beside: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None) -> Inventory:
    """Resolve groups and variables in Ansible's order of precedence.

    From weak to strong: variables of groups in the file, from `all` over parents to children, those of equal depth
    by name; ``group_vars`` in the same order; of the host in the file; ``host_vars``
    (docs.ansible.com, "Using variables", ansible-core 2.19).

    Args:
        read: one file.
        where: its name for messages.
        beside: ``group_vars`` and ``host_vars`` by name, from the folders beside the file.

    Raises:
        ConfigError: groups contain each other.
    """
    beside = beside or {}
    members: dict[str, tuple[str, ...]] = {name: _members(read, name, where, ()) for name in read.groups if name != ALL}
    depth = {name: _depth(read, name) for name in members}
    hosts: dict[str, dict[str, str]] = {}
    for host, own in read.hosts.items():
        of = [ALL, *sorted((g for g in members if host in members[g]), key=lambda g: (depth[g], g))]
        merged: dict[str, str] = {}
        for group in of:
            merged.update(read.groups[group].variables if group in read.groups else {})
        for group in of:
            merged.update(beside.get("group_vars", {}).get(group, {}))
        hosts[host] = {**merged, **own, **beside.get("host_vars", {}).get(host, {})}
    order = {host: place for place, host in enumerate(read.hosts)}
    sorted_members = {name: tuple(sorted(found, key=order.__getitem__)) for name, found in members.items()}
    return Inventory(where, hosts, {ALL: tuple(read.hosts), **sorted_members})


def _members(read: Read, name: str, where: str, above: tuple[str, ...]) -> tuple[str, ...]:
    if name in above:
        raise ConfigError(f"{where}: groups contain each other: {' -> '.join([*above, name])}")
    group = read.groups.get(name, Group())
    found = dict(group.hosts)
    for child in group.children:
        found.update(dict.fromkeys(_members(read, child, where, (*above, name))))
    return tuple(found)


def _depth(read: Read, name: str) -> int:
    """Return how far below the top a group stands, at its deepest."""
    parents = [parent for parent, group in read.groups.items() if name in group.children and parent != ALL]
    return 1 + max((_depth(read, parent) for parent in parents), default=0)


def ranges(text: str, where: str) -> list[str]:
    """Return the hosts that a name with ranges stands for: ``gpu[01:04]``, ``rack[a:c]-[1:9:2]``.

    Raises:
        ConfigError: a range that has no end or runs backwards.
    """
    parts: list[Sequence[str]] = []
    rest = text
    while "[" in rest:
        before, _, behind = rest.partition("[")
        inside, closed, rest = behind.partition("]")
        if not closed:
            raise ConfigError(f"{where}: {text!r} opens a range and does not close it")
        parts += [[before], _one_range(inside, text, where)]
    return ["".join(choice) for choice in product(*parts, [rest])]


def _one_range(inside: str, text: str, where: str) -> Sequence[str]:
    bounds = inside.split(":")
    if len(bounds) in (2, 3) and all(bounds):
        low, high, *step = bounds
        stride = int(step[0]) if step and step[0].isdigit() else 1
        if low.isdigit() and high.isdigit() and stride:
            width = len(low) if low.startswith("0") else 0
            if found := [str(number).zfill(width) for number in range(int(low), int(high) + 1, stride)]:
                return found
        letters = len(low) == len(high) == 1 and low.isalpha() and high.isalpha() and stride
        if letters and (found := [chr(code) for code in range(ord(low), ord(high) + 1, stride)]):
            return found
    raise ConfigError(f"{where}: [{inside}] in {text!r} is no range; write [1:8], [01:08], [1:9:2] or [a:d]")
