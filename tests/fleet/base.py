"""The root folder of a Debian release, built once and shared by all hosts of that release."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import disk, machine
from tests.fleet.shell import FleetError, execute

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITES = ("bullseye", "bookworm", "trixie")
#: A release with further packages, under a name of its own: what runs containers, and what reads files for them.
WITH_MORE = {"trixie-containers": ("podman", "crun", "docker-cli", "docker-compose")}
# libnuma1 for vLLM's CPU build.
PACKAGES = ("systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "iproute2", "procps", "sudo", "libnuma1")

#: What nspawn lets such a host do besides: limit a container's devices, and give it a keyring.
CONTAINERS = ("--capability=CAP_BPF", "--system-call-filter=bpf @keyring")

# Runs inside the new root. Masked: what has no device or no use in a container and would only slow the boot.
SETUP = r"""
useradd --system --home-dir /var/lib/llm --create-home --shell /usr/sbin/nologin llm
useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops
chmod 440 /etc/sudoers.d/ops
printf '%s\n' 'PasswordAuthentication no' 'MaxStartups 100' > /etc/ssh/sshd_config.d/fleet.conf
# Newer servers shut out an address that failed to log in a few times; here all come from one address.
if grep -qi persourcepenalties /usr/sbin/sshd; then
    echo 'PerSourcePenalties no' >> /etc/ssh/sshd_config.d/fleet.conf
fi
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /etc/hostname
: > /etc/machine-id
ln -s /etc/machine-id /var/lib/dbus/machine-id
mkdir -p /var/log/journal /etc/systemd/journald.conf.d
printf '%s\n' '[Journal]' 'RateLimitBurst=0' > /etc/systemd/journald.conf.d/fleet.conf
cd /etc/systemd/system
for unit in console-getty.service getty@tty1.service apt-daily.timer apt-daily-upgrade.timer fstrim.timer \
    e2scrub_all.timer e2scrub_reap.service systemd-networkd-wait-online.service systemd-resolved.service \
    systemd-networkd.service systemd-timesyncd.service systemd-udevd.service dev-hugepages.mount \
    sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount; do
    ln -sf /dev/null "$unit"
done
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/*
"""


def cache() -> Path:
    """Return where built root folders and running fleets live."""
    given = os.environ.get("LAUNCH_FLEET_CACHE")
    return Path(given).resolve() if given else Path.home() / ".cache" / "launch-fleet"


def root_of(suite: str) -> Path:
    """Return the root folder of a release; builds it first where it is not there yet."""
    if suite not in (*SUITES, *WITH_MORE):
        raise FleetError(f"no such release: {suite}; there are {', '.join((*SUITES, *WITH_MORE))}")
    recipe = hashlib.sha256("\0".join((suite, *_packages(suite), SETUP)).encode()).hexdigest()[:12]
    root = cache() / f"{suite}-{recipe}"
    if not root.exists():
        with locked(root) as lock:
            if not root.exists():
                _build(suite, root, lock)
    return root


def options(suite: str) -> tuple[str, ...]:
    """Return what nspawn is told of hosts of a release, beside what holds for all."""
    return CONTAINERS if suite in WITH_MORE else ()


def _packages(suite: str) -> tuple[str, ...]:
    return (*PACKAGES, *WITH_MORE.get(suite, ()))


@contextlib.contextmanager
def locked(root: Path) -> Iterator[int]:
    """Hold the lock of a folder that is built once; yields its descriptor."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_name(root.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"fleet: waiting for another process that builds {root.name}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _build(suite: str, root: Path, lock: int) -> None:
    """Build in a temporary folder and rename; debootstrap inherits the lock and so outlives us safely."""
    print(f"fleet: building the {suite} root folder, once (about a minute)", file=sys.stderr)
    growing = root.with_name(f".{root.name}.growing")
    disk.remove(growing)
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(_packages(suite))}"]
    argv += [suite.partition("-")[0], str(growing)]
    try:
        done = subprocess.run(
            [*argv, machine.mirror()],
            env=os.environ | machine.proxy(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=(lock,),
        )
        if done.returncode:
            raise FleetError(f"debootstrap of {suite} failed: {(done.stderr + done.stdout).strip()[-1500:]}")
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        execute("chroot", str(growing), "/usr/bin/env", path, "sh", "-eus", stdin=SETUP)
        growing.rename(root)
    finally:
        disk.remove(growing)
