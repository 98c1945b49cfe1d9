"""What a power cut may leave of a recorded series of system calls, under three models of a file system.

All three share this: data that were not synced are there, torn, or lost (a file of no length); a rename is one edit;
the order of edits in one folder and what they point to are never mixed up with contents of other files.

``journal``: ext4 and XFS. Edits of folders reach the disk in their order, and any fsync takes all earlier ones along.
``folders``: an fsync of a folder saves that folder's edits and no others; one of a file saves its data, not its name.
    Folders reach the disk independently of one another, each in its own order. This is what POSIX leaves open.
``any``: as ``folders``, but even the edits of one folder reach the disk in any order. No journal does that.
"""

from __future__ import annotations

import codecs
import itertools
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: ``folder``, ``file`` or ``link``, and its content or target.
Entry = tuple[str, bytes]
Tree = dict[str, Entry]

MODELS = ("journal", "folders", "any")
#: So many unsynced edits are lost or kept in every combination; beyond that, as ``folders`` and one by one.
_EVERY = 9
_OURS = re.compile(
    r"/etc/systemd/system(/(launch|multi-user|timers)\.target\.wants|(/.*)?/[^/]*launch.*)?|/etc/\.launch-.*|/etc/nccl\.conf"
)


def in_scope(path: str) -> bool:
    """Return whether a path belongs to what a change writes, or is a folder right above it."""
    below = any(path == top or path.startswith(top + "/") for top in ("/etc/launch", "/usr/local/lib/launch"))
    return below or path in ("/etc", "/usr/local/lib") or _OURS.fullmatch(path) is not None


class Op(NamedTuple):
    """One call that succeeded: what it did to a path, with new name, target or data, and its line."""

    kind: str
    path: str
    data: bytes
    line: str


def parse(lines: Iterable[str]) -> list[Op]:
    """Return what the lines of ``strace -f -y`` did to paths in scope, in order."""
    return [op for line in _whole(lines) for op in [_op(line)] if op and in_scope(op.path)]


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Put calls together that another process's line stands in the middle of; they count at their end."""
    begun: dict[str, str] = {}
    for line in lines:
        pid, _, rest = line.partition(" ")
        if line.endswith("<unfinished ...>"):
            begun[pid] = line[: -len("<unfinished ...>")]
        elif resumed := re.match(r"\s*<\.\.\. \w+ resumed>", rest):
            yield begun.pop(pid, "") + rest[resumed.end() :]
        else:
            yield line


_CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (\d+)(?:<.*>)?$", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
#: A name, after the folder that it is looked up in where the call says one.
_NAME = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_FD = re.compile(r"\d+<([^>]*)>")
_ONE = {"unlink": "unlink", "mkdir": "mkdir", "mkdirat": "mkdir", "rmdir": "rmdir", "creat": "trunc"}
_SYNCS = {"fsync": "sync", "fdatasync": "sync", "syncfs": "all", "sync": "all"}
_UNKNOWN = ("pwrite64", "writev", "ftruncate", "copy_file_range", "sendfile")


def _op(line: str) -> Op | None:
    call = _CALL.match(line)
    if not call:
        return None
    name, arguments, result = call[1], call[2], int(call[3])
    if name in _SYNCS:
        descriptor = _FD.match(arguments)
        return Op(_SYNCS[name], descriptor[1] if descriptor and name != "sync" else "/etc", b"", line)
    if name in ("write", *_UNKNOWN) and (descriptor := _FD.match(arguments)):
        return _write(name, descriptor[1], arguments, result, line)
    names = [(folder, _text(text)) for folder, text in _NAME.findall(arguments)]
    paths = [_path(folder, text) for folder, text in names]
    if name in ("open", "openat"):
        kind = "trunc" if "O_TRUNC" in arguments else "create"
        return Op(kind, paths[0], b"", line) if "O_CREAT" in arguments or "O_TRUNC" in arguments else None
    if name in ("symlink", "symlinkat"):
        return Op("symlink", paths[1], names[0][1], line)
    if name.startswith("rename"):
        return Op("rename", paths[0], paths[1].encode(), line)
    if name == "unlinkat":
        return Op("rmdir" if "AT_REMOVEDIR" in arguments else "unlink", paths[0], b"", line)
    return Op(_ONE[name], paths[0], b"", line) if name in _ONE else None


def _write(name: str, path: str, arguments: str, result: int, line: str) -> Op | None:
    if name in _UNKNOWN:
        if in_scope(path):
            raise ValueError(f"the model does not know this call: {line[:200]}")
        return None
    text = _STRING.search(arguments) if in_scope(path) else None
    return Op("write", path, _text(text[1])[:result], line) if text else None


def _text(shown: str) -> bytes:
    return codecs.escape_decode(shown.encode("utf-8", "surrogateescape"))[0]


def _path(folder: str, name: bytes) -> str:
    path = posixpath.join(folder, name.decode("utf-8", "surrogateescape"))
    return posixpath.normpath(path) if path.startswith("/") else "(relative)"


class Edit(NamedTuple):
    """Changes of names in folders that happen together: folder, name, and the new thing or None."""

    changes: tuple[tuple[int, str, int | None], ...]


class Cut(NamedTuple):
    """A state that a power cut after so many calls may leave."""

    after: int
    tree: Tree


class Disk:
    """A disk that knows of everything whether it was synced."""

    def __init__(self, before: Tree, model: str) -> None:
        self.model = model
        self.kinds: list[str] = ["folder"]
        self.now: list[bytes] = [b""]
        self.synced: list[bytes] = [b""]
        self.live: dict[int, dict[str, int]] = {0: {}}
        self.sure: dict[int, dict[str, int]] = {0: {}}
        self.pending: list[Edit] = []
        for path in ("/etc", "/etc/systemd", "/etc/systemd/system", "/usr", "/usr/local", "/usr/local/lib"):
            self._make(path, "folder", b"")
        for path, (kind, content) in sorted(before.items()):
            if self.find(path) is None:
                self._make(path, kind, content)
        self.synced = list(self.now)
        self._save(None)

    def do(self, op: Op) -> None:
        """Carry one call out."""
        there = self.find(op.path)
        if op.kind == "all" or op.kind == "sync":
            self._sync(op, there)
        elif op.kind == "write":
            assert there is not None, op.line[:200]
            self.now[there] += op.data
        elif op.kind in ("create", "trunc"):
            if there is None:
                self._make(op.path, "file", b"")
            elif op.kind == "trunc":
                self.now[there] = b""
        elif op.kind in ("mkdir", "symlink"):
            self._make(op.path, "folder" if op.kind == "mkdir" else "link", op.data)
        elif op.kind in ("unlink", "rmdir"):
            self._edit((*self._place(op.path), None))
        elif op.kind == "rename":
            assert there is not None, op.line[:200]
            self._edit((*self._place(op.path), None), (*self._place(op.data.decode()), there))

    def find(self, path: str) -> int | None:
        """Return what lies at a path now."""
        found: int | None = 0
        for name in path.strip("/").split("/"):
            found = self.live.get(found, {}).get(name) if found is not None else None
        return found

    def states(self) -> Iterator[Tree]:
        """Return what may be left if the power goes now."""
        for kept in self._choices():
            folders = {number: dict(names) for number, names in self.sure.items()}
            for edit in kept:
                _apply(folders, edit)
            yield from self._with_data(_reach(folders, self.kinds))

    def _with_data(self, paths: dict[str, int]) -> Iterator[Tree]:
        dirty = sorted({n for n in paths.values() if self.now[n] != self.synced[n]})
        for contents in itertools.product(*(self._versions(n) for n in dirty)):
            chosen = dict(zip(dirty, contents, strict=True))
            yield {path: (self.kinds[n], chosen.get(n, self.now[n])) for path, n in paths.items()}

    def _versions(self, number: int) -> list[bytes]:
        now, old = self.now[number], self.synced[number]
        return list(dict.fromkeys((old, now[: (len(now) + len(old)) // 2], now)))

    def _choices(self) -> Iterator[Sequence[Edit]]:
        pending = self.pending
        if self.model == "journal":
            yield from (pending[:i] for i in range(len(pending) + 1))
            return
        if self.model == "any" and len(pending) <= _EVERY:
            for flags in itertools.product((False, True), repeat=len(pending)):
                yield [edit for edit, flag in zip(pending, flags, strict=True) if flag]
            return
        if self.model == "any":
            yield from ([edit] for edit in pending)
            yield from (pending[:i] + pending[i + 1 :] for i in range(len(pending)))
        folders = list(dict.fromkeys(edit.changes[0][0] for edit in pending))
        counts = [range(sum(e.changes[0][0] == f for e in pending) + 1) for f in folders]
        for lengths in itertools.product(*counts):
            left = dict(zip(folders, lengths, strict=True))
            kept = []
            for edit in pending:
                left[edit.changes[0][0]] -= 1
                if left[edit.changes[0][0]] >= 0:
                    kept.append(edit)
            yield kept

    def _sync(self, op: Op, there: int | None) -> None:
        if op.kind == "all":
            self.synced = list(self.now)
            self._save(None)
        elif there is not None:
            if self.kinds[there] == "file":
                self.synced[there] = self.now[there]
            if self.kinds[there] == "folder" or self.model == "journal":
                self._save(None if self.model == "journal" else there)

    def _save(self, folder: int | None) -> None:
        """Make the edits of one folder last, or of all."""
        rest = []
        for edit in self.pending:
            if folder is None or any(change[0] == folder for change in edit.changes):
                _apply(self.sure, edit)
            else:
                rest.append(edit)
        self.pending = rest

    def _make(self, path: str, kind: str, content: bytes) -> None:
        number = len(self.kinds)
        self.kinds.append(kind)
        self.now.append(content)
        self.synced.append(b"" if kind == "file" else content)
        if kind == "folder":
            self.live[number], self.sure[number] = {}, {}
        self._edit((*self._place(path), number))

    def _edit(self, *changes: tuple[int, str, int | None]) -> None:
        edit = Edit(changes)
        _apply(self.live, edit)
        self.pending.append(edit)

    def _place(self, path: str) -> tuple[int, str]:
        folder = self.find(posixpath.dirname(path)) if posixpath.dirname(path) != "/" else 0
        assert folder is not None, path
        return folder, posixpath.basename(path)


def _apply(folders: dict[int, dict[str, int]], edit: Edit) -> None:
    for folder, name, thing in edit.changes:
        if thing is None:
            folders[folder].pop(name, None)
        else:
            folders[folder][name] = thing


def _reach(folders: dict[int, dict[str, int]], kinds: Sequence[str]) -> dict[str, int]:
    """Return every path with what lies there."""
    found: dict[str, int] = {}
    todo = [("", 0)]
    while todo:
        path, number = todo.pop()
        for name, thing in folders[number].items():
            found[f"{path}/{name}"] = thing
            if kinds[thing] == "folder":
                todo.append((f"{path}/{name}", thing))
    return found


def cuts(before: Tree, ops: Sequence[Op], model: str) -> Iterator[Cut]:
    """Return every state that a cut after 0, 1, … all calls may leave; the same one may come often."""
    disk = Disk(before, model)
    for after in range(len(ops) + 1):
        if after:
            disk.do(ops[after - 1])
        for tree in disk.states():
            yield Cut(after, tree)


def final(before: Tree, ops: Sequence[Op]) -> Tree:
    """Return what is there when nothing is lost."""
    disk = Disk(before, "journal")
    for op in ops:
        disk.do(op)
    return {path: (disk.kinds[n], disk.now[n]) for path, n in _reach(disk.live, disk.kinds).items()}
