"""A sweep's session on a host: points are served in place of a deployment, which comes back however the session ends.

One unit of its own holds the lease from the first point to the last. Before anything is replaced the marker of what
was there is on disk; it is put back at the end, by this unit's ExecStopPost= when it was killed or out of time, and at
boot. The client gives one order after the other; when none comes for a while, nobody is there any more, and the session
ends. Points do not restart by themselves and do not start at boot.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from . import (
    change,
    files,
    generations,
    lease,
    load,
    marker,
    nccl_block,
    origin,
    record,
    restored,
    serving,
    systemd,
    transaction,
)
from .bench import nobody_listens
from .check import check
from .comm_process import Abandoned
from .failed import FAILURES
from .findings import counts
from .journal import say_of
from .library import failed_start
from .manifest import parse
from .needs import problems
from .processes import read_bytes
from .staging import stage, verify

#: Lines of a start that are handed over: NCCL's, and the last ones.
_LINES, _LAST = 1500, 40
#: How long a session may take to answer whether it begins; seconds.
_BEGIN = 900
#: Touched all the time by whoever waits for an answer.
_HEARD = "heard"
_RESTART = re.compile(r"^Restart=.*$", re.MULTILINE)

Emit = Callable[[str], None]
Order = Mapping[str, Any]


def begin(request: Mapping[str, Any], program: str, emit: Emit) -> Dict[str, Any]:
    """Start a session.

    Args:
        request: ``id``, ``unit``, ``needs``, ``intent`` (``by``), ``why``, ``secrets``, ``files`` (of the baseline:
            their paths count), ``limit`` and ``silence`` (seconds), ``break_lease``.
        program: text of this agent.
        emit: called with lines of progress.

    Returns:
        ``outcome`` ``open``, ``refused`` or ``locked``; with ``message`` and ``evidence``.
    """
    change.spawn(request, program, "session")
    return _answer(request["id"], 0, emit)


def ask(id_: str, number: int, order: Order, emit: Emit) -> Dict[str, Any]:
    """Give a session an order and return its answer.

    Args:
        id_: of the session.
        number: of the order, from 1.
        order: ``do`` is ``start`` (with a release's ``files``, ``shared``, ``commands``, ``secrets``), ``load`` (see
            `launcher.agent.load.run`), ``back`` (production comes back now, for loads of its own; no point follows)
            or ``end``.
        emit: called with lines of progress.
    """
    place = change.place_of(id_)
    if not os.path.isdir(place):
        return _over("there is no such session on this host any more; launch status shows what serves")
    _put(f"{place}/order.{number}", order)
    return _answer(id_, number, emit)


def _answer(id_: str, number: int, emit: Emit) -> Dict[str, Any]:
    place, unit = change.place_of(id_), change.unit_of(id_)
    path, seen, deadline = f"{place}/answer.{number}", len(change.lines_of(place)), time.monotonic() + _BEGIN
    while True:
        lines = change.lines_of(place)
        for event in lines[seen:]:
            emit(event.get("event", ""))
        seen = len(lines)
        content = read_bytes(path)
        if content is not None:
            os.unlink(path)
            found: Dict[str, Any] = json.loads(content)
            return found
        last = next((event["answer"] for event in lines if "answer" in event), None)
        if last is not None:
            return {**last, "over": True}
        if time.monotonic() > deadline and not change.lives(unit):
            return _over("the session ended without an answer")
        if change.lives_cheaply(place):
            deadline = time.monotonic() + _BEGIN
        if not nobody_listens():
            with open(f"{place}/{_HEARD}", "w"):
                pass
        time.sleep(0.05)


def _over(message: str) -> Dict[str, Any]:
    return {"outcome": "failed", "over": True, "message": message, "evidence": []}


def _put(path: str, content: Mapping[str, Any]) -> None:
    """Write what the other side reads, at once."""
    with open(os.open(path + ".tmp", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as stream:
        json.dump(content, stream)
    os.rename(path + ".tmp", path)


def session(place: str) -> int:
    """Be the unit: hold the host until the last order, and put back what was there."""
    request = json.loads(read_bytes(f"{place}/request.json") or b"{}")
    os.unlink(f"{place}/request.json")  # there are secrets in it
    with open(f"{place}/pid", "w", encoding="utf-8") as stream:
        stream.write(str(os.getpid()))
    tell = change.teller(place)
    name = request["needs"]["name"]
    try:
        with lease.lease(request["intent"]["by"], name, request["why"], request["limit"]):
            answer = _Session(place, request, lambda text: tell({"event": text})).run()
    except lease.LeaseHeld as held:
        answer = {"outcome": "locked", "message": str(held), "evidence": []}
    except systemd.SystemdError as error:
        answer = {"outcome": "refused", "message": f"systemd does not answer: {error}", "evidence": []}
    level = 5 if answer["outcome"] == "restored" else 4
    text = f"{request['why']} by {request['intent']['by']}: {answer['outcome']}. {answer.get('serves', '')}".strip()
    say_of(record.unit_of(name), text, level=level, LAUNCH_DEPLOYMENT=name, LAUNCH_CHANGE=request["id"])
    tell({"answer": answer})
    return 0


class _Session:
    """The state of one session: what was there before, and whether anything of it is replaced."""

    def __init__(self, place: str, request: Mapping[str, Any], emit: Emit) -> None:
        self.place, self.request, self.emit = place, request, emit
        self.name: str = request["needs"]["name"]
        self.before: Optional[Dict[str, Any]] = None
        self.manifest: Dict[str, Any] = {}
        self.armed = False
        self.why = ""
        self.number = 0
        #: What came of putting back what was there, once that was tried.
        self.over: Optional[Dict[str, Any]] = None

    def run(self) -> Dict[str, Any]:
        """Carry out every order; return what is there in the end."""
        request = {**self.request, "restart": True, "link_test": None}
        lacking = transaction.unfinished(self.name, self.emit) or problems(request["needs"], request["unit"])
        lacking = lacking or transaction.before_stopping(request, self.emit)
        if lacking:
            return {"outcome": "refused", "message": "the host is not ready", "evidence": lacking}
        self.before = marker.capture(request)
        _put(f"{self.place}/answer.0", {"outcome": "open", "message": "", "evidence": []})
        for number, order in self._orders():
            self.number = number
            if order["do"] == "end":
                break
            try:
                _put(f"{self.place}/answer.{self.number}", self._do(order))
            except Abandoned:
                if not self._wants_the_end():
                    self._end("nobody waits for the answer any more")
                    break
        answer = {**(self.over or self._back()), "message": self.why}
        if self.number:
            _put(f"{self.place}/answer.{self.number}", answer)
        return answer

    def _orders(self) -> "Iterator[tuple[int, Order]]":
        number, silent = 1, time.monotonic() + self.request["silence"]
        while time.monotonic() < silent:
            content = read_bytes(f"{self.place}/order.{number}")
            if content is None:
                time.sleep(0.05)
                continue
            os.unlink(f"{self.place}/order.{number}")  # there are secrets in it
            yield number, json.loads(content)
            number, silent = number + 1, time.monotonic() + self.request["silence"]
        self._end(f"nobody gave an order for {self.request['silence']:g} s")

    def _end(self, why: str) -> None:
        self.why = why
        self.emit(f"{why}: the session ends")

    def _do(self, order: Order) -> Dict[str, Any]:
        begin = time.time()
        does = {"start": self._start, "load": self._load, "back": self._production}
        try:
            return does[order["do"]](order)
        except FAILURES as error:
            lines = list(getattr(error, "lines", [])) or failed_start(self.request["unit"], begin, self._log())
            return {"outcome": "failed", "message": str(error), "evidence": lines, "lines": self._lines(begin)}

    def _log(self) -> str:
        return str(self.request["needs"]["log_file"])

    def _start(self, order: Order) -> Dict[str, Any]:
        """Serve a point in place of what is served; like a change, but that nothing of it lasts."""
        begin, clock = time.time(), time.monotonic()
        unit, needs = self.request["unit"], self.request["needs"]
        text = _RESTART.sub("Restart=no", order["files"][-1]["text"])
        point = {**order, "unit": unit, "files": [*order["files"][:-1], {**order["files"][-1], "text": text}]}
        stage(point)
        verify(unit, text)
        self._arm()
        files.write(point["files"][-1])
        for entry in order["secrets"]:
            files.folder(os.path.dirname(entry["path"]), 0o700, "root")
            files.write(entry)
        serving.stop(unit, needs["user"], needs["port"], self.emit)
        serving.load(point, lasting=False)
        self.manifest = parse(point["files"][1]["text"], "the manifest sent")
        try:
            serving.start(unit, self.name, self.emit, self._log())
            proof = serving.prove(unit, self.manifest)
        except FAILURES:
            systemd.systemctl("stop", unit)
            raise
        return {
            "outcome": "serving",
            "message": "",
            "evidence": [],
            "seconds": round(time.monotonic() - clock, 2),
            "proof": proof,
            "lines": self._lines(begin),
        }

    def _arm(self) -> None:
        """Leave on disk what was there, before the first point replaces anything."""
        assert self.before is not None  # noqa: S101 - captured before the first order
        if self.armed:
            return
        if self.before["origin"]:
            origin.write(self.name, self.before["origin"])
        self.emit(transaction.SWITCHING)
        marker.arm(self.before)
        self.armed = True
        if self.before["origin"]:
            origin.clear(self.before["unit"])
        nccl_block.put(nccl_block.wanted(nccl_block.read(), self.name, {"block": False, "env": {}}))

    def _load(self, order: Order) -> Dict[str, Any]:
        unit = self.request["unit"]
        state = systemd.properties(unit)
        given = {
            "manifest": self.manifest,
            "main": int(state["MainPID"]),
            "cgroup": state["ControlGroup"],
            "log": {"file": self._log()} if self._log() else {"unit": unit, "invocation": state["InvocationID"]},
        }
        return load.run({**order, "server": given}, self.emit, gone=self._gone)

    def _gone(self) -> bool:
        """Return whether nobody has waited for the answer for a while; whoever asks says so all the time."""
        if self._wants_the_end():
            return True
        try:
            return time.time() - os.stat(f"{self.place}/{_HEARD}").st_mtime > float(self.request["silence"])
        except OSError:
            return False

    def _wants_the_end(self) -> bool:
        """Return whether the client has given a further order before this one was answered: it has been interrupted."""
        return os.path.exists(f"{self.place}/order.{self.number + 1}")

    def _lines(self, since: float) -> List[str]:
        """Return what NCCL and the server said since a moment: all of NCCL's lines, and the last of all."""
        try:
            if self._log():
                said = systemd.command(["tail", "-n", str(_LINES), self._log()]).splitlines()
            else:
                systemd.command(["journalctl", "--sync"])
                argv = ["journalctl", "--no-pager", "-q", "-o", "cat", "-u", self.request["unit"]]
                said = systemd.command([*argv, f"--since=@{int(since)}"]).splitlines()
        except systemd.SystemdError as error:
            return [str(error)]
        return [*[line for line in said[:-_LAST] if "NCCL" in line][:_LINES], *said[-_LAST:]]

    def _production(self, _: Order) -> Dict[str, Any]:
        """Put back what was there and prove it, and go on holding the host: what serves now is measured like a point.

        ``outcome`` is ``serving``, ``untouched`` (no point has replaced it) or ``failed`` (why is in ``message``).
        """
        begin, clock = time.time(), time.monotonic()
        if not self.armed:
            return {"outcome": "untouched", "message": "", "evidence": []}
        self.over = self.over or self._back()
        try:
            self.manifest, proof = restored.proven(self.request["unit"], self.over)
        except FAILURES as error:
            return {"outcome": "failed", "message": str(error), "evidence": list(getattr(error, "lines", []))}
        return {
            "outcome": "serving",
            "message": self.over["serves"],
            "evidence": [],
            "seconds": round(time.monotonic() - clock, 2),
            "proof": proof,
            "lines": self._lines(begin),
            "manifest": {key: self.manifest[key] for key in ("digest", "env", "argv", "host", "port")},
        }

    def _back(self) -> Dict[str, Any]:
        if not self.armed or self.before is None:
            serves = "what was there before; nothing was replaced"
            return {"outcome": "restored", "serves": serves, "message": self.why, "evidence": []}
        self.emit("putting back what was served before")
        back = marker.put_back(self.before, self.emit)
        outcome = "restored" if back["outcome"] == "rolled back" else "failed"
        answer: Dict[str, Any] = {"outcome": outcome, "serves": back["serves"], "message": self.why, "evidence": []}
        try:
            generations.clean(self.name)
            answer["evidence"] = [found["text"] for found in check(self.name)["findings"] if counts(found)]
        except FAILURES as error:
            answer["evidence"] = [str(error)]
        return answer
