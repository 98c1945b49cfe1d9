"""Keys, and the OpenSSH files that let the test process in and nobody else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.fleet.shell import execute

if TYPE_CHECKING:
    from pathlib import Path

HOST = """\
Host {name}
    HostName {address}
    User root
    IdentityFile {identity}
    UserKnownHostsFile {known_hosts}
    StrictHostKeyChecking yes
"""


def new_key(path: Path) -> str:
    """Make a key pair without a passphrase and return its public half."""
    execute("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "launch-fleet", "-f", str(path))
    return path.with_name(path.name + ".pub").read_text()


def let_in(root: Path, public_key: str) -> None:
    """Make root and the administrator `ops` accept the fleet's key."""
    for home in (root / "root", root / "home/ops"):
        owner = home.stat()
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(public_key)
        for path in (ssh, ssh / "authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)


def give_host_key(root: Path) -> str:
    """Put a fresh host key in and return its public half, so that it is known before the first boot."""
    for old in (root / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    kind, key, *_ = new_key(root / "etc/ssh/ssh_host_ed25519_key").split()
    return f"{kind} {key}"


def write_config(state: Path, addresses: dict[str, str], keys: dict[str, str]) -> None:
    """Write `known_hosts` and `ssh_config` for the hosts."""
    known = "".join(f"{name},{address} {keys[name]}\n" for name, address in addresses.items())
    (state / "known_hosts").write_text(known)
    paths = {"identity": state / "identity", "known_hosts": state / "known_hosts"}
    config = "\n".join(HOST.format(name=name, address=address, **paths) for name, address in addresses.items())
    (state / "ssh_config").write_text(config)


def command(config: Path, name: str) -> list[str]:
    """Return the OpenSSH command that reaches a host, independent of the caller's own configuration."""
    options = ("BatchMode=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=5")
    return ["ssh", "-F", str(config), *(part for option in options for part in ("-o", option)), name]
