"""A task without systemd: proves its own environment, becomes the parent of the server, proves that one's processes.

Slurm starts it on each node of a job (``srun … python3 -I -``), an exported script by standard input too, a container
from a file; it carries the manifest, so that nothing of ours needs to be there. Exit codes: 78 refused, before or
after the start; 1 the server did not get ready; else that of the server (128 and the number of the signal that ended
it).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import sys
import time
from typing import Any, Dict, List, Mapping, Set

from . import credentials, knowledge, nccl_conf, ports
from .evidence import steady
from .guard import REFUSED, different_argument
from .manifest import ManifestError, compare, parse
from .processes import Process, read_bytes, read_process
from .task_server import Server
from .wait import missing

#: Set by Slurm's plugin for GPUs (gres/gpu, 22.05) in each task: its choice, where the release makes none.
_SCHEDULERS = frozenset({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"})
#: Seconds between looks, and between what is told of them.
_LOOK, _TELL = 0.5, 30.0
#: What systemd gives a unit where nothing else sets it (systemd.exec(5)).
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where variables come from that the release does not set, by what started the task.
_SOURCES = {
    "slurm": (
        "foreign variables come from a login profile (Slurm 22.05 reads it also with --export=NIL), SBATCH_EXPORT of"
        " the submitting shell, a TaskProlog, or the environment of slurmd"
    ),
    "shell": "foreign variables come from the calling shell: unset them there",
    "container": (
        "foreign variables come from the image (docker inspect IMAGE) or from what started the container: to accept"
        " one, let the configuration set it"
    ),
}


def task(argv: List[str], text: str, place: str = "slurm") -> int:
    """Check, start and prove one server, and return the exit code of the task.

    Args:
        argv: the server's command as the script carries it.
        text: of the manifest.
        place: what started the task, for the messages: ``slurm``, ``shell`` or ``container``.
    """
    try:
        manifest = parse(text, "the manifest of this program")
    except ManifestError as error:
        return _refuse([f"{error}: render it again"])
    # The block as Slurm gave it: Python adds LC_CTYPE to its own copy in the C locale (PEP 538).
    own = read_process(os.getpid())
    env = (own.env if own else None) or {}
    problems = wrong(env, argv, manifest, _SOURCES[place]) + _files(env, manifest)
    if problems:
        return _refuse(problems)
    if ports.listening(manifest["port"], manifest["host"]):
        _say(f"port {manifest['port']} is taken by {ports.holder(manifest['port'])}")
        return 1
    odd = set(knowledge.extras(env, manifest, own=False)[1])
    for name in sorted(odd):
        _say(f"warning: {name} is in the environment and not from the release")
    _say(f"release {manifest['digest']} complete, {len(manifest['env'])} variables; starting {argv[0]}")
    try:
        server = Server(argv, completed(env), manifest["unit"].get("WorkingDirectory", "/"))
    except OSError as error:
        return _refuse([f"{error.filename or argv[0]} cannot be started: {error.strerror}"])
    return _attend(server, manifest, odd | _SCHEDULERS)


def wrong(env: Mapping[str, str], argv: List[str], manifest: Mapping[str, Any], sources: str) -> List[str]:
    """Return how a task's own environment and command contradict its release, one line each. Pure."""
    problems = compare(env, manifest)
    secrets = manifest.get("secrets", {})
    problems += [f"the secret {name} did not arrive" for name in secrets.get("env", []) if not env.get(name)]
    if argv != manifest["argv"]:
        problems.append(different_argument(argv, manifest["argv"]))
    refused, odd = knowledge.extras(env, manifest, own=False)
    foreign = [name for name in refused if name not in _SCHEDULERS]
    foreign += [name for name in odd if name.startswith("NCCL_")]
    problems += [f"{name} is set, but the release does not set it" for name in foreign]
    return problems + ([sources] if foreign else [])


def completed(env: Mapping[str, str]) -> Dict[str, str]:
    """Return an environment with what systemd would give a server of this user, where Slurm gave none."""
    usual = {"PATH": _PATH}
    with contextlib.suppress(KeyError):  # a container may run as a number without a name
        who = pwd.getpwuid(os.geteuid())
        usual.update(HOME=who.pw_dir, USER=who.pw_name, LOGNAME=who.pw_name, SHELL=who.pw_shell)
    # A server that reports to systemd by itself would be ready before it is proven.
    return {**usual, **{name: value for name, value in env.items() if name != "NOTIFY_SOCKET"}}


def _files(env: Mapping[str, str], manifest: Mapping[str, Any]) -> List[str]:
    """Return what files of NCCL's own would set in this server: the release leaves it unset, NCCL takes it."""
    problems: List[str] = []
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = ""
    for path in nccl_conf.paths(env, user):
        content = read_bytes(path)
        if content is None:
            if os.path.exists(path):
                problems.append(f"{path} cannot be read")
            continue
        named = nccl_conf.variables(content.decode("utf-8", "surrogateescape"))
        problems += [
            f"{path} sets {name}, which the release leaves unset: NCCL takes it"
            for name in sorted(named)
            if name not in manifest["env"] and (name in knowledge.SETTINGS or name.startswith("NCCL_"))
        ]
    return problems


def _attend(server: Server, manifest: Dict[str, Any], told: Set[str]) -> int:
    """Wait until it answers, prove its processes, then wait for its end; what was ``told`` is not told again."""
    begin = time.monotonic()
    lacking = _until_ready(server, manifest, begin)
    if server.status is not None:
        return _ended(server.status, "during its start")
    if lacking:
        server.kill()
        _say(f"the server did not get ready in time: {lacking}")
        return 1

    def look() -> List[Process]:
        return [process for pid in server.tree() for process in [read_process(pid)] if process]

    verdict = steady(manifest, server.pid, look)
    known = tuple(f" {name} is not from the release" for name in told)
    for line in [*verdict.unknown, *(o for o in verdict.odd if not o.endswith(known))]:
        _say(f"warning: {line}")
    if verdict.contradictions and server.reap(os.WNOHANG):
        server.kill()
        return _refuse(verdict.contradictions, "after the start")
    if server.status is None:
        unknown = f", {len(verdict.unknown)} unknown" if verdict.unknown else ""
        _say(
            f"proof: release {manifest['digest']}, {len(verdict.proven)} processes carry all {len(verdict.variables)}"
            f" variables{unknown}, ready after {time.monotonic() - begin:.1f} s"
        )
        _tell_systemd()
    while server.reap(0):
        pass
    return _ended(server.status or 0, "")


def _tell_systemd() -> None:
    """Report that the start is complete, where somebody waits for it (podman, Notify=true)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.connect("\0" + path[1:] if path[0] == "@" else path)
            stream.send(b"READY=1")
    except OSError as error:
        _say(f"warning: that it is ready cannot be told ({path}: {error.strerror})")


def _until_ready(server: Server, manifest: Mapping[str, Any], begin: float) -> str:
    """Return what is missing when the server or its time has ended, "" when it is ready."""
    limit = float(manifest["unit"]["TimeoutStartSec"])
    told = begin
    while True:
        lacking = missing(manifest, server.tree, credentials.api_key(manifest, server.pid))
        now = time.monotonic()
        if not server.reap(os.WNOHANG) or not lacking or now - begin > limit:
            return lacking
        if now - told > _TELL:
            told = now
            _say(f"waiting for the server for {now - begin:.0f} s: {lacking}")
        time.sleep(_LOOK)


def _ended(status: int, when: str) -> int:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = 128 + number if number else os.WEXITSTATUS(status)
    _say(" ".join(("the server ended", *([when] if when else []), f"by signal {number}" if number else f"with {code}")))
    # An end without a start is a failure, whatever the server calls it.
    return code or (1 if when else 0)


def _refuse(lines: List[str], when: str = "to start the server") -> int:
    _say(f"REFUSED {when}:")
    for line in lines:
        _say("  " + line)
    return REFUSED


def _say(text: str) -> None:
    """Write into the job's output, with the node: a job may have several."""
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    sys.stderr.write("".join(f"launch: {node}: {line}\n" for line in text.splitlines()))
    sys.stderr.flush()
