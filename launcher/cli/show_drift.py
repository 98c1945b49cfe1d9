"""Checks as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.agent.findings import LAYERS, counts, iso
from launcher.cli.show import change
from launcher.cli.tell import paint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from launcher.fleet.drift import Checked, HostCheck

_LAYER_WORDS = {
    "files": "files",
    "loaded": "loaded unit",
    "processes": "processes",
    "inputs": "hidden inputs",
    "library": "NCCL's own log",
    "host": "host",
    "strays": "strangers",
    "world": "world",
    "restarts": "restarts nobody asked for",
}
_SIGNS = {"critical": "!", "warning": "~", "unknown": "?", "info": " "}


def findings(seen: Sequence[Checked]) -> None:
    """Print every host: in sync on one line, else its findings by layer with both values and the remedy."""
    for checked in seen:
        print(paint(f"{checked.deployment}  configuration {checked.digest}", "bold"))
        groups: dict[tuple[str, ...], list[HostCheck]] = {}
        for host in checked.hosts:
            groups.setdefault((_headline(host), *_lines(host)), []).append(host)
        for (headline, *lines), hosts in groups.items():
            print(f"{paint(', '.join(h.host for h in hosts), 'bold')}: {headline}")
            for line in lines:
                print(f"  {line}")


def _headline(host: HostCheck) -> str:
    check = host.check
    if check is None:
        return f"{paint(host.outcome.upper(), '!')}: {host.message}"
    if host.outcome == "not deployed":
        return "not deployed"
    word = host.outcome if host.outcome in {"in sync", "pending"} else paint(host.outcome.upper(), "!")
    applied = check["applied"]
    told = [f"release {applied['digest']} applied {iso(applied['at'])}"] if applied else []
    if check["processes"]:
        told.append(f"{check['proven']} of {check['processes']} processes carry all {check['variables']} variables")
    return "; ".join([word, *told])


def _lines(host: HostCheck) -> Iterator[str]:
    yield from (f"did: {step}" for step in host.did)
    held = (host.check or {}).get("change")
    if held:
        yield f"{paint('!', '!')} {held['owner']} is changing this host ({held['why']} {held['deployment']})"
    if host.message and host.check is not None:
        yield f"{paint('!', '!')} {host.message}"
    yield from (f"    {text}" for text in host.evidence)
    for layer in LAYERS:
        of_layer = [f for f in host.findings if f["layer"] == layer]
        if of_layer:
            yield paint(_LAYER_WORDS.get(layer, layer), "bold")
        for found in of_layer:
            yield from (f"  {line}" for line in _finding(found))
    if host.pending:
        yield paint("pending: the configuration wants (launch up applies it)", "bold")
        yield from (f"  {change(entry)}" for entry in host.pending)


def _finding(found: Mapping[str, Any]) -> Iterator[str]:
    sign = _SIGNS[found["severity"]]
    word = "accepted" if found["muted"] else found["severity"]
    text = f"{word}: {found['text']} [{found['id']}]"
    yield f"{paint(sign, '!' if sign == '!' else '~') if counts(found) else sign} {text}"
    if found["muted"]:
        yield f"      {found['muted']}"
        return
    rows = {"is": found["is_"], "should be": found["should"], "since": found["since"], "likely": found["cause"]}
    rows = {**rows, "mend": found["mend"]}
    if found["should"] and not found["is_"]:
        rows["is"] = "(not set)"
    yield from (f"      {name:<9}  {value}" for name, value in rows.items() if value)


def table(seen: Sequence[Checked]) -> None:
    """Print one line a host."""
    rows = [("HOST", "DEPLOYMENT", "APPLIED", "RUNNING", "PROVEN", "SERVICE", "STATE")]
    for checked in seen:
        for host in checked.hosts:
            check = host.check or {}
            applied = (check.get("applied") or {}).get("digest", "-")
            proven = f"{check['proven']}/{check['processes']}" if check.get("processes") else "-"
            cells = (applied, check.get("running") or "-", proven, check.get("service") or "-", _state(host))
            rows.append((host.host, checked.deployment, *cells))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _state(host: HostCheck) -> str:
    held = (host.check or {}).get("change")
    if held:
        return f"CHANGING: {held['owner']}, {held['why']} {held['deployment']}: launch status --follow"
    counted = [f for f in host.findings if counts(f)]
    if host.check is None or host.outcome == "failed":
        return f"{host.outcome}: {host.message}"
    if not counted:
        return host.outcome
    grave = next((f for f in counted if f["severity"] == "critical"), counted[0])
    more = f", and {len(counted) - 1} more" if len(counted) > 1 else ""
    return f"{host.outcome.upper()}: {grave['text']}{more}"
