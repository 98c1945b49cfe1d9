"""From what a target names to hosts and how to get there."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.errors import ConfigError
from launcher.inventory.select import is_pattern, select
from launcher.schema import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.inventory.known import Inventory
    from launcher.schema import Target

#: Ansible's names for what a login needs, newest first (ansible.builtin.ssh, ansible-core 2.19).
_ADDRESS = ("ansible_host", "ansible_ssh_host")
_USER = ("ansible_user", "ansible_ssh_user")
_PORT = ("ansible_port", "ansible_ssh_port")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
#: What would change the way to a host and is not read.
_UNREAD = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args", "ansible_ssh_executable")
_SSH = ("", "ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh")


def wants(target: Target) -> bool:
    """Return whether a target names hosts by more than their names."""
    if target.limit:
        return True
    return target.kind == "ssh" and bool(target.inventory or any(is_pattern(host) for host in target.hosts))


def resolved(target: Target) -> tuple[Target, tuple[str, ...]]:
    """Return a target with its hosts by name and how to get there, and notes for the user.

    Without an inventory patterns choose among the hosts of the SSH configuration, and plain names stand for
    themselves. Without ``target.hosts`` an inventory's limit chooses among all of its hosts.

    Raises:
        ConfigError: the inventory cannot be read, a name is not in it, or no host is left.
    """
    if target.kind != "ssh":
        raise ConfigError(f"--limit chooses among the hosts of target=ssh, and here is target={target.kind}")
    inventory = _inventory(target.inventory, target.ssh_config)
    hosts = _hosts(target, inventory)
    if target.limit:
        limits = [text.strip() for text in target.limit.split(",") if text.strip()]
        kept = select(limits or ["all"], _with(inventory, hosts), "--limit")
        hosts = tuple(host for host in hosts if host in kept)
    if not hosts:
        raise ConfigError(f"no host is left: --limit {target.limit} has none of target.hosts")
    places = {host: _place(host, inventory.hosts[host]) for host in hosts if inventory.hosts.get(host)}
    notes = [note for host in hosts for note in _notes(host, inventory.hosts.get(host, {}))]
    return replace(target, hosts=hosts, limit="", places={**places, **target.places}), tuple(notes)


@functools.cache
def _inventory(path: str, ssh_config: str) -> Inventory:
    """Return what is known of hosts, read once a command: the points of a sweep all ask for it."""
    if path:
        from launcher.inventory.load import load

        return load(path)
    from launcher.inventory import ssh_hosts

    return ssh_hosts.hosts(ssh_config)


def _hosts(target: Target, inventory: Inventory) -> tuple[str, ...]:
    if target.inventory:
        # Naming no host means none: a whole inventory is never touched because somebody forgot to say whom.
        if not target.hosts and not target.limit:
            raise ConfigError(
                f"target.hosts is empty: name hosts or groups of {target.inventory}, as in 'target.hosts=[all]'"
            )
        return select(target.hosts or ("all",), inventory, "target.hosts")
    patterns = [host for host in target.hosts if is_pattern(host)]
    if not patterns:
        return target.hosts
    plain = [host for host in target.hosts if not is_pattern(host)]
    chosen = select(patterns, inventory, "target.hosts") if any(p[0] not in "!&" for p in patterns) else ()
    return tuple(dict.fromkeys([*plain, *chosen]))


def _with(inventory: Inventory, hosts: Sequence[str]) -> Inventory:
    """Return an inventory that knows these hosts too; what is in no file has no variables."""
    known = {**inventory.hosts, **{host: {} for host in hosts if host not in inventory.hosts}}
    return replace(inventory, hosts=known, groups={**inventory.groups, "all": tuple(known)})


def _first(variables: Mapping[str, str], names: Sequence[str]) -> str:
    return next((variables[name] for name in names if variables.get(name)), "")


def _place(host: str, variables: Mapping[str, str]) -> Place:
    connection = variables.get("ansible_connection", "")
    if connection not in _SSH:
        raise ConfigError(
            f"{host}: ansible_connection={connection} in the inventory: launch reaches hosts by SSH alone"
        )
    found = {"address": _ADDRESS, "user": _USER, "port": _PORT, "identity_file": _KEY}
    values = {key: _first(variables, names) for key, names in found.items()}
    for key, names in found.items():
        if "{{" in values[key]:
            name = next(n for n in names if variables.get(n))
            raise ConfigError(f"{host}: {name} of the inventory is a template, {values[key]!r}: write the value there")
    port = values["port"]
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{host}: {port!r} of the inventory is no port: 1 to 65535")
    return Place(values["address"], values["user"], int(port or 0), values["identity_file"])


def _notes(host: str, variables: Mapping[str, str]) -> list[str]:
    return [
        f"{host}: {name} of the inventory is not read: put what the way there needs into ~/.ssh/config"
        for name in _UNREAD
        if variables.get(name)
    ]
