"""What the manager has loaded, over D-Bus: systemctl's text output cannot be read back without loss."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Dict, List, Sequence, Union

_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
_GET_ALL = ("org.freedesktop.DBus.Properties", "GetAll", "s", "")
#: Unit and service properties that plan, apply and proof look at.
PROPERTIES = (
    *("LoadState", "LoadError", "ActiveState", "SubState", "Result", "UnitFileState", "FragmentPath", "DropInPaths"),
    *("NeedDaemonReload", "EnvironmentFiles", "ExecStart", "ExecStartPost", "MainPID", "ControlGroup"),
    *("InvocationID", "NRestarts", "Job", "TimeoutStartUSec", "TimeoutStopUSec"),
)
#: A property as busctl gives it.
Value = Union[str, int, float, bool, List[Any], None]

#: Settings of a unit that decide what its processes carry, may use, and when they start again (systemd 247 to 257).
SETTINGS = (
    *("Type", "Restart", "RestartUSec", "RestartPreventExitStatus", "SuccessExitStatus", "RemainAfterExit"),
    *("TimeoutStartUSec", "TimeoutStopUSec", "RuntimeMaxUSec", "KillMode", "KillSignal", "SendSIGKILL"),
    *("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"),
    *("Environment", "EnvironmentFiles", "PassEnvironment", "UnsetEnvironment", "ExecSearchPath", "PAMName"),
    *("User", "Group", "SupplementaryGroups", "DynamicUser", "WorkingDirectory", "RootDirectory", "RootImage"),
    *("UMask", "Slice", "Nice", "OOMScoreAdjust", "OOMPolicy", "CPUSchedulingPolicy", "CPUSchedulingPriority"),
    *("CPUAffinity", "NUMAPolicy", "NUMAMask", "AllowedCPUs", "AllowedMemoryNodes", "CPUWeight"),
    *("CPUQuotaPerSecUSec", "MemoryMax", "MemoryHigh", "MemorySwapMax", "TasksMax", "DevicePolicy", "DeviceAllow"),
    *("LimitMEMLOCK", "LimitNOFILE", "LimitNPROC", "LimitSTACK", "LimitAS", "LimitDATA", "LimitRSS", "LimitCORE"),
    *("LimitMEMLOCKSoft", "LimitNOFILESoft", "LimitNPROCSoft", "LimitSTACKSoft", "LimitASSoft", "LimitFSIZE"),
    *("PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateIPC", "PrivateUsers", "NoNewPrivileges"),
    *("CapabilityBoundingSet", "AmbientCapabilities", "ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset"),
    *("SystemCallFilter", "MemoryDenyWriteExecute", "RestrictAddressFamilies", "InaccessiblePaths", "BindPaths"),
    *("StandardOutput", "StandardError", "LoadCredential", "StartLimitIntervalUSec", "StartLimitBurst"),
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
    found = all_properties(unit)
    return {name: found[name] for name in PROPERTIES if name in found}


def all_properties(unit: str) -> Dict[str, Any]:
    """Return every property of a unit as loaded, in one call."""
    result = _all(unit_path(unit))
    result["InvocationID"] = bytes(result.get("InvocationID", [])).hex()
    return result


def _all(path: str) -> Dict[str, Any]:
    text = command(["busctl", "--json=short", "call", _MANAGER[0], path, *_GET_ALL])
    try:
        return {name: value["data"] for name, value in json.loads(text)["data"][0].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SystemdError(f"busctl answers nothing readable for {path}: {text[:200]}") from error


def plain(name: str, value: Value) -> Value:
    """Return a property's value without what changes from start to start: the times and pids of its commands."""
    return [entry[:3] for entry in value] if name.startswith("Exec") and isinstance(value, list) else value


def manager() -> Dict[str, Any]:
    """Return the manager's own ``environment``, by name, and its ``version``."""
    found = _all(_MANAGER[1])
    pairs = (entry.partition("=") for entry in found.get("Environment", []))
    return {"environment": {name: value for name, _, value in pairs}, "version": _number(found.get("Version", ""))}


def version() -> int:
    """Return systemd's version number."""
    text = command(["busctl", "--json=short", "get-property", *_MANAGER, "org.freedesktop.systemd1.Manager", "Version"])
    return _number(json.loads(text)["data"])


def _number(version: object) -> int:
    found = re.search(r"\d+", str(version))
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
