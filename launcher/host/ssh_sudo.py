"""Passwords for sudo, over SSH and here: asked for once or read from a file, and given only when sudo asks.

The program that runs under sudo comes over the same standard input as the password, so three things could go
wrong: sudo asks nothing (a rule with NOPASSWD, a login as root) and the program begins with the password; the
password is wrong and sudo takes the next lines for further tries, which locks accounts; the lecture or the
host's language hides what sudo wants. So sudo gets a prompt of ours, the password goes out once after that
prompt, and the program goes out after the interpreter has said that it runs. That is one connection and one
session; the password is in no argument list, no environment and no file.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from launcher.errors import ConfigError, HostError

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "launch-asks-for-the-password-of-sudo:"
READY = "launch-is-ready"

#: What Python runs to say that it is root, and then the program that follows. The word is in two pieces, since
#: sudo repeats the whole command where it refuses it.
FIRST = (
    f"import sys; print({READY[:7]!r} + {READY[7:]!r}, flush=True); exec(compile(sys.stdin.read(), '<stdin>', 'exec'))"
)

#: In a process of its own: Ctrl-C reaches it too, and the terminal gets its echo back.
_ASK = "import getpass, sys; sys.stdout.buffer.write(getpass.getpass(sys.argv[1]).encode())"


class Reader(Protocol):
    """Both directions of a started command."""

    def send(self, data: bytes) -> None:
        """Write to its standard input."""

    def read(self, seconds: float) -> bytes:
        """Return what it prints next, nothing at its end.

        Raises:
            TimeoutError: it printed nothing for so long.
        """


class SudoPassword:
    """The password for one target; one that is typed counts for all hosts of this run."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _typed: ClassVar[str] = ""

    def __init__(self, file: str) -> None:
        self._file = file

    @property
    def in_hand(self) -> bool:
        """Whether there is one without asking."""
        return bool(self._file or SudoPassword._typed)

    def can_ask(self) -> bool:
        """Tell whether somebody sits at a terminal."""
        return sys.stdin is not None and sys.stdin.isatty()

    def get(self, host: str) -> str:
        """Return it; asks where it has to.

        Raises:
            ConfigError: the file is not there, is empty, or others may read it.
            HostError: nothing was typed.
        """
        if self._file:
            return read_file(self._file)
        with SudoPassword._lock:
            if not SudoPassword._typed:
                SudoPassword._typed = ask(f"password for sudo on {host} (also for the other hosts of this run): ")
            if not SudoPassword._typed:
                raise HostError(host, "sudo wants a password and none was typed; nothing was changed")
            return SudoPassword._typed


def read_file(name: str) -> str:
    """Return the first line of a file that only its owner may read.

    Raises:
        ConfigError: it is not such a file.
    """
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"target.sudo_password_file={name}: {reason}") from error
    if mode & 0o077:
        raise ConfigError(f"target.sudo_password_file={name}: others may read it (mode {mode:04o}): chmod 600 {name}")
    lines = text.splitlines()
    if not lines or not lines[0]:
        raise ConfigError(f"target.sudo_password_file={name}: its first line is empty")
    return lines[0]


def ask(prompt: str) -> str:
    """Return what is typed at the terminal without an echo, empty for nothing."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _ASK, prompt], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def pass_gate(host: str, command: Reader, password: Callable[[], str], seconds: float = 60) -> tuple[bool, str]:
    """Answer sudo if it asks, until the interpreter runs.

    Returns:
        Whether it runs, and what was said before.

    Raises:
        HostError: the password is wrong, or sudo asks for something else.
    """
    seen = b""
    given = 0
    while READY.encode() not in seen:
        try:
            data = command.read(seconds)
        except TimeoutError as error:
            said = _said(seen) or "nothing"
            raise HostError(host, f"sudo does not go on; it said: {said}. A second factor cannot be given") from error
        if not data:
            return False, _said(seen)
        seen += data
        if seen.count(PROMPT.encode()) > given:
            if given:
                raise HostError(host, "sudo refuses the password; it was given once, and nothing was changed")
            command.send(password().encode() + b"\n")
            given += 1
    return True, _said(seen)


def _said(seen: bytes) -> str:
    return seen.decode("utf-8", "replace").replace(PROMPT, "").replace(READY, "").strip()
