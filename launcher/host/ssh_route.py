"""The hops to a host, each with all that is needed to log in there; the last one is the host itself."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ConfigError
from launcher.host import ssh_config, ssh_names, ssh_refused
from launcher.schema import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.host.ssh_config import Options
    from launcher.host.ssh_names import Name
    from launcher.schema import Target

_MOST_HOPS = 8
_CONNECT_SECONDS = 10
SSH_PORT = 22


@dataclass(frozen=True)
class Endpoint:
    """One SSH server and the login there."""

    name: str
    hostname: str
    user: str
    port: int = SSH_PORT
    # Looked up in known_hosts in place of host name and port.
    host_key_alias: str = ""
    known_hosts: tuple[str, ...] = ()
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    # Path of a socket; empty for none.
    agent: str = ""
    proxy_command: str = ""
    address_family: str = "any"
    bind_address: str = ""
    timeout: int = _CONNECT_SECONDS
    # The command that reaches it without us.
    by_hand: str = "ssh"
    # What the configuration wants and a login here cannot use; told when the login fails.
    unusable: tuple[str, ...] = ()


def route(host: str, target: Target) -> tuple[Endpoint, ...]:
    """Return the hops to a host of a target, the way OpenSSH would go.

    ``ProxyJump a,b`` goes through a and b; a hop's own configuration counts (an alias, its user, a key), and its
    own ``ProxyJump`` too where it is the first of the list. A hop takes nothing of ``target`` but
    ``target.ssh_config``, ``target.connect_timeout`` and, beside its own files, ``target.known_hosts``.

    Raises:
        ConfigError: the configuration cannot be read, or wants what cannot be done here.
    """
    place = target.places.get(host, Place())
    written = ssh_names.parse(place.address or host)
    user, port = written.user or place.user or target.user, written.port or place.port or target.port
    name = ssh_names.Name(written.host, user, port)
    own_key = existing(f"{host}: identity file of the inventory", place.identity_file)
    target = replace(target, identity_file=own_key or target.identity_file)
    config = existing("target.ssh_config", target.ssh_config)
    return _walk(name, lambda hop: ssh_config.ask(hop, config), target, (), None)


def check_hosts(target: Target) -> None:
    """Refuse names in ``target.hosts`` that are none, and a host that is named twice, also in two spellings.

    Two spellings of one name are one host where both lead to the same port of the same machine.

    Raises:
        ConfigError: says which.
    """
    alike: dict[str, list[str]] = {}
    for host in target.hosts:
        alike.setdefault(ssh_names.parse(host).host.lower(), []).append(host)
    doubles = []
    for written in alike.values():
        places: dict[tuple[str, int], list[str]] = {}
        for host in written if len(written) > 1 else ():
            last = route(host, target)[-1]
            places.setdefault((last.hostname.lower(), last.port), []).append(host)
        doubles += [tuple(dict.fromkeys(names)) for names in places.values() if len(names) > 1]
    if doubles:
        raise ConfigError(
            *(
                f"target.hosts names {names[0]} more than once{f', as {names[1]}' if len(names) > 1 else ''}"
                for names in doubles
            )
        )


def _walk(
    name: Name, ask: Callable[[Name], Options], target: Target, after: tuple[Name, ...], jumps: str | None
) -> tuple[Endpoint, ...]:
    if name in after or len(after) >= _MOST_HOPS:
        way = " -> ".join(hop.host for hop in reversed((*after, name)))
        raise ConfigError(f"{after[0].host}: its ProxyJump never ends: {way}; give one of them `ProxyJump none`")
    options = ask(name)
    if problems := ssh_refused.refusals(options):
        raise ConfigError(*(f"{name.host}: {problem}" for problem in problems))
    if jumps is None:
        jumps = "" if "proxycommand" in options else options.get("proxyjump", [""])[0]
    else:
        options = {key: value for key, value in options.items() if key != "proxycommand"}
    before: tuple[Endpoint, ...] = ()
    if jumps and jumps.lower() != "none":
        first, _, last = jumps.rpartition(",")
        hop = ssh_names.parse(last.strip(), f"{name.host}: ProxyJump")
        before = _walk(hop, ask, target, (*after, name), first or None)
    return (*before, endpoint(name, options, target, is_jump=bool(after)))


def endpoint(name: Name, options: Options, target: Target, *, is_jump: bool = False) -> Endpoint:
    """Return what a host's options say, with what ``target`` says before them."""
    known = ssh_config.tokens(name, options)

    def one(key: str) -> str:
        value = options.get(key, [""])[0]
        return "" if value.lower() == "none" else value

    def paths(key: str) -> list[str]:
        values = [value for value in options.get(key, []) if value.lower() != "none"]
        return [ssh_config.tilde(ssh_config.expand(value, known)) for value in values]

    own = existing("target.identity_file", target.identity_file) if not is_jump else ""
    seconds = one("connecttimeout")
    return Endpoint(
        name=name.host,
        hostname=options["hostname"][0],
        user=options["user"][0],
        port=int(options["port"][0]),
        host_key_alias=one("hostkeyalias"),
        known_hosts=_known_hosts(options, target, is_jump=is_jump),
        identity_files=tuple(dict.fromkeys([*([own] if own else []), *paths("identityfile")])),
        certificate_files=tuple(paths("certificatefile")),
        identities_only=one("identitiesonly") == "yes",
        agent=_agent(options.get("identityagent", ["SSH_AUTH_SOCK"])[0], known),
        proxy_command=ssh_config.expand(one("proxycommand"), known),
        address_family=one("addressfamily") or "any",
        bind_address=one("bindaddress"),
        timeout=target.connect_timeout or (int(seconds) if seconds.isdigit() else 0) or _CONNECT_SECONDS,
        by_hand=_by_hand(name, target, is_jump=is_jump),
        unusable=tuple(ssh_refused.unusable(options)),
    )


def _by_hand(name: Name, target: Target, *, is_jump: bool) -> str:
    words = ["ssh"]
    words += ["-F", target.ssh_config] if target.ssh_config else []
    words += ["-o", f"UserKnownHostsFile={target.known_hosts}"] if target.known_hosts else []
    words += ["-i", target.identity_file] if target.identity_file and not is_jump else []
    words += ["-p", str(name.port)] if name.port else []
    return shlex.join([*words, f"{name.user}@{name.host}" if name.user else name.host])


def _known_hosts(options: Options, target: Target, *, is_jump: bool) -> tuple[str, ...]:
    own = [existing("target.known_hosts", target.known_hosts)] if target.known_hosts else []
    if own and not is_jump:
        return tuple(own)
    configured = (options.get(key, [""])[0] for key in ("userknownhostsfile", "globalknownhostsfile"))
    return (*own, *(ssh_config.tilde(name) for line in configured for name in _file_names(line)))


def _file_names(line: str) -> list[str]:
    """Split a list of files as ``ssh -G`` prints it, without the quotes; a name with blanks stands alone then."""
    if Path(ssh_config.tilde(line)).is_file():
        return [line]
    return [name for name in line.replace('"', "").split() if name.lower() != "none"]


def _agent(said: str, known: dict[str, str]) -> str:
    if said.lower() == "none":
        return ""
    if said == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if said.startswith("$") and not said.startswith("${"):
        return os.environ.get(said[1:], "")
    return ssh_config.tilde(ssh_config.expand(said, known))


def existing(key: str, name: str) -> str:
    """Return the path of a file that a key of ours names, or an empty string for none.

    Raises:
        ConfigError: there is no such file.
    """
    if not name:
        return ""
    path = Path(ssh_config.tilde(name))
    if not path.is_file():
        raise ConfigError(f"{key}={name}: there is no such file")
    return str(path)
