"""What OpenSSH's configuration can ask for and cannot be had here: named, with what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.host.ssh_config import Options

#: Refused before anything is sent: leaving these out would log in by another way, or to a host it distrusts.
_REFUSED: Mapping[str, tuple[str, str]] = {
    "revokedhostkeys": ("RevokedHostKeys", "mark the keys with @revoked in known_hosts instead"),
    "pubkeyauthentication": ("PubkeyAuthentication no", "logins here are by key or agent: set it to yes for this host"),
    "proxyusefdpass": ("ProxyUseFdpass yes", "use a ProxyCommand that passes the data itself, as `nc %h %p`"),
}

#: Only told when the login fails, since another key may do.
_UNUSABLE: Mapping[str, tuple[str, str]] = {
    "pkcs11provider": ("PKCS11Provider", "put the card's keys into an agent: ssh-add -s {value}"),
    "gssapiauthentication": ("GSSAPIAuthentication", "Kerberos tickets are not used: add a key or an agent"),
    "hostbasedauthentication": ("HostbasedAuthentication", "not used: add a key or an agent"),
    "knownhostscommand": ("KnownHostsCommand", "not run: write the host's key into known_hosts"),
}

_OFF = {"revokedhostkeys": ("", "none"), "pubkeyauthentication": ("", "yes", "true", "unbound", "host-bound")}


def refusals(options: Options) -> list[str]:
    """Return what of a host's options cannot be left out and cannot be done."""
    found = []
    for key, (name, help_text) in _REFUSED.items():
        value = options.get(key, [""])[0]
        if value.lower() not in _OFF.get(key, ("", "no", "false", "none")):
            found.append(f"{name} is not supported: {help_text}")
    return found


def unusable(options: Options) -> list[str]:
    """Return the ways to log in that the options want and that are not taken."""
    found = []
    for key, (name, help_text) in _UNUSABLE.items():
        value = options.get(key, [""])[0]
        if value.lower() not in ("", "no", "false", "none"):
            found.append(f"{name}: {help_text.format(value=value)}")
    return found
