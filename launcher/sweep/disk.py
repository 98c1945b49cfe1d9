"""Files of a sweep: there completely or not at all, also after a power cut; what fails is told with path and reason."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def told(path: Path, what: str) -> Iterator[None]:
    """Turn an error of the file system into one that the user can act on.

    Args:
        path: that is worked on.
        what: has not been done, such as "trial 7 is not recorded".

    Raises:
        LaunchError: with path, reason and that.
    """
    try:
        yield
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror or error}; {what}") from error


def put(path: Path, text: str) -> None:
    """Replace a file (mode 0644) atomically; half a character, which UTF-8 lacks, is written as an escape.

    Raises:
        LaunchError: no space, no permission, no folder. What was there stays.
    """
    with told(path, "it is not written; what was there before is untouched"):
        descriptor, temporary = tempfile.mkstemp(prefix=".launch-", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode("utf-8", "backslashreplace"))
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make what was made and renamed in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
