"""Servers that do not answer as they should: each wait has an end, and the message says what was seen."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import paramiko
import pytest

from launcher.errors import HostKeyError, UnreachableError
from launcher.host import ssh_connect, ssh_keys
from launcher.host.ssh import SshTransport
from launcher.host.ssh_route import route
from launcher.schema import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen here; every connection is served by a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        links: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    links.append(link)
                    threading.Thread(target=serve, args=(link,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for link in links:
                link.close()


def refusal(port: int, folder: Path, known: str = "") -> tuple[UnreachableError, float]:
    (folder / "config").write_text(
        f"Host *\nUserKnownHostsFile {folder}/known\nIdentityAgent none\nIdentityFile none\n"
    )
    (folder / "known").write_text(known)
    aimed = Target(connect_timeout=1, ssh_config=str(folder / "config"))
    begun = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        SshTransport(f"u@127.0.0.1:{port}", aimed).call({}, print)
    return caught.value, time.monotonic() - begun


@pytest.mark.parametrize("first", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 400\r\n\r\n"])
def test_a_server_that_says_no_more(first: bytes, tmp_path: Path) -> None:
    with server(lambda link: link.sendall(first)) as port:
        error, seconds = refusal(port, tmp_path)
    assert f"no answer in time from 127.0.0.1 port {port}; compare with: ssh -F" in error.message
    assert seconds < 4


def test_a_server_that_hangs_up(tmp_path: Path) -> None:
    with server(lambda link: link.close()) as port:
        error, seconds = refusal(port, tmp_path)
    assert f"what answers at 127.0.0.1 port {port} hung up before it spoke SSH; compare with" in error.message
    assert seconds < 3


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "Connection refused" in refusal(port, tmp_path)[0].message


class Passwords(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko has no types
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_allowed_auths(self, _username: str) -> str:
        return "password,keyboard-interactive"

    def check_auth_none(self, _username: str) -> int:
        time.sleep(self.seconds)
        return int(paramiko.AUTH_FAILED)


def test_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_connect, "LOGIN_SECONDS", 1)
    key = paramiko.ECDSAKey.generate()

    def serve(seconds: float) -> Callable[[socket.socket], None]:
        def one(link: socket.socket) -> None:
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # the client may have left
                transport = paramiko.Transport(link)
                transport.add_server_key(key)
                transport.start_server(server=Passwords(seconds))

        return one

    with server(serve(0)) as port:
        known = f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"
        assert "takes no keys, only password, keyboard-interactive" in refusal(port, tmp_path, known)[0].message
        unknown = refusal(port, tmp_path, known.replace("127", "128"))[0]
        assert isinstance(unknown, HostKeyError)
        assert f"record it: ssh -F {tmp_path}/config -p {port} u@127.0.0.1" in unknown.message
    with server(serve(3)) as port:
        known = f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"
        error, seconds = refusal(port, tmp_path, known)
    assert "login as u refused" in error.message
    assert seconds < 4


def test_a_proxy_command_is_a_shell_command_and_ends_with_the_connection() -> None:
    proxy = ssh_connect.ProxyProcess("sh -c 'echo \"$0\" $((1 + 1)); echo oh >&2; cat' 'a b'")
    assert proxy.socket.recv(100) == b"a b 2\n"
    proxy.socket.sendall(b"through")
    assert proxy.socket.recv(100) == b"through"
    assert proxy.close() == "oh"


def test_an_address_of_the_family_that_is_wanted(tmp_path: Path) -> None:
    with server(lambda link: link.sendall(b"hello")) as port:
        (tmp_path / "config").write_text("Host h\nHostName localhost\nAddressFamily inet\nBindAddress 127.0.0.1\n")
        (hop,) = route(f"h:{port}", Target(ssh_config=str(tmp_path / "config")))
        with ssh_connect.dial(hop) as link:
            assert link.recv(10) == b"hello"
            assert link.getsockname()[0] == "127.0.0.1"


def test_hardware_keys_and_other_files_are_named(tmp_path: Path) -> None:
    blob = paramiko.Message()
    for text in ("sk-ssh-ed25519@openssh.com", "k" * 32, "ssh:"):
        blob.add_string(text)
    (tmp_path / "hard.pub").write_text(f"sk-ssh-ed25519@openssh.com {base64.b64encode(blob.asbytes()).decode()} me\n")
    (tmp_path / "hard").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "dsa").write_text("-----BEGIN DSA PRIVATE KEY-----\nAAAA\n")
    for name, said in {
        "hard": "is a hardware key, which works through an agent: ssh-add",
        "dsa": "no key of a type",
    }.items():
        with pytest.raises(ssh_keys.KeyProblemError, match=said):
            ssh_keys.load(str(tmp_path / name))


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_key_inside_a_certificate(kind: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(key)], check=True)
    sign = ["ssh-keygen", "-q", "-s", str(key), "-I", "me", "-n", "u", f"{key}.pub"]
    subprocess.run(sign, check=True, capture_output=True)
    plain = ssh_keys.read_public(f"{key}.pub")
    assert ssh_keys.bare(ssh_keys.read_public(f"{key}-cert.pub")) == plain
    (tmp_path / "key.pub").unlink()
    assert ssh_keys.public_half(str(key)) == plain
    assert ssh_keys.load(str(key)).asbytes() == plain
