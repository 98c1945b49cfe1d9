"""Drift in the processes of a unit: what they carry, what they run, and how they came to be. Pure."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import knowledge
from .drift_loaded import shown
from .findings import Finding, iso
from .manifest import known

RESTART = "launch drift --fix (asks before it restarts)"
_BASE = Finding("", "processes", "critical", "", "", mend=RESTART, fix="restart")


def findings(record: Mapping[str, Any], seen: Mapping[str, Any]) -> List[Finding]:
    """Return how the processes of a unit differ from what was applied."""
    loaded = seen["loaded"]
    unit = record["files"][2]["path"].rpartition("/")[2]
    state = f"{loaded['ActiveState']} ({loaded['SubState']})"
    if loaded["ActiveState"] in ("activating", "reloading"):
        text = f"the server is starting: {state}; its processes are checked when it is ready"
        return [_BASE._replace(id="starting", severity="info", subject=unit, text=text, mend="", fix="")]
    if loaded["ActiveState"] != "active" or not seen["processes"]:
        return [_down(unit, state, loaded)]
    main = next((p for p in seen["processes"] if p["pid"] == loaded["MainPID"]), None)
    if main is None:
        return [_BASE._replace(id="main-gone", subject=unit, text=f"the main process {loaded['MainPID']} is gone")]
    return [
        *_release(record, main),
        *_guarded(record["manifest"], seen["mark"], main, loaded["InvocationID"]),
        *_environments(record["manifest"], seen["processes"]),
        *_command(record["manifest"], main),
        *_survivors(seen["processes"], loaded["InvocationID"]),
        *_limits(record["baseline"].get("limits", {}), main),
        *_libraries(record["baseline"].get("libraries", []), seen["processes"]),
        *_interpreter(record, seen["interpreter"], main),
    ]


def label(process: Mapping[str, Any]) -> str:
    """Return a process in words."""
    return f"process {process['pid']} ({process['title'][:60] or 'no title'})"


def _down(unit: str, state: str, loaded: Mapping[str, Any]) -> Finding:
    exit_ = f", exit {loaded.get('ExecMainStatus')}" if loaded.get("ExecMainCode") else ""
    cause = {
        "success": "stopped by hand: systemctl stop",
        "exit-code": f"the server or its guard ended{exit_}: journalctl -u {unit}",
    }.get(loaded.get("Result", ""), f"result {loaded.get('Result', 'unknown')}: journalctl -u {unit}")
    base = _BASE._replace(id="not-running", subject=unit, text=f"the server does not run: {state}", is_=state)
    return base._replace(should="active (running)", cause=cause, since=iso(loaded.get("StateChangeTimestamp", 0) / 1e6))


def _release(record: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[Finding]:
    is_ = (main["env"] or {}).get("LAUNCH_DIGEST", "")
    if main["env"] is not None and not main["cut"] and is_ != record["digest"]:
        text = "the running server is of another release than the one that was applied"
        yield _BASE._replace(
            id="other-release",
            subject="LAUNCH_DIGEST",
            text=text,
            is_=is_,
            should=record["digest"],
            where=(label(main),),
            since=iso(main["since"]),
            cause="not restarted since, or a unit put there by hand",
        )


def _guarded(
    manifest: Mapping[str, Any], mark: Optional[bytes], main: Mapping[str, Any], invocation: str
) -> Iterator[Finding]:
    try:
        left = json.loads(mark or b"")
    except ValueError:
        left = {}
    # A guard that started another release did its work: that is found as another release.
    digest = (main["env"] or {}).get("LAUNCH_DIGEST", manifest["digest"])
    wanted = {"digest": digest, "pid": main["pid"], "invocation": invocation}
    if left != wanted:
        yield _BASE._replace(
            id="unguarded",
            subject="guard",
            text=f"{label(main)} was not started by the guard: nobody checked its environment",
            where=(label(main),),
            since=iso(main["since"]),
            cause="a drop-in or an edited unit replaced ExecStart=",
            mend="systemctl cat shows it; remove it, then launch drift --fix",
        )


def _environments(manifest: Mapping[str, Any], processes: List[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield one finding for each variable and way to be wrong, naming the processes that share it."""
    groups: Dict[Tuple[str, str, str, str], List[Mapping[str, Any]]] = {}
    unreadable, cut = [], []
    for process in processes:
        if process["env"] is None:
            unreadable.append(process)
            continue
        if process["cut"]:
            cut.append(process)
        for key in _wrong(process, manifest):
            groups.setdefault(key, []).append(process)
    for (id_, severity, name, is_), which in sorted(groups.items(), key=lambda item: item[0]):
        should = manifest["env"].get(name, "") if known(name) else ""
        word = {
            "env-missing": "is missing",
            "env-different": "has another value",
            "env-extra": "is set, but not by the release",
        }[id_]
        every = (
            "all processes"
            if len(which) == len(processes)
            else ", ".join(map(label, which[:3])) + ("…" if len(which) > 3 else "")
        )
        yield _BASE._replace(
            id=id_,
            severity=severity,
            subject=name,
            text=f"{name} {word} in {every}",
            is_=is_,
            should=should,
            where=tuple(map(label, which)),
            since=iso(min(p["since"] for p in which)),
            cause=_why(which, processes),
        )
    for what, which, why in (
        ("env-unreadable", unreadable, "its environment may not be read"),
        (
            "env-cut",
            cut,
            "the process overwrote its environment (setproctitle without SPT_NOENV=1): absent names are unknown",
        ),
    ):
        for process in which:
            yield _BASE._replace(
                id=what,
                severity="unknown",
                subject=process["title"].split(" ")[0][:60],
                text=f"{label(process)}: {why}",
                where=(label(process),),
                since=iso(process["since"]),
                cause="a title set by the engine",
                fix="",
                mend="set env.SPT_NOENV=1 and deploy",
            )


def _wrong(process: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Tuple[str, str, str, str]]:
    env, additions = process["env"], knowledge.ADDITIONS.get(manifest["engine"], {})
    for name, should in manifest["env"].items():
        allowed = additions.get(name, []) if not name.startswith("NCCL_") else []
        if name not in env:
            if not process["cut"]:
                yield "env-missing", "critical", name, ""
        elif env[name] != should and allowed is not None and env[name] not in allowed:
            yield "env-different", "critical", name, env[name] if known(name) else ""
    for name in manifest.get("secrets", {}).get("env", []):
        if name not in env and not process["cut"]:
            yield "env-missing", "critical", name, ""
    refused, odd = knowledge.extras(env, manifest, own=True)
    for name in refused:
        yield "env-extra", "critical" if name.startswith("NCCL_") else "warning", name, env[name] if known(name) else ""
    for name in odd:
        yield (
            "env-extra",
            "warning" if name in knowledge.LOADER else "info",
            name,
            env[name] if name in knowledge.LOADER else "",
        )


def _why(which: List[Mapping[str, Any]], processes: List[Mapping[str, Any]]) -> str:
    if len(which) == len(processes):
        return "the unit gave it so: another environment file, a drop-in, or a start past the guard"
    return "the engine, or code that it loads (a .pth file, sitecustomize), changed it for what it starts"


def _command(manifest: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[Finding]:
    is_, should = main["argv"], manifest["argv"]
    renamed = not (is_ and is_[0].startswith("/"))
    # A script's interpreter stands before its command; the kernel puts it there.
    if renamed or is_ == should or is_[-len(should) :] == should or is_[-len(should) + 1 :] == should[1:]:
        return
    yield _BASE._replace(
        id="argv-different",
        subject="command",
        text=f"{label(main)} has another command than the release",
        is_=shown("Exec", [["", is_]]),
        should=shown("Exec", [["", list(should)]]),
        where=(label(main),),
        since=iso(main["since"]),
        cause="ExecStart= was replaced",
    )


def _survivors(processes: List[Mapping[str, Any]], invocation: str) -> Iterator[Finding]:
    for process in processes:
        own = (process["env"] or {}).get("INVOCATION_ID", invocation)
        if own != invocation:
            yield _BASE._replace(
                id="survivor",
                severity="warning",
                subject=process["title"].split(" ")[0][:60],
                where=(label(process),),
                text=f"{label(process)} is left from another start of a unit",
                is_=own,
                should=invocation,
                since=iso(process["since"]),
                cause="it was not ended with the server before (KillMode=), or joined this unit later",
            )


def _limits(was: Mapping[str, str], main: Mapping[str, Any]) -> Iterator[Finding]:
    for name, should in was.items():
        is_ = main["limits"].get(name, should)
        if is_ != should:
            yield _BASE._replace(
                id="limit-changed",
                severity="warning",
                subject=name,
                text=f"{name} of {label(main)} is not what it was when proven",
                is_=is_,
                should=should,
                where=(label(main),),
                cause="prlimit on the running process, or Limit…= of the unit",
            )


def _libraries(was: List[str], processes: List[Mapping[str, Any]]) -> Iterator[Finding]:
    gone: Dict[str, List[str]] = {}
    other: Dict[str, List[str]] = {}
    for process in processes:
        for library in process["libraries"]:
            if library["gone"]:
                gone.setdefault(library["path"], []).append(label(process))
            elif library["path"] not in was:
                other.setdefault(library["path"], []).append(label(process))
    for path, where in sorted(gone.items()):
        yield _BASE._replace(
            id="library-replaced",
            subject=path,
            text=f"{path} was replaced under the running server, which still uses the old one",
            where=tuple(where),
            cause="pip or apt changed the package",
            severity="warning",
        )
    for path, where in sorted(other.items()):
        yield _BASE._replace(
            id="library-other",
            subject=path,
            text=f"{path} is loaded, which was not when the deploy was proven",
            is_=path,
            should=", ".join(was),
            where=tuple(where),
            cause="LD_LIBRARY_PATH, LD_PRELOAD, a plugin, or another version of a package",
            severity="warning",
        )


def _interpreter(record: Mapping[str, Any], seen: Mapping[str, Any], main: Mapping[str, Any]) -> Iterator[Finding]:
    was = record["baseline"].get("interpreter", {})
    path = record["needs"]["programs"]["engine.python"]
    base = _BASE._replace(id="interpreter-replaced", severity="warning", subject=path, where=(path,))
    if not seen["sha256"]:
        text = f"{path} cannot be read: the next start fails"
        yield base._replace(
            text=text, severity="critical", fix="", mend=f"install {path} again", cause=seen.get("reason", "")
        )
    elif (seen["real"], seen["sha256"]) != (was.get("real"), was.get("sha256")):
        yield base._replace(
            text=f"{path} is another program than when the deploy was proven",
            is_=seen["real"],
            should=was.get("real", ""),
            since=iso(seen["ctime"]),
            cause="an update of Python, or of the virtual environment",
            fix="",
            mend="launch up proves the server again with it",
        )
    elif main["exe"].endswith(" (deleted)"):
        text = f"the file that {label(main)} runs was replaced: the next start uses another one"
        yield base._replace(text=text, where=(label(main),), is_=main["exe"], cause="an update of the system's Python")
