"""The files beside the input, which it names: environment files, scripts, configurations of engines, drop-ins."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - part of the public shape

from launcher.adopt.source import Source

#: More than any file of settings holds; bigger input is not text by hand.
LARGEST = 1024 * 1024


@dataclass
class Files:
    """The folder in which files that the input names may be read, and the files that the input writes.

    Attributes:
        folder: nothing outside of it is read; None: nothing at all.
        written: texts by the path that the input gives them.
        used: which of them the input reads again.
        depth: how deep shells within shells are.
    """

    folder: Path | None
    written: dict[str, Source] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    depth: int = 0

    def write(self, path: str, source: Source) -> None:
        """Keep a file that the input itself writes."""
        self.written[path.removeprefix("./")] = source
        self.used.discard(path.removeprefix("./"))

    def unused(self) -> dict[str, Source]:
        """Return the files that the input writes and does not use itself."""
        return {path: source for path, source in self.written.items() if path not in self.used}

    def source(self, path: str) -> Source | None:
        """Return a file as a text to be read, None where it is not here or is none."""
        own = path.removeprefix("./")
        if own not in self.written:
            base = posixpath.basename(path)
            same = [name for name in self.written if posixpath.basename(name) == base]
            own = same[0] if len(same) == 1 and base else own
        if own in self.written:
            self.used.add(own)
            return self.written[own]
        content = self._content(path)
        if content is None or b"\0" in content:
            return None
        return Source(path, content.decode("utf-8", "replace"))

    def find(self, path: str) -> Path | None:
        """Return a file by the name that the input gives it, None where it is not here.

        A path on the server's host (``/etc/default/vllm``) is looked for beside the input by its last part.
        """
        if self.folder is None or not path or "\0" in path or "$" in path:
            return None
        root = self.folder.resolve()
        for name in dict.fromkeys((path.removeprefix("./"), posixpath.basename(path))):
            try:
                found = (root / name).resolve()
                if found.is_relative_to(root) and found.is_file() and found.stat().st_size <= LARGEST:
                    return found
            except (OSError, ValueError):  # ValueError: a name that no file can have
                continue
        return None

    def text(self, path: str) -> str | None:
        """Return a file's text, None where it is not here or is none."""
        source = self.source(path)
        return None if source is None else source.text

    def content(self, path: str) -> bytes | None:
        """Return a file's bytes, None where it is not here."""
        source = self.source(path)
        return self._content(path) if source is None else source.text.encode("utf-8", "replace")

    def _content(self, path: str) -> bytes | None:
        found = self.find(path)
        try:
            return found.read_bytes() if found is not None else None
        except OSError:
            return None
