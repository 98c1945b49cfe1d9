"""A fleet from the terminal: `python -m tests.fleet up 3` here; `login h1`, `power-cut h1` in another one."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fleet import Fleet, FleetError, access, obstacle, slot
from tests.fleet.base import SUITES, cache

if TYPE_CHECKING:
    from types import FrameType

ON_HOST = {
    "boot": "switch a host on",
    "stop": "shut a host down in an orderly way",
    "power-cut": "end everything on a host at once",
    "reboot": "reboot a host, or switch it on",
    "unplug": "pull the network cable of a host",
    "plug": "put the cable back",
    "login": "a shell on a host",
}


def state_folder() -> Path:
    """Return where `up` keeps its files, so that the other commands find it."""
    given = os.environ.get("LAUNCH_FLEET_STATE")
    return Path(given) if given else cache() / "state"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="boot hosts and keep them until Ctrl-C")
    up.add_argument("count", type=int, nargs="?", default=3)
    up.add_argument("--suite", choices=SUITES, default="bookworm")
    up.add_argument("--loopback", action="store_true", help="no networks: addresses in 127.x")
    verbs.add_parser("down", help="end the fleet that `up` has running")
    verbs.add_parser("list", help="the hosts, and whether they are on")
    for verb, text in ON_HOST.items():
        verbs.add_parser(verb, help=text).add_argument("host")
    return top


def table(fleet: Fleet) -> None:
    """Print the hosts and how to reach them."""
    print(f"{'host':6}{'address':17}{'power':7}{'cable':7}login")
    for host in fleet.hosts:
        cable = "-" if host.cable is None else "in" if host.cable.is_plugged() else "out"
        power = "on" if host.is_on() else "off"
        login = shlex.join(["ssh", "-F", str(fleet.ssh_config), host.name])
        print(f"{host.name:6}{host.address:17}{power:7}{cable:7}{login}", flush=True)


def up(count: int, suite: str, *, loopback: bool) -> None:
    """Boot a fleet and stay until Ctrl-C or `down`."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    begun = time.monotonic()
    try:
        with Fleet.boot(count, suite=suite, own_network=not loopback, state=state_folder()) as fleet:
            table(fleet)
            print(f"up in {time.monotonic() - begun:.1f} s; Ctrl-C ends the fleet", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        print("fleet: down", file=sys.stderr)


def down(state: Path) -> None:
    """Ask the process that has the fleet up to end it, and wait; where it died, remove what it left."""
    mark = state / "fleet.json"
    was_there = mark.exists()
    slot.Slot.sweep()
    if was_there and not mark.exists():
        return
    fleet = Fleet.find(state)
    os.kill(fleet.shape.owner, signal.SIGTERM)
    deadline = time.monotonic() + 120
    while slot.is_held(fleet.shape.number, fleet.state):
        if time.monotonic() > deadline:
            raise FleetError(f"process {fleet.shape.owner} does not end the fleet")
        time.sleep(0.05)


def on_host(verb: str, fleet: Fleet, name: str) -> None:
    """Do one thing to one host."""
    host = fleet.host(name)
    if verb == "login":
        command = access.command(fleet.ssh_config, name)
        os.execvp(command[0], command)
    if verb == "reboot" and not host.is_on():
        verb = "boot"
    getattr(host, verb.replace("-", "_"))()


def do(args: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    if reason := obstacle():
        raise FleetError(reason)
    if args.verb == "up":
        up(args.count, args.suite, loopback=args.loopback)
        return
    if args.verb == "down":
        down(state_folder())
        return
    fleet = Fleet.find(state_folder())
    if args.verb == "list":
        table(fleet)
    else:
        on_host(args.verb, fleet, args.host)


def main(argv: list[str] | None = None) -> int:
    """Parse, do, and turn a mistake of the user into one line."""
    args = parser().parse_args(argv)
    try:
        do(args)
    except (FleetError, OSError, subprocess.SubprocessError) as err:
        print(f"fleet: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
