"""What goes to sudo, and what is made of its answers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from launcher.errors import ConfigError, HostError
from launcher.host import ssh_sudo, transport
from launcher.host.ssh_sudo import PROMPT, READY, SudoPassword, pass_gate, read_file
from launcher.host.transport import LocalTransport, SudoPasswordError, agent_command, read_answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PASSWORD = "påss wörd $(id) ' \\"

#: Stands in for sudo: asks as often as it is told, and says what it was given.
SUDO = """#!/usr/bin/env python3
import os, sys
args = sys.argv[1:]
if args[0] == "-n":
    sys.exit("sudo: a password is required")
assert args[:2] == ["-S", "-p"]
for _ in range(3):
    sys.stderr.write(args[2]); sys.stderr.flush()
    given = b""
    while not given.endswith(b"\\n"):
        more = os.read(0, 1)
        if not more:
            sys.exit("sudo: no password was provided")
        given += more
    if given == open(os.path.dirname(__file__) + "/password", "rb").read():
        os.execv(args[3], args[3:])
    sys.stderr.write("Sorry, try again.\\n")
sys.exit("sudo: 3 incorrect password attempts")
"""


class Script:
    """A command that prints pieces, whatever it is sent."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = list(pieces)
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def read(self, seconds: float) -> bytes:  # noqa: ARG002 - as the protocol has it
        if not self.pieces:
            raise TimeoutError
        return self.pieces.pop(0).encode()


def gate(*pieces: str) -> tuple[bool, str, list[bytes]]:
    script = Script(pieces)
    return *pass_gate("h", script, lambda: PASSWORD, 1), script.sent


def test_the_password_goes_out_once_and_only_when_it_is_asked_for() -> None:
    given = [PASSWORD.encode() + b"\n"]
    assert gate(f"{READY}\n") == (True, "", [])
    assert gate("motd\n", PROMPT, f"\n{READY}\n") == (True, "motd", given)
    assert gate("lecture ", PROMPT[:9], PROMPT[9:], READY[:5], READY[5:]) == (True, "lecture", given)
    assert gate(PROMPT, "no.\n", "") == (False, "no.", given)
    with pytest.raises(HostError, match="refuses the password; it was given once"):
        gate(PROMPT, f"Sorry, try again.\n{PROMPT}")
    with pytest.raises(HostError, match="sudo does not go on; it said: Verification code:"):
        gate("Verification code:")


def test_the_word_for_ready_is_not_in_the_command() -> None:
    assert READY not in agent_command("/usr/bin/python3", asks=True)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\nmore\n")
    path.chmod(mode)
    assert read_file(str(path)) == PASSWORD
    for wrong in (0o640, 0o604, 0o620):
        path.chmod(wrong)
        with pytest.raises(ConfigError, match=f"others may read it .mode {wrong:04o}.: chmod 600 "):
            read_file(str(path))


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "latin").touch(0o600)
    (tmp_path / "latin").write_bytes(b"p\xe4ss\n")
    for name, said in {"empty": "its first line is empty", "latin": "not UTF-8", "none": "No such file"}.items():
        with pytest.raises(ConfigError, match=f"target.sudo_password_file={tmp_path}/{name}: .*{said}"):
            read_file(f"{tmp_path}/{name}")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("sudo: a password is required", "target.sudo_password_file=FILE"),
        ("sudo: interactive authentication is required", "target.sudo_password_file=FILE"),
        ("sudo: a terminal is required to read the password; ...\nsudo: a password is required", "run launch at a te"),
        ("sh: 1: exec: sudo: not found", "the login is not root and there is no sudo: log in as root"),
        ("sh: line 1: exec: sudo: not found", "there is no sudo"),
        ("sudo: sorry, you must have a tty to run sudo", "requiretty"),
        ("pat is not in the sudoers file.", "sudo does not allow this user to run /usr/bin/python3 as root"),
        ("Sorry, user pat is not allowed to execute '/usr/bin/python3 -I -' as root on h.", "sudo does not allow"),
        ("sudo: I'm sorry pat. I'm afraid I can't do that", "the connection ended before the answer came"),
        ("launch finds no /usr/bin/python3, only /usr/local/bin/python3.11", r"it has /usr/local/bin/python3\.11$"),
        ("launch finds no /usr/bin/python3, only", r"set target\.python=PATH \(3\.8 or newer\)$"),
        ("sudo: /usr/bin/python3: command not found", "no Python at /usr/bin/python3"),
        ("", "nothing was said"),
    ],
)
def test_why_there_is_no_answer(said: str, told: str) -> None:
    with pytest.raises(HostError, match=told) as caught:
        read_answer("h", ["motd"], print, "/usr/bin/python3", lambda: said)
    assert isinstance(caught.value, SudoPasswordError) == ("password_file" in told or "at a te" in told)


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with our sudo, where nobody is root."""
    for name, text in {"sudo": SUDO, "id": "#!/bin/sh\necho 1000\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "password").chmod(0o600)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(SudoPassword, "_typed", "")
    monkeypatch.setattr(transport, "payload", lambda request: f"print({json.dumps(json.dumps({'result': request}))})")
    return tmp_path


def test_this_machine_with_a_password(sudo: Path) -> None:
    request = {"big": "x" * 200_000}
    file = str(sudo / "password")
    assert LocalTransport(sys.executable, file).call(request, print) == request
    (sudo / "other").write_text("wrong\n")
    (sudo / "other").chmod(0o600)
    with pytest.raises(HostError, match="sudo refuses the password"):
        LocalTransport(sys.executable, str(sudo / "other")).call(request, print)
    with pytest.raises(SudoPasswordError):
        LocalTransport(sys.executable).call(request, print)


def test_a_typed_password_counts_for_the_run(sudo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = ["", PASSWORD]

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return answers[len(asked) - 1]

    monkeypatch.setattr(ssh_sudo, "ask", ask)
    monkeypatch.setattr(SudoPassword, "can_ask", lambda _self: True)
    with pytest.raises(HostError, match="none was typed"):
        LocalTransport(sys.executable).call({}, print)
    for _ in range(2):
        assert LocalTransport(sys.executable).call({}, print) == {}
    assert len(asked) == 2


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_missing_interpreter_is_told_in_any_shell(shell: str, asks: bool) -> None:
    words = [shell, "-c", agent_command("/no where/python3", asks=asks)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.stderr.startswith("launch finds no /no where/python3, only /"), done.stderr
    assert shlex.split(words[2])[0] == "sh"
