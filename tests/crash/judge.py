"""What a disk would boot: the real recovery is run on it where systemd would run it, then the release is looked at.

The recovery is `launcher.agent.change.recover_all` with its folders below a temporary one; systemctl is a stand-in.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from launcher.agent import change, marker, record, systemd
from launcher.agent.neighbours import POINTER
from tests.crash.trace import TAKEN_UNIT
from tests.system.tool import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.crash.model import Cut, Op, Tree

NAME = UNIT.removeprefix("launch-").removesuffix(".service")
UNITS = record.UNITS
AGENT = "/usr/local/lib/launch/agent.py"
MARKER = marker.path_of(NAME)
RECOVER = "launch-recover.service"
#: What must be whole for the recovery to run at boot, beside its links.
_NEEDED = (f"{UNITS}/launch.target", f"{UNITS}/{RECOVER}", AGENT)


class Summary(NamedTuple):
    """All of a disk by which two generations differ."""

    unit: bytes | None
    drop_ins: tuple[tuple[str, bytes], ...]
    links: tuple[str, ...]
    starts: bool
    release: tuple[bytes | None, bytes | None]
    nccl_conf: bytes | None
    applied: bytes | None
    history: bytes | None
    generations: tuple[str, ...]
    #: Links that start the server that is taken over.
    taken: tuple[str, ...]


class Verdict(NamedTuple):
    """What boots: ``old``, ``new``, ``nothing`` (a first deploy: some files, no start), ``neither``; why it differs."""

    what: str
    differs: tuple[str, ...]


class Fault(NamedTuple):
    """A state that is not what it must be."""

    after: int
    line: str
    wanted: str
    verdict: Verdict
    tree: Tree


def summary(tree: Tree) -> Summary:
    """Return what matters of a disk, as it would be loaded."""
    unit = _content(tree, f"{UNITS}/{UNIT}")
    pointer = POINTER.search((unit or b"").decode("utf-8", "replace"))
    place = pointer[1] if pointer else "/nowhere"
    links = tuple(path for path in sorted(tree) if re.fullmatch(rf"{UNITS}/[^/]+\.(wants|requires)/{UNIT}", path))
    return Summary(
        unit=unit,
        drop_ins=tuple(
            (p, c) for p, (k, c) in sorted(tree.items()) if re.fullmatch(rf"{UNITS}/{UNIT}\.d/[^/]+\.conf", p)
        ),
        links=links if unit else (),
        starts=bool(unit) and any(_is_reached(tree, link) for link in links),
        release=(_content(tree, place + ".env"), _content(tree, place + ".json")),
        nccl_conf=_content(tree, "/etc/nccl.conf"),
        applied=_content(tree, record.path_of(NAME)),
        history=_content(tree, f"{record.ETC}/{NAME}/history.jsonl"),
        generations=tuple(p for p in sorted(tree) if re.fullmatch(r".*/generations/(?!00000)\d{5}\.json", p)),
        taken=tuple(p for p, (kind, _) in sorted(tree.items()) if kind == "link" and p.endswith(f"/{TAKEN_UNIT}")),
    )


def _content(tree: Tree, path: str) -> bytes | None:
    kind, content = tree.get(path, ("absent", b""))
    return content if kind == "file" else None


def _is_reached(tree: Tree, link: str) -> bool:
    """Return whether the target that a link belongs to is started at boot."""
    target = link.split("/")[-2].removesuffix(".wants")
    if target != "launch.target":
        return True
    return f"{UNITS}/multi-user.target.wants/launch.target" in tree and bool(_content(tree, f"{UNITS}/launch.target"))


def boot(tree: Tree, whole: Sequence[Tree], folder: Path, cut_after: int | None = None) -> Tree:
    """Return what is on disk when the servers are started: after the recovery, where it is run.

    Args:
        tree: what is on disk before.
        whole: disks that are as they should be, to tell files that are torn.
        folder: an empty one.
        cut_after: renames and removals of the recovery, after which the power goes again.
    """
    link = f"{UNITS}/launch.target.wants/{RECOVER}"
    works = all(_is_whole(path, tree, whole) for path in _NEEDED)
    pending = any(path.startswith(f"{marker.FOLDER}/") for path in tree)
    if not (link in tree and _is_reached(tree, link) and works and pending):
        return tree
    _write(tree, folder)
    with _moved(folder, cut_after), contextlib.suppress(PowerCutError):
        assert change.recover_all() == 0
    after = {**{p: e for p, e in tree.items() if not p.startswith("/etc/")}, **_read(folder)}
    return {**after, MARKER: tree[MARKER]} if MARKER in after else after


def interrupted(tree: Tree, whole: Sequence[Tree], folders: Callable[[], Path]) -> Iterator[Tree]:
    """Return what is on disk when the recovery itself is cut short, after each of its steps."""
    for step in itertools.count():
        left = boot(tree, whole, folders(), step)
        if MARKER not in left:
            return
        yield left


def _is_whole(path: str, tree: Tree, whole: Sequence[Tree]) -> bool:
    """Return whether a file is there as it was before or will be."""
    return path in tree and tree[path] in [other.get(path) for other in whole]


def _write(tree: Tree, folder: Path) -> None:
    """Make a folder of a tree; the paths in its marker lead there too."""
    for path, (kind, content) in sorted(tree.items()):
        place = folder / path[1:]
        if not path.startswith("/etc"):
            continue
        if kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
        elif kind == "link":
            place.symlink_to(content.decode())
        else:
            place.write_bytes(_led(content, str(folder)) if path == MARKER else content)


def _led(content: bytes, folder: str) -> bytes:
    def lead(entry: Any) -> Any:
        if isinstance(entry, dict):
            own = {"uid": os.getuid(), "gid": os.getgid(), "path": folder + str(entry.get("path"))}
            return {key: own.get(key) or lead(value) for key, value in entry.items()}
        return [lead(e) for e in entry] if isinstance(entry, list) else entry

    try:
        return json.dumps(lead(json.loads(content))).encode()
    except ValueError:
        return content


def _read(folder: Path) -> Tree:
    found: Tree = {}
    for place in sorted(folder.rglob("*")):
        path = "/" + str(place.relative_to(folder))
        if place.is_symlink():
            found[path] = ("link", str(place.readlink()).encode())
        else:
            found[path] = ("folder", b"") if place.is_dir() else ("file", place.read_bytes())
    return found


class PowerCutError(BaseException):
    """Nothing in the agent catches it."""


@contextlib.contextmanager
def _moved(folder: Path, cut_after: int | None) -> Iterator[None]:
    """Make the agent's recovery work in a folder, without systemd."""
    units, left = folder / UNITS[1:], itertools.count(sys.maxsize if cut_after is None else cut_after, -1)
    rename, unlink = os.rename, os.unlink

    def count(call: Callable[..., None], *arguments: Any) -> None:
        if next(left) <= 0:
            raise PowerCutError
        call(*arguments)

    def systemctl(*words: str) -> str:
        for link in units.glob(f"*.wants/{words[-1]}") if words[0] == "disable" else ():
            link.unlink()
        return ""

    patches: list[contextlib.AbstractContextManager[Any]] = [
        mock.patch.object(record, "ETC", f"{folder}{record.ETC}"),
        mock.patch.object(record, "UNITS", str(units)),
        mock.patch.object(marker, "FOLDER", f"{folder}{marker.FOLDER}"),
        mock.patch.object(systemd, "systemctl", systemctl),
        mock.patch.object(systemd, "properties", return_value={"InvocationID": "", "ActiveState": ""}),
        mock.patch.object(change, "say_of"),
        mock.patch.object(os, "fsync"),
        mock.patch.object(os, "rename", functools.partial(count, rename)),
        mock.patch.object(os, "unlink", functools.partial(count, unlink)),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


class Judge:
    """Knows what was there before and after a change, and remembers what it has judged."""

    def __init__(self, before: Tree, after: Tree, folders: Callable[[], Path]) -> None:
        self._whole = (before, after)
        self._folders = folders
        self._old, self._new = summary(before), summary(after)
        self._known: dict[frozenset[tuple[str, Any]], Verdict] = {}

    @property
    def undone(self) -> bool:
        """Whether the change left what was there, but for its line in the history."""
        return self._new._replace(history=None) == self._old._replace(history=None)

    @property
    def distinct(self) -> int:
        """So many different disks were judged."""
        return len(self._known)

    def judge(self, tree: Tree) -> Verdict:
        """Return what a disk would boot."""
        key = frozenset(tree.items())
        if key not in self._known:
            self._known[key] = self._judge(tree)
        return self._known[key]

    def _judge(self, tree: Tree) -> Verdict:
        booted = boot(tree, self._whole, self._folders())
        found, loaded = summary(booted), summary(tree)
        if loaded.starts and loaded[:2] != found[:2] and b"launch-recover.service" not in (loaded.unit or b""):
            return Verdict("neither", ("started before the recovery",))
        if found.starts and AGENT.encode() in (found.unit or b"") and not _is_whole(AGENT, booted, self._whole):
            return Verdict("neither", ("the agent is missing or torn",))
        for what, wanted in (("old", self._old), ("new", self._new)):
            if found == wanted:
                return Verdict(what, ())
        if not found.starts and not self._old.starts and found.taken == self._old.taken:
            return Verdict("nothing", self._difference(found, self._old))
        nearer = min((self._old, self._new), key=lambda wanted: len(self._difference(found, wanted)))
        word = "old" if nearer is self._old else "new"
        return Verdict("neither", tuple(f"{name} is not the {word} one's" for name in self._difference(found, nearer)))

    @staticmethod
    def _difference(found: Summary, wanted: Summary) -> tuple[str, ...]:
        return tuple(n for n, a, b in zip(Summary._fields, found, wanted, strict=True) if a != b)


def faults(judge: Judge, ops: Sequence[Op], states: Iterator[Cut]) -> Iterator[Fault]:
    """Return the states that are not what they must be.

    Until the marker is removed that is the old generation (or nothing, where there was none); from the sync of its
    folder on it is the new one; in between it is either. Of a change that was undone it is the old one always.
    """
    removed = next(i for i, op in enumerate(ops, 1) if op.kind == "unlink" and op.path == MARKER)
    lasting = next(i for i, op in enumerate(ops, 1) if i > removed and op.kind == "sync" and op.path == marker.FOLDER)
    for cut in states:
        wanted = ["old", "nothing"] if cut.after < removed else ["old", "nothing", "new"]
        if cut.after >= lasting and not judge.undone:
            wanted = ["new"]
        verdict = judge.judge(cut.tree)
        if verdict.what not in wanted:
            line = ops[cut.after - 1].line[:150] if cut.after else ""
            yield Fault(cut.after, line, " or ".join(wanted), verdict, cut.tree)
