"""Entry points of the agent: a request over standard input, guard and waiter from a unit, the check from a timer."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, Callable, Dict, List, Tuple


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
    except Exception as error:
        if type(error).__name__ == "SystemdError":
            # Only the probe lets it through: apply answers with an outcome.
            _send({"result": {"problems": [str(error)]}})
            return 0
        _send({"bug": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        return 1
    return 0


def _answer(request: Dict[str, Any], program: str) -> Dict[str, Any]:
    def emit(text: str) -> None:
        _send({"event": text})

    verb = request["verb"]
    lacking = [] if verb in _LOOKS else _module("needs").unusable()
    if lacking:
        return {"problems": lacking}
    name, answer = _VERBS[verb]
    found: Dict[str, Any] = answer(_module(name), request, program, emit)
    return found if verb in _LOOKS else {"problems": [], **found}


def _module(name: str) -> Any:  # noqa: ANN401 - one of ours
    """Return a module, imported when it is needed: a start of a server asks for a guard, not for all of this."""
    return importlib.import_module("." + name, __package__)


#: They say themselves what is in their way.
_LOOKS = ("probe", "adopt")
#: What a client may ask of a host: the module, and how it is asked; the two looks, `bench`, `drift` and `history`
#: change nothing.
_VERBS: Dict[str, Tuple[str, Callable[[Any, Dict[str, Any], str, Callable[[str], None]], Dict[str, Any]]]] = {
    "probe": ("probe", lambda module, request, _, __: module.probe(request)),
    "adopt": ("adopt", lambda module, _, __, ___: module.adopt()),
    "apply": ("change", lambda module, request, program, emit: module.begin(request, program, emit)),
    "bench": ("bench", lambda module, request, _, emit: module.bench(request, emit)),
    "continue": (
        "change",
        lambda module, request, _, emit: module.go_on(request["id"], request["word"], request["why"], emit),
    ),
    "follow": ("change", lambda module, request, _, emit: module.watch(request["name"], emit)),
    "drift": ("check", lambda module, request, _, __: {"check": module.check(request["name"], request["accept"])}),
    "fix": ("fix", lambda module, request, _, emit: module.fix(request, emit)),
    "history": ("past", lambda module, request, _, __: module.history(request["name"])),
    "rollback": ("past", lambda module, request, program, emit: module.rollback(request, program, emit)),
    "session": ("session", lambda module, request, program, emit: module.begin(request, program, emit)),
    "session-ask": (
        "session",
        lambda module, request, _, emit: module.ask(request["id"], request["number"], request["order"], emit),
    ),
    "uninstall": ("uninstall", lambda module, request, _, emit: module.uninstall(request, emit)),
}


def _send(message: Dict[str, Any]) -> None:
    line = json.dumps(message) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody listens any more; keep the interpreter from failing at exit.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


#: What units ask further: the verb, how many words follow, and what does it.
_OF_UNITS = (
    ("account", 1, "library", "tell"),
    ("drift", 0, "watch", "watch"),
    ("change", 1, "change", "change"),
    ("session", 1, "session", "session"),
    ("again", 1, "again", "again"),
    ("recover", 2, "change", "recover"),
    ("recover", 0, "change", "recover_all"),
)


def main(argv: List[str]) -> int:
    """Run guard, waiter or check, as the units call them: no option parser stands between unit and server."""
    if len(argv) > 3 and argv[0] == "guard" and argv[2] == "--":
        return int(_module("guard").guard(argv[1], argv[3:]))
    if len(argv) == 6 and argv[0] == "wait" and (argv[2], argv[4]) == ("--pid", "--deadline"):
        return int(_module("wait").wait(argv[1], int(argv[3]), float(argv[5])))
    for verb, count, module, function in _OF_UNITS:
        if argv[:1] == [verb] and len(argv) == 1 + count:
            return int(getattr(_module(module), function)(*argv[1:]))
    sys.stderr.write(
        "usage: agent.py guard MANIFEST -- COMMAND... | wait MANIFEST --pid PID --deadline SECONDS | account MANIFEST"
        " | drift | change FOLDER | session FOLDER | again NAME | recover [NAME ID]\n"
    )
    return 2
