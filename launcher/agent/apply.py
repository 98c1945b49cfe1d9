"""The one change to a host: stage, verify, switch, restart, prove; the old pair serves if anything fails."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from . import files, nccl_block, record, systemd
from .evidence import settled, unguarded
from .guard import REFUSAL_FILE
from .library import account, failed_start
from .manifest import parse
from .nccl_conf import BlockError
from .needs import problems
from .observe import baseline
from .probe import read_text

_LOCK = "/run/launch.lock"
#: Beyond the unit's own time limits, before a start counts as lost; seconds.
_SLACK = 30

#: Checks the host without us; the same for every deployment.
TIMER = "launch-drift.timer"

Emit = Callable[[str], None]


class ApplyError(Exception):
    """The change failed; ``lines`` are the evidence."""

    def __init__(self, message: str, lines: "List[str] | None" = None) -> None:
        super().__init__(message)
        self.lines = lines or []


#: What can go wrong on a host without being a mistake of ours.
FAILURES = (OSError, systemd.SystemdError, subprocess.SubprocessError, ApplyError, BlockError)


class _Before(NamedTuple):
    """What a host held before the change: unit file, secrets by path, /etc/nccl.conf, and the unit as loaded."""

    unit_text: Optional[str]
    secrets: Dict[str, Optional[str]]
    nccl_conf: Optional[str]
    loaded: Dict[str, Any]


def apply(request: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Bring a release into service.

    Args:
        request: ``unit``, ``files`` (environment file, manifest, unit, in this order), ``shared`` (agent and the
            units that are the same for every deployment), ``commands`` (ExecStart and ExecStartPost as they must be
            loaded), ``secrets`` (files), ``needs``, ``restart`` (whether the server must be restarted).
        emit: called with a line of progress.

    Returns:
        ``outcome`` is ``done``, ``refused`` (nothing was switched), ``locked`` or ``rolled back`` / ``failed``
        (after the switch); with ``message``, ``evidence`` lines and, when done, the ``proof``.
    """
    try:
        with lock():
            return _apply(request, emit)
    except BlockingIOError:
        return _refused(f"another launch is changing this host ({_LOCK})", outcome="locked")
    except systemd.SystemdError as error:
        return _refused(f"systemd does not answer: {error}")


@contextmanager
def lock() -> Iterator[None]:
    """Keep every other change away from this host.

    Raises:
        BlockingIOError: another launch is changing it.
    """
    descriptor = os.open(_LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _refused(message: str, evidence: "List[str] | None" = None, *, outcome: str = "refused") -> Dict[str, Any]:
    return {"outcome": outcome, "message": message, "evidence": evidence or []}


def _apply(request: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    unit, unit_file = request["unit"], request["files"][-1]
    lacking = problems(request["needs"], unit)
    if lacking:
        return _refused("the host is not ready", lacking)
    before = _Before(
        read_text(unit_file["path"]),
        {entry["path"]: read_text(entry["path"]) for entry in request["secrets"]},
        nccl_block.read(),
        systemd.properties(unit),
    )
    begin = time.time()
    try:
        emit("staging")
        _stage(request)
        _verify(request)
    except FAILURES as error:
        return _refused(f"staging failed: {error}", getattr(error, "lines", []))
    try:
        for entry in request["secrets"]:
            files.folder(os.path.dirname(entry["path"]), 0o700, "root")
            files.write(entry)
        files.write(unit_file)
        nccl_block.put(_nccl_conf(request["needs"]))
        _load(request)
        _start(request, before.loaded, emit)
        proof = _prove(request)
        record.write(request, _baseline(request), time.time())
    except FAILURES as error:
        evidence = list(getattr(error, "lines", [])) or failed_start(unit, begin, request["needs"]["log_file"])
        hidden = [text for text in (*before.secrets.values(), *(e["text"] for e in request["secrets"])) if text]
        evidence = [_without(line, hidden) for line in evidence]
        emit("putting back what was there before")
        back = _put_back(request, before, emit)
        return {**back, "message": _without(str(error), hidden), "evidence": evidence}
    return {"outcome": "done", "message": "", "evidence": [], "proof": proof}


def _nccl_conf(needs: Dict[str, Any]) -> Optional[str]:
    return nccl_block.wanted(nccl_block.read(), needs["name"], needs["nccl"])


def _without(line: str, secrets: List[str]) -> str:
    """Return a line without secrets: a server that dies may have logged its own."""
    for secret in secrets:
        line = line.replace(secret, "***")
    return line


def _stage(request: Dict[str, Any]) -> None:
    """Write everything that nothing points to yet."""
    env_file, manifest, _ = request["files"]
    for path in sorted({os.path.dirname(entry["path"]) for entry in request["shared"]}):
        os.makedirs(path, exist_ok=True)
    folder = os.path.dirname(env_file["path"])
    # Open folders, closed files: another user of a later release must not lock an older one out of its own.
    files.folder(os.path.dirname(folder), 0o755, "root")
    files.folder(folder, 0o755, "root")
    for entry in [*request["shared"], env_file, manifest]:
        files.write(entry)


def _verify(request: Dict[str, Any]) -> None:
    """Let systemd read the unit under its real name before it gets to its place."""
    unit_file = request["files"][-1]
    folder = tempfile.mkdtemp(prefix="launch-", dir="/run")
    try:
        path = os.path.join(folder, request["unit"])
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(unit_file["text"])
        lines = systemd.verify(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if lines:
        raise ApplyError("systemd would not read the unit as it is meant", lines)


def _load(request: Dict[str, Any]) -> None:
    """Make the manager load the unit, and read back that it loaded this one."""
    unit = request["unit"]
    enable(unit)
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", "--no-block", TIMER)
    loaded = systemd.properties(unit)
    path = request["files"][-1]["path"]
    if loaded["LoadState"] != "loaded":
        raise ApplyError(f"systemd did not load {path}: {loaded['LoadState']} {' '.join(loaded['LoadError'])}")
    wrong = overridden(loaded, path, request["files"][0]["path"], request["commands"])
    if wrong:
        drop_ins = [f"drop-in: {p}" for p in loaded["DropInPaths"]]
        raise ApplyError("something else overrides the unit; remove it and deploy again", wrong + drop_ins)


def enable(unit: str) -> None:
    """Make the unit and the host's own check start at boot.

    Raises:
        SystemdError: systemctl refuses.
    """
    systemd.systemctl("enable", "launch.target", TIMER, unit)


def overridden(loaded: Dict[str, Any], path: str, env_file: str, commands: List[List[List[str]]]) -> List[str]:
    """Return in what the loaded unit is not the one on disk, one line each."""
    found: List[str] = []
    if loaded["FragmentPath"] != path:
        found.append(f"the unit is loaded from {loaded['FragmentPath']}")
    env_files = [entry[0] for entry in loaded["EnvironmentFiles"]]
    if env_files != [env_file]:
        found.append(f"environment files as loaded: {', '.join(env_files) or 'none'}")
    for name, wanted in zip(("ExecStart", "ExecStartPost"), commands):
        if [entry[1] for entry in loaded[name]] != wanted:
            found.append(f"{name}= as loaded is not the one of the release")
    return found


def _start(request: Dict[str, Any], before: Dict[str, Any], emit: Emit) -> None:
    """Restart where that is wanted; in any case wait until the waiter has let the unit become active."""
    unit, needs = request["unit"], request["needs"]
    if request["restart"]:
        emit("restarting")
        restart(unit, needs["name"], before["InvocationID"], emit, needs["log_file"])
    else:
        _wait_until_active(unit, "", emit, needs["log_file"])


def restart(unit: str, name: str, before: str, emit: Emit, log_file: str) -> None:
    """Restart a unit and wait until its waiter has let it become active.

    Args:
        unit: its name.
        name: of the deployment.
        before: the invocation that must be over.
        emit: called every few seconds.
        log_file: where the server's own lines go, if not to the journal.

    Raises:
        ApplyError: the start failed, or took longer than the unit's limits allow.
        SystemdError: systemctl refuses.
    """
    try:
        files.remove(f"/run/launch/{name}/{REFUSAL_FILE}")
    except OSError as error:
        emit(f"warning: {error}")
    # A start limit hit by earlier failures would refuse this planned start.
    systemd.systemctl("reset-failed", unit)
    systemd.systemctl("restart", "--no-block", unit)
    _wait_until_active(unit, before, emit, log_file)


def _wait_until_active(unit: str, before: str, emit: Emit, log_file: str) -> None:
    """Wait for the end of a start.

    Args:
        unit: its name.
        before: the invocation that must be over; "" for any.
        emit: called every five seconds.
        log_file: where the server's own lines go, if not to the journal.

    Raises:
        ApplyError: the start failed, or took longer than the unit's limits allow.
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
            raise ApplyError(f"the server did not start ({state['Result']})", failed_start(unit, begin, log_file))
        if time.monotonic() > limit:
            raise ApplyError("the server did not get ready in time", failed_start(unit, begin, log_file))
        if time.monotonic() - told > 5:
            told = time.monotonic()
            emit(f"waiting for the server: {state['ActiveState']} for {time.time() - begin:.0f} s")
        time.sleep(0.2)
        state = systemd.properties(unit)


def _prove(request: Dict[str, Any]) -> Dict[str, Any]:
    """Check every process of the unit, as root, against the manifest that was sent."""
    manifest = parse(request["files"][1]["text"], "the manifest sent")
    state = systemd.properties(request["unit"])
    if state["ActiveState"] != "active":
        raise ApplyError(f"the server is {state['ActiveState']}")
    main = int(state["MainPID"])
    verdict = settled(manifest, main, state["ControlGroup"])
    wrong = verdict.contradictions + unguarded(f"/run/launch/{manifest['name']}", manifest, main, state["InvocationID"])
    if wrong:
        raise ApplyError("processes do not carry the release", wrong)
    nccl = account(request["unit"], state["InvocationID"], manifest)
    return {"digest": manifest["digest"], "main": main, "nccl": nccl, **verdict._asdict()}


def _baseline(request: Dict[str, Any]) -> Dict[str, Any]:
    manifest = parse(request["files"][1]["text"], "the manifest sent")
    return baseline(request["unit"], request["needs"], manifest)


def _put_secrets_back(request: Dict[str, Any], old: Dict[str, Optional[str]]) -> None:
    for entry in request["secrets"]:
        text = old[entry["path"]]
        if text is None:
            files.remove(entry["path"])
        else:
            files.write({**entry, "text": text})


def _put_back(request: Dict[str, Any], before: _Before, emit: Emit) -> Dict[str, Any]:
    """Restore the unit that was there, whether it starts at boot, and its server if it has been stopped."""
    unit, unit_file, needs = request["unit"], request["files"][-1], request["needs"]
    was, untouched = before.loaded, False
    try:
        nccl_block.put(before.nccl_conf)
        untouched = systemd.properties(unit)["InvocationID"] == was["InvocationID"]
        if before.unit_text is None:
            systemd.systemctl("disable", "--now", unit)
            files.remove(unit_file["path"])
            systemd.systemctl("daemon-reload")
            _put_secrets_back(request, before.secrets)
            return {"outcome": "rolled back", "serves": "nothing; there was no such server before"}
        files.write({**unit_file, "text": before.unit_text})
        _put_secrets_back(request, before.secrets)
        if was["UnitFileState"] != "enabled":
            systemd.systemctl("disable", unit)
        systemd.systemctl("daemon-reload")
        if was["ActiveState"] not in ("active", "activating", "reloading"):
            systemd.systemctl("stop", unit)
            return {"outcome": "rolled back", "serves": f"nothing; it was {was['ActiveState']} before"}
        if untouched:
            return {"outcome": "rolled back", "serves": "the old server, which was not touched"}
        restart(unit, needs["name"], systemd.properties(unit)["InvocationID"], emit, needs["log_file"])
    except FAILURES as error:
        serves = "the old server, which was not touched" if untouched else "unknown; launch status shows it"
        return {"outcome": "failed", "serves": f"{serves}. Putting the old state back failed too: {error}"}
    return {"outcome": "rolled back", "serves": "the old release again, restarted"}
