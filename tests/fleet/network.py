"""Addresses and cables. A fleet is a bridge; a host is a network namespace with a veth pair into it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.shell import FleetError, execute

FIRST_HOST = 11


def loopback_prefix(number: int) -> str:
    """Return the three first bytes of a fleet's addresses when it shares this machine's network."""
    return f"127.213.{number}"


def free_prefix(number: int) -> str:
    """Return the three first bytes of a fleet's own network: one that nothing here routes to already."""
    taken: list[ipaddress.IPv4Network] = []
    for route in json.loads(execute("ip", "-json", "-4", "route", "show", "table", "all")):
        with contextlib.suppress(ValueError):
            taken.append(ipaddress.IPv4Network(route["dst"], strict=False))
    for second in range(213, 256):
        prefix = f"10.{second}.{number}"
        wanted = ipaddress.IPv4Network(f"{prefix}.0/24")
        if not any(used.overlaps(wanted) and used.prefixlen > 8 for used in taken):
            return prefix
    raise FleetError("no free 10.x network on this machine")


@dataclass(frozen=True)
class Cable:
    """The way from the fleet's bridge into one host's network namespace."""

    bridge: str
    outer: str
    namespace: str

    @property
    def path(self) -> Path:
        """Where the network namespace is mounted."""
        return Path("/run/netns", self.namespace)

    def lay(self, address: str) -> None:
        """Make the namespace and the pair, with the address configured from outside."""
        inside = ("ip", "-netns", self.namespace)
        execute("ip", "netns", "add", self.namespace)
        execute("ip", "link", "add", self.outer, "type", "veth", "peer", "host0", "netns", self.namespace)
        execute("ip", "link", "set", self.outer, "master", self.bridge, "up")
        execute(*inside, "address", "add", f"{address}/24", "dev", "host0")
        execute(*inside, "link", "set", "host0", "up")
        execute(*inside, "link", "set", "lo", "up")

    def is_plugged(self) -> bool:
        """Tell whether the link is up."""
        return int(Path("/sys/class/net", self.outer, "flags").read_text(), 16) & 1 == 1

    def unplug(self) -> None:
        """Take the link down; the host sees that it has no carrier."""
        execute("ip", "link", "set", self.outer, "down")

    def plug(self) -> None:
        """Take the link up."""
        execute("ip", "link", "set", self.outer, "up")


def bridge(number: int) -> str:
    """Return the name of a fleet's bridge."""
    return f"lf{number}"


def cable(number: int, index: int) -> Cable:
    """Return the cable of a fleet's host, laid or not."""
    return Cable(bridge(number), f"lf{number}-{index}", f"lf{number}-h{index}")


def create_bridge(number: int, prefix: str) -> None:
    """Make the bridge, with this machine at the first address."""
    name = bridge(number)
    execute("ip", "link", "add", name, "type", "bridge")
    execute("ip", "address", "add", f"{prefix}.1/24", "dev", name)
    execute("ip", "link", "set", name, "up")


def remove(number: int) -> None:
    """Delete everything that carries this fleet's number; nothing there is fine too."""
    for namespace in Path("/run/netns").glob(f"lf{number}-h*"):
        execute("ip", "netns", "delete", namespace.name, check=False)
    for link in Path("/sys/class/net").glob(f"lf{number}-*"):
        execute("ip", "link", "delete", link.name, check=False)
    if Path("/sys/class/net", bridge(number)).exists():
        execute("ip", "link", "delete", bridge(number), check=False)
