"""One host: switch it on and off, pull its cable, run a command on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import access
from tests.fleet.shell import FleetError

if TYPE_CHECKING:
    from tests.fleet.cgroup import Cgroup
    from tests.fleet.network import Cable

BOOT_SECONDS = 180

# nspawn kept in its own unit leaves with 133 when the host reboots, and expects to be started again.
LOOP = """\
echo $$ > "$CGROUP/loop/cgroup.procs" || exit 1
while :; do
    sh -c 'echo $$ > "$CGROUP/box/cgroup.procs" && exec systemd-nspawn "$@"' nspawn "$@"
    [ $? = 133 ] || exit 0
done
"""

# Prints the boot id once the boot is over.
IS_UP = """\
while :; do
    case $(systemctl is-system-running 2>&1) in
        running | degraded) exec cat /proc/sys/kernel/random/boot_id ;;
        stopping) exit 1 ;;
    esac
    sleep 0.05
done
"""


@dataclass(frozen=True)
class FleetHost:
    """A Debian with its own systemd, sshd and disk, reached over SSH as root."""

    name: str
    address: str
    root: Path
    machine: str
    ssh_config: Path
    cgroup: Cgroup
    cable: Cable | None
    options: tuple[str, ...] = ()

    def run(self, command: str, *, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host as root."""
        try:
            return subprocess.run(
                [*access.command(self.ssh_config, self.name), command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=check,
            )
        except subprocess.CalledProcessError as err:
            err.add_note(f"{self.name} said: {err.stderr.strip()}")
            raise

    def is_on(self) -> bool:
        """Tell whether any process of the host lives."""
        return bool(self.cgroup.pids())

    def boot(self) -> None:
        """Switch the host on; returns when systemd has finished the boot and sshd answers."""
        if not self.is_on():
            self._switch_on()
        self._wait_up(other_than="")

    def power_cut(self) -> None:
        """End everything on the host at once. The disk keeps what was written, as far as it got."""
        self.cgroup.kill()

    def reboot(self) -> None:
        """Reboot in an orderly way; returns when the host is up with a new boot id."""
        if not self.is_on():
            raise FleetError(f"{self.name} is off")
        self._must_be_plugged()
        before = self.boot_id()
        self.run("systemctl reboot", check=False)
        self._wait_up(other_than=before)

    def stop(self) -> None:
        """Shut down in an orderly way; returns when the host is off."""
        for pid in self.cgroup.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd-nspawn":
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while self.is_on():
            if time.monotonic() > deadline:
                raise FleetError(f"{self.name} does not shut down")
            time.sleep(0.02)

    def unplug(self) -> None:
        """Pull the network cable; open connections hang, new ones find no way."""
        self._own_cable().unplug()

    def plug(self) -> None:
        """Put the network cable back."""
        self._own_cable().plug()

    def boot_id(self) -> str:
        """Return the kernel's name for this boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    @property
    def console(self) -> Path:
        """What nspawn and the host printed since the fleet was made."""
        return self.root.with_name("console.log")

    def _own_cable(self) -> Cable:
        if self.cable is None:
            raise FleetError(f"{self.name} has no cable of its own: the fleet shares this machine's network")
        return self.cable

    def _must_be_plugged(self) -> None:
        if self.cable and not self.cable.is_plugged():
            raise FleetError(f"{self.name} is unplugged, so nobody can tell when it is up: plug it first")

    def _switch_on(self) -> None:
        self.cgroup.create()
        environment = os.environ | {"CGROUP": str(self.cgroup.path), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        options = [
            "--quiet",
            "--boot",
            f"--directory={self.root}",
            f"--machine={self.machine}",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "--settings=no",
            "--link-journal=no",
            "--resolv-conf=off",
            "--timezone=off",
            f"--hostname={self.name}",
            *self.options,
        ]
        if self.cable:
            options.append(f"--network-namespace-path={self.cable.path}")
        with self.console.open("a") as console:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", LOOP, "loop", *options],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                check=True,
            )
        deadline = time.monotonic() + 5
        while not self.is_on() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _wait_up(self, other_than: str) -> None:
        """Wait for a finished boot, however often it takes to ask."""
        self._must_be_plugged()
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            if not self.is_on():
                raise FleetError(f"{self.name} went off during its boot:\n{self._console_end()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                answer = self.run(IS_UP, check=False, timeout=20)
                if answer.returncode == 0 and answer.stdout.strip() != other_than:
                    return
            time.sleep(0.05)
        raise FleetError(f"{self.name} is not up after {BOOT_SECONDS} s:\n{self._console_end()}")

    def _console_end(self) -> str:
        return self.console.read_text(errors="replace")[-2000:]
