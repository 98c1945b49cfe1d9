"""What the manager has loaded, over D-Bus: systemctl's text output cannot be read back without loss."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Dict, List, Sequence

_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
_GET_ALL = ("org.freedesktop.DBus.Properties", "GetAll", "s", "")
#: Unit and service properties that plan, apply and proof look at.
PROPERTIES = (
    *("LoadState", "LoadError", "ActiveState", "SubState", "Result", "UnitFileState", "FragmentPath", "DropInPaths"),
    *("NeedDaemonReload", "EnvironmentFiles", "ExecStart", "ExecStartPost", "MainPID", "ControlGroup"),
    *("InvocationID", "NRestarts", "Job", "TimeoutStartUSec", "TimeoutStopUSec"),
)


class SystemdError(Exception):
    """A command of systemd failed; the text holds what it said."""


def command(argv: Sequence[str], timeout: float = 60) -> str:
    """Run a command and return its output.

    Raises:
        SystemdError: not there, non-zero exit, or no answer in time.
    """
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemdError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise SystemdError(f"{' '.join(argv)}: {said or f'exit {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def systemctl(*words: str) -> str:
    """Run systemctl without questions or pager."""
    return command(["systemctl", "--no-ask-password", "--no-pager", *words])


def unit_path(unit: str) -> str:
    """Return the object path of a unit: every byte that is no letter or digit becomes ``_hh``."""
    escaped = "".join(
        chr(b) if chr(b).isalnum() and not (i == 0 and chr(b).isdigit()) else f"_{b:02x}"
        for i, b in enumerate(unit.encode())
    )
    return f"{_MANAGER[1]}/unit/{escaped}"


def properties(unit: str) -> Dict[str, Any]:
    """Return the chosen properties of a unit as loaded, in one call."""
    text = command(["busctl", "--json=short", "call", _MANAGER[0], unit_path(unit), *_GET_ALL])
    try:
        data = json.loads(text)["data"][0]
    except (ValueError, LookupError, TypeError) as error:
        raise SystemdError(f"busctl answers nothing readable for {unit}: {text[:200]}") from error
    result = {name: data[name]["data"] for name in PROPERTIES if name in data}
    result["InvocationID"] = bytes(result.get("InvocationID", [])).hex()
    return result


def version() -> int:
    """Return systemd's version number."""
    text = command(["busctl", "--json=short", "get-property", *_MANAGER, "org.freedesktop.systemd1.Manager", "Version"])
    found = re.search(r"\d+", str(json.loads(text)["data"]))
    return int(found.group()) if found else 0


def verify(path: str) -> List[str]:
    """Return what systemd-analyze finds wrong with a staged unit file, one line each.

    Its exit code says little before 250, so any line that names the file counts.
    """
    argv = ["systemd-analyze", "verify", "--man=no", path]
    if version() >= 250:
        argv.insert(3, "--recursive-errors=no")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    name = path.rsplit("/", 1)[-1]
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [line for line in lines if name in line] or ([" ".join(lines)] if done.returncode and lines else [])
