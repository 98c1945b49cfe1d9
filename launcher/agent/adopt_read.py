"""What one running server was started with: command, environment, folder, user, interpreter, outputs, versions.

Reads only. Environments are whole: they are for the way to the client, which shows no secret of them.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import knowledge, nccl_conf, needs, ports, shown, stray_record, systemd
from .adopt_find import Home, Seen, descendants, digest_of, home, link, starter
from .adopt_versions import nccl_of, python_of, versions_of
from .findings import iso
from .manifest import known
from .observe import started
from .processes import Process, read_bytes, read_process, stat_fields
from .stray import user_of

#: A remark: the piece of the process that it is about, and what it means.
Remark = Tuple[str, str]


def read(
    pid: int, engine: str, processes: Mapping[int, Seen], gpus: Optional[Sequence[Mapping[str, Any]]]
) -> Dict[str, Any]:
    """Return everything that is known of a server.

    Args:
        pid: of its main process.
        engine: that it runs.
        processes: of this host.
        gpus: of this host, None where they are not known.
    """
    below = descendants(pid, processes)
    main, others = read_process(pid), [p for p in map(read_process, below) if p is not None]
    where = home(pid, processes)
    remarks: List[Remark] = []
    env, told = _environment(main, others)
    remarks += told
    log, told = _outputs(pid)
    kept = needs.log_file(log) if log else []
    if kept:
        told = [*told, (f"output to {log}", f"to the journal from now on: {kept[0]}")]
    remarks += [*told, *_of_home(pid, where, processes), *_workers(main, others, engine)]
    remarks += [
        *_port(pid, below, processes[pid].words),
        *_hidden(pid),
        *(_conf(env, user_of(pid)) if where.kind != "container" else ()),
        *_gpus([*below, pid], env, gpus),
    ]
    # In a container the paths are those of its image.
    python = python_of(processes[pid], env) if where.kind != "container" else ""
    versions = versions_of(python, user_of(pid)) if python else {}
    return {
        "pid": pid,
        "engine": engine,
        "argv": list(processes[pid].words),
        "env": env,
        "user": user_of(pid) if where.kind != "container" else "",
        "working_directory": link(f"/proc/{pid}/cwd"),
        "log_file": "" if kept else log,
        "python": python,
        "unit": where.name if where.kind == "unit" else "",
        "container": where.name if where.kind == "container" else "",
        "engine_version": versions.get(engine, ""),
        "nccl_version": nccl_of([pid, *below], log),
        "argv_digest": digest_of(pid),
        "since": iso(started(pid)),
        "remarks": remarks,
    }


def _environment(main: Optional[Process], others: Sequence[Process]) -> Tuple[Dict[str, str], List[Remark]]:
    """Return the environment that a server was started with, or the best copy of it."""
    if main is None or main.env is None:
        return {}, [("environment", "cannot be read: it is another user's, and this is not root")]
    if not main.cut:
        return main.env, []
    tracker = next((p for p in others if "resource_tracker" in p.title and p.env and not p.cut), None)
    if tracker is None or tracker.env is None:
        return main.env, [("environment", "the process has written its title over it: what is missing here is unknown")]
    text = f"the main process has written its title over it; read from its resource tracker (process {tracker.pid})"
    return {**tracker.env, **main.env}, [("environment", f"{text}, with what the engine added")]


def _outputs(pid: int) -> Tuple[str, List[Remark]]:
    """Return the file that both outputs go to, "" where there is none, and where else they go."""
    streams = {name: stray_record.stream(pid, number) for number, name in ((1, "output"), (2, "errors"))}
    files = {name: str(entry["path"]) for name, entry in streams.items() if stray_record.is_file(entry)}
    log = files.get("output") or files.get("errors") or ""
    remarks: List[Remark] = []
    for name, entry in streams.items():
        path = str(entry["path"])
        if files.get(name) == log and log:
            continue
        if path.startswith("pipe:"):
            remarks.append((f"{name} to a pipe", "what reads it (tee, a logger, a container) is not carried over"))
        elif path.startswith(("/dev/pts/", "/dev/tty")):
            remarks.append((f"{name} to {path}", "a terminal; launch writes to the journal"))
        elif path and not path.startswith("socket:"):
            remarks.append((f"{name} to {path}", "unit.log_file takes both in one file, and the journal else"))
    return log, remarks


def _of_home(pid: int, where: Home, processes: Mapping[int, Seen]) -> Iterator[Remark]:
    if where.kind == "container":
        engine, id_ = where.name.split(" ", 1)
        yield f"{engine} container {id_}", f"its image and mounts are not known here: {engine} inspect {id_}"
    elif where.kind == "job":
        yield where.name, "a job of Slurm started it: launch render --format sbatch writes such a job"
    elif where.kind == "user unit":
        yield where.name, "a unit of its user's own manager; launch up does not take it over: disable it there"
    elif where.kind == "unit":
        yield from _unit(where.name)
    above = starter(pid, processes) if where.kind == "hand" else 0
    if above:
        yield shown.command(processes[above].words, 200), f"process {above} started it, and may start it again"


def _unit(unit: str) -> Iterator[Remark]:
    """Yield the files of a unit, and what of it reaches a server beside command and environment."""
    state = systemd.all_properties(unit)
    yield (
        str(state.get("FragmentPath") or unit),
        f"the unit that started it ({state.get('UnitFileState') or 'no file'})",
    )
    for path in state.get("DropInPaths") or []:
        yield str(path), f"a drop-in of {unit}: what it sets is in the environment and command above"
    for entry in state.get("EnvironmentFiles") or []:
        yield str(entry[0]), f"an environment file of {unit}: its variables are in the environment above"
    for name in ("ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload"):
        for entry in state.get(name) or []:
            yield f"{name}={shlex.join(entry[1])}", "not carried over; unit.before_stop and unit.after_start may do it"
    for path in state.get("LoadCredential") or []:
        yield f"LoadCredential={path[0]}", "a secret: name its source under secrets"


def _workers(main: Optional[Process], others: Sequence[Process], engine: str) -> Iterator[Remark]:
    """Yield in what the environment of workers differs from the main process's, without what the engine adds."""
    if main is None or main.env is None or main.cut:
        return
    added = knowledge.ADDITIONS.get(engine, {})
    found: Dict[str, List[int]] = {}
    for process in others:
        for name in sorted({*(process.env or {}), *main.env}):
            is_, was = (process.env or {}).get(name), main.env.get(name)
            missing = is_ is None and not process.cut and process.env is not None
            if not knowledge.watched(name) or is_ == was or (is_ is None and not missing):
                continue
            allowed = added.get(name, []) if name in added else []
            if is_ is not None and name in added and (allowed is None or is_ in allowed):
                continue
            text = name if is_ is None else f"{name}={is_ if known(name) else shown.HIDDEN}"
            found.setdefault(f"{text}{'' if is_ is not None else ' missing'}", []).append(process.pid)
    for text, pids in sorted(found.items()):
        yield text, f"so in process {', '.join(map(str, pids))}, and otherwise in the main process"
    cut = [process.pid for process in others if process.cut]
    if cut:
        yield "workers", f"process {', '.join(map(str, cut))} have written titles over their environment: not compared"


def _port(pid: int, below: Sequence[int], words: Sequence[str]) -> Iterator[Remark]:
    there = sorted(ports.of(pid, [pid, *below]))
    if not there:
        yield "no port", "it does not listen on any: it still starts, or it is a further node of another server"
    for port in there:
        if any(word == str(port) or word.endswith(f"={port}") for word in words):
            return
    if there:
        yield f"port {', '.join(map(str, there))}", "it listens there, and no argument says so"


def _hidden(pid: int) -> Iterator[Remark]:
    """Yield what a wrapper that is not in the command any more has left."""
    cpus, policy = sorted(os.sched_getaffinity(pid)), stray_record.memory_policy(pid)
    if len(cpus) < (os.cpu_count() or 0):
        yield f"processors {_ranges(cpus)}", "bound by taskset, numactl or its unit; not carried over"
    if policy:
        yield f"memory {policy}", "bound by numactl; not carried over"
    nice = stat_fields(pid)[16:17]
    if nice and int(nice[0]):
        yield f"nice {int(nice[0])}", "not carried over"


def _ranges(numbers: Sequence[int]) -> str:
    parts: List[List[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _conf(env: Mapping[str, str], user: str) -> Iterator[Remark]:
    """Yield what NCCL takes from files, past any command and environment."""
    for path in nccl_conf.paths(env, user):
        text = (read_bytes(path) or b"").decode("utf-8", "surrogateescape")
        for name, value in nccl_conf.variables(text).items():
            word = "; the environment above sets it already, which wins" if name in env else ""
            yield (
                f"{path}: {name}={value if known(name) else shown.HIDDEN}",
                f"NCCL reads it there, past any unit{word}",
            )


def _gpus(
    pids: Sequence[int], env: Mapping[str, str], gpus: "Optional[Sequence[Mapping[str, Any]]]"
) -> Iterator[Remark]:
    used = [str(gpu["index"]) for gpu in gpus or () if set(gpu["pids"]) & set(pids)]
    visible = [word.strip() for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    if used and used != visible and (visible or len(used) < len(gpus or ())):
        yield f"GPU {', '.join(used)}", "it computes there, says nvidia-smi"
