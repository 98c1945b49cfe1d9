"""Commands that run another command: what they are, where the other one begins, and what they change for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from launcher.adopt import batch, containers, engines, projects, remote, users
from launcher.adopt.options import Spec, split
from launcher.adopt.source import NOTHING, Source, Word, part

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.adopt.start import Gathered, Start

#: Commands whose output or effect has no trace in a server.
_HARMLESS = frozenset(
    ("echo", "printf", "sleep", "mkdir", "touch", "ls", "cat", "tail", "head", "grep", "date", "curl", "wget", "clear",
     "df", "du", "free", "ps", "top", "htop", "watch", "which", "pwd", "whoami", "hostname", "id", "uname", "lscpu",
     "nproc", "lspci", "nvtop", "less", "more", "tee", "wc", "sort", "awk", "sed", "cut", "tr", "jq", "basename",
     "dirname", "realpath", "readlink", "seq", "nc", "ping", "ss", "netstat", "lsof", "tree", "file", "stat", "man",
     "journalctl", "yes", "diff", "uptime", "env", "printenv", "column", "find", "vim", "vi", "nano", "code")
)  # fmt: skip


@dataclass(frozen=True)
class Wrapper:
    """A program that only needs its options taken off.

    Attributes:
        spec: its options.
        words: how many words follow the options before the command (``timeout 5m …``).
        note: what it means for the server, empty: nothing that `launch` has to tell.
    """

    spec: Spec = field(default_factory=Spec)
    words: int = 0
    note: str = ""


_NUMACTL = Spec(
    "iPpmNCwS",
    frozenset(("--interleave", "--preferred", "--preferred-many", "--membind", "--cpunodebind", "--physcpubind",
               "--weighted-interleave", "--balancing")),
)  # fmt: skip
_NSYS = frozenset(
    ("--output", "--trace", "--sample", "--backtrace", "--cpuctxsw", "--delay", "--duration", "--capture-range",
     "--capture-range-end", "--cuda-graph-trace", "--cuda-memory-usage", "--force-overwrite", "--stats", "--export",
     "--gpu-metrics-devices", "--gpu-metrics-device", "--kill", "--session", "--session-new", "--nic-metrics",
     "--python-sampling", "--trace-fork-before-exec", "--wait", "--show-output", "--stop-on-exit", "--env-var",
     "--nvtx-capture", "--pytorch", "--python-backtrace", "--start-later", "--ftrace", "--inherit-environment")
)  # fmt: skip
_PROFILER = "a profiler; launch starts the server without it"

_SIMPLE: dict[str, Wrapper] = {
    **dict.fromkeys(("nohup", "setsid", "command", "builtin", "unbuffer", "chronic", "catchsegv", "tini", "dumb-init",
                     "catatonit", "proxychains", "proxychains4", "noglob", "setarch"), Wrapper()),
    "time": Wrapper(Spec("fo", frozenset(("--format", "--output")))),
    "nice": Wrapper(Spec("n", frozenset(("--adjustment",)))),
    "ionice": Wrapper(Spec("cnpPu", frozenset(("--class", "--classdata")))),
    "stdbuf": Wrapper(Spec("ioe", frozenset(("--input", "--output", "--error")))),
    "timeout": Wrapper(Spec("ks", frozenset(("--kill-after", "--signal"))), 1, "it stops the server after a time"),
    "taskset": Wrapper(words=1),
    "numactl": Wrapper(_NUMACTL),
    "chrt": Wrapper(Spec("TPDp"), 1),
    "flock": Wrapper(Spec("wE", frozenset(("--timeout", "--wait", "--conflict-exit-code"))), 1),
    "prlimit": Wrapper(Spec("p"), note="limits of the process, which launch does not take over"),
    "exec": Wrapper(Spec("a")),
    "nsys": Wrapper(Spec("otsbdcxyfwenp", _NSYS), note=_PROFILER),
    "ncu": Wrapper(Spec("okscf", frozenset(("--set", "--section", "--metrics", "--export", "--kernel-name"))),
                   note=_PROFILER),
    "strace": Wrapper(Spec("oepsEuaPOSUX"), note=_PROFILER),
    "ltrace": Wrapper(Spec("oepsu"), note=_PROFILER),
    "gdb": Wrapper(Spec("x", single_dash=frozenset(("-ex", "-iex"))), note="a debugger"),
    "compute-sanitizer": Wrapper(Spec(long=frozenset(("--tool", "--log-file"))), note=_PROFILER),
    "viztracer": Wrapper(Spec("o"), note=_PROFILER),
    "py-spy": Wrapper(Spec("ofdr", frozenset(("--output", "--format", "--duration", "--rate"))), note=_PROFILER),
}  # fmt: skip


def step(start: Start, into: Gathered) -> Start | bool | None:
    """Take one wrapper off.

    Returns:
        The command behind it; True or None: there is nothing more to read in it; False: it is not known.
    """
    name = engines.program(start.words[0].text)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(start, into)
    if name in _SIMPLE:
        if name == "command" and start.words[1:] and start.words[1].text in ("-v", "-V"):
            return True
        return _simple(start, _SIMPLE[name], name)
    if name in projects.PROJECTS:
        return projects.project(start, name)
    if engines.is_python(start.words[0].text):
        return projects.launcher(start)
    if name == "tee" and start.stdin is not None:
        return _written(start, into)
    if name in _HARMLESS or remote.script(start, into):
        return True
    return batch.step(start, into, name)


def _simple(start: Start, wrapper: Wrapper, name: str) -> Start | bool:
    words = start.words[1:]
    if name in ("nsys", "py-spy") and words:
        if words[0].text not in ("profile", "launch", "start", "record"):
            return True
        words = words[1:]
    found = split(words, wrapper.spec)
    rest = found.rest
    if name == "chrt" and rest and not rest[0].text.isdigit():
        wrapper = replace(wrapper, words=0)
    rest = rest[wrapper.words :]
    if not rest:
        return True
    if wrapper.note:
        start = start.noted(wrapper.note, " ".join(w.text for w in start.words[: len(start.words) - len(rest)]))
    return start.inside(rest)


def _env(start: Start, _into: Gathered) -> Start | bool | None:
    """``env -i -u NAME -C DIR A=b command``."""
    found = split(start.words[1:], Spec("uCS", frozenset(("--unset", "--chdir", "--split-string"))))
    env, unset = dict(start.env), list(start.unset)
    if found.has("-i", "--ignore-environment") or (found.rest and found.rest[0].text == "-"):
        env = {}
        start = start.noted("the server gets no other variable than these", "env -i")
    for name in (word.text for word in found.values("-u", "--unset")):
        env.pop(name, None)
        unset.append(name)
    rest = list(found.rest)
    text = found.last("-S", "--split-string")
    if text is not None:
        rest = [*(Word(piece, text.doubts, text.marks) for piece in text.text.split()), *rest]
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        word = rest.pop(0)
        name = word.text.partition("=")[0]
        env[name] = part(word, len(name) + 1)
        unset = [other for other in unset if other != name]
    if not rest:
        return True
    start = replace(start, env=env, unset=tuple(unset), words=tuple(rest))
    folder = found.last("-C", "--chdir")
    return replace(start, folder=folder) if folder is not None else start


def _sshpass(start: Start, _into: Gathered) -> Start | bool:
    """``sshpass -p PASSWORD ssh HOST …``: the password is of no server, and is kept nowhere."""
    rest = split(start.words[1:], Spec("pfdP")).rest
    return replace(start, words=rest, wrappers=(*start.wrappers, ("sshpass",))) if rest else True


def _written(start: Start, into: Gathered) -> Start | bool | None:
    """``tee FILE <<EOF``: the script writes a file, which may be a unit or another script."""
    text = start.stdin or NOTHING
    for word in start.words[1:]:
        if not word.text.startswith("-"):
            into.files.write(word.text, Source(start.source.name, text.text, text.marks))
    return True


def _nvidia_smi(start: Start, into: Gathered) -> Start | bool | None:
    setting = re.compile(
        r"-(?:pm|pl|lgc|lmc|ac|c|rgc|e|mig|r)$|--(?:persistence|power|lock|applic|compute-mode|gpu-reset)"
    )
    if any(setting.match(word.text) for word in start.words[1:]):
        into.remarks.append(start.remark("a setting of the GPUs, which launch does not take over"))
    return True


def _script_of(start: Start, into: Gathered) -> Start | bool | None:
    """``script -q -c 'command' file``: a shell's output kept in a file."""
    found = split(start.words[1:], Spec("cIOoBTtEm", frozenset(("--command", "--log-out"))))
    command = found.last("-c", "--command")
    if command is None:
        return True
    into.shell(command, replace(start, words=()), into)
    return None


_SPECIAL: dict[str, Callable[[Start, Gathered], Start | bool | None]] = {
    "env": _env,
    "uvx": projects.uvx,
    "torchrun": projects.torchrun,
    "accelerate": projects.accelerate,
    "nvidia-smi": _nvidia_smi,
    "script": _script_of,
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ash", "ksh"), remote.shell),
    "ssh": remote.ssh,
    "sshpass": _sshpass,
    "tmux": remote.tmux,
    "screen": remote.screen,
    "sudo": users.sudo,
    "doas": users.doas,
    "su": users.su,
    "runuser": users.runuser,
    **dict.fromkeys(("gosu", "su-exec", "setpriv", "chpst"), users.gosu),
    "systemd-run": users.systemd_run,
    **dict.fromkeys(("docker", "podman", "nerdctl", "nvidia-docker"), containers.step),
    **dict.fromkeys(("singularity", "apptainer"), containers.singularity),
}
