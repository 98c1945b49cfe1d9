"""The guard: systemd starts it instead of the server; it becomes the server, or exits 78 and says why."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, NoReturn

from . import credentials, knowledge, ports, systemd
from .evidence import leave_mark
from .journal import say
from .manifest import ManifestError, compare, load
from .processes import read_process

#: Started wrongly, and starting again cannot help; the unit has RestartPreventExitStatus=78.
REFUSED = 78
#: Left by the waiter for the next automatic start.
REFUSAL_FILE = "refused"
#: How long an old server may take to give its port back, in seconds.
PORT_PATIENCE = 10


def refuse(*lines: str) -> NoReturn:
    """Say why the server is not started, and end for good."""
    say("\n".join(("REFUSED to start the server:", *lines)), level=3)
    sys.exit(REFUSED)


def guard(path: str, argv: List[str]) -> NoReturn:
    """Check this process's own environment, then become the server.

    Args:
        path: of the manifest.
        argv: the server's command as the unit carries it.
    """
    try:
        manifest = load(path)
    except ManifestError as error:
        refuse(str(error), "deploy again: launch up")
    _check_earlier_refusal(manifest["digest"])
    # The block as systemd gave it: Python adds LC_CTYPE to its own copy in the C locale (PEP 538).
    own = read_process(os.getpid())
    env = (own.env if own else None) or {}
    problems = compare(env, manifest)
    if argv != manifest["argv"]:
        problems.append(different_argument(argv, manifest["argv"]))
    refused, odd = knowledge.extras(env, manifest, own=False)
    problems += [
        f"{name} is set in the unit's environment, but the release does not set it"
        " (systemctl show-environment, systemctl cat, drop-ins)"
        for name in refused
    ]
    if problems:
        refuse(*problems)
    for name in odd:
        say(f"warning: {name} is in the environment and not from the release", level=4)
    try:
        env.update(credentials.environment(manifest))
        credentials.write_arguments(manifest, env.get("RUNTIME_DIRECTORY", ""))
        leave_mark(env.get("RUNTIME_DIRECTORY", ""), manifest["digest"])
    except (credentials.CredentialError, OSError) as error:
        refuse(str(error))
    _wait_for_port(manifest)
    say(f"guard: release {manifest['digest']} complete, {len(manifest['env'])} variables; starting {argv[0]}")
    try:
        os.execve(argv[0], argv, env)  # noqa: S606 - becoming the server is the point
    except OSError as error:
        refuse(f"{argv[0]} cannot be started: {error.strerror}")


def different_argument(argv: List[str], wanted: List[str]) -> str:
    """Say in what a command differs from the one of a release."""
    for index, (is_, should) in enumerate(zip(argv, wanted)):
        if is_ != should:
            return f"argument {index} of the command is {is_!r} (should be {should!r})"
    return f"the command has {len(argv)} arguments (should have {len(wanted)})"


def _check_earlier_refusal(digest: str) -> None:
    """End for good when the waiter refused this release at the start before; a start by hand tries again."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "")
    path = os.path.join(folder, REFUSAL_FILE) if folder else ""
    try:
        with open(path, encoding="utf-8") as stream:
            refused, *reason = stream.read().splitlines()
        os.unlink(path)
    except (OSError, ValueError):
        return
    if refused == digest and _is_automatic():
        refuse("the start before this one was refused after the server had come up:", *reason)


def _is_automatic() -> bool:
    """Return whether systemd restarted the unit by itself; a start by hand resets its count."""
    name = os.environ.get("LAUNCH_DEPLOYMENT", "")
    try:
        return int(systemd.properties(f"launch-{name}.service").get("NRestarts", 1)) > 0
    except (systemd.SystemdError, ValueError):
        return True


def _wait_for_port(manifest: Dict[str, Any]) -> None:
    """Wait until nobody else listens on the port: systemd starts a unit although old processes remain."""
    host, port = manifest["host"], manifest["port"]
    deadline = time.monotonic() + PORT_PATIENCE
    told = False
    while ports.listening(port, host):
        if not told:
            told = True
            say(f"port {port} is taken by {ports.holder(port)}; waiting {PORT_PATIENCE} s for it", level=4)
        if time.monotonic() > deadline:
            say(f"port {port} is still taken by {ports.holder(port)}: end it, or change engine.port", level=3)
            sys.exit(1)
        time.sleep(0.5)
