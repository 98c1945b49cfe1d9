"""Drift in files: the release's own, what else systemd reads for the unit, and what starts it at boot. Pure."""

from __future__ import annotations

import posixpath
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import env_file, unit_files
from .files import sha256
from .findings import Finding, iso
from .manifest import known

UP = "launch up"
FIX = "launch drift --fix"
#: Settings that let another command, environment or user get past the release.
_GRAVE = frozenset(
    (
        *("ExecStart", "ExecStartPre", "ExecStartPost", "ExecCondition", "ExecSearchPath", "Type"),
        *("EnvironmentFile", "UnsetEnvironment", "PassEnvironment", "PAMName", "LoadCredential"),
        *("User", "Group", "DynamicUser", "RootDirectory", "RootImage", "RestartPreventExitStatus"),
    )
)


def findings(
    record: Mapping[str, Any], seen: Mapping[str, Any], shared: "Sequence[Mapping[str, Any]] | None"
) -> List[Finding]:
    """Return how the files of a deployment differ from what was applied.

    Args:
        record: of what was applied.
        seen: an observation.
        shared: path, sha256, mode and ``seen`` state of the files that all deployments share; None when it is not
            known what they should be.
    """
    env, manifest, unit = record["files"]
    found = [
        *_unit(unit, seen["files"][unit["path"]]),
        *_env(env, seen["files"][env["path"]], record["manifest"], seen["manager"]["version"]),
        *_content(manifest, seen["files"][manifest["path"]], "manifest", "the guard will refuse the next start"),
        *_secrets(record["secrets"], seen["files"]),
        *_shared(shared),
        *_namesakes(seen["namesakes"], unit["path"]),
        *_drop_ins(seen["drop_ins"], record["baseline"]["drop_ins"], unit["path"].rpartition("/")[2]),
        *_boot(seen, record["manifest"]["name"]),
    ]
    at = record["at"]
    return [f._replace(since="") if f.since and f.since < iso(at) else f for f in found]


def _not_a_file(path: str, seen: Mapping[str, Any], what: str, severity: str) -> Optional[Finding]:
    """Return a finding when nothing can be read at a path of ours, else None."""
    since = iso(seen.get("ctime"))
    base = Finding(
        f"{what}-missing", "files", severity, path, f"{path} is not there", where=(path,), mend=FIX, fix="files"
    )
    if seen["kind"] == "absent":
        return base._replace(cause="removed by hand or by a cleaning job")
    if seen["kind"] == "unreadable":
        text = f"{path} cannot be read: {seen['reason']}"
        return base._replace(id=f"{what}-unreadable", severity="unknown", text=text)
    if seen["kind"] == "link":
        target = seen["target"]
        if what == "unit" and target == "/dev/null":
            text = f"{path} is a link to /dev/null: the unit is masked"
            return base._replace(id="unit-masked", text=text, since=since, cause="systemctl mask", is_=target)
        return base._replace(
            id=f"{what}-linked",
            text=f"{path} is a link to {target}",
            since=since,
            is_=target,
            cause="systemctl link, or another tool that deploys by links",
        )
    if seen["kind"] == "other":
        return base._replace(
            id=f"{what}-no-file",
            text=f"{path} is no file",
            since=since,
            cause="made by hand",
            fix="",
            mend=f"rm {path}, then {FIX}",
        )
    return None


def _mode(entry: Mapping[str, Any], seen: Mapping[str, Any], what: str) -> Iterator[Finding]:
    is_, should = f"{seen['mode']:04o}, owner {seen['owner']}", f"{entry['mode']:04o}, owner 0"
    if seen["mode"] != entry["mode"] or not seen["owner"].startswith("0:"):
        text = f"{entry['path']} has mode {is_}, not {should}"
        yield Finding(
            f"{what}-mode",
            "files",
            "warning",
            entry["path"],
            text,
            is_,
            should,
            (entry["path"],),
            iso(seen["ctime"]),
            "chmod or chown by hand, or a tool that copied it",
            FIX,
            "files",
        )


def _unit(entry: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Finding]:
    gone = _not_a_file(entry["path"], seen, "unit", "critical")
    if gone:
        yield gone
        return
    yield from _mode(entry, seen, "unit")
    if seen["sha256"] == sha256(entry["text"]):
        return
    path, text = entry["path"], seen["content"].decode("utf-8", "replace")
    if not text.strip():
        yield Finding(
            "unit-masked",
            "files",
            "critical",
            path,
            f"{path} is empty: systemd takes that for masked",
            "",
            "",
            (path,),
            iso(seen["ctime"]),
            "a power cut during a copy, or a full disk",
            FIX,
            "files",
        )
        return
    is_, should = _setting_difference(unit_files.settings(text), unit_files.settings(entry["text"]))
    told = "was edited" if is_ or should else "was edited in comments or blanks only"
    yield Finding(
        "unit-edited",
        "files",
        "critical" if is_ or should else "info",
        path,
        f"{path} {told}",
        is_,
        should,
        (path,),
        iso(seen["ctime"]),
        "an editor on the host, systemctl edit --full, or another tool",
        FIX,
        "files",
    )


def _setting_difference(is_: List[Tuple[str, str]], should: List[Tuple[str, str]]) -> Tuple[str, str]:
    """Return the settings that only one of two unit files has; commands by their key alone, they are long."""

    def told(one: List[Tuple[str, str]], other: List[Tuple[str, str]]) -> str:
        lines = [entry for entry in one if entry not in other]
        shown = [key + "=" + ("…" if key.startswith("Exec") or key == "Environment" else value) for key, value in lines]
        return "; ".join(shown)

    if sorted(is_) == sorted(should) and is_ != should:
        return "other order of settings", "the release's order"
    return told(is_, should), told(should, is_)


def _content(entry: Mapping[str, Any], seen: Mapping[str, Any], what: str, effect: str) -> Iterator[Finding]:
    path = entry["path"]
    gone = _not_a_file(path, seen, what, "critical")
    if gone:
        yield gone
        return
    yield from _mode(entry, seen, what)
    if seen["sha256"] != (entry.get("sha256") or sha256(entry["text"])):
        yield Finding(
            f"{what}-edited",
            "files",
            "critical",
            path,
            f"{path} was changed: {effect}",
            "",
            "",
            (path,),
            iso(seen["ctime"]),
            "an editor or another tool on the host",
            FIX,
            "files",
        )


def _env(
    entry: Mapping[str, Any], seen: Mapping[str, Any], manifest: Mapping[str, Any], version: int
) -> Iterator[Finding]:
    path = entry["path"]
    gone = _not_a_file(path, seen, "env-file", "critical")
    if gone:
        yield gone
        return
    yield from _mode(entry, seen, "env-file")
    if seen["sha256"] == sha256(entry["text"]):
        return
    base = Finding(
        "env-file-edited",
        "files",
        "critical",
        path,
        "",
        "",
        "",
        (path,),
        iso(seen["ctime"]),
        "an editor on the host, or another tool",
        FIX,
        "files",
    )
    try:
        values = env_file.parse(seen["content"], version)
    except env_file.EnvFileError as error:
        text = f"{path} cannot be read by systemd ({error}): the next start fails"
        yield base._replace(id="env-file-broken", text=text, cause="a torn write, or a wrong encoding")
        return
    wanted: Dict[str, str] = manifest["env"]
    for name in sorted({*values, *wanted}):
        is_, should = values.get(name), wanted.get(name)
        if is_ == should:
            continue  # the same value in another encoding reaches the server all the same
        word = "is not set" if is_ is None else "is set too" if should is None else "has another value"
        text = f"{name} {word} in {path}; it takes effect at the next start"
        shown = known(name)
        yield base._replace(
            subject=f"{path} {name}",
            text=text,
            is_=(is_ or "") if shown else "",
            should=(should or "") if shown else "",
        )


def _secrets(paths: Sequence[str], files: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    for path in paths:
        seen = files[path]
        gone = _not_a_file(path, seen, "secret", "critical")
        if gone:
            yield gone._replace(mend=UP, fix="")
        else:
            yield from (
                f._replace(fix="", mend=f"chmod 600 {path}")
                for f in _mode({"path": path, "mode": 0o600}, seen, "secret")
            )


def _shared(shared: "Sequence[Mapping[str, Any]] | None") -> Iterator[Finding]:
    if shared is None:
        path = "/etc/launch/shared.json"
        yield Finding(
            "shared-unknown",
            "files",
            "unknown",
            path,
            f"{path} cannot be read: what the agent should be is not known",
            where=(path,),
            cause="removed or edited by hand",
            mend=UP,
        )
        return
    for entry in shared:
        what = "agent" if entry["path"].endswith(".py") else "shared-unit"
        yield from _content(
            entry,
            entry["seen"],
            what,
            "guard and waiter are not those that were deployed"
            if what == "agent"
            else "it is not the one that was deployed",
        )


def _namesakes(namesakes: Mapping[str, Mapping[str, Any]], path: str) -> Iterator[Finding]:
    strong = unit_files.FOLDERS[: unit_files.FOLDERS.index("/etc/systemd/system")]
    for other, seen in namesakes.items():
        wins = posixpath.dirname(other) in strong
        effect = f"it takes the place of {path}" if wins else f"it would take the place of {path} if that were removed"
        yield Finding(
            "unit-shadowed" if wins else "unit-namesake",
            "files",
            "critical" if wins else "warning",
            other,
            f"there is another unit of this name, {other}: {effect}",
            seen.get("target", ""),
            "",
            (other,),
            iso(seen.get("ctime")),
            "another tool, a package, or systemctl --runtime",
            f"rm {other} && systemctl daemon-reload",
        )


def _drop_ins(drop_ins: Mapping[str, Mapping[str, Any]], vendor: Mapping[str, str], unit: str) -> Iterator[Finding]:
    for path, seen in drop_ins.items():
        if path.startswith(unit_files.VENDOR) and vendor.get(path) == seen.get("sha256"):
            continue  # the distribution's own; the release was proven with it
        keys = sorted({key for key, _ in seen["settings"]})
        grave = sorted(_GRAVE & set(keys)) or ["Environment"] * ("Environment" in keys)
        severity = "unknown" if seen["kind"] == "unreadable" else "critical" if grave else "warning" if keys else "info"
        own = path.rpartition("/")[0].endswith(f"/{unit}.d")
        control = "systemctl set-property" if ".control/" in path else "systemctl edit, or another tool"
        yield Finding(
            "drop-in",
            "files",
            severity,
            path,
            f"the drop-in {path} applies to the unit" + ("" if own else " and to others"),
            ", ".join(f"{k}=" for k in keys),
            "",
            (path,),
            iso(seen.get("ctime")),
            control,
            f"rm {path} && systemctl daemon-reload, or set this in the configuration",
        )


def _boot(seen: Mapping[str, Any], name: str) -> Iterator[Finding]:
    if seen["wanted"]:
        return
    link = f"/etc/systemd/system/launch.target.wants/launch-{name}.service"
    yield Finding(
        "not-enabled",
        "files",
        "warning",
        link,
        "the unit is not started at boot",
        "disabled",
        "enabled",
        (link,),
        cause="systemctl disable",
        mend=FIX,
        fix="files",
    )
