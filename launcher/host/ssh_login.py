"""Logins by key: what the agent holds and what files hold, in the order in which OpenSSH tries them.

paramiko's own order knows neither ``IdentitiesOnly`` with an agent, nor ``IdentityAgent``, nor a key whose
private half is in the agent alone, nor ``CertificateFile``.
"""

from __future__ import annotations

import base64
import binascii
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, SSHException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.host.ssh_route import Endpoint

_MAGIC = b"openssh-key-v1\0"
_CERT = "-cert-v01@openssh.com"
_AGENT_SECONDS = 60  # an agent may ask its owner


class SocketAgent(AgentSSH):  # type: ignore[misc] - paramiko has no types
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


class AgentCertificate(AgentKey):  # type: ignore[misc] - paramiko has no types
    """A certificate in an agent, which signs for the certificate; paramiko asks for the bare key (5.1.0)."""

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
            AuthenticationException: no key is accepted; says which were tried and what would help.
        """
        agent = self._agent()
        try:
            for key in self._keys(agent.get_keys() if agent else ()):
                if self._accepted(transport, key):
                    return
        finally:
            if agent:
                agent.close()
        self._give_up(transport)

    def _accepted(self, transport: paramiko.Transport, key: paramiko.PKey) -> bool:
        self.tried += 1
        try:
            further = transport.auth_publickey(self.endpoint.user, key)
        except BadAuthenticationType as error:
            raise AuthenticationException(_no_keys_allowed(error.allowed_types)) from error
        except (SSHException, EOFError) as error:
            if not transport.is_active():
                raise AuthenticationException(
                    f"the server hung up after {self.tried} keys: name one, with target.identity_file, or with"
                    " IdentityFile and IdentitiesOnly in the SSH configuration"
                ) from error
            return False
        if not transport.is_authenticated():
            raise AuthenticationException(f"a key is accepted, but the server wants {' and '.join(further)} as well")
        return True

    def _give_up(self, transport: paramiko.Transport) -> None:
        """Ask which methods there are; a server that wants nothing lets in by that."""
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
            raise AuthenticationException(_no_keys_allowed(allowed))
        said = f"none of {self.tried} keys is accepted" if self.tried else "there is no key to try"
        raise AuthenticationException("; ".join([said, *self.problems, *self.endpoint.unusable]))

    def _agent(self) -> SocketAgent | None:
        if not self.endpoint.agent:
            return None
        try:
            return SocketAgent(self.endpoint.agent)
        except (OSError, SSHException) as error:
            self.problems.append(f"no agent answers at {self.endpoint.agent} ({error})")
            return None

    def _keys(self, held: tuple[AgentKey, ...]) -> Iterator[paramiko.PKey]:
        """Yield certificates, then agent keys that are configured, then the other ones, then files."""
        files = {file: public_blob(file) for file in self.endpoint.identity_files if Path(file).is_file()}
        files |= {file: b for file in self.endpoint.identity_files if file not in files and (b := public_blob(file))}
        configured = set(files.values())
        in_agent = {key.blob: key for key in held}
        certificates = list(self._certificates(files))
        for blob, certificate in certificates:
            key = in_agent.get(blob) or self._load(_file_of(blob, files))
            if key:
                key.load_certificate(certificate)
                yield key
        for key in held:
            if _CERT in key.get_name() and (not self.endpoint.identities_only or _bare(key.blob) in configured):
                yield AgentCertificate(key)
        plain = [AgentKey(key.agent, key.blob, key.comment) for key in held if _CERT not in key.get_name()]
        yield from (key for key in plain if key.blob in configured)
        if not self.endpoint.identities_only:
            yield from (key for key in plain if key.blob not in configured)
        for file, blob in files.items():
            if blob not in in_agent and (key := self._load(file)):
                yield key

    def _certificates(self, files: dict[str, bytes]) -> Iterator[tuple[bytes, str]]:
        """Yield the bare public key and the file of each certificate."""
        beside = [f"{file}-cert.pub" for file in files if not file.endswith(".pub")]
        for certificate in dict.fromkeys([*self.endpoint.certificate_files, *beside]):
            bare = _bare(_public_file(certificate))
            if bare:
                yield bare, certificate

    def _load(self, file: str) -> paramiko.PKey | None:
        """Return the private key of a file, without a certificate; notes down why there is none."""
        if not file or not Path(file).is_file():
            return None
        try:
            kind = _kind(public_blob(file))
            if kind.startswith("sk-"):
                self.problems.append(f"{file} is the handle of a hardware key, used through an agent: ssh-add {file}")
                return None
            return _private_key(file)
        except PermissionError:
            self.problems.append(f"{file} cannot be read")
        except (paramiko.PasswordRequiredException, TypeError):
            self.problems.append(f"{file} has a passphrase and is not in an agent: ssh-add {file}")
        except (paramiko.pkey.UnknownKeyType, SSHException, ValueError, OSError) as error:
            if _is_locked(file):
                self.problems.append(f"{file} has a passphrase and is not in an agent: ssh-add {file}")
            elif "PRIVATE KEY" in _text(file):
                self.problems.append(f"{file} holds no key that can be used ({error})")
        return None


def public_blob(file: str) -> bytes:
    """Return the public half of a key: of ``FILE.pub``, of the file itself, or of a private key's head."""
    for path in (file, f"{file}.pub"):
        if blob := _public_file(path):
            return blob
    return _head(file)[1]


def _no_keys_allowed(allowed: Any) -> str:
    return f"the server takes no keys, only {', '.join(allowed)}; logins here are by key or agent: ssh-copy-id"


def _public_file(path: str) -> bytes:
    words = _text(path).split()
    try:
        return base64.b64decode(words[1], validate=True) if words and "-" in words[0][:12] else b""
    except (IndexError, binascii.Error, ValueError):
        return b""


def _head(file: str) -> tuple[str, bytes]:
    """Return cipher and public half from the unencrypted head of a private key in OpenSSH's format."""
    body = "".join(line for line in _text(file).splitlines() if not line.startswith("-----"))
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return "", b""
    if not data.startswith(_MAGIC):
        return "", b""
    head = paramiko.Message(data[len(_MAGIC) :])
    cipher = head.get_text()
    head.get_string()
    head.get_string()
    head.get_int()
    blob: bytes = head.get_string()
    return cipher, blob


def _is_locked(file: str) -> bool:
    return _head(file)[0] not in ("", "none") or "ENCRYPTED" in _text(file)


def _private_key(file: str) -> paramiko.PKey:
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key_file(file)
        except paramiko.PasswordRequiredException:
            raise
        except SSHException as error:
            last = error
    raise last


def _bare(blob: bytes) -> bytes:
    """Return the public key inside a certificate, empty when it is none that can be used."""
    kind = _kind(blob)
    if not kind.endswith(_CERT):
        return b""
    try:
        key: bytes = paramiko.PKey.from_type_string(kind, blob).asbytes()
    except (paramiko.pkey.UnknownKeyType, SSHException, ValueError):
        return b""
    return key


def _kind(blob: bytes) -> str:
    kind: str = paramiko.Message(blob).get_text() if blob else ""
    return kind


def _file_of(blob: bytes, files: dict[str, bytes]) -> str:
    return next((file for file, known in files.items() if known == blob), "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
