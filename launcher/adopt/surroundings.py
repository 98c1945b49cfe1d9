"""What is around a server's own command: interpreter, user, hosts, folder, log, and what wrapped it."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt.secret import masked
from launcher.adopt.table import Row
from launcher.errors import ConfigError
from launcher.host import ssh_names
from launcher.render import encode

if TYPE_CHECKING:
    from launcher.adopt.found import Server
    from launcher.adopt.program import Program

#: Stands in the file where the input does not say a value that a server cannot be without; every verb refuses it.
MISSING = "CHANGE-ME"
#: The same, where a path has to stand.
NO_PYTHON = f"/{MISSING}/python"
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
#: Wrappers whose work the unit does, or that only bring the command to its place.
_REPLACED = frozenset(
    (
        *("nohup", "setsid", "disown", "exec", "env", "sh", "bash", "dash", "zsh", "ssh", "sshpass", "sudo", "su"),
        *(
            "runuser",
            "screen",
            "tmux",
            "script",
            "time",
            "stdbuf",
            "unbuffer",
            "tee",
            "conda",
            "mamba",
            "micromamba",
            "uv",
        ),
        *("runuser", "poetry", "pipenv", "pixi", "command", "eval", "daemonize", "start-stop-daemon", "systemd-run"),
        *(
            "dtach",
            "tini",
            "dumb-init",
            "timeout",
            "watch",
            "at",
            "docker",
            "podman",
            "nerdctl",
            "doas",
            "gosu",
            "su-exec",
        ),
    )
)
_HINTS = {
    "numactl": "launch pins no memory and no CPUs; without it the kernel places them",
    "taskset": "launch pins no CPUs; without it the kernel places them",
    "nice": "launch sets no priority",
    "ionice": "launch sets no priority of disk access",
    "chrt": "launch sets no scheduling class",
    "prlimit": "launch sets no limits; the unit has those of the host's systemd",
    "ulimit": "launch sets no limits; the unit has those of the host's systemd",
    "torchrun": "launch starts the engine itself, which starts its own workers",
    "mpirun": "launch starts the engine itself, on each host",
    "srun": "under Slurm: launch render --format sbatch",
}


@dataclass(frozen=True)
class Around:
    """What a deployment says beside the command; python and user may be `MISSING`."""

    python: str
    user: str
    hosts: tuple[str, ...]
    working_directory: str
    log_file: str
    missing: tuple[str, ...]
    rows: tuple[Row, ...]


def read(server: Server, program: Program) -> Around:
    """Return what stands around a server."""
    rows: list[Row] = []
    python = server.python or ("" if server.image else program.python)
    python = _path("engine.python", python, rows)
    user = server.user or _login(server.hosts)
    if user and not _USER.fullmatch(user):
        rows.append(Row("cannot be said", "user", user, "", "no name that a unit can have"))
        user = ""
    # A unit starts in the root folder by itself.
    folder = _path("engine.working_directory", server.working_directory, rows)
    log = _log(server.log_file, folder, rows)
    rows += _wrappers(server, program)
    missing = tuple(key for key, value in (("engine.python", python), ("engine.user", user)) if not value)
    return Around(
        python or MISSING, user or MISSING, server.hosts, folder if folder != "/" else "", log, missing, tuple(rows)
    )


def _login(hosts: tuple[str, ...]) -> str:
    """Return the user that all hosts are logged in to as: the server was started by it."""
    users = set()
    for host in hosts:
        try:
            users.add(ssh_names.parse(host).user)
        except ConfigError:
            users.add("")
    return users.pop() if len(users) == 1 else ""


def _path(key: str, path: str, rows: list[Row]) -> str:
    """Return an absolute path that a unit can have, or nothing and a row that says why."""
    if not path:
        return ""
    try:
        return encode.plain_path(key, path)
    except ConfigError:
        why = "a unit takes an absolute path of letters, digits and /._+@:,=-"
        rows.append(Row("cannot be said", key, path, "", why))
        return ""


def _log(path: str, folder: str, rows: list[Row]) -> str:
    """Return the file that the output is appended to."""
    if path in ("", "/dev/null"):
        return ""
    if path.startswith("/dev/"):
        return ""
    if not path.startswith("/"):
        if not folder or path.startswith(("~", "$")):
            why = "the journal has it (journalctl); for a file set unit.log_file to its full path"
            rows.append(Row("changed", "log", path, "journal", why))
            return ""
        path = posixpath.normpath(posixpath.join(folder, path))
    return _path("unit.log_file", path, rows)


def _wrappers(server: Server, program: Program) -> list[Row]:
    rows = []
    for words in server.wrappers:
        name = posixpath.basename(words[0]) if words else ""
        if name and name not in _REPLACED:
            why = _HINTS.get(name, "launch starts the engine itself")
            rows.append(Row("cannot be said", name, masked(" ".join(words)), "", why))
    if server.image:
        why = "launch starts the engine with an interpreter of the host: install the same version there"
        rows.append(Row("cannot be said", "image", server.image, "", why))
    if program.options:
        why = "PYTHONUNBUFFERED=1 does the same" if program.options == ("-u",) else "set what they do by variables"
        rows.append(Row("left out", "options of python", " ".join(program.options), "", f"launch passes none; {why}"))
    return rows
