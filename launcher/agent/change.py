"""A change runs in a unit of its own on the host: a lost connection or a dead client does not stop it half-way.

The session that brought the request only starts the unit and follows what it tells; others can follow it too. Between
phases the change waits for a word: of a client that has reached all hosts, and, after the proof, over a new connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import files, generations, lease, marker, record, systemd, transaction
from .failed import FAILURES
from .journal import say_of
from .processes import read_bytes

FOLDER = "/run/launch-change"
#: How long the unit may take to begin; seconds.
_BEGIN = 30
#: How long a broken change may take to put back what was there before it; seconds.
_BREAK_SECONDS = 3600

#: How long the answer of a change that is over is kept, from its last word on; seconds.
_ASKED_SECONDS = 600
_RUN = ("systemd-run", "--quiet", "--collect")

Emit = Callable[[str], None]
Event = Dict[str, Any]


def begin(request: Mapping[str, Any], program: str, emit: Emit) -> Dict[str, Any]:
    """Start a change in a transient unit and follow it to its first wait or its end.

    Args:
        request: see `transaction.run`; with ``id`` (of this change) and ``waits`` (phases to wait after).
        program: text of this agent.
        emit: called with lines of progress.

    Returns:
        An answer of `transaction.run`, or ``outcome`` ``waits`` with the ``phase``.
    """
    files.folder(FOLDER, 0o700, "root")
    if request["break_lease"] and _break(emit):
        # The plan was made of a state in the middle, which is not there any more.
        request = dict(request, seen={}, restart=True)
    spawn(request, program, "change")
    return follow(request["id"], unit_of(request["id"]), 0, emit)


def spawn(request: Mapping[str, Any], program: str, verb: str) -> None:
    """Start a unit of its own that carries a request out, and puts back what was there before however it ends.

    Args:
        request: with ``id``, ``needs`` (``name``), ``why`` and ``limit`` (seconds, after which systemd ends it).
        program: text of this agent.
        verb: of this agent's command line, called with the folder of the request.

    Raises:
        SystemdError: the unit cannot be started.
    """
    place, unit = place_of(request["id"]), unit_of(request["id"])
    files.folder(FOLDER, 0o700, "root")
    _clean()
    os.mkdir(place, 0o700)
    for name, text in (("agent.py", program), ("request.json", json.dumps(request)), ("events", "")):
        with open(os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            stream.write(text)
    run = [sys.executable, "-I", "-X", "utf8", f"{place}/agent.py"]
    settings = {
        "Type": "exec",
        "RuntimeMaxSec": str(int(request["limit"])),
        "TimeoutStopSec": str(int(request["limit"])),
        "KillMode": "mixed",
        "ExecStopPost": " ".join([*run, "recover", request["needs"]["name"], request["id"]]),
        "OOMScoreAdjust": "-900",
    }
    words = [word for key, value in settings.items() for word in ("-p", f"{key}={value}")]
    description = f"--description=launch: {request['why']} {request['needs']['name']}"
    try:
        systemd.command([*_RUN, f"--unit={unit}", description, *words, *run, verb, place])
    except systemd.SystemdError:
        shutil.rmtree(place)  # there are secrets in it
        raise


def unit_of(id_: str) -> str:
    """Return the unit that a change runs in."""
    return f"launch-change-{id_}.service"


def _break(emit: Emit) -> bool:
    """End the change that is under way, by somebody else's will; it puts back what was there before.

    Returns:
        Whether there was one.
    """
    held = under_way()
    if held is None or not held["id"]:
        return False
    emit(f"ending the change of {held['owner']} ({held['why']}); what was there before it comes back first")
    # The stop of the unit ends when its ExecStopPost= has put everything back.
    systemd.command(["systemctl", "--no-ask-password", "stop", unit_of(held["id"])], timeout=_BREAK_SECONDS)
    return True


def _clean() -> None:
    """Remove what changes that are over have left, as soon as nobody can still be coming for their answer."""
    for id_ in os.listdir(FOLDER):
        if time.time() - os.stat(place_of(id_)).st_mtime > _ASKED_SECONDS and not lives(unit_of(id_)):
            shutil.rmtree(place_of(id_), ignore_errors=True)


def place_of(id_: str) -> str:
    """Return the folder through which a change and its client talk."""
    return f"{FOLDER}/{id_}"


def go_on(id_: str, word: str, why: str, emit: Emit) -> Dict[str, Any]:
    """Say a word to a change, and follow it to its next wait or its end.

    Args:
        id_: of the change.
        word: ``go`` and ``revert`` end a wait, and ``revert`` a phase too; ``detach`` lets the change go on by itself
            from now on; ``look`` only tells whether it waits, ``follow`` says nothing.
        why: reason to revert.
        emit: called with lines of progress.
    """
    place, unit = place_of(id_), unit_of(id_)
    if not os.path.isdir(place):
        message = "there is no such change on this host any more; launch status shows what serves"
        return {"outcome": "failed", "message": message, "evidence": []}
    lines = lines_of(place)
    phase = lines[-1].get("waits", "") if lines else ""
    if lines and "answer" in lines[-1]:
        return dict(lines[-1]["answer"], id=id_)  # it is over; nobody heard
    if word == "look":
        return {"outcome": "waits" if phase else "goes on", "phase": phase, "message": "", "evidence": []}
    if word == "follow" or (word == "revert" and _goes_back(lines)):
        return follow(id_, unit, max(0, len(lines) - 1), emit)
    if word == "revert" and not phase:
        # It is in the middle of something: its end brings ExecStopPost=, which puts back what was there before.
        _write(f"{place}/why", why)
        systemd.systemctl("stop", "--no-block", unit)
        return follow(id_, unit, len(lines), emit)
    _write(f"{place}/word.tmp", f"{word} {why}".strip())
    os.rename(f"{place}/word.tmp", f"{place}/word")
    if word == "detach":
        return {"outcome": "detached", "message": "", "evidence": []}
    return follow(id_, unit, len(lines), emit)


def _goes_back(lines: List[Event]) -> bool:
    return any(transaction.GOING_BACK in event.get("event", "") for event in lines)


def watch(name: str, emit: Emit) -> Dict[str, Any]:
    """Follow the change of a deployment that is under way; ``outcome`` is ``none`` where there is none."""
    held = under_way()
    if held is None or not held["id"] or held["deployment"] != name:
        return {"outcome": "none", "message": "no change of it is under way", "evidence": []}
    emit(f"{held['owner']}: {held['why']}")
    return follow(held["id"], unit_of(held["id"]), 0, emit, through=True)


def follow(id_: str, unit: str, seen: int, emit: Emit, *, through: bool = False) -> Dict[str, Any]:
    """Tell what a change does until it waits or ends.

    Args:
        id_: of the change.
        unit: that it runs in.
        seen: how many of its events are known already.
        emit: called with lines of progress.
        through: to its end, past its waits: somebody else says the word.
    """
    place, deadline = place_of(id_), time.monotonic() + _BEGIN
    while True:
        lines = lines_of(place)
        for event in lines[seen:]:
            if "answer" in event:
                return dict(event["answer"], id=id_)
            if "waits" in event and not through:
                return {"outcome": "waits", "phase": event["waits"], "id": id_, "message": "", "evidence": []}
            emit(event.get("event") or f"waits for its client after the phase {event['waits']!r}")
        seen = max(seen, len(lines))
        if time.monotonic() > deadline and not lives(unit):
            return {"outcome": "failed", "message": "the change ended without an answer", "evidence": [], "id": id_}
        if lives_cheaply(place):
            deadline = time.monotonic() + _BEGIN
        time.sleep(0.05)


def lives(unit: str) -> bool:
    """Return whether a unit runs."""
    return systemd.properties(unit)["ActiveState"] not in ("inactive", "failed")


def lives_cheaply(place: str) -> bool:
    """Return whether the process of a change runs; without asking systemd."""
    pid = (read_bytes(f"{place}/pid") or b"").decode("ascii", "replace")
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")


def lines_of(place: str) -> List[Event]:
    """Return what a change has told so far."""
    whole = (read_bytes(f"{place}/events") or b"").rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def change(place: str) -> int:
    """Be the unit: carry the request out."""
    request = json.loads(read_bytes(f"{place}/request.json") or b"{}")
    os.unlink(f"{place}/request.json")  # there are secrets in it
    _write(f"{place}/pid", str(os.getpid()))
    tell = teller(place)

    def barrier(phase: str) -> None:
        if phase in request["waits"]:
            _wait_for_word(place, phase, request["patience"], tell)

    answer = transaction.run(request, lambda text: tell({"event": text}), barrier)
    _to_journal(request, answer)
    tell({"answer": answer})
    return 0


def teller(place: str) -> Callable[[Event], None]:
    """Return what writes an event for whoever follows."""

    def tell(event: Event) -> None:
        with open(f"{place}/events", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(event) + "\n")

    return tell


def _wait_for_word(place: str, phase: str, patience: float, tell: Callable[[Event], None]) -> None:
    """Wait for the client's word; without one the change is undone, for nobody knows what became of the other hosts.

    Raises:
        Reverted: it is to be undone.
    """
    if os.path.exists(f"{place}/detached"):
        return
    tell({"waits": phase})
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        word = (read_bytes(f"{place}/word") or b"").decode("utf-8", "replace")
        if word:
            os.unlink(f"{place}/word")
            word, _, why = word.partition(" ")
            if word == "detach":
                _write(f"{place}/detached", "")
            if word == "revert":
                raise transaction.Reverted(why or "the client took it back")
            return
        time.sleep(0.05)
    raise transaction.Reverted(f"nobody said a word within {patience:g} s after it was {phase}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _to_journal(request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Leave one line of a change that can be searched for by its fields."""
    needs = request["needs"]
    digest = json.loads(request["files"][1]["text"])["digest"]
    by = request["intent"]["by"]
    text = f"{request['why']} by {by}: {answer['outcome']}, release {digest} {answer['message']}".strip()
    level = 5 if answer["outcome"] == "done" else 4
    fields = {"LAUNCH_DEPLOYMENT": needs["name"], "LAUNCH_CHANGE": request["id"], "LAUNCH_OUTCOME": answer["outcome"]}
    say_of(record.unit_of(needs["name"]), text, level=level, **fields, LAUNCH_RELEASE=digest, LAUNCH_BY=by)


def recover(name: str, id_: str) -> int:
    """Put back what was there before a change that ended without doing so: killed, or out of time."""
    if marker.read(name) is None:
        _nothing_done(place_of(id_))
        return 0
    try:
        with lease.lease("the host itself", name, "recovery", _BREAK_SECONDS):
            return _recover(name, id_)
    except lease.LeaseHeld:
        return 0  # whoever holds it puts back first what was left


def _nothing_done(place: str) -> None:
    """Tell whoever follows a change that was ended before it replaced anything."""
    lines = lines_of(place)
    if os.path.isdir(place) and not any("answer" in e or e.get("event") == transaction.SWITCHING for e in lines):
        message = "the change was ended from outside before anything was replaced"
        teller(place)({"answer": {"outcome": "refused", "message": message, "evidence": []}})


def _recover(name: str, id_: str) -> int:
    before = marker.read(name)
    if before is None:
        return 0
    place = place_of(id_)
    tell: Callable[[Event], None] = teller(place) if os.path.isdir(place) else lambda _: None
    tell({"event": "the change was ended from outside; putting back what was there before"})
    back = marker.put_back(before, lambda text: tell({"event": text}))
    with contextlib.suppress(*FAILURES):  # what is left over is in nobody's way, and goes with the next change
        generations.clean(name)
    say_of(record.unit_of(name), f"a change was ended from outside: {back['outcome']}; {back['serves']}", level=4)
    why = (read_bytes(f"{place}/why") or b"").decode("utf-8", "replace")
    tell({"answer": {**back, "message": why or "the change was ended from outside", "evidence": []}})
    return 0


def recover_all() -> int:
    """Put back, at boot and before any server starts, what changes that were cut short had replaced."""
    for name in marker.pending():
        before = marker.read(name)
        if before is None:
            say_of(record.unit_of(name), f"{marker.path_of(name)} cannot be read; left as it is", level=3)
            continue
        back = marker.put_back(before, lambda _: None, booting=True)
        text = f"a change was cut short by the end of the system: {back['outcome']}, the last good release"
        say_of(record.unit_of(name), f"{text} starts. {back['serves']}".strip(), level=4)
    return 0


def under_way() -> Optional[Dict[str, Any]]:
    """Return who is changing this host now and what it does, None where nobody is."""
    held = lease.holder()
    if held is None:
        return None
    for id_ in sorted(os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []:
        if (read_bytes(f"{place_of(id_)}/pid") or b"").decode() == str(held["pid"]):
            events = [e.get("event") or f"waits: {e.get('waits', '')}" for e in lines_of(place_of(id_))]
            return {**held, "id": id_, "doing": events[-1] if events else ""}
    return {**held, "id": "", "doing": ""}
