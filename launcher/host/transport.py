"""One request, one answer: the agent goes over standard input to a host's Python, JSON lines come back."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, Protocol

from launcher.errors import HostError
from launcher.host import ssh_sudo
from launcher.host.bundle import payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Events = Callable[[str], None]

_NO_PYTHON = "launch finds no "


class AgentBugError(RuntimeError):
    """The agent failed in a way that it should not; holds its traceback. A bug of ours, so not a LaunchError."""


class SudoPasswordError(HostError):
    """Sudo wants a password, and it was not allowed to ask."""


class Transport(Protocol):
    """A way to reach one host."""

    host: str

    def call(self, request: Mapping[str, Any], on_event: Events) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            UnreachableError: no connection; nothing was changed.
            HostError: the host cannot run the agent, or the connection broke before the answer.
        """


class Start(Protocol):
    """Starts a shell command on a host; leaving the context ends it."""

    def __call__(self, command: str, *, merged: bool) -> contextlib.AbstractContextManager[Command]:
        """Start one; ``merged`` lets its error output come with the rest."""


class Command(ssh_sudo.Reader, Protocol):
    """A started shell command."""

    def end_input(self) -> None:
        """Close its standard input."""

    def errors(self) -> str:
        """Return its whole error output; empty when that comes with the rest."""


def converse(
    host: str,
    start: Start,
    request: Mapping[str, Any],
    on_event: Events,
    python: str,
    password: ssh_sudo.SudoPassword,
) -> dict[str, Any]:
    """Send a request to the agent on a host and return its result.

    Args:
        host: for messages.
        start: starts a shell command there.
        request: what to do.
        on_event: called with each line of progress.
        python: the host's interpreter.
        password: of sudo, used where a login is not root and sudo asks.
    """
    program = payload(request).encode()
    if not password.in_hand:
        try:
            with start(agent_command(python), merged=False) as command:
                _give(command, program)
                return read_answer(host, _lines(command), on_event, python, command.errors)
        except SudoPasswordError:
            if not password.can_ask():
                raise
    with start(agent_command(python, asks=True), merged=True) as command:
        ready, said = ssh_sudo.pass_gate(host, command, lambda: password.get(host))
        if not ready:
            raise _no_answer(host, said, python)
        _give(command, program)
        lines = list[str]()
        return read_answer(host, _kept(_lines(command), lines), on_event, python, lambda: "".join(lines))


def agent_command(python: str, *, asks: bool = False) -> str:
    """Return the shell command that runs the agent as root, with sudo where the login is another user.

    Args:
        python: the host's interpreter.
        asks: let sudo ask for a password; the interpreter says then when it runs.
    """
    path = shlex.quote(python)
    run = f"{path} -I -c {shlex.quote(ssh_sudo.FIRST)}" if asks else f"{path} -I -"
    sudo = f"sudo -S -p {ssh_sudo.PROMPT}" if asks else "sudo -n"
    script = (
        "export LC_ALL=C; "  # messages that can be told apart
        f"command -v {path} >/dev/null || {{ echo {_NO_PYTHON}{path}, only"
        " $(for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python;"
        " do command -v $p; done) >&2; exit 127; }; "
        f'if [ "$(id -u)" = 0 ]; then exec {run}; else exec {sudo} {run}; fi'
    )
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
    raise _no_answer(host, said().strip(), python)


def _no_answer(host: str, said: str, python: str) -> HostError:
    """Return the error for a command that ended without an answer; GNU sudo and sudo-rs word it differently."""
    if _NO_PYTHON in said:
        found = said.partition(_NO_PYTHON)[2].partition(", only")[2].split()
        other = f"; it has {', '.join(found)}" if found else ""
        return HostError(host, f"no Python at {python}: set target.python=PATH (3.8 or newer){other}")
    if "sudo: not found" in said or "sudo: command not found" in said:
        return HostError(host, "the login is not root and there is no sudo: log in as root (target.user=root)")
    if "sudo:" in said and ("password is required" in said or "authentication is required" in said):
        return SudoPasswordError(
            host,
            "sudo wants a password: run launch at a terminal to type it, or name a file that holds it"
            " (target.sudo_password_file=FILE), log in as root (target.user=root), or allow sudo without one",
        )
    if "you must have a tty" in said:
        return HostError(host, "sudo wants a terminal: take `requiretty` out of /etc/sudoers for this user")
    if "sudoers" in said or "is not allowed to" in said or "may not run sudo" in said:
        return HostError(
            host, f"sudo does not allow this user to run {python} as root; log in as root: target.user=root"
        )
    if "not found" in said or "No such file" in said:
        return HostError(host, f"no Python at {python}: set target.python=PATH (3.8 or newer)")
    words = said or "nothing was said"
    return HostError(host, f"the connection ended before the answer came ({words}); launch status shows the state")


def _give(command: Command, program: bytes) -> None:
    with contextlib.suppress(OSError):  # it ended early; its error output says why
        command.send(program)
        command.end_input()


def _lines(command: Command) -> Iterator[str]:
    rest = b""
    while data := command.read(0):
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
    yield rest.decode("utf-8", "replace")


def _kept(lines: Iterable[str], kept: list[str]) -> Iterator[str]:
    for line in lines:
        kept.append(f"{line}\n")
        yield line


class LocalTransport:
    """The machine that launch runs on."""

    def __init__(self, python: str, sudo_password_file: str = "") -> None:
        self.host = "localhost"
        self._python = python
        self._password = ssh_sudo.SudoPassword(sudo_password_file)

    def call(self, request: Mapping[str, Any], on_event: Events) -> dict[str, Any]:
        """See `Transport.call`."""
        return converse(self.host, _local, request, on_event, self._python, self._password)


@contextlib.contextmanager
def _local(command: str, *, merged: bool) -> Iterator[Command]:
    # A session of its own: Ctrl-C ends launch, not the change half-way.
    with subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        start_new_session=True,
    ) as process:
        yield _LocalCommand(process)


class _LocalCommand:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, data: bytes) -> None:
        assert self._process.stdin  # noqa: S101 - asked for above
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def end_input(self) -> None:
        assert self._process.stdin  # noqa: S101 - asked for above
        self._process.stdin.close()

    def read(self, seconds: float) -> bytes:
        assert self._process.stdout  # noqa: S101 - asked for above
        if seconds and not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError
        return os.read(self._process.stdout.fileno(), 65536)

    def errors(self) -> str:
        return self._process.stderr.read().decode("utf-8", "replace") if self._process.stderr else ""
