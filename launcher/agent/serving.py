"""Stop a server so that nothing of it is left, start one, and prove what runs."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Set

from . import files, leftovers, ports, systemd
from .evidence import settled, unguarded
from .failed import ChangeError
from .guard import REFUSAL_FILE
from .library import account, failed_start
from .processes import cgroup_pids
from .staging import overridden

#: Checks the host without us; the same for every deployment.
TIMER = "launch-drift.timer"
#: Puts the last good pair back at boot when a change was cut short.
RECOVER = "launch-recover.service"
#: Beyond the unit's own time limits, before a start counts as lost; seconds.
_SLACK = 30
#: How long the rest of a stopped server may take to go; seconds.
_GONE_SECONDS = 20

Emit = Callable[[str], None]


def enable(unit: str) -> None:
    """Make the unit, the host's own check and the recovery start at boot.

    Raises:
        SystemdError: systemctl refuses.
    """
    systemd.systemctl("enable", "launch.target", TIMER, RECOVER, unit)


def load(request: Mapping[str, Any], *, lasting: bool = True) -> None:
    """Make the manager load the unit, and read back that it loaded this one.

    Args:
        request: ``unit``, ``files`` and ``commands`` of a release.
        lasting: whether it shall start at boot, and the host check it by its timer.

    Raises:
        ChangeError: it is not loaded, or something else overrides it.
        SystemdError: systemctl refuses.
    """
    unit = request["unit"]
    if lasting:
        enable(unit)
    systemd.systemctl("daemon-reload")
    if lasting:
        systemd.systemctl("start", "--no-block", TIMER)
    loaded = systemd.properties(unit)
    path = request["files"][-1]["path"]
    if loaded["LoadState"] != "loaded":
        raise ChangeError(f"systemd did not load {path}: {loaded['LoadState']} {' '.join(loaded['LoadError'])}")
    wrong = overridden(loaded, path, request["files"][0]["path"], request["commands"])
    if wrong:
        drop_ins = [f"drop-in: {p}" for p in loaded["DropInPaths"]]
        raise ChangeError("something else overrides the unit; remove it and deploy again", wrong + drop_ins)


def drain(port: int, seconds: int, emit: Emit) -> None:
    """Say how many clients are being served, and wait up to a time until there are none."""
    limit = time.monotonic() + seconds
    clients = ports.clients(port)
    if clients and seconds:
        emit(f"draining: {_open(clients)}; waiting up to {seconds} s")
    while clients and time.monotonic() < limit:
        time.sleep(0.5)
        clients = ports.clients(port)
    if clients:
        emit(f"{_open(clients)} and will be cut")


def _open(clients: int) -> str:
    return f"{clients} connections are open" if clients > 1 else "1 connection is open"


def stop(unit: str, user: str, port: int, emit: Emit) -> None:
    """Stop a server and wait until its processes, its port and its shared memory are gone.

    Raises:
        ChangeError: something of it stays; names what.
        SystemdError: systemctl refuses.
    """
    before = systemd.properties(unit)
    cgroup = before["ControlGroup"]
    own: Set[int] = set(cgroup_pids(cgroup))
    systemd.command(["systemctl", "--no-ask-password", "stop", unit], timeout=before["TimeoutStopUSec"] / 1e6 + _SLACK)
    limit = time.monotonic() + _GONE_SECONDS
    left = _left(cgroup, own, port)
    while left and time.monotonic() < limit:
        time.sleep(0.1)
        left = _left(cgroup, own, port)
    if left:
        raise ChangeError("the old server was stopped and something of it is still there", left)
    removed = leftovers.remove(user)
    if removed:
        emit(f"removed {removed} segments of dead processes from /dev/shm")


def _left(cgroup: str, own: Set[int], port: int) -> List[str]:
    found = [f"process {pid} is still in {cgroup}" for pid in cgroup_pids(cgroup)]
    inodes = ports.listening(port)
    holder = ports.owner(inodes, own) if inodes else 0
    return found + ([f"process {holder} still listens on port {port}"] if holder else [])


def start(unit: str, name: str, emit: Emit, log_file: str, *, verb: str = "start") -> None:
    """Start a unit and wait until its waiter has let it become active.

    Args:
        unit: its name.
        name: of the deployment.
        emit: called every few seconds.
        log_file: where the server's own lines go, if not to the journal.
        verb: of systemctl, ``start`` or ``restart``.

    Raises:
        ChangeError: the start failed, or took longer than the unit's limits allow.
        SystemdError: systemctl refuses.
    """
    before = systemd.properties(unit)["InvocationID"]
    try:
        files.remove(f"/run/launch/{name}/{REFUSAL_FILE}")
    except OSError as error:
        emit(f"warning: {error}")
    # A start limit hit by earlier failures would refuse this planned start.
    systemd.systemctl("reset-failed", unit)
    systemd.systemctl(verb, "--no-block", unit)
    wait_until_active(unit, before, emit, log_file)


def wait_until_active(unit: str, before: str, emit: Emit, log_file: str) -> None:
    """Wait for the end of a start.

    Args:
        unit: its name.
        before: the invocation that must be over; "" for any.
        emit: called every five seconds.
        log_file: where the server's own lines go, if not to the journal.

    Raises:
        ChangeError: the start failed, or took longer than the unit's limits allow.
    """
    begin, told = time.time(), time.monotonic()
    state = systemd.properties(unit)
    restarts = 0 if before else state["NRestarts"]
    limit = time.monotonic() + (state["TimeoutStartUSec"] + state["TimeoutStopUSec"]) / 1e6 + _SLACK
    while True:
        over = state["Job"][0] == 0
        if over and state["ActiveState"] == "active" and state["InvocationID"] != before:
            return
        if over or state["NRestarts"] > restarts:
            raise ChangeError(f"the server did not start ({state['Result']})", failed_start(unit, begin, log_file))
        if time.monotonic() > limit:
            raise ChangeError("the server did not get ready in time", failed_start(unit, begin, log_file))
        if time.monotonic() - told > 5:
            told = time.monotonic()
            emit(f"waiting for the server: {state['ActiveState']} for {time.time() - begin:.0f} s")
        time.sleep(0.2)
        state = systemd.properties(unit)


def prove(unit: str, manifest: Dict[str, Any]) -> Dict[str, Any]:
    """Check every process of a unit, as root, against a manifest.

    Raises:
        ChangeError: it does not run, or a process does not carry the release.
    """
    state = systemd.properties(unit)
    if state["ActiveState"] != "active":
        raise ChangeError(f"the server is {state['ActiveState']}")
    main = int(state["MainPID"])
    verdict = settled(manifest, main, state["ControlGroup"])
    wrong = verdict.contradictions + unguarded(f"/run/launch/{manifest['name']}", manifest, main, state["InvocationID"])
    if wrong:
        raise ChangeError("processes do not carry the release", wrong)
    nccl = account(unit, state["InvocationID"], manifest)
    return {"digest": manifest["digest"], "main": main, "nccl": nccl, **verdict._asdict()}
