"""What OpenSSH's configuration says about a host, answered by OpenSSH itself.

``ssh -G`` prints the values that ``ssh`` would use: after ``Include``, ``Match`` (``exec`` runs its command),
``CanonicalizeHostname``, command-line options and defaults. So everything that its configuration can say decides
here too. It leaves ``%`` tokens and ``~`` in some values (9.2: IdentityFile, CertificateFile, ProxyCommand),
which are expanded here. Where no ``ssh`` is installed, paramiko's reader takes its place; it skips ``Include``
silently, which is therefore refused.

Not taken over, on purpose: ``StrictHostKeyChecking`` (``no`` does not weaken the check of host keys here),
``ForwardAgent``, ``ControlMaster``, ``RemoteCommand``; and the lists of ciphers, which are paramiko's own.
"""

from __future__ import annotations

import getpass
import glob
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.host.ssh_names import Name

#: Values by lower-case keyword; a keyword that may stand several times has several.
Options = dict[str, list[str]]

_SSH_SECONDS = 30  # canonical names ask a name server, and `Match exec` runs what it likes
_MANY = ("identityfile", "certificatefile")
_DEFAULT_KEYS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")


def ask(name: Name, config: str) -> Options:
    """Return what is configured for a host.

    Args:
        name: the host as it was written; its user and port count as given on the command line.
        config: the only file to read, empty for the user's and the system's.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    if shutil.which("ssh"):
        return parse(_ssh_says(name, config))
    return _paramiko_says(name, config)


def parse(text: str) -> Options:
    """Read the output of ``ssh -G``: a lower-case keyword and the rest of the line is its value."""
    found: Options = defaultdict(list)
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword and value:
            found[keyword.lower()].append(value.strip())
    return dict(found)


def _ssh_says(name: Name, config: str) -> str:
    words = ["ssh", "-G"]
    words += ["-F", config] if config else []
    words += ["-l", name.user] if name.user else []
    words += ["-p", str(name.port)] if name.port else []
    words += ["--", name.host]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SSH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{name.host}: `{' '.join(words)}` gives no answer within {_SSH_SECONDS} s") from error
    if done.returncode:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise ConfigError(f"{name.host}: OpenSSH refuses its configuration: {said or f'exit {done.returncode}'}")
    return done.stdout


def _paramiko_says(name: Name, config: str) -> Options:
    import paramiko

    read = paramiko.SSHConfig()
    given = {"User": name.user, "Port": name.port}
    read.parse(["Host *\n", *(f"{key} {value}\n" for key, value in given.items() if value)])  # the first value counts
    for path in [Path(config)] if config else [home() / ".ssh/config", Path("/etc/ssh/ssh_config")]:
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            refuse_include(text, path)
            try:
                read.parse(text.splitlines(keepends=True))
            except paramiko.ConfigParseError as error:
                raise ConfigError(f"{path}: {error}; with the OpenSSH client installed here, ssh reads it") from error
    said = read.lookup(name.host)
    found = {key: value if isinstance(value, list) else [str(value)] for key, value in said.items()}
    return {**_defaults(name), **{key: value for key, value in found.items() if value != ["none"] or key in _MANY}}


def _defaults(name: Name) -> Options:
    ssh = home() / ".ssh"
    return {
        "hostname": [name.host],
        "user": [getpass.getuser()],
        "port": ["22"],
        "identityfile": [str(ssh / f"id_{kind}") for kind in _DEFAULT_KEYS],
        "userknownhostsfile": [f"{ssh / 'known_hosts'} {ssh / 'known_hosts2'}"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
    }


def refuse_include(text: str, path: Path) -> None:
    """Refuse an ``Include`` that names files which are there.

    Raises:
        ConfigError: names the line and what helps.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        said = re.match(r"\s*include(?:\s*=\s*|\s+)(.+)", line, re.IGNORECASE)
        if not said:
            continue
        for pattern in said[1].replace('"', "").split():
            base = Path("/etc/ssh") if path.is_relative_to("/etc/ssh") else home() / ".ssh"
            if glob.glob(str(base / tilde(pattern))):  # noqa: PTH207 - the pattern may be absolute
                raise ConfigError(
                    f"{path}:{number}: `{line.strip()}` needs the OpenSSH client on this machine, and there is none:"
                    " install it (openssh-client), or name a file without Include: target.ssh_config=FILE"
                )


def home() -> Path:
    """Return the home folder that OpenSSH uses, which is the account's even where $HOME says otherwise."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def tilde(text: str) -> str:
    """Return a path with the leading ``~/`` replaced."""
    if text == "~" or text.startswith("~/"):
        return str(home()) + text[1:]
    return os.path.expanduser(text)  # noqa: PTH111 - the other one raises for an unknown ~user


def tokens(name: Name, options: Mapping[str, list[str]]) -> dict[str, str]:
    """Return what the ``%`` tokens stand for, all of them but ``%C``."""
    local = socket.gethostname()
    return {
        "%": "%",
        "d": str(home()),
        "h": options["hostname"][0],
        "i": str(os.getuid()),
        "k": options.get("hostkeyalias", [name.host])[0],
        "L": local.partition(".")[0],
        "l": local,
        "n": name.host,
        "p": options["port"][0],
        "r": options["user"][0],
        "u": getpass.getuser(),
    }


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return a value with its ``%`` tokens and ``${VARIABLES}`` replaced; unknown ones stay as they are."""
    filled = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), text)
    return re.sub(r"%(.)", lambda found: known.get(found[1], found[0]), filled)
