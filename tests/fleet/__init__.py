"""Real Debian hosts on one machine: a systemd, an sshd and a disk each, booted by systemd-nspawn.

    with Fleet.boot(3) as fleet:
        print(fleet.hosts[0].run("systemctl is-system-running").stdout)
        fleet.hosts[1].power_cut()

From a terminal: `python -m tests.fleet up 3`.
"""

from tests.fleet.fleet import Fleet
from tests.fleet.host import FleetHost
from tests.fleet.machine import obstacle
from tests.fleet.shell import FleetError

__all__ = ["Fleet", "FleetError", "FleetHost", "obstacle"]
