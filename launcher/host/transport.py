"""One request, one answer: the agent goes over standard input to a host's Python, JSON lines come back."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, Protocol

from launcher.errors import HostError
from launcher.host.bundle import payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Events = Callable[[str], None]


class AgentBugError(RuntimeError):
    """The agent failed in a way that it should not; holds its traceback. A bug of ours, so not a LaunchError."""


class Transport(Protocol):
    """A way to reach one host."""

    host: str

    def call(self, request: Mapping[str, Any], on_event: Events) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            UnreachableError: no connection; nothing was changed.
            HostError: the host cannot run the agent, or the connection broke before the answer.
        """


def agent_command(python: str) -> str:
    """Return the shell command that runs the agent as root, with sudo where the login is another user."""
    run = f"{shlex.quote(python)} -I -"
    script = f'if [ "$(id -u)" = 0 ]; then exec {run}; else exec sudo -n {run}; fi'
    return f"sh -c {shlex.quote(script)}"


def read_answer(
    host: str, lines: Iterable[str], on_event: Events, python: str, said: Callable[[], str]
) -> dict[str, Any]:
    """Pass events on and return the result.

    Args:
        host: for messages.
        lines: what the agent prints.
        on_event: called with each line of progress.
        python: the interpreter that was asked for.
        said: what came over standard error, read after the lines have ended.
    """
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            continue  # a banner printed by the login shell
        if not isinstance(message, dict):
            continue
        if "event" in message:
            on_event(message["event"])
        elif "result" in message:
            result: dict[str, Any] = message["result"]
            return result
        elif "bug" in message:
            raise AgentBugError(f"on {host}: {message['bug']}\n{message['traceback']}")
    raise HostError(host, _no_answer(said().strip(), python))


def _no_answer(said: str, python: str) -> str:
    if "sudo" in said and "password" in said:
        return "sudo wants a password; log in as root (target.user=root) or allow sudo without a password"
    if "not found" in said or "No such file" in said:
        return f"no Python at {python}: set target.python=PATH (3.8 or newer)"
    words = said or "nothing was said"
    return f"the connection ended before the answer came ({words}); launch status shows the state"


class LocalTransport:
    """The machine that launch runs on."""

    def __init__(self, python: str) -> None:
        self.host = "localhost"
        self._python = python

    def call(self, request: Mapping[str, Any], on_event: Events) -> dict[str, Any]:
        """See `Transport.call`."""
        # A session of its own: Ctrl-C ends launch, not the change half-way.
        with subprocess.Popen(
            ["sh", "-c", agent_command(self._python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - asked for above
            stderr = process.stderr
            try:
                process.stdin.write(payload(request))
                process.stdin.close()
            except BrokenPipeError:
                pass  # it ended early; its error output says why
            return read_answer(self.host, process.stdout, on_event, self._python, stderr.read)
