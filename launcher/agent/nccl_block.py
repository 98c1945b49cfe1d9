"""The block of one deployment in /etc/nccl.conf on this host; foreign lines stay as they are."""

from __future__ import annotations

import os
import stat
from typing import Any, List, Mapping, Optional

from . import files
from .nccl_conf import PATH, BlockError, conflicts, foreign, owner, unfit, with_block
from .processes import read_bytes


def read() -> Optional[str]:
    """Return the text of the file with its bytes as they are, None where there is none."""
    content = read_bytes(PATH)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def wanted(text: Optional[str], name: str, nccl: Mapping[str, Any]) -> Optional[str]:
    """Return what the file should hold for a deployment; None where there should be none.

    Args:
        text: what it holds.
        name: of the deployment.
        nccl: ``env`` (NCCL's variables of the release) and ``block`` (whether they belong into the file).

    Raises:
        BlockError: the block in it is damaged.
    """
    if nccl["block"]:
        return with_block(text or "", name, nccl["env"])
    return (foreign(text) or None) if text is not None and owner(text) == name else text


def problems(text: Optional[str], name: str, nccl: Mapping[str, Any]) -> List[str]:
    """Return what stands against a release because of this file, one line each."""
    try:
        other = owner(text or "")
        found = conflicts(text or "", name, nccl["env"])
    except BlockError as error:
        return [str(error)]
    if nccl["block"]:
        found += unfit(nccl["env"])
        if other not in ("", name):
            found.append(
                f"{PATH} holds the block of deployment {other}, and a host has one: turn off unit.nccl_conf there"
            )
    return found


def put(text: Optional[str]) -> bool:
    """Make the file hold this text, with the mode that it has; return whether something was done.

    Raises:
        OSError: no space, read-only.
    """
    if text == read():
        return False
    if text is None:
        files.remove(PATH)
        return True
    try:
        mode = stat.S_IMODE(os.stat(PATH).st_mode)
    except OSError:
        mode = 0o644
    files.write({"path": PATH, "text": text, "mode": mode, "group": "root"})
    return True
