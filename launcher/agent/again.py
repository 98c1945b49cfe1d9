"""Run a process again as it was recorded: same program, command, environment, folder, user, outputs and limits.

A transient unit starts this as root; it becomes the process. Neither the environment nor the command is ever in the
unit: they are in a file that root alone can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from typing import Any, Dict, Mapping

from .adopt_find import link
from .processes import read_bytes
from .stray_record import is_file

FOLDER = "/run/launch-again"
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)


def path_of(name: str) -> str:
    """Return where the record of what is to be run again lies."""
    return f"{FOLDER}/{name}.json"


def unit_of(name: str) -> str:
    """Return the unit in which it runs."""
    return f"launch-again-{name}.service"


def again(name: str) -> int:
    """Become the process that is recorded for a deployment."""
    try:
        record: Dict[str, Any] = json.loads(read_bytes(path_of(name)) or b"")
        _become(record)
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"<3>launch: what ran before {name} cannot be run again: {error}\n")
    return 1


def _become(record: Mapping[str, Any]) -> None:
    for number, entry in enumerate(record["streams"]):
        _connect(number, entry, record)
    for name, (soft, hard) in record["limits"].items():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a container may forbid it
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write(str(record["oom_score_adj"]))
    with contextlib.suppress(OSError):  # processors may have gone
        os.sched_setaffinity(0, record["cpus"])
    os.setpriority(os.PRIO_PROCESS, 0, record["nice"])
    os.umask(record["umask"])
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN if record["ignored"] >> (number - 1) & 1 else signal.SIG_DFL)
    with contextlib.suppress(OSError):  # root may be kept out of another user's folder on a network disk
        os.chdir(record["cwd"])
    os.setgroups(record["groups"])
    os.setresgid(*record["gids"])
    os.setresuid(*record["uids"])
    if link("/proc/self/cwd") != record["cwd"]:
        os.chdir(record["cwd"])
    env = dict(entry.partition("=")[::2] for entry in record["env"] if "=" in entry)
    os.execve(record["exe"], record["argv"], env)  # noqa: S606 - becoming it is the point


def _connect(number: int, entry: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Lead a standard stream where it led; what cannot be is nothing for input, and the journal for output."""
    path = str(entry["path"])
    descriptor = -1
    if number == 0:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    elif is_file(entry):
        descriptor = _open(path, entry, record)
    elif path.startswith("/dev/"):
        with contextlib.suppress(OSError):  # a terminal that is closed
            descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    if descriptor >= 0:
        os.dup2(descriptor, number)
        os.close(descriptor)


def _open(path: str, entry: Mapping[str, Any], record: Mapping[str, Any]) -> int:
    """Open a log to append to it: as root only the very file that it was, else as its user."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if [status.st_dev, status.st_ino] == entry["file"]:
            os.set_blocking(descriptor, True)
            return descriptor
        os.close(descriptor)
    groups = os.getgroups()
    try:
        os.setgroups(record["groups"])
        os.setegid(record["gids"][1])
        os.seteuid(record["uids"][1])
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666 & ~record["umask"])
    except OSError:
        return -1
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
