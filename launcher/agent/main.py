"""Entry points of the agent: a request over standard input, guard and waiter from a unit, the check from a timer."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any, Dict, List

from .apply import apply
from .check import check
from .fix import fix
from .guard import guard
from .library import tell
from .needs import unusable
from .probe import probe
from .systemd import SystemdError
from .wait import wait
from .watch import watch


def serve(request_text: str) -> int:
    """Answer one request with JSON lines on standard output: events, then the result.

    A client that goes away does not stop the work half-way: SIGHUP and a closed pipe are ignored.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request_text)
    try:
        _send({"result": _answer(request)})
    except SystemdError as error:
        # Only the probe lets it through: apply answers with an outcome.
        _send({"result": {"problems": [str(error)]}})
    except Exception as error:
        _send({"bug": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        return 1
    return 0


def _answer(request: Dict[str, Any]) -> Dict[str, Any]:
    def emit(text: str) -> None:
        _send({"event": text})

    if request["verb"] == "probe":
        return probe(request)
    if request["verb"] == "apply":
        return apply(request, emit)
    lacking = unusable()
    if lacking:
        return {"problems": lacking}
    if request["verb"] == "drift":
        return {"problems": [], "check": check(request["name"], request["accept"])}
    return {"problems": [], **fix(request, emit)}


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
    sys.stderr.write(
        "usage: agent.py guard MANIFEST -- COMMAND... | wait MANIFEST --pid PID --deadline SECONDS | account MANIFEST"
        " | drift\n"
    )
    return 2
