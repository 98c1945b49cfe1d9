"""Entry points of the agent: a request over standard input, guard and waiter from a unit, the check from a timer."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any, Callable, Dict, List

from . import adopt, again, change, past, session
from .bench import bench
from .check import check
from .fix import fix
from .guard import guard
from .library import tell
from .needs import unusable
from .probe import probe
from .systemd import SystemdError
from .uninstall import uninstall
from .wait import wait
from .watch import watch


def serve(request_text: str, program: str = "") -> int:
    """Answer one request with JSON lines on standard output: events, then the result.

    A client that goes away does not stop the work half-way: SIGHUP and a closed pipe are ignored.

    Args:
        request_text: JSON.
        program: text of this agent, for what goes on in a unit of its own.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request_text)
    try:
        _send({"result": _answer(request, program)})
    except SystemdError as error:
        # Only the probe lets it through: apply answers with an outcome.
        _send({"result": {"problems": [str(error)]}})
    except Exception as error:
        _send({"bug": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        return 1
    return 0


def _answer(request: Dict[str, Any], program: str) -> Dict[str, Any]:
    def emit(text: str) -> None:
        _send({"event": text})

    verb = request["verb"]
    if verb == "probe":
        return probe(request)
    if verb == "adopt":
        return adopt.adopt()
    lacking = unusable()
    if lacking:
        return {"problems": lacking}
    return {"problems": [], **_VERBS[verb](request, program, emit)}


#: What a client may ask of a host, beside the two looks; only `bench`, `drift` and `history` change nothing.
_VERBS: Dict[str, Callable[[Dict[str, Any], str, Callable[[str], None]], Dict[str, Any]]] = {
    "apply": change.begin,
    "bench": lambda request, _, emit: bench(request, emit),
    "continue": lambda request, _, emit: change.go_on(request["id"], request["word"], request["why"], emit),
    "follow": lambda request, _, emit: change.watch(request["name"], emit),
    "drift": lambda request, _, __: {"check": check(request["name"], request["accept"])},
    "fix": lambda request, _, emit: fix(request, emit),
    "history": lambda request, _, __: past.history(request["name"]),
    "rollback": past.rollback,
    "session": session.begin,
    "session-ask": lambda request, _, emit: session.ask(request["id"], request["number"], request["order"], emit),
    "uninstall": lambda request, _, emit: uninstall(request, emit),
}


def _send(message: Dict[str, Any]) -> None:
    line = json.dumps(message) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody listens any more; keep the interpreter from failing at exit.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(argv: List[str]) -> int:
    """Run guard, waiter or check, as the units call them: no option parser stands between unit and server."""
    if len(argv) > 3 and argv[0] == "guard" and argv[2] == "--":
        guard(argv[1], argv[3:])
    if len(argv) == 6 and argv[0] == "wait" and (argv[2], argv[4]) == ("--pid", "--deadline"):
        return wait(argv[1], int(argv[3]), float(argv[5]))
    if len(argv) == 2 and argv[0] == "account":
        return tell(argv[1])
    if argv == ["drift"]:
        return watch()
    if len(argv) == 2 and argv[0] == "change":
        return change.change(argv[1])
    if len(argv) == 2 and argv[0] == "session":
        return session.session(argv[1])
    if len(argv) == 2 and argv[0] == "again":
        return again.again(argv[1])
    if len(argv) == 3 and argv[0] == "recover":
        return change.recover(argv[1], argv[2])
    if argv == ["recover"]:
        return change.recover_all()
    sys.stderr.write(
        "usage: agent.py guard MANIFEST -- COMMAND... | wait MANIFEST --pid PID --deadline SECONDS | account MANIFEST"
        " | drift | change FOLDER | session FOLDER | again NAME | recover [NAME ID]\n"
    )
    return 2
