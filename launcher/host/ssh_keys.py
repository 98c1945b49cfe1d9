"""Key files: public halves, certificates, and private keys as far as paramiko reads them."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import paramiko
from paramiko.ssh_exception import PasswordRequiredException, SSHException

CERTIFICATE = "-cert-v01@openssh.com"
_MAGIC = b"openssh-key-v1\0"
_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-": 2, "sk-ssh-ed25519": 2, "sk-ecdsa-": 3}
_PUBLIC = ("ssh-", "ecdsa-", "sk-")


class KeyProblemError(Exception):
    """Why a file gives no key to log in with, and what helps."""


def public_half(file: str) -> bytes:
    """Return the public key of a key file: ``FILE`` if it is public, ``FILE.pub``, or the head of a private key.

    The head of OpenSSH's own format is not encrypted; other formats without a ``.pub`` give nothing.
    """
    return read_public(file) or read_public(f"{file}.pub") or _head(file)[1]


def read_public(path: str) -> bytes:
    """Return the key or certificate in a public file, empty when there is none."""
    words = _text(path).split()
    if len(words) > 1 and words[0].startswith(_PUBLIC):
        return _decoded(words[1])
    return b""


def kind(blob: bytes) -> str:
    """Return the type that a public key or certificate names in front."""
    said: str = paramiko.Message(blob).get_text() if blob else ""
    return said


def bare(blob: bytes) -> bytes:
    """Return the public key inside a certificate, empty when it is none; paramiko reads them for RSA and ECDSA only.

    A certificate is its type, a random string, the fields of the key, and what the authority says of it.
    """
    certificate = paramiko.Message(blob)
    plain = certificate.get_text().removesuffix(CERTIFICATE) if kind(blob).endswith(CERTIFICATE) else ""
    fields = next((count for start, count in _FIELDS.items() if plain.startswith(start)), 0)
    if not fields:
        return b""
    certificate.get_string()
    key = paramiko.Message()
    # The suffix stands before the @ of a hardware key's type: sk-ssh-ed25519-cert-v01@openssh.com.
    key.add_string(f"{plain}@openssh.com" if plain.startswith("sk-") else plain)
    for _ in range(fields):
        key.add_string(certificate.get_string())
    found: bytes = key.asbytes()
    return found


def load(file: str) -> paramiko.PKey:
    """Return the private key in a file, without a certificate.

    Raises:
        KeyProblemError: there is none that can be used.
    """
    if kind(public_half(file)).startswith("sk-"):
        raise KeyProblemError(f"{file} is a hardware key, which works through an agent: ssh-add {file}")
    try:
        Path(file).open("rb").close()
    except OSError as error:
        if public_half(file):
            raise KeyProblemError(f"{file}: only its public half is here, and no agent has the other") from error
        raise KeyProblemError(f"{file} cannot be read ({error.strerror})") from error
    if read_public(file):
        raise KeyProblemError(f"{file} is only the public half, and no agent has the other")
    if _head(file)[0] not in ("", "none") or "ENCRYPTED" in _text(file):
        raise KeyProblemError(f"{file} has a passphrase: ssh-add {file}")
    for form in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return form.from_private_key_file(file)
        except PasswordRequiredException as error:
            raise KeyProblemError(f"{file} has a passphrase: ssh-add {file}") from error
        except (SSHException, ValueError, OSError):
            continue  # another type
    raise KeyProblemError(f"{file} holds no key of a type that is known here (Ed25519, ECDSA, RSA)")


def _head(file: str) -> tuple[str, bytes]:
    """Return cipher and public half that a private key in OpenSSH's format names in front."""
    data = _decoded("".join(line for line in _text(file).splitlines() if not line.startswith("-----")))
    if not data.startswith(_MAGIC):
        return "", b""
    head = paramiko.Message(data[len(_MAGIC) :])
    cipher: str = head.get_text()
    for _ in ("key derivation", "its options"):
        head.get_string()
    head.get_int()
    blob: bytes = head.get_string()
    return cipher, blob


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
