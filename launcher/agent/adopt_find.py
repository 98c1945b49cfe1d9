"""Which processes of this host are servers of an engine, told by their commands, and what started each.

A title that a process has written over its command (setproctitle) says little: the main process is the one whose
command starts an engine, with no such process above it. Reads only.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set

from . import systemd
from .processes import cgroup_of, read_bytes, stat_fields

SGLANG, VLLM = "sglang", "vllm"
#: Modules and scripts that start a server, and whether the word ``serve`` has to follow.
_MODULES = {
    "sglang.launch_server": (SGLANG, False),
    "sglang.cli.main": (SGLANG, True),
    SGLANG: (SGLANG, True),
    "vllm.entrypoints.openai.api_server": (VLLM, False),
    "vllm.entrypoints.api_server": (VLLM, False),
    "vllm.entrypoints.cli.main": (VLLM, True),
    VLLM: (VLLM, True),
}
_SCRIPTS = {"sglang/launch_server.py": SGLANG, "vllm/entrypoints/openai/api_server.py": VLLM}
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_TITLE = re.compile(r"(sglang|VLLM)::")
_CONTAINER = re.compile(r"(docker|libpod|cri-containerd|crio|nerdctl)[-:/]([0-9a-f]{12,64})\b")
#: What shows and ends the containers of each.
_TOOLS = {"libpod": "podman", "cri-containerd": "crictl", "crio": "crictl"}
#: Programs that only start another one; what they belong to belongs to that one as well.
WRAPPERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "busybox", "env", "sudo", "su", "runuser", "setpriv"),
        *("numactl", "taskset", "chrt", "ionice", "nice", "stdbuf", "time", "timeout", "nohup", "setsid", "script"),
        *("conda", "mamba", "micromamba", "uv", "pixi", "poetry", "tini", "dumb-init", "catatonit", "systemd-cat"),
    )
)


class Seen(NamedTuple):
    """A process as far as it tells what it is: parent, the words of its command, the file that it runs."""

    parent: int
    words: Sequence[str]
    exe: str


class Home(NamedTuple):
    """What a process belongs to.

    ``kind`` is ``hand``, ``unit`` (of the system manager), ``user unit``, ``container``, ``job`` (Slurm), ``launch``
    (a unit of ours) or ``again`` (started by hand once, and put back by a change of ours); ``name`` is its name.
    """

    kind: str
    name: str


def table() -> Dict[int, Seen]:
    """Return all processes that have a command."""
    found: Dict[int, Seen] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        fields, words = stat_fields(pid), words_of(pid)
        if len(fields) > 1 and words:
            found[pid] = Seen(int(fields[1]), words, link(f"/proc/{pid}/exe"))
    return found


def words_of(pid: int) -> List[str]:
    """Return the command of a process; empty where it has none or is gone."""
    block = _block(pid)
    return [os.fsdecode(word) for word in block.split(b"\0")] if block else []


def _block(pid: int) -> bytes:
    block = read_bytes(f"/proc/{pid}/cmdline") or b""
    return block[:-1] if block.endswith(b"\0") else block


def link(path: str) -> str:
    """Return where a link leads, "" where that may not be seen."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def engine_of(words: Sequence[str], exe: str) -> str:
    """Return the engine that a command starts a server of, "" for any other command."""
    programs = (os.path.basename(exe.replace(" (deleted)", "")), os.path.basename(words[0]) if words else "")
    if not any(_PYTHON.fullmatch(program) for program in programs):
        return ""
    for index, word in enumerate(words[1:], 1):
        following = words[index + 1 : index + 3]
        if re.fullmatch(r"-[a-zA-Z]*m", word):  # also after a script: launchers pass it on
            return _starts(_MODULES.get(following[0]), following[1:]) if following else ""
        if word.startswith("--"):
            return ""
        script = next((engine for end, engine in _SCRIPTS.items() if word.endswith("/" + end)), "")
        if script:
            return script
        if os.path.basename(word) in (SGLANG, VLLM):
            return _starts(_MODULES[os.path.basename(word)], following)
    return ""


def _starts(known: "tuple[str, bool] | None", following: Sequence[str]) -> str:
    if known is None or (known[1] and list(following[:1]) != ["serve"]):
        return ""
    return known[0]


def is_title(words: Sequence[str]) -> bool:
    """Return whether a process of an engine has written a title over its command."""
    return bool(words) and bool(_TITLE.match(words[0])) and not any(words[1:])


def mains(processes: Mapping[int, Seen]) -> Dict[int, str]:
    """Return the engine of each main process of a server."""
    engines = {pid: engine_of(seen.words, seen.exe) for pid, seen in processes.items()}
    return {
        pid: engine
        for pid, engine in sorted(engines.items())
        if engine and not any(engines.get(other) for other in ancestors(pid, processes))
    }


def titled(processes: Mapping[int, Seen]) -> List[int]:
    """Return the processes of engines that belong to no main process: its command is overwritten, or it is dead."""
    ours = {pid for pid, seen in processes.items() if is_title(seen.words)}
    known = ours | set(mains(processes))
    return sorted(pid for pid in ours if not known & set(ancestors(pid, processes)))


def ancestors(pid: int, processes: Mapping[int, Seen]) -> Iterator[int]:
    """Yield parent, its parent, and so on."""
    seen: Set[int] = {pid}
    while pid in processes and processes[pid].parent not in seen:
        pid = processes[pid].parent
        seen.add(pid)
        yield pid


def descendants(pid: int, processes: Mapping[int, Seen]) -> List[int]:
    """Return everything that a process has started, and they in turn."""
    children: Dict[int, List[int]] = {}
    for child, seen in processes.items():
        children.setdefault(seen.parent, []).append(child)
    found: List[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        if child not in found and child != pid:
            found.append(child)
            waiting += children.get(child, ())
    return sorted(found)


def digest_of(pid: int) -> str:
    """Return what a server is recognised by: SHA-256 over its command, working folder and user.

    "" where one of them cannot be read, or a title stands over the command.
    """
    block, cwd = _block(pid), link(f"/proc/{pid}/cwd")
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    return digest(block, cwd, uid) if block and cwd and not is_title(words_of(pid)) else ""


def digest(block: bytes, cwd: str, uid: int) -> str:
    """Return the digest of a command (its words, a NUL between each two), working folder and user."""
    return hashlib.sha256(b"\0".join((block, os.fsencode(cwd), str(uid).encode()))).hexdigest()


def home_of(cgroup: str) -> Home:
    """Return what a control group belongs to, by its name alone."""
    container = _CONTAINER.search(cgroup)
    if container:
        kind, id_ = container.groups()
        return Home("container", f"{_TOOLS.get(kind, kind)} {id_[:12]}")
    parts = cgroup.split("/")
    if any(re.fullmatch(r"slurmstepd\.scope|job_\d+", part) for part in parts):
        return Home("job", next((part for part in parts if part.startswith("job_")), "of Slurm"))
    unit = next((part for part in reversed(parts) if part.endswith((".service", ".scope"))), "")
    if not unit.endswith(".service") or unit.startswith("user@"):
        return Home("hand", unit)
    if any(part.startswith("user@") for part in parts):
        return Home("user unit", unit)
    if unit.startswith("launch-"):
        return Home("again" if unit.startswith("launch-again-") else "launch", unit)
    return Home("unit", unit)


def home(pid: int, processes: Mapping[int, Seen]) -> Home:
    """Return what a main process belongs to; a unit only where it is the unit's server.

    What somebody started from an SSH session or by cron may lie in the control group of that unit.
    """
    found = home_of(cgroup_of(pid))
    if found.kind != "unit":
        return found
    try:
        state = systemd.all_properties(found.name)
    except systemd.SystemdError:
        return Home("hand", found.name)
    if state.get("UnitFileState") == "transient" or state.get("Transient"):
        return Home("hand", found.name)
    main = int(state.get("MainPID", 0))
    if main == 0:
        return found if state.get("ActiveState") == "active" else Home("hand", found.name)
    for above in (pid, *ancestors(pid, processes)):
        if above == main:
            return found
        parent = processes[above].parent if above in processes else 0
        program = os.path.basename(processes[parent].exe) if parent in processes else ""
        if program not in WRAPPERS and not _PYTHON.fullmatch(program):
            break
    return Home("hand", found.name)


def starter(pid: int, processes: Mapping[int, Seen]) -> int:
    """Return the live process that started a server and may start it again, 0 for none.

    A shell that somebody types in is none; a script is one, since it may be a loop.
    """
    for above in ancestors(pid, processes):
        seen = processes.get(above)
        if above == 1 or seen is None:
            return 0
        program = os.path.basename(seen.exe)
        if program in ("sh", "bash", "dash", "zsh", "ksh", "fish"):
            return 0 if all(word.startswith("-") and word != "-c" for word in seen.words[1:]) else above
        if program in ("systemd", "sshd", "sshd-session", "login") or program.startswith(("tmux", "screen")):
            return 0
        if program not in WRAPPERS:
            return above
    return 0
