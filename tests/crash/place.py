"""Disks that a power cut left, chosen and written to a host that is off."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tests.crash import judge, model
from tests.system.tool import UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Before and after these the disks differ most: the marker, the unit, what starts at boot, the record, the end.
_TURNS = (
    rf"^rename {re.escape(judge.MARKER)}$",
    rf"^rename {re.escape(judge.UNITS)}/{re.escape(UNIT)}$",
    rf"^symlink .*/{re.escape(UNIT)}$",
    r"^rename .*/applied\.json$",
    rf"^unlink {re.escape(judge.MARKER)}$",
)
_MANIFEST = re.compile(r"/etc/launch/[^/]+/[0-9a-f]{16}\.json")
_SECRET = re.compile(r".*\.env|/etc/launch/.*\.jsonl?|/etc/launch/(pending|.*/generations)")


def sample(before: model.Tree, ops: Sequence[model.Op]) -> Iterator[model.Tree]:
    """Return different disks around the turns of a change: once with all that was not synced, once without."""
    known: set[frozenset[tuple[str, model.Entry]]] = set()
    turns = [i for i, op in enumerate(ops, 1) for turn in _TURNS if re.search(turn, _told(op))]
    disk = model.Disk(before, "folders")
    for after, op in enumerate(ops, 1):
        disk.do(op)
        states = list(disk.states()) if after in turns else []
        for tree in (states[0], states[-1]) if states else ():
            if frozenset(tree.items()) not in known:
                known.add(frozenset(tree.items()))
                yield tree


def _told(op: model.Op) -> str:
    return f"{op.kind} {op.data.decode() if op.kind == 'rename' else op.path}"


def place(tree: model.Tree, root: Path) -> None:
    """Make a host's disk hold exactly this where a change writes; the host is off."""
    group = next(
        int(line.split(":")[3]) for line in (root / "etc/passwd").read_text().splitlines() if line[:4] == "llm:"
    )
    for path in ("etc/launch", "usr/local/lib/launch"):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "etc/nccl.conf").unlink(missing_ok=True)
    for old in sorted((root / "etc/systemd/system").rglob("*launch*"), reverse=True):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    for path, (kind, content) in sorted(tree.items()):
        where = root / path[1:]
        if kind == "folder":
            where.mkdir(exist_ok=True)
        elif kind == "link":
            where.unlink(missing_ok=True)
            where.symlink_to(content.decode())
        else:
            where.write_bytes(content)
            where.chmod(0o640 if _MANIFEST.fullmatch(path) else 0o600 if _SECRET.fullmatch(path) else 0o644)
        if _MANIFEST.fullmatch(path):
            shutil.chown(where, 0, group)


def digests(tree: model.Tree) -> dict[str, str]:
    """Return what a host with this disk shows: its unit, and what its server carries."""
    unit = tree.get(f"{judge.UNITS}/{UNIT}", ("file", b""))[1].decode()
    digest = re.search(r"^EnvironmentFile=.*/([0-9a-f]{16})\.env$", unit, re.MULTILINE)
    starts = judge.summary(tree).starts
    return {"unit": unit, "runs": f"LAUNCH_DIGEST={digest[1]}" if digest else "/bin/sleep infinity" if starts else ""}
