"""Logins by key: what the agent holds and what files hold, in the order in which OpenSSH tries them.

paramiko's own order knows neither ``IdentitiesOnly`` with an agent, nor ``IdentityAgent``, nor a key whose
private half is in the agent alone, nor ``CertificateFile``. Passwords are never asked for nor sent.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, SSHException

from launcher.host import ssh_keys
from launcher.host.ssh_keys import KeyProblemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from launcher.host.ssh_route import Endpoint

_AGENT_SECONDS = 60  # an agent may ask its owner first


class SocketAgent(AgentSSH):  # type: ignore[misc]  # paramiko has no types
    """The agent behind a socket; paramiko's own looks at SSH_AUTH_SOCK only."""

    def __init__(self, path: str) -> None:
        super().__init__()
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_AGENT_SECONDS)
        try:
            link.connect(path)
            self._connect(link)
        except BaseException:
            link.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._close()


class AgentCertificate(AgentKey):  # type: ignore[misc]  # paramiko has no types
    """A certificate in an agent, which signs by it; paramiko's class asks for the bare key (5.1.0)."""

    def __init__(self, key: AgentKey) -> None:
        super().__init__(key.agent, key.blob, key.comment)
        self.public_blob = paramiko.pkey.PublicBlob(self.name, self.blob)

    def asbytes(self) -> bytes:
        """Return the certificate, by which the agent finds the key."""
        blob: bytes = self.blob
        return blob


@dataclass
class KeyLogin:
    """Tries keys on a server, as paramiko's ``auth_strategy``; remembers what stood in the way."""

    endpoint: Endpoint
    problems: list[str] = field(default_factory=list)
    tried: int = 0

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Log in.

        Raises:
            AuthenticationException: no key is accepted; says what would help.
        """
        agent = self._agent()
        try:
            for key in self.keys(agent.get_keys() if agent else ()):
                if self._accepted(transport, key):
                    return
        finally:
            if agent:
                agent.close()
        self._give_up(transport)

    def keys(self, held: Iterable[AgentKey]) -> Iterator[paramiko.PKey]:
        """Yield certificates, then agent keys that are configured, then other agent keys, then files.

        Args:
            held: what the agent holds.
        """
        only = self.endpoint.identities_only
        files = {file: ssh_keys.public_half(file) for file in self.endpoint.identity_files}
        files = {file: blob for file, blob in files.items() if blob or Path(file).is_file()}
        configured = set(files.values())
        certificates = [key for key in held if key.get_name().endswith(ssh_keys.CERTIFICATE)]
        plain = {key.blob: key for key in held if key not in certificates}

        yield from self._certified(files, plain)
        for key in certificates:
            if not only or ssh_keys.bare(key.blob) in configured:
                yield AgentCertificate(key)
        yield from (key for blob, key in plain.items() if blob in configured)
        if not only:
            yield from (key for blob, key in plain.items() if blob not in configured)
        for file, blob in files.items():
            if blob not in plain and (loaded := self._load(file)):
                yield loaded

    def _certified(self, files: dict[str, bytes], plain: dict[bytes, AgentKey]) -> Iterator[paramiko.PKey]:
        """Yield keys with the certificates of ``CertificateFile`` and of ``FILE-cert.pub``."""
        beside = {f"{file}-cert.pub": file for file in files}
        for path in dict.fromkeys([*self.endpoint.certificate_files, *beside]):
            blob = ssh_keys.bare(ssh_keys.read_public(path))
            if not blob:
                continue
            if blob in plain:
                key = AgentKey(plain[blob].agent, blob, plain[blob].comment)
            else:
                key = self._load(next((f for f, known in files.items() if known == blob), beside.get(path, "")))
            if key:
                key.load_certificate(path)
                yield key

    def _load(self, file: str) -> paramiko.PKey | None:
        try:
            return ssh_keys.load(file) if file else None
        except KeyProblemError as problem:
            if str(problem) not in self.problems:
                self.problems.append(str(problem))
            return None

    def _agent(self) -> SocketAgent | None:
        if not self.endpoint.agent:
            return None
        try:
            return SocketAgent(self.endpoint.agent)
        except (OSError, SSHException) as error:
            self.problems.append(f"no agent answers at {self.endpoint.agent} ({error})")
            return None

    def _accepted(self, transport: paramiko.Transport, key: paramiko.PKey) -> bool:
        self.tried += 1
        try:
            further = transport.auth_publickey(self.endpoint.user, key)
        except BadAuthenticationType as error:
            raise AuthenticationException(_no_keys(error.allowed_types)) from error
        except (SSHException, EOFError) as error:
            if transport.is_active():
                return False
            raise AuthenticationException(
                f"the server hung up after {self.tried} keys: say which one, with target.identity_file, or with"
                " IdentityFile and IdentitiesOnly in the SSH configuration"
            ) from error
        if not transport.is_authenticated():
            raise AuthenticationException(f"the key is accepted, but the server wants {', '.join(further)} as well")
        return True

    def _give_up(self, transport: paramiko.Transport) -> None:
        """Ask which methods there are. A server that wants no proof of identity lets in by that."""
        allowed: list[str] = []
        try:
            transport.auth_none(self.endpoint.user)
        except BadAuthenticationType as error:
            allowed = error.allowed_types
        except (SSHException, EOFError):
            pass
        if transport.is_authenticated():
            return
        if allowed and "publickey" not in allowed:
            raise AuthenticationException(_no_keys(allowed))
        said = f"none of {self.tried} keys is accepted" if self.tried else "there is no key to try"
        raise AuthenticationException("; ".join([said, *self.problems, *self.endpoint.unusable]))


def _no_keys(allowed: Iterable[str]) -> str:
    return f"the server takes no keys, only {', '.join(allowed)}; logins here are by key or agent"
