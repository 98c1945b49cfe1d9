"""Where the packaged data folders are: inside the package (wheel), or beside it (checkout, editable)."""

from __future__ import annotations

from pathlib import Path

#: Folders of ``conf``, the configuration groups, in the one order in which
#: their choices are composed, whatever the order typed.
GROUPS = ("hw", "model", "nccl", "spec", "engine", "runtime", "bench", "target", "deployment")
#: Folder of ``conf`` with whole sweeps; composed by us, not by Hydra.
EXPERIMENT = "experiment"

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Return the folder ``conf``, ``templates`` or ``systemd`` as an absolute path.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        if (folder := parent / name).is_dir():
            return folder
    raise FileNotFoundError(f"the installation lacks its folder {name!r}; install launch-llm again")
