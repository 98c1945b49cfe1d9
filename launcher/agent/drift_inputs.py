"""Hidden inputs: what reaches a server past its unit, or will at its next start. Pure."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional

from . import knowledge, nccl_conf
from .findings import Finding, iso
from .manifest import known

PRELOAD = "/etc/ld.so.preload"


def findings(record: Mapping[str, Any], seen: Mapping[str, Any]) -> List[Finding]:
    """Return the inputs that a deployment gets from elsewhere than from its release."""
    manifest = record["manifest"]
    found = [*_manager(manifest, seen["manager"]), *_preload(record["baseline"], seen["inputs"])]
    found += _block(record["needs"], seen["inputs"].get(nccl_conf.PATH))
    for path, entry in seen["inputs"].items():
        if path != PRELOAD:
            found += _nccl_file(path, entry, manifest)
    return found


def _manager(manifest: Mapping[str, Any], manager: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what the manager adds to every service; it cannot beat the environment file, but add to it."""
    refused, odd = knowledge.extras(manager["environment"], manifest, own=False)
    for name in [*refused, *odd]:
        files = tuple(path for path, names in manager["defaults"].items() if name in names)
        grave = name in refused
        effect = "the guard will refuse the next start" if grave else "the next start gets it too"
        mend = f"systemctl unset-environment {name}"
        yield Finding(
            "manager-environment",
            "inputs",
            "critical" if grave else "warning",
            name,
            f"systemd itself sets {name} for every service: {effect}",
            manager["environment"][name] if known(name) else "",
            "",
            files or ("systemctl show-environment",),
            cause="DefaultEnvironment=" if files else "systemctl set-environment, from a day of debugging",
            mend=f"take it out of {', '.join(files)}, then systemctl daemon-reexec" if files else mend,
        )
    for path, names in manager["defaults"].items():
        for name in names:
            if name not in manager["environment"] and knowledge.watched(name) and name not in manifest["env"]:
                yield Finding(
                    "manager-environment",
                    "inputs",
                    "warning",
                    name,
                    f"{path} will set {name} for every service from the next boot on",
                    "",
                    "",
                    (path,),
                    cause="DefaultEnvironment=, not read yet",
                    mend=f"take it out of {path}",
                )


def _nccl_file(path: str, entry: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the variables that a file of NCCL's own sets where the release leaves them unset."""
    base = Finding(
        "nccl-file",
        "inputs",
        "warning",
        "",
        "",
        "",
        "",
        (path,),
        iso(entry.get("ctime")),
        "written by hand, or by another tool",
    )
    if entry["kind"] != "file":
        yield base._replace(
            severity="unknown", subject=path, text=f"{path} cannot be read: {entry.get('reason', entry['kind'])}"
        )
        return
    variables = nccl_conf.variables(entry["text"])
    for name, value in sorted(variables.items()):
        subject = f"{path} {name}"
        if name in manifest["env"]:
            if value != manifest["env"][name]:
                text = f"{path} sets {name} too; the release's value stands before it"
                yield base._replace(severity="info", subject=subject, text=text, is_=value if known(name) else "")
        else:
            yield base._replace(
                subject=subject,
                text=f"{path} sets {name}, which the release leaves unset: NCCL takes it",
                is_=value if known(name) else "",
                severity="critical" if name in knowledge.SETTINGS else "warning",
                mend=f"take it out of {path}, or set nccl.{name[5:].lower()}"
                if name.startswith("NCCL_")
                else f"take it out of {path}",
            )


def _block(needs: Mapping[str, Any], entry: Optional[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding where the block of a deployment in /etc/nccl.conf is not what was applied."""
    text, name, path, mend = (entry or {}).get("text", ""), needs["name"], nccl_conf.PATH, "launch drift --fix"
    try:
        is_ = nccl_conf.block_variables(text) if nccl_conf.owner(text) == name else None
        told = "" if is_ == (needs["nccl"]["env"] if needs["nccl"]["block"] else None) else "another block, or none"
    except nccl_conf.BlockError as error:
        told = str(error)
        mend = "mend the marker lines of the block by hand"
    if told:
        should = "this release's variables" if needs["nccl"]["block"] else "no block of this deployment"
        yield Finding(
            "nccl-block",
            "inputs",
            "warning",
            path,
            f"the block of this deployment in {path} is not what was applied",
            told,
            should,
            (path,),
            iso((entry or {}).get("ctime")),
            "an editor on the host, or another tool",
            mend,
            "files" if mend.endswith("--fix") else "",
        )


def _preload(baseline: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    entry = inputs.get(PRELOAD, {})
    if entry.get("sha256", "") != baseline.get("preload", ""):
        yield Finding(
            "preload",
            "inputs",
            "warning",
            PRELOAD,
            f"{PRELOAD} changed since the deploy: every program started from now on loads other code",
            "",
            "",
            (PRELOAD,),
            iso(entry.get("ctime")),
            "a monitoring or debugging tool",
            f"look at {PRELOAD}",
        )
