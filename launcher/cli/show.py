"""Results as text for people and as records for machines; both come from the same values."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from launcher.cli.tell import paint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from launcher.cli.parser import CommandLine
    from launcher.cli.prepare import Prepared
    from launcher.fleet.plan import Change, HostPlan
    from launcher.fleet.rollout import HostResult, Result
    from launcher.render import Release
    from launcher.render.exports import Export
    from launcher.schema import Deployment


def record(results: Sequence[Result], code: int) -> dict[str, Any]:
    """Return results as plain data for ``--json``."""
    return {
        "deployments": [{**dataclasses.asdict(r), "exit_code": r.exit_code} for r in results],
        "exit_code": code,
    }


def release(deployment: Deployment, release: Release, folder: Path | None) -> None:
    """Print what a release holds and, if it was written, where."""
    hw = deployment.hw.name if deployment.hw.gpu_count else "hardware not said"
    print(paint(f"{release.name}  release {release.digest}", "bold"))
    print(f"  {deployment.model.name} on {hw}, {deployment.engine.name}, speculation {deployment.spec.method}")
    print("  command")
    words = list(release.argv)
    starts = [i for i, w in enumerate(words) if w.startswith("--")] or [len(words)]
    print(f"    {shlex.join(words[: starts[0]])}")
    for begin, end in zip(starts, [*starts[1:], len(words)], strict=True):
        print(f"      {shlex.join(words[begin:end])}")
    print("  environment")
    for name in sorted(release.env):
        print(f"    {name}={shlex.quote(release.env[name])}")
    if folder:
        print(f"  written to {folder}/")
        for file in release.files:
            print(f"    {file.path.rpartition('/')[2]}")


def export(export: Export, folder: str) -> None:
    """Print what an export wrote, keeps and loses, and how it is used."""
    for file in export.files:
        print(f"    {file.path}")
    for title, sentences in (("kept", export.kept), ("lost, compared with launch up", export.lost)):
        for number, sentence in enumerate(sentences):
            print(*([f"  {title}"] if number == 0 else []), f"    - {sentence}", sep="\n")
    print(f"Next: {export.next.replace('{folder}', shlex.quote(folder))}")


def how_to_name_a_host(line: CommandLine) -> None:
    """Say what makes a deployment of a rendering."""
    given = [word for word in line.overrides if word.lstrip("+") != "target=render"]
    words = [*line.names, *given, "target=ssh", "target.hosts=[HOST]"]
    print("\nNo host was named, so nothing was deployed. Next, with a host of yours:")
    print(f"  launch up {shlex.join(words)}")


def findings_record(prepared: Sequence[Prepared], code: int) -> dict[str, Any]:
    """Return the findings of all deployments as plain data."""
    deployments = [
        {"deployment": item.release.name, "findings": [dataclasses.asdict(f) for f in item.findings]}
        for item in prepared
    ]
    return {"deployments": deployments, "exit_code": code}


def findings(prepared: Sequence[Prepared]) -> None:
    """Print the findings of all deployments, the gravest first."""
    order = {"refuse": 0, "warn": 1, "inform": 2}
    for item in prepared:
        print(paint(item.release.name, "bold"))
        for found in sorted(item.findings, key=lambda f: order[f.severity]):
            word = "allowed" if found.allowed else found.severity
            print(f"  {paint(f'{word:<8}', '!' if word == 'refuse' else '~')} {found.text} [{found.rule}]")
            print(f"           {found.explanation}")
            print(f"           Source: {found.source}")
        if not item.findings:
            print("  nothing found")


def explanation(told: Mapping[str, Any]) -> str:
    """Return an explanation as text."""
    origins = told["origins"] or ["the built-in default"]
    lines = [f"{told['key']} = {told['value']}", f"  set by {origins[0]}"]
    lines += [f"  which stands before {origin}" for origin in origins[1:]]
    lines += [f"  reaches the server as {line}" for line in told["reaches"]]
    if not told["reaches"]:
        lines.append("  no argument, variable or unit setting follows from it alone")
    lines += [f"  known: {line}" for line in told["known"]]
    return "\n".join(lines)


def plan(result: Result) -> None:
    """Print what would change; hosts with the same plan are printed once."""
    print(paint(f"{result.deployment}  release {result.digest}", "bold"))
    groups: dict[tuple[object, ...], list[HostResult]] = {}
    for host in result.hosts:
        key = (
            (host.outcome, host.message, host.evidence) if host.plan is None else (host.outcome, *_identity(host.plan))
        )
        groups.setdefault(key, []).append(host)
    for hosts in groups.values():
        first = hosts[0]
        print(paint(", ".join(h.host for h in hosts), "bold"))
        if first.plan is None or first.outcome not in {"pending", "unchanged"}:
            print(f"  {paint('!', '!')} {first.outcome}: {first.message}")
            for text in first.evidence:
                print(f"      {text}")
            continue
        _host_plan(first.plan)


def _identity(plan: HostPlan) -> tuple[object, ...]:
    return (plan.changes, plan.restart, plan.problems, plan.notes, plan.takes_over)


def _host_plan(plan: HostPlan) -> None:
    if plan.in_sync:
        print("  nothing to change")
    for entry in plan.changes:
        print(f"  {change(entry)}")
    if plan.restart:
        print(f"  {paint('~', '~')} {plan.restart}")
    elif plan.waits:
        print(f"  {paint('~', '~')} wait: this release is starting already")
    elif plan.changes:
        print("    the server is not restarted")
    for text in plan.takes_over:
        print(f"    {text}")
    for note in plan.notes:
        print(f"  {paint('!', '!')} {note}")


def change(change: Change) -> str:
    """Return one change as a line."""
    name = f"{change.kind:<9} {change.name}"
    join = " " if change.kind == "argument" else "="
    if change.kind in {"file", "service"}:
        sign = "+" if change.old is None else "~"
        detail = "" if change.kind == "file" and change.old is None else f": {change.old or 'none'} -> {change.new}"
        return f"{paint(sign, sign)} {name}{detail}"
    if change.old is None:
        return paint(f"+ {name}{join}{change.new}".rstrip(), "+")
    if change.new is None:
        return paint(f"- {name}{join}{change.old}".rstrip(), "-")
    return f"{paint('~', '~')} {name}: {change.old} -> {change.new}"


def result(result: Result, *, changed: bool) -> None:
    """Print what became of every host, with proof or evidence."""
    for host in result.hosts:
        if host.proof:
            print(f"{host.host}: {_proof(host, changed=changed)}")
        elif changed:
            print(f"{host.host}: {paint(host.outcome.upper(), '!')}: {host.message}")
            if host.serves:
                print(f"  now serves: {host.serves}")
            for text in host.evidence:
                print(f"  | {text}")


def _proof(host: HostResult, *, changed: bool) -> str:
    proof = host.proof
    word = "done" if changed and host.outcome == "done" else "in sync"
    unknown = f", {len(proof['unknown'])} UNKNOWN" if proof["unknown"] else ""
    text = (
        f"{word}; release {proof['digest']} proven in {len(proof['proven'])} processes{unknown},"
        f" {len(proof['variables'])} variables each (main process {proof['main']})"
    )
    return "\n  ".join([text, *_of_nccl(proof["nccl"]), *(f"warning: {w}" for w in (*proof["unknown"], *proof["odd"]))])


def _of_nccl(account: Mapping[str, Any]) -> list[str]:
    """Return what NCCL's own log says of its variables; nothing where it says nothing."""
    if not account["proved"] and not account["contradicted"]:
        return []
    version = ", ".join(account["versions"]) or "of unknown version"
    told = f"{len(account['proved'])} variables by its own log; {len(account['silent'])} it does not tell"
    lines = [f"NCCL {version} took {told}"]
    return [*lines, *(f"warning: NCCL's log CONTRADICTS {line}" for line in account["contradicted"])]
