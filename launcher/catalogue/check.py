"""Compare the catalogue with a released library: ``python -m launcher.catalogue.check /path/to/libnccl.so.2``.

A maintenance tool for the day a new NCCL appears. It reads the constant strings of the library (section
``.rodata`` of a 64-bit little-endian ELF file) without running it and prints names that the catalogue lacks and
names that it expects for this release but the library no longer holds. Exit code 0: nothing new; 1: new names;
2: the file cannot be read.
"""

from __future__ import annotations

import mmap
import re
import struct
import sys
from pathlib import Path

from launcher.catalogue import nccl
from launcher.errors import ConfigError

# Strings of this shape that are constants of the API in messages, not variables (2.27.7, 2.28.9, 2.32.3).
NOT_VARIABLES = re.compile(r"NCCL_\w+_INITIALIZER|NCCL_GIN_CONNECTION_(FULL|RAIL)")


def read_only_data(path: Path) -> bytes:
    """Return the constant data of an ELF library."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            found = _sections(image, b".rodata")
    except (OSError, ValueError, OverflowError, struct.error) as error:
        message = f"{path}: cannot be read as a 64-bit little-endian ELF library ({error})"
        raise ConfigError(message) from error
    if not found:
        message = f"{path}: has no .rodata section to read names from"
        raise ConfigError(message)
    return found


def _sections(image: mmap.mmap, prefix: bytes) -> bytes:
    """Return the contents of the sections whose name begins with the prefix (System V ABI, ELF-64)."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("wrong magic number")
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    if names >= count:
        raise ValueError("no section names")
    name_table = headers[names][4]
    starts = ((name_table + h[0], h) for h in headers)
    wanted = (h for start, h in starts if image[start : start + len(prefix)] == prefix)
    return b"".join(image[h[4] : h[4] + h[5]] for h in wanted)


def names_in(data: bytes) -> frozenset[str]:
    """Return the variable names among the constants: strings that end with one, as linkers merge tails."""
    found = (name.decode() for name in re.findall(rb"NCCL_[A-Z0-9_]+(?=\0)", data))
    return frozenset(name for name in found if not NOT_VARIABLES.fullmatch(name))


def version_in(data: bytes) -> tuple[int, ...]:
    """Return the release that the library calls itself, or nothing when it does not say."""
    found = re.search(rb"NCCL version (\d+(?:\.\d+)+)", data)
    return _version(found[1].decode()) if found else ()


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def expected(version: tuple[int, ...]) -> frozenset[str]:
    """Return the names that the catalogue promises for a release; deprecated and renamed ones are still read."""
    return frozenset(
        v.name
        for v in nccl.variables().values()
        if v.reader == "nccl" and v.is_setting and _version(v.since) <= version and not _gone(v.removed, version)
    )


def _gone(removed: str, version: tuple[int, ...]) -> bool:
    if removed.startswith("not in"):
        return True
    return bool(re.match(r"(removed )?\d", removed)) and _version(removed) <= version


def main(arguments: list[str]) -> int:
    """Print the comparison and return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m launcher.catalogue.check /path/to/libnccl.so.2\n")
        return 2
    try:
        data = read_only_data(Path(arguments[0]))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    found, version = names_in(data), version_in(data)
    if not found:
        sys.stderr.write(f"{arguments[0]}: holds no name of an NCCL variable; is it libnccl?\n")
        return 2
    new = sorted(found - {v.name for v in nccl.variables().values()})
    missing = sorted(expected(version) - found) if version else []
    title = ".".join(map(str, version)) or "of unknown version"
    sys.stdout.write(f"NCCL {title}: {len(found)} names, {len(new)} new, {len(missing)} no longer there\n")
    sys.stdout.writelines(f"new: {name}\n" for name in new)
    sys.stdout.writelines(f"no longer there: {name}\n" for name in missing)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
