"""Hosts over SSH, through Fabric, with strict host keys.

Fabric's own default accepts every host key, even a changed one (3.2.3, tried); here an unknown key and a
changed key are both refused.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import (
    AuthenticationException,
    BadHostKeyException,
    NoValidConnectionsError,
    SSHException,
)

from launcher.errors import ConfigError, HostKeyError, UnreachableError
from launcher.host.bundle import payload
from launcher.host.transport import agent_command, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from launcher.schema import Target

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its errors reach the user as ours

_KEEPALIVE_SECONDS = 15


class SshTransport:
    """One host over SSH; connects on each call."""

    def __init__(self, host: str, target: Target) -> None:
        self.host = host
        self._target = target

    def call(self, request: Mapping[str, Any], on_event: Callable[[str], None]) -> dict[str, Any]:
        """See `launcher.host.transport.Transport.call`."""
        connection = self._connect()
        try:
            channel = connection.create_session()
            channel.exec_command(agent_command(self._target.python))
            try:
                channel.sendall(payload(request).encode())
                channel.shutdown_write()
            except OSError:
                pass  # it ended early; its error output says why
            said = lambda: channel.makefile_stderr("r").read().decode("utf-8", "replace")  # noqa: E731
            return read_answer(self.host, _lines(channel), on_event, self._target.python, said)
        finally:
            connection.close()

    def _connect(self) -> Connection:
        try:
            connection = self._connection()
            connection.open()
        except BadHostKeyException as error:
            raise HostKeyError(
                self.host,
                f"its host key has CHANGED: known is {_print(error.expected_key)}, offered {_print(error.key)};"
                f" nothing was sent. If you know why: ssh-keygen -R {error.hostname}",
            ) from error
        except AuthenticationException as error:
            raise UnreachableError(self.host, f"login refused ({error}); try: ssh {self.host}") from error
        except NoValidConnectionsError as error:
            raise UnreachableError(self.host, f"no connection ({error.strerror or error})") from error
        except SSHException as error:
            if "not found in known_hosts" in str(error):
                raise HostKeyError(
                    self.host, f"its host key is unknown; log in once to check and record it: ssh {self.host}"
                ) from error
            raise UnreachableError(self.host, f"no SSH session ({error})") from error
        except (OSError, EOFError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            if isinstance(error, socket.gaierror):
                reason = f"the name is unknown ({error.strerror})"
            raise UnreachableError(self.host, reason) from error
        connection.transport.set_keepalive(_KEEPALIVE_SECONDS)
        return connection

    def _connection(self) -> Connection:
        target = self._target
        config = Config(runtime_ssh_path=_existing("target.ssh_config", target.ssh_config))
        options: dict[str, Any] = {}
        if target.identity_file:
            options["key_filename"] = _existing("target.identity_file", target.identity_file)
        connection = Connection(
            self.host,
            user=target.user or None,
            port=target.port or None,
            config=config,
            connect_timeout=target.connect_timeout,
            connect_kwargs=options,
        )
        client = connection.client
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        entry = config.base_ssh_config.lookup(self.host)
        files = [target.known_hosts] if target.known_hosts else entry.get("userknownhostsfile", "").split()
        if files:
            for name in files:
                path = Path(name).expanduser()
                if path.exists():
                    client.load_host_keys(str(path))
        else:
            client.load_system_host_keys()
        return connection


def _existing(key: str, name: str) -> str | None:
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"{key}={name}: there is no such file")
    return str(path)


def _lines(channel: paramiko.Channel) -> Iterator[str]:
    with channel.makefile("r", -1) as stream:
        for line in stream:
            yield line if isinstance(line, str) else line.decode("utf-8", "replace")


def _print(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"
