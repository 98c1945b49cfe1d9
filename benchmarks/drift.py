"""`launch drift` on hosts where nothing differs, against plain parallel OpenSSH that reads the same things.

    python -m benchmarks.drift [HOSTS] [ROUNDS]

Boots a fleet of systemd hosts (root, Debian), deploys the stand-in engine, then runs both in turn and prints medians,
their spread and the ratio. OpenSSH judges nothing: it is the floor that connections and reads set.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.fleet import Fleet
from tests.system.tool import REFERENCE, UNIT, Launch

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a check reads, with the tools that everybody has.
READS = r"""
unit=UNIT
cat /etc/systemd/system/$unit /etc/launch/*/* /usr/local/lib/launch/agent.py /etc/launch/shared.json
for d in /etc /run /usr/local/lib /usr/lib; do
    ls -la $d/systemd/system/$unit $d/systemd/system/$unit.d $d/systemd/system/service.d
done
path=/org/freedesktop/systemd1/unit/$(echo "$unit" | sed 's/-/_2d/g; s/_k2/_5fk2/; s/_5_int4/_5f5_5fint4/; s/\./_2e/g')
get="org.freedesktop.DBus.Properties GetAll s"
busctl --json=short call org.freedesktop.systemd1 $path $get ""
busctl --json=short call org.freedesktop.systemd1 /org/freedesktop/systemd1 $get ""
cgroup=$(systemctl show -P ControlGroup $unit)
for pid in $(cat /sys/fs/cgroup$cgroup/cgroup.procs); do
    cd /proc/$pid && cat environ cmdline stat limits maps && ls -l exe fd
done
cat /proc/net/tcp /proc/net/tcp6 /etc/nccl.conf /etc/ld.so.preload /proc/cmdline
sha256sum /opt/standin/python
journalctl --sync
journalctl --no-pager -q -o cat -u $unit | grep NCCL
""".replace("UNIT", UNIT)


def main(hosts: int, rounds: int) -> None:
    """Run both in turn and print the table."""
    with Fleet.boot(hosts) as fleet:
        launch, names = Launch(fleet), [host.name for host in fleet.hosts]
        launch("up", *REFERENCE, "--yes", hosts=names)

        def one(name: str) -> None:
            command = ["ssh", "-F", str(fleet.ssh_config), name, "sh -s"]
            done = subprocess.run(command, input=READS.encode(), capture_output=True, check=False)
            if len(done.stdout) < 100_000 or b"NCCL_ALGO" not in done.stdout:
                raise RuntimeError(done.stderr.decode())

        def openssh() -> None:
            with ThreadPoolExecutor(hosts) as pool:
                list(pool.map(one, names))

        ways: dict[str, Callable[[], object]] = {
            "OpenSSH in parallel, the same reads": openssh,
            "launch drift": lambda: launch("drift", *REFERENCE, hosts=names),
            "launch status": lambda: launch("status", *REFERENCE, hosts=names),
            "launch plan": lambda: launch("plan", *REFERENCE, hosts=names),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, way in ways.items():
                begin = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - begin)
    floor = statistics.median(next(iter(times.values()))[1:])
    print(f"{hosts} hosts, {rounds} rounds after one to warm up; seconds: median (least to most), ratio to OpenSSH")
    for name, taken in times.items():
        warm = sorted(taken[1:])
        median = statistics.median(warm)
        print(f"{name:<38} {median:6.2f} ({warm[0]:.2f} to {warm[-1]:.2f})  {median / floor:5.2f}")


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], "8", "7"][:2]))
