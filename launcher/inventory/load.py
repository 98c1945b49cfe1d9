"""Read an inventory file: INI and YAML here, everything that has to be run by ``ansible-inventory``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from launcher.errors import ConfigError
from launcher.inventory import ini, tree
from launcher.inventory.known import Inventory, Read, resolve

_SECONDS = 60  # a cloud's inventory asks its API
_LARGEST = 16 * 1024 * 1024
_BESIDE = ("group_vars", "host_vars")


def load(path: str) -> Inventory:
    """Read and resolve an inventory, with ``group_vars`` and ``host_vars`` beside it.

    An executable file, a folder, and a YAML file that names a plugin are read by ``ansible-inventory --list``.

    Args:
        path: of the file, ``~`` allowed.

    Raises:
        ConfigError: it cannot be read; names file and line.
    """
    file = Path(os.path.expanduser(path))  # noqa: PTH111 - the other one raises for an unknown ~user
    where = f"target.inventory={path}"
    if not file.exists():
        raise ConfigError(f"{where}: there is no such file")
    if file.is_dir() or os.access(file, os.X_OK):
        return resolve(_asked(file, where), path)
    text = _text(file, where)
    if file.suffix in (".yml", ".yaml", ".json") or text.lstrip().startswith(("---", "{")):
        data = tree.load(text, path)
        if isinstance(data, dict) and "plugin" in data:
            return resolve(_asked(file, where), path)
        read = tree.listed(text, path) if isinstance(data, dict) and "_meta" in data else tree.read(data, path)
    else:
        read = ini.read(text, path)
    return resolve(read, path, _beside(file.parent))


def _asked(file: Path, where: str) -> Read:
    program = shutil.which("ansible-inventory")
    if not program:
        raise ConfigError(
            f"{where} has to be run, which ansible-inventory does, and that is not installed here;"
            " or write what it prints into a file: ansible-inventory --list --export > hosts.json"
        )
    words = [program, "-i", str(file), "--list"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{where}: ansible-inventory gives no answer within {_SECONDS} s") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ConfigError(f"{where}: ansible-inventory failed: {' '.join(said[-3:])[:400] or done.returncode}")
    return tree.listed(done.stdout, f"{where}: ansible-inventory")


def _text(file: Path, where: str) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise ConfigError(f"{where} is larger than {_LARGEST >> 20} MiB; it is no inventory")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: no valid UTF-8 at byte {error.start}; it is no inventory") from error
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error


def _beside(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return ``group_vars`` and ``host_vars`` by name: ``NAME``, ``NAME.yml`` or the files of a folder ``NAME``."""
    found: dict[str, dict[str, dict[str, str]]] = {kind: {} for kind in _BESIDE}
    for kind in _BESIDE:
        for entry in sorted((folder / kind).glob("*")):
            name = re.sub(r"\.(ya?ml|json)$", "", entry.name)
            files = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
            for file in files:
                if file.is_file() and file.suffix in ("", ".yml", ".yaml", ".json") and file.name[0] != ".":
                    found[kind].setdefault(name, {}).update(_variables(file))
    return found


def _variables(file: Path) -> dict[str, str]:
    text = _text(file, str(file))
    if text.startswith("$ANSIBLE_VAULT"):
        return {}  # what is encrypted holds passwords, and none is used here
    data: object = tree.load(text, str(file))
    return tree.variables(data, str(file)) if isinstance(data, dict) else {}
