"""One connection through all hops, with the same strict check of host keys on each; every wait has an end."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import paramiko
from fabric import Config, Connection

from launcher.errors import HostKeyError
from launcher.host import ssh_known
from launcher.host.ssh_login import KeyLogin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.host.ssh_known import Record
    from launcher.host.ssh_route import Endpoint

#: The longest wait for the answer to a login; servers ask directories first.
LOGIN_SECONDS = 30

#: How long a peer may leave what was sent unanswered.
SILENCE_SECONDS = 45
#: Names of signatures for one type of key.
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
_ALL = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", *_SIGNATURES["ssh-rsa"])

# sshd starts to drop connections when ten are not logged in yet (MaxStartups 10:30:100), a jump host's too.
_LOGINS_AT_ONCE = 8
_logins: defaultdict[tuple[str, int], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(_LOGINS_AT_ONCE))


class KnownKeys(paramiko.RejectPolicy):  # type: ignore[misc]  # paramiko has no types
    """Refuses every host key but those on record; called before any credential is sent.

    It sees every key, since the client itself is given none to compare with.
    """

    def __init__(self, host: str, what: str, record: Record, by_hand: str) -> None:
        self._host = host
        self._what = what
        self._record = record
        self._by_hand = by_hand

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Return for a known key.

        Raises:
            HostKeyError: for any other.
        """
        del client, hostname
        record, blob = self._record, key.asbytes()
        judged = record.judge(blob)
        if judged == "known":
            return
        offered = f"{key.get_name()} {ssh_known.fingerprint(blob)}"
        if judged == "revoked":
            where = next(entry.where for entry in record.revoked if entry.blob == blob)
            raise HostKeyError(self._host, f"{self._what} host key is REVOKED ({where}): {offered}; nothing was sent")
        if judged == "changed":
            raise HostKeyError(self._host, self._changed(offered))
        if judged == "certificate only":
            raise HostKeyError(
                self._host,
                f"{self._what} host key is only vouched for by @cert-authority ({record.authorities[0].where}), and"
                f" host certificates are not read here; write the key itself into known_hosts: {offered}",
            )
        raise HostKeyError(
            self._host,
            f"{self._what} host key is unknown ({offered}); log in once to check and record it: {self._by_hand}",
        )

    def _changed(self, offered: str) -> str:
        known = self._record.keys[0]
        fix = f"ssh-keygen -R '{self._record.names[0]}' -f {known.file}"
        return (
            f"{self._what} host key has CHANGED: known is {known.kind} {ssh_known.fingerprint(known.blob)}"
            f" ({known.where}), offered {offered}; nothing was sent. If you know why: {fix}"
        )


@dataclass
class ProxyProcess:
    """A ``ProxyCommand``, run by a shell as OpenSSH does, at the other end of a socket.

    paramiko's own splits the words itself and, when the command ends, goes on waiting (5.1.0).
    """

    command: str
    socket: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self._said: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        with theirs:
            words = ["sh", "-c", f"exec {self.command}"]
            self._process = subprocess.Popen(words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._said)

    def close(self) -> str:
        """End the command and return what it printed as errors."""
        self.socket.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._said as said:
            said.seek(0)
            return said.read(2000).decode("utf-8", "replace").strip()


@dataclass
class Chain:
    """Open connections, first hop first; the last one is the host's."""

    host: str
    hops: list[Connection] = field(default_factory=list)
    proxy: ProxyProcess | None = None
    # The hop that is being opened, for messages.
    at: Endpoint | None = None
    record: Record | None = None

    @property
    def last(self) -> Connection:
        """The connection to the host itself."""
        return self.hops[-1]

    def open(self, endpoints: Sequence[Endpoint]) -> None:
        """Connect and log in, hop by hop.

        Raises:
            HostKeyError: a host key is not on record; nothing was sent to that host.
            Exception: whatever socket, paramiko or OpenSSH's agent raise.
        """
        for endpoint in endpoints:
            what = "its" if endpoint is endpoints[-1] else f"the jump host {endpoint.name}'s"
            self.at = endpoint
            self.record = ssh_known.record(endpoint)
            with _logins[endpoint.hostname, endpoint.port]:
                connection = self._connection(endpoint, self.record)
                connection.client.set_missing_host_key_policy(KnownKeys(self.host, what, self.record, endpoint.by_hand))
                self.hops.append(connection)
                connection.open()

    def _connection(self, endpoint: Endpoint, record: Record) -> Connection:
        options: dict[str, Any] = {
            "auth_strategy": KeyLogin(endpoint),
            "banner_timeout": endpoint.timeout + 1,  # later than connect_timeout, which bounds the key exchange too
            "channel_timeout": endpoint.timeout,
            "auth_timeout": LOGIN_SECONDS,
            # So that a host identifies itself in a way that is on record.
            "disabled_algorithms": {"keys": _not_on_record(record)},
        }
        if not self.hops:
            options["sock"] = self._socket(endpoint)
        return Connection(
            endpoint.hostname,
            user=endpoint.user,
            port=endpoint.port,
            config=Config(ssh_config=paramiko.SSHConfig()),  # its own reading of the files is not wanted
            gateway=self.hops[-1] if self.hops else None,
            connect_timeout=endpoint.timeout,
            connect_kwargs=options,
        )

    def _socket(self, endpoint: Endpoint) -> socket.socket:
        if endpoint.proxy_command:
            self.proxy = ProxyProcess(endpoint.proxy_command)
            return self.proxy.socket
        return dial(endpoint)

    def close(self) -> str:
        """Close all, the last hop first; returns what a ``ProxyCommand`` said."""
        for connection in reversed(self.hops):
            connection.client.close()
        self.hops.clear()
        proxy, self.proxy = self.proxy, None
        return proxy.close() if proxy else ""


def dial(endpoint: Endpoint) -> socket.socket:
    """Return a TCP connection to the first address that answers.

    Raises:
        OSError: none does; the error of the last one.
    """
    families = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
    family = families.get(endpoint.address_family, socket.AF_UNSPEC)
    problem: OSError = OSError("no address")
    for kind, _, _, _, address in socket.getaddrinfo(endpoint.hostname, endpoint.port, family, socket.SOCK_STREAM):
        link = socket.socket(kind, socket.SOCK_STREAM)
        try:
            link.settimeout(endpoint.timeout)
            # A cut cable says nothing: unanswered keepalive packets end the connection instead.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
            if endpoint.bind_address:
                link.bind((endpoint.bind_address, 0))
            link.connect(address)
        except OSError as error:
            link.close()
            problem = error
        else:
            return link
    raise problem


def _not_on_record(record: Record) -> list[str]:
    wanted = {name for kind in record.kinds for name in _SIGNATURES.get(kind, (kind,))}
    return [name for name in _ALL if name not in wanted] if wanted & set(_ALL) else []
