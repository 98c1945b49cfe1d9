"""Drift in what the manager has loaded, against what it had loaded when the deploy was proven. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, List, Mapping

from .findings import Finding, counts
from .manifest import known
from .systemd import SETTINGS, Value, plain

_COMMANDS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecCondition")
_ENVIRONMENT = ("Environment", "EnvironmentFiles", "PassEnvironment", "UnsetEnvironment", "PAMName", "ExecSearchPath")
_INFINITY = 2**64 - 1
#: A word of a foreign command that may be followed by, or hold, a secret.
_SECRET = re.compile(r"key|token|secret|passw", re.IGNORECASE)
RELOAD = "systemctl daemon-reload"


def findings(record: Mapping[str, Any], seen: Mapping[str, Any], in_files: "List[Finding]") -> List[Finding]:
    """Return how the unit as loaded differs from the one that was proven.

    Args:
        record: of what was applied.
        seen: an observation.
        in_files: what was found in the files of the same deployment, for the cause.
    """
    loaded, path = seen["loaded"], record["files"][2]["path"]
    unit = path.rpartition("/")[2]
    if loaded["LoadState"] != "loaded":
        text = f"systemd has no working unit {unit} loaded: {loaded['LoadState']}"
        reason = " ".join(str(part) for part in loaded.get("LoadError", []) if part)
        base = Finding("not-loaded", "loaded", "critical", unit, text, reason or loaded["LoadState"], "loaded")
        return [
            base._replace(
                cause="the unit file was removed, masked or broken, and systemd reloaded",
                fix="files",
                mend="launch drift --fix",
            )
        ]
    found: List[Finding] = []
    if loaded["FragmentPath"] != path:
        found.append(
            Finding(
                "loaded-elsewhere",
                "loaded",
                "critical",
                unit,
                f"{unit} is loaded from {loaded['FragmentPath']}",
                loaded["FragmentPath"],
                path,
                (loaded["FragmentPath"],),
                cause="a unit of this name in a stronger folder, or a link",
                mend="remove it, then " + RELOAD,
                fix="files",
            )
        )
    found += _settings(record["baseline"]["loaded"], loaded, unit, _cause(in_files))
    return [*found, *_stale(seen, unit, in_files, differs=bool(found))]


def _cause(in_files: List[Finding]) -> str:
    paths = [f.subject for f in in_files if f.id in ("drop-in", "unit-edited", "unit-shadowed")]
    return f"loaded from {', '.join(paths)}" if paths else "a file that is gone again, or systemctl set-property"


def _settings(was: Mapping[str, Any], loaded: Mapping[str, Any], unit: str, cause: str) -> Iterator[Finding]:
    for name in SETTINGS:
        if name not in was or name not in loaded:
            continue  # another version of systemd knows other settings
        value = plain(name, loaded[name])
        if value == was[name]:
            continue
        kind = "command" if name in _COMMANDS else "environment" if name in _ENVIRONMENT else "setting"
        is_, should = (shown(name, v) for v in (value, was[name]))
        yield Finding(
            f"loaded-{kind}",
            "loaded",
            "warning" if kind == "setting" and name not in ("User", "Group") else "critical",
            f"{unit} {name}",
            f"{name}= as loaded is not what was applied",
            is_,
            should,
            (unit,),
            cause=cause,
            mend="launch drift --fix, after removing what is named as the cause",
            fix="files",
        )


def shown(name: str, value: Value) -> str:
    """Return a property as text: no value of a variable that may be a secret, no word behind a secret's flag."""
    if name == "Environment" and isinstance(value, list):
        pairs = [entry.partition("=") for entry in value]
        return " ".join(f"{n}={v}" if known(n) else f"{n}=…" for n, _, v in pairs)
    if name.startswith("Exec") and isinstance(value, list) and all(isinstance(entry, list) for entry in value):
        return "; ".join(_command(entry[1]) for entry in value)
    if value == _INFINITY:
        return "infinity"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 300 else text[:297] + "..."


def _command(argv: List[str]) -> str:
    words, hide = [], False
    for word in argv:
        words.append("…" if hide else re.sub(r"=.*", "=…", word) if _SECRET.search(word) and "=" in word else word)
        hide = word.startswith("-") and bool(_SECRET.search(word)) and "=" not in word
    return " ".join(words)


def _stale(seen: Mapping[str, Any], unit: str, in_files: List[Finding], *, differs: bool) -> Iterator[Finding]:
    """Yield a finding where the files have changed and the manager has not read them yet.

    NeedDaemonReload alone says little: a touched file sets it, and a file with an older time or in a new folder does
    not (systemd issues 4500 and 31752).
    """
    loaded = set(seen["loaded"].get("DropInPaths", []))
    on_disk = {path for path, entry in seen["drop_ins"].items() if entry["settings"]}
    gone = sorted(path for path in loaded if path not in seen["drop_ins"])
    new = sorted(on_disk - loaded)
    edited = [
        f.subject
        for f in in_files
        if f.id.startswith("unit-") and f.id not in ("unit-mode", "unit-namesake") and counts(f)
    ]
    if new or gone or (edited and not differs):
        what = ", ".join([*new, *(f"{path} (gone)" for path in gone), *edited])
        yield Finding(
            "reload-pending",
            "loaded",
            "warning",
            unit,
            f"systemd has not read these changes yet: {what}",
            "as of the last daemon-reload",
            "as on disk",
            (*new, *gone, *edited),
            cause="a file was changed without systemctl daemon-reload",
            mend="mend the files first; launch drift --fix reloads",
            fix="files",
        )
