"""One change of a host, from the lease to the mark "good": the old pair serves or the new one, completely.

Stage under real names, arm the marker, switch, read back, drain and stop, start, prove, confirm. Before the switch a
failure leaves nothing behind; after it everything is put back from the marker, which outlives this process.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import files, generations, keep, marker, nccl_block, origin, preflight, record, stray, systemd, takeover
from .bench import link_test
from .facts import Unknown, facts, output
from .failed import FAILURES, ChangeError
from .lease import LeaseHeld, lease
from .library import failed_start
from .manifest import parse
from .needs import problems
from .observe import baseline
from .serving import Emit, drain, load, prove, start, stop, wait_until_active
from .staging import stage, verify

#: Called with the name of a phase that is over; returns when the change may go on.
#: Raises `Reverted` when it may not.
Barrier = Callable[[str], None]
_HOOK_SECONDS = 300
#: Told when a change fails after the switch; its client then tells the other hosts of the world.
GOING_BACK = "putting back what was there before"
#: Told before anything is replaced: without it a change that was killed has changed nothing.
SWITCHING = "switching the unit"


class Reverted(Exception):  # noqa: N818 - an order, no failure
    """The change may not go on: another host failed, somebody wanted it undone, or nobody confirmed."""


def run(request: Mapping[str, Any], emit: Emit, barrier: Barrier) -> Dict[str, Any]:
    """Bring a release into service.

    Args:
        request: ``unit``, ``files`` (environment file, manifest, unit, in this order), ``shared`` (agent and the
            units that are the same for every deployment), ``commands`` (ExecStart and ExecStartPost as they must be
            loaded), ``secrets`` (files), ``needs``, ``intent``, ``hooks``, ``seen`` (what the plan was made of),
            ``restart`` (whether the server must be restarted), ``limit`` (seconds), and perhaps ``takes_over`` (which
            server that is not ours makes room, see `launcher.agent.stray.find`).
        emit: called with a line of progress.
        barrier: called when everything is staged, when the old server is gone, and when the new one is proven.

    Returns:
        ``outcome`` is ``done``, ``refused`` (nothing was switched), ``locked`` or ``rolled back`` / ``failed``
        (after the switch); with ``message``, ``evidence`` lines and, when done, the ``proof`` and ``generation``.
    """
    needs, intent = request["needs"], request["intent"]
    try:
        with lease(intent["by"], needs["name"], request["why"], request["limit"]):
            begin = time.monotonic()
            answer = _run(request, emit, barrier)
            answer["seconds"] = round(time.monotonic() - begin, 1)
            if answer["outcome"] not in ("done", "refused"):
                _note(request, answer)
            return answer
    except LeaseHeld as held:
        return _refused(str(held), outcome="locked")
    except systemd.SystemdError as error:
        return _refused(f"systemd does not answer: {error}")


def _refused(message: str, evidence: "Optional[List[str]]" = None, *, outcome: str = "refused") -> Dict[str, Any]:
    return {"outcome": outcome, "message": message, "evidence": evidence or []}


def _run(request: Mapping[str, Any], emit: Emit, barrier: Barrier) -> Dict[str, Any]:
    left = unfinished(request["needs"]["name"], emit)
    lacking = left or _stale(request) or problems(request["needs"], request["unit"]) or before_stopping(request, emit)
    if lacking:
        return _refused("the host is not ready", lacking)
    try:
        before = marker.capture(request)
    except ChangeError as error:
        return _refused("the host is not ready", [str(error)])
    begin = time.time()
    try:
        emit("staging")
        stage(dict(request))
        verify(request["unit"], request["files"][-1]["text"])
        if before["origin"]:
            origin.write(before["name"], before["origin"])
        if before["stray"]:
            origin.note(before["name"], takeover.summary(before["stray"]))
        barrier("staged")
    except FAILURES as error:
        return _refused(f"staging failed: {error}", getattr(error, "lines", []))
    except Reverted as why:
        return _refused(f"not begun: {why}")
    try:
        emit(SWITCHING)
        marker.arm(before)
        files.write(request["files"][-1])
        if before["origin"]:
            # After the unit: a power cut in between must not start the foreign one without its drop-ins.
            origin.clear(before["unit"])
        proof = _switch(request, before, emit, barrier)
        barrier("proven")
        number = _keep(request)
    except (*FAILURES, Reverted) as error:
        return _undo(request, before, error, begin, emit)
    return {"outcome": "done", "message": "", "evidence": [], "proof": proof, "generation": number}


def unfinished(name: str, emit: Emit) -> List[str]:
    """Put back what a change before this one has left half-way; return why that cannot be done."""
    before = marker.read(name)
    if before is None:
        return []
    emit("a change before this one was cut short; putting back what was there before it")
    back = marker.put_back(before, emit)
    return [back["serves"]] if marker.read(name) is not None else []


def _stale(request: Mapping[str, Any]) -> List[str]:
    """Return why the plan does not hold any more: somebody else changed the host since."""
    is_ = record.state(request["files"][-1]["path"], request["needs"]["name"])
    if request.get("takes_over"):
        is_["taken"] = _taken(request["takes_over"])
    if not request["seen"] or is_ == request["seen"]:
        return []
    return ["the host was changed since the plan was made; plan again: launch plan"]


def _taken(wanted: Mapping[str, Any]) -> str:
    try:
        return stray.mark(stray.find(wanted))
    except stray.Unfit as why:
        return str(why)


def before_stopping(request: Mapping[str, Any], emit: Emit) -> List[str]:
    """Return what would keep the new server from coming up, as far as it can be known while the old one serves."""
    wanted = request["needs"]["preflight"]
    if not request["restart"]:
        return []
    emit("looking at the model, the engine, memory, disks and GPUs")
    going = takeover.pids(request["takes_over"]) if request.get("takes_over") else ()
    found = preflight.problems(wanted, facts(wanted["python"], wanted["user"]), going)
    for obstacle in found:
        if obstacle.severity == "warn":
            emit(f"warning: {obstacle.text} [{obstacle.id}]")
    allowed = request["needs"]["allow"]
    lacking = [f"{o.text} [{o.id}]" for o in found if o.severity == "refuse" and o.id not in allowed]
    links = request.get("link_test")
    if lacking or not links or not links["beside"]:
        return lacking
    problem, lines = link_test(links, emit)
    return [problem, *lines] if problem else []


def _switch(request: Mapping[str, Any], before: Dict[str, Any], emit: Emit, barrier: Barrier) -> Dict[str, Any]:
    unit, needs, hooks = request["unit"], request["needs"], request["hooks"]
    for entry in request["secrets"]:
        files.folder(os.path.dirname(entry["path"]), 0o700, "root")
        files.write(entry)
    nccl_block.put(nccl_block.wanted(nccl_block.read(), needs["name"], needs["nccl"]))
    load(request)
    if request["restart"]:
        _hook(hooks["before_stop"], "before_stop", emit)
        drain(needs["port"], hooks["drain"], emit)
        if systemd.properties(unit)["ActiveState"] not in ("inactive", "failed"):
            emit("stopping the old server")
        _take_over(before, emit)
        stop(unit, needs["user"], needs["port"], emit)
        barrier("stopped")
        _links(request, emit)
        emit("starting")
        start(unit, needs["name"], emit, needs["log_file"])
    else:
        barrier("stopped")
        wait_until_active(unit, "", emit, needs["log_file"])
    proof = prove(unit, parse(request["files"][1]["text"], "the manifest sent"))
    if before["stray"]:
        takeover.stays_away(before["stray"])
    if request["restart"]:
        _hook(hooks["after_start"], "after_start", emit)
    return proof


def _take_over(before: Dict[str, Any], emit: Emit) -> None:
    """Stop the server that is taken over; that this has begun is on disk first.

    Raises:
        ChangeError: something of it stays, or starts it again.
    """
    if before["stray"]:
        before["stray"]["stopping"] = True
        marker.write(before)
        takeover.stop(before["stray"], emit)


def _links(request: Mapping[str, Any], emit: Emit) -> None:
    """Try the links between the GPUs under the new environment, with nobody on them.

    Raises:
        ChangeError: they hang, or bring wrong sums.
    """
    wanted = request.get("link_test")
    if wanted and not wanted["beside"]:
        problem, lines = link_test(wanted, emit)
        if problem:
            raise ChangeError(problem, lines)


def _hook(command: str, name: str, emit: Emit) -> None:
    """Run a command of the configuration.

    Raises:
        ChangeError: it failed or took too long.
    """
    if not command:
        return
    emit(f"unit.{name}: {command}")
    try:
        systemd.command(["/bin/sh", "-c", command], timeout=_HOOK_SECONDS)
    except systemd.SystemdError as error:
        raise ChangeError(f"unit.{name} failed", str(error).splitlines()) from error


def _keep(request: Mapping[str, Any]) -> int:
    """Write down what was proven, and only then take the marker away."""
    name = request["needs"]["name"]
    manifest = parse(request["files"][1]["text"], "the manifest sent")
    now = time.time()
    record.write(request, baseline(request["unit"], request["needs"], manifest), now)
    number = generations.add(name, {**_entry(request, now), "outcome": "good"})
    marker.disarm(name)
    generations.clean(name)
    return number


def _entry(request: Mapping[str, Any], now: float) -> Dict[str, Any]:
    return {"at": int(now), "by": request["intent"]["by"], "why": request["why"], "words": request["intent"]["words"]}


def _note(request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    digest = json.loads(request["files"][1]["text"])["digest"]
    entry = {**_entry(request, time.time()), "number": 0, "digest": digest, "outcome": answer["outcome"]}
    try:
        generations.note(request["needs"]["name"], {**entry, "message": answer["message"]})
    except OSError:
        return  # a full disk has been told already


def _undo(
    request: Mapping[str, Any], before: Mapping[str, Any], error: BaseException, begin: float, emit: Emit
) -> Dict[str, Any]:
    wanted = isinstance(error, Reverted)
    evidence = list(getattr(error, "lines", []))
    if not evidence and not wanted:
        evidence = failed_start(request["unit"], begin, request["needs"]["log_file"])
    evidence += [] if wanted else _gpus()
    secrets = {entry["path"] for entry in request["secrets"]}
    old = [keep.text_of(entry) for entry in before["kept"] if entry["path"] in secrets]
    hidden = [text for text in (*old, *(entry["text"] for entry in request["secrets"])) if text]
    evidence = [_without(line, hidden) for line in evidence]
    emit(GOING_BACK)
    back = marker.put_back(before, emit)
    return {**back, "message": _without(str(error), hidden), "evidence": evidence}


def _gpus() -> List[str]:
    """Return what each GPU looked like right after a failure, one line each; nothing where there is no nvidia-smi."""
    fields = "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw"
    try:
        text = output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    except Unknown:
        return []
    return [f"GPU {line}" for line in text.splitlines()[:16] if line.strip()]


def _without(line: str, secrets: List[str]) -> str:
    """Return a line without secrets: a server that dies may have logged its own."""
    for secret in secrets:
        line = line.replace(secret, "***")
    return line
