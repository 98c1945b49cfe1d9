"""The one change to a host: stage, verify, switch, restart, prove; the old pair serves if anything fails."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import files, systemd
from .guard import REFUSAL_FILE
from .manifest import parse
from .probe import problems, read_text
from .wait import settled

_LOCK = "/run/launch.lock"
#: Beyond the unit's own time limits, before a start counts as lost; seconds.
_SLACK = 30

Emit = Callable[[str], None]


class ApplyError(Exception):
    """The change failed; ``lines`` are the evidence."""

    def __init__(self, message: str, lines: "List[str] | None" = None) -> None:
        super().__init__(message)
        self.lines = lines or []


def apply(request: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Bring a release into service.

    Args:
        request: ``unit``, ``files`` (environment file, manifest, unit, in this order), ``shared`` (agent and the
            units that are the same for every deployment), ``command`` (ExecStart as it must be loaded),
            ``secrets`` (files), ``needs``, ``restart`` (whether the server must be restarted), ``timeouts`` (seconds).
        emit: called with a line of progress.

    Returns:
        ``outcome`` is ``done``, ``refused`` (nothing was switched), ``locked`` or ``rolled back`` / ``failed``
        (after the switch); with ``message``, ``evidence`` lines and, when done, the ``proof``.
    """
    try:
        with _lock():
            return _apply(request, emit)
    except BlockingIOError:
        return {
            "outcome": "locked",
            "message": f"another launch is changing this host ({_LOCK})",
            "evidence": [],
        }


@contextmanager
def _lock() -> Iterator[None]:
    descriptor = os.open(_LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _apply(request: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    unit, unit_file = request["unit"], request["files"][-1]
    lacking = problems(request["needs"])
    if lacking:
        return {"outcome": "refused", "message": "the host is not ready", "evidence": lacking}
    old = read_text(unit_file["path"])
    old_secrets = {entry["path"]: read_text(entry["path"]) for entry in request["secrets"]}
    before = systemd.properties(unit)
    begin = time.time()
    try:
        emit("staging")
        _stage(request)
        _verify(request)
    except (OSError, systemd.SystemdError, ApplyError) as error:
        return {
            "outcome": "refused",
            "message": f"staging failed: {error}",
            "evidence": getattr(error, "lines", []),
        }
    try:
        for entry in request["secrets"]:
            files.folder(os.path.dirname(entry["path"]), 0o700, "root")
            files.write(entry)
        files.write(unit_file)
        _load(request)
        if request["restart"]:
            emit("restarting")
            _restart(unit, request["timeouts"], before.get("InvocationID", ""), emit)
        proof = _prove(request)
    except (OSError, systemd.SystemdError, ApplyError) as error:
        evidence = list(getattr(error, "lines", [])) or systemd.journal(unit, begin)
        emit("putting back what was there before")
        _put_secrets_back(request, old_secrets)
        return {**_put_back(request, old, before, emit), "message": str(error), "evidence": evidence}
    return {"outcome": "done", "message": "", "evidence": [], "proof": proof}


def _stage(request: Dict[str, Any]) -> None:
    """Write everything that nothing points to yet."""
    env_file, manifest, _ = request["files"]
    for path in sorted({os.path.dirname(entry["path"]) for entry in request["shared"]}):
        os.makedirs(path, exist_ok=True)
    folder = os.path.dirname(env_file["path"])
    files.folder(os.path.dirname(folder), 0o755, "root")
    files.folder(folder, 0o750, manifest["group"])
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
    systemd.systemctl("enable", "launch.target", unit)
    systemd.systemctl("daemon-reload")
    loaded = systemd.properties(unit)
    path = request["files"][-1]["path"]
    if loaded["LoadState"] != "loaded":
        raise ApplyError(f"systemd did not load {path}: {loaded['LoadState']} {' '.join(loaded['LoadError'])}")
    wrong: List[str] = []
    if loaded["FragmentPath"] != path:
        wrong.append(f"the unit is loaded from {loaded['FragmentPath']}")
    env_files = [entry[0] for entry in loaded["EnvironmentFiles"]]
    if env_files != [request["files"][0]["path"]]:
        wrong.append(f"environment files as loaded: {', '.join(env_files) or 'none'}")
    commands = [entry[1] for entry in loaded["ExecStart"]]
    if commands != [request["command"]]:
        wrong.append("the command as loaded is not the one in the unit file")
    if wrong:
        drop_ins = [f"drop-in: {p}" for p in loaded["DropInPaths"]]
        raise ApplyError("something else overrides the unit; remove it and deploy again", wrong + drop_ins)


def _restart(unit: str, timeouts: Dict[str, int], before: str, emit: Emit) -> None:
    """Restart and wait until the waiter has let the unit become active.

    Raises:
        ApplyError: the start failed, or took longer than its limits allow.
    """
    begin = time.time()
    files.remove(f"/run/launch/{unit[len('launch-') : -len('.service')]}/{REFUSAL_FILE}")
    # A start limit hit by earlier failures would refuse this planned start.
    systemd.systemctl("reset-failed", unit)
    systemd.systemctl("restart", "--no-block", unit)
    limit = time.monotonic() + timeouts["start"] + timeouts["stop"] + _SLACK
    told = time.monotonic()
    while True:
        time.sleep(0.2)
        state = systemd.properties(unit)
        over = state["Job"][0] == 0
        if over and state["ActiveState"] == "active" and state["InvocationID"] != before:
            return
        if over or state["NRestarts"] > 0:
            raise ApplyError(f"the server did not start ({state['Result']})", systemd.journal(unit, begin))
        if time.monotonic() > limit:
            raise ApplyError("the server did not get ready in time", systemd.journal(unit, begin))
        if time.monotonic() - told > 5:
            told = time.monotonic()
            emit(f"waiting for the server: {state['ActiveState']} for {time.time() - begin:.0f} s")


def _prove(request: Dict[str, Any]) -> Dict[str, Any]:
    """Check every process of the unit, as root, against the manifest that was sent."""
    manifest = parse(request["files"][1]["text"], "the manifest sent")
    state = systemd.properties(request["unit"])
    if state["ActiveState"] != "active":
        raise ApplyError(f"the server is {state['ActiveState']}")
    verdict = settled(manifest, int(state["MainPID"]), state["ControlGroup"])
    if verdict.contradictions:
        raise ApplyError("processes do not carry the release", verdict.contradictions)
    return {"digest": manifest["digest"], "main": int(state["MainPID"]), **verdict._asdict()}


def _put_secrets_back(request: Dict[str, Any], old: Dict[str, Optional[str]]) -> None:
    for entry in request["secrets"]:
        text = old[entry["path"]]
        if text is None:
            files.remove(entry["path"])
        else:
            files.write({**entry, "text": text})


def _put_back(request: Dict[str, Any], old: Optional[str], before: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Restore the unit that was there, and its server if it has been stopped."""
    unit, unit_file = request["unit"], request["files"][-1]
    try:
        if old is None:
            systemd.systemctl("disable", "--now", unit)
            files.remove(unit_file["path"])
            systemd.systemctl("daemon-reload")
            return {"outcome": "rolled back", "serves": "nothing; there was no such server before"}
        files.write({**unit_file, "text": old})
        systemd.systemctl("daemon-reload")
        now = systemd.properties(unit)
        same = now["InvocationID"] == before["InvocationID"]
        if before["ActiveState"] != "active" or (same and now["ActiveState"] == "active"):
            kept = (
                "the old server, which was not touched" if before["ActiveState"] == "active" else "nothing, as before"
            )
            return {"outcome": "rolled back", "serves": kept}
        _restart(unit, request["timeouts"], now["InvocationID"], emit)
    except (OSError, systemd.SystemdError, ApplyError) as error:
        return {"outcome": "failed", "serves": f"unknown: putting the old state back failed too ({error})"}
    return {"outcome": "rolled back", "serves": "the old release again, restarted"}
