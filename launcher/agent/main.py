"""Entry points of the agent: a request over standard input, or guard and waiter from the unit."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any, Dict, List

from .apply import apply
from .guard import guard
from .library import tell
from .probe import probe
from .systemd import SystemdError
from .wait import wait


def serve(request_text: str) -> int:
    """Answer one request with JSON lines on standard output: events, then the result.

    A client that goes away does not stop the work half-way: SIGHUP and a closed pipe are ignored.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request_text)
    try:
        result = probe(request) if request["verb"] == "probe" else apply(request, lambda t: _send({"event": t}))
        _send({"result": result})
    except SystemdError as error:
        # Only the probe lets it through: apply answers with an outcome.
        _send({"result": {"problems": [str(error)]}})
    except Exception as error:
        _send({"bug": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        return 1
    return 0


def _send(message: Dict[str, Any]) -> None:
    line = json.dumps(message) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody listens any more; keep the interpreter from failing at exit.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main(argv: List[str]) -> int:
    """Run guard or waiter, as the unit calls them: no option parser stands between unit and server."""
    if len(argv) > 3 and argv[0] == "guard" and argv[2] == "--":
        guard(argv[1], argv[3:])
    if len(argv) == 6 and argv[0] == "wait" and (argv[2], argv[4]) == ("--pid", "--deadline"):
        return wait(argv[1], int(argv[3]), float(argv[5]))
    if len(argv) == 2 and argv[0] == "account":
        return tell(argv[1])
    sys.stderr.write(
        "usage: agent.py guard MANIFEST -- COMMAND... | wait MANIFEST --pid PID --deadline SECONDS | account MANIFEST\n"
    )
    return 2
