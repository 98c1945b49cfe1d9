"""Helpers of the system tests: call `launch` as a user does, and look at a host by other means than its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fleet import Fleet, FleetHost

UNIT = "launch-kimi_k2_5_int4.service"
TUNED = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
}
REFERENCE = ("+hw=rtx6000x8", "+spec=eagle3_2step")

#: Takes everything of ours off a host, without our own code.
WIPE = """
systemctl list-unit-files 'launch*' --no-legend | awk '{print $1}' | xargs -r systemctl disable --now
systemctl list-units --all 'launch-*.service' --no-legend --plain | awk '{print $1}' | xargs -r systemctl kill -s KILL
rm -rf /etc/launch /etc/systemd/system/launch* /usr/local/lib/launch /run/launch* /run/systemd/system/launch*
systemctl show-environment | sed 's/=.*//' | grep -E '^(NCCL|CUDA|VLLM|UNKNOWN)_' | xargs -r systemctl unset-environment
systemctl daemon-reload; systemctl reset-failed; date +%s > /var/tmp/wiped; sleep 1; true
"""

#: Prints one JSON line: every process of the unit with its environment, read without our code.
LOOK = r"""
python3 - <<'EOF'
import json, os, subprocess
unit = "UNIT"
show = lambda p: subprocess.run(["systemctl", "show", "-P", p, unit], capture_output=True, text=True).stdout.strip()
found = {}
for folder, _, _ in os.walk("/sys/fs/cgroup" + (show("ControlGroup") or "/nowhere")):
    for pid in open(folder + "/cgroup.procs").read().split():
        try:
            block = open(f"/proc/{pid}/environ", "rb").read().decode()
            title = open(f"/proc/{pid}/cmdline", "rb").read().decode().rstrip("\0").split("\0")
        except OSError:
            continue
        found[pid] = {"title": title, "env": dict(e.split("=", 1) for e in block.split("\0") if "=" in e)}
names = ("ActiveState", "SubState", "MainPID", "InvocationID", "NRestarts", "ExecMainStatus")
print(json.dumps({"processes": found, **{p: show(p) for p in names}}))
EOF
"""


#: Ends when the unit is in a state under another main process than OTHER. It asks on the host: a look from here costs
#: a login and an interpreter each time.
UNTIL = """
end=$(($(date +%s) + SECONDS))
while [ $(date +%s) -le $end ]; do
    eval $(systemctl show UNIT --property ActiveState --property MainPID)
    [ $ActiveState = STATE ] && [ $MainPID != 'OTHER' ] && exit 0
    sleep 0.1
done
exit 1
"""


@dataclass(frozen=True)
class Launch:
    """The command, aimed at hosts of a fleet."""

    fleet: Fleet

    def __call__(
        self,
        *words: str,
        hosts: Sequence[str] = ("h1",),
        check: int | None = 0,
        python: str = "/opt/standin/python",
    ) -> subprocess.CompletedProcess[str]:
        """Run ``launch``; fail with its output when the exit code is not the one expected."""
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *words, *self.aim(hosts, python)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def aim(self, hosts: Sequence[str], python: str = "/opt/standin/python") -> list[str]:
        """Return the overrides that name the hosts, and the stand-in engine with short times."""
        return [
            "target=ssh",
            f"target.hosts=[{','.join(hosts)}]",
            f"target.ssh_config={self.fleet.ssh_config}",
            "target.connect_timeout=3",
            f"engine.python={python}",
            "unit.restart_delay=1",
            "unit.start_timeout=20",
        ]


def look(host: FleetHost, unit: str = UNIT) -> dict[str, Any]:
    """Return the processes of the unit and its state, read from outside our own code."""
    answer: dict[str, Any] = json.loads(host.run(LOOK.replace("UNIT", unit)).stdout)
    return answer


def journal(host: FleetHost, unit: str = UNIT) -> str:
    """Return the journal of the unit since the host was wiped."""
    since = "$(($(cat /var/tmp/wiped) + 1))"
    return host.run(f"journalctl --sync; journalctl -u {unit} -o cat --no-pager --since=@{since}").stdout


def wait_for(
    host: FleetHost, state: str, *, other_than: str = "", seconds: float = 30, unit: str = UNIT
) -> dict[str, Any]:
    """Wait until the unit is in a state, under another main process than the one named."""
    deadline = time.monotonic() + seconds
    while True:
        until(host, state, other_than=other_than, seconds=deadline - time.monotonic(), unit=unit)
        seen = look(host, unit)
        if seen["ActiveState"] == state and seen["MainPID"] != other_than:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{unit} is {seen['ActiveState']}/{seen['SubState']}\n{journal(host, unit)}")


def until(host: FleetHost, state: str, *, other_than: str = "", seconds: float = 30, unit: str = UNIT) -> None:
    """Wait until the unit is in a state, under another main process than the one named, or until the time is over."""
    words = {"UNIT": unit, "STATE": state, "OTHER": other_than, "SECONDS": str(max(0, round(seconds)))}
    command = UNTIL
    for name, word in words.items():
        command = command.replace(name, word)
    host.run(command, check=False, timeout=seconds + 60)


def assert_tuned(
    seen: dict[str, Any], *, titles: Sequence[str] = ("sglang::scheduler_TP0", "sglang::scheduler_TP1")
) -> None:
    """Assert that every process carries the tuned set, the renamed workers among them."""
    found = seen["processes"]
    assert seen["MainPID"] in found
    assert set(titles) <= {p["title"][0] for p in found.values()}
    for process in found.values():
        assert {name: process["env"].get(name) for name in TUNED} == TUNED, process
