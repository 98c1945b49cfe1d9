"""Hosts over SSH, through Fabric, with strict host keys.

Fabric's own default accepts every host key, even a changed one (3.2.3, tried); here an unknown key, a changed
key and a revoked key are refused on every hop, whatever ``StrictHostKeyChecking`` says. Where OpenSSH's
configuration leads is asked of OpenSSH (`launcher.host.ssh_config`).
"""

from __future__ import annotations

import contextlib
import logging
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paramiko.ssh_exception import (
    AuthenticationException,
    ChannelException,
    IncompatiblePeer,
    SSHException,
)

from launcher.errors import HostKeyError, UnreachableError
from launcher.host.ssh_connect import Chain
from launcher.host.ssh_route import Endpoint, route
from launcher.host.ssh_sudo import SudoPassword
from launcher.host.transport import converse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import paramiko

    from launcher.host.transport import Command
    from launcher.schema import Target

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its errors reach the user as ours

_KEEPALIVE_SECONDS = 15


class SshTransport:
    """One host over SSH; connects on each call."""

    def __init__(self, host: str, target: Target) -> None:
        self.host = host
        self._target = target
        self._password = SudoPassword(target.sudo_password_file)

    def call(self, request: Mapping[str, Any], on_event: Callable[[str], None]) -> dict[str, Any]:
        """See `launcher.host.transport.Transport.call`."""
        chain = self._connect()

        @contextlib.contextmanager
        def start(command: str, *, merged: bool) -> Iterator[Command]:
            channel = chain.last.create_session()
            try:
                channel.set_combine_stderr(merged)
                channel.exec_command(command)
                yield _ChannelCommand(channel)
            finally:
                channel.close()

        try:
            return converse(self.host, start, request, on_event, self._target.python, self._password)
        finally:
            chain.close()

    @cached_property
    def _route(self) -> tuple[Endpoint, ...]:
        return route(self.host, self._target)

    def _connect(self) -> Chain:
        route = self._route
        chain = Chain(self.host)
        try:
            chain.open(route)
        except UnreachableError:
            chain.close()
            raise
        except (OSError, EOFError, SSHException) as error:
            at = chain.at or route[-1]
            said = chain.close()
            where = "" if at is route[-1] else f"jump host {at.name}: "
            if isinstance(error, IncompatiblePeer) and "host key" in str(error) and chain.record:
                kinds = ", ".join(sorted(chain.record.kinds))
                raise HostKeyError(
                    self.host, f"{where}its host key has CHANGED: it has none of the type on record ({kinds})"
                ) from error
            more = f"ProxyCommand said: {said}" if said else f"compare with: {at.by_hand}"
            raise UnreachableError(self.host, f"{where}{_reason(error, at)}; {more}") from error
        chain.last.transport.set_keepalive(_KEEPALIVE_SECONDS)
        return chain


class _ChannelCommand:
    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def end_input(self) -> None:
        self._channel.shutdown_write()

    def read(self, seconds: float) -> bytes:
        self._channel.settimeout(seconds or None)
        data: bytes = self._channel.recv(65536)
        return data

    def errors(self) -> str:
        said: str = self._channel.makefile_stderr("rb").read().decode("utf-8", "replace")
        return said


def _reason(error: Exception, at: Endpoint) -> str:
    """Return what went wrong on the way to a hop, in words."""
    if isinstance(error, AuthenticationException):
        return f"login as {at.user} refused ({str(error).rstrip('.')})"
    if isinstance(error, ChannelException):
        return f"no way from the hop before to {at.hostname} port {at.port} ({error.text})"
    if isinstance(error, socket.gaierror):
        return f"the name {at.hostname} is unknown ({error.strerror})"
    if isinstance(error, TimeoutError) or "No existing session" in str(error) or "Timeout" in str(error):
        return f"no answer in time from {at.hostname} port {at.port}"
    if isinstance(error, SSHException) and "banner" in str(error):
        return f"what answers at {at.hostname} port {at.port} hung up before it spoke SSH"
    if isinstance(error, OSError):
        return f"no connection to {at.hostname} port {at.port} ({error.strerror or error})"
    return f"no SSH session ({str(error) or type(error).__name__})"
