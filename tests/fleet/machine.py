"""What the machine below the fleet must have: root, a cgroup2 tree, a few programs, a package mirror."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.fleet.cgroup import unified
from tests.fleet.shell import FleetError, execute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAMS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


class Source(NamedTuple):
    """One suite of one package archive that this machine installs from."""

    uri: str
    suite: str
    components: tuple[str, ...]


def obstacle() -> str | None:
    """Say in one line why no fleet can be booted here; None where nothing is known to be in the way."""
    if sys.platform != "linux":
        return "a fleet needs Linux"
    if os.geteuid() != 0:
        return "a fleet needs root"
    if unified() is None:
        return "a fleet needs a cgroup2 tree, and none is mounted here"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and shutil.which("apt-get") is None:
        return f"a fleet needs {', '.join(missing)}, and there is no apt-get to install them with"
    return None


def prepare() -> None:
    """Check the machine and install the missing programs."""
    if reason := obstacle():
        raise FleetError(reason)
    missing = sorted({package for name, package in PROGRAMS.items() if shutil.which(name) is None})
    if missing:
        print(f"fleet: installing {' '.join(missing)} by apt-get", file=sys.stderr)
        _install(missing)


def _install(packages: list[str]) -> None:
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for attempt in (command, ["apt-get", "update", "--quiet"], command):
        done = subprocess.run(
            attempt, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if attempt is command and done.returncode == 0:
            return
    raise FleetError(f"apt-get could not install {' '.join(packages)}: {done.stderr.strip()[-1000:]}")


def allow_inotify(hosts: int) -> None:
    """Give every systemd its inotify instances; the kernel's default is enough for about 20 hosts."""
    wanted = 128 + 32 * hosts
    if hosts > 20 and int(INSTANCES.read_text()) < wanted:
        print(f"fleet: fs.inotify.max_user_instances is now {wanted}", file=sys.stderr)
        INSTANCES.write_text(str(wanted))


def mirror(etc: Path = Path("/etc")) -> str:
    """Return the Debian archive that this machine itself installs from, or $LAUNCH_FLEET_MIRROR."""
    if given := os.environ.get("LAUNCH_FLEET_MIRROR"):
        return given
    codename = _codename(etc)
    found = [s for s in _sources(etc) if "main" in s.components and s.uri.startswith(("http", "file:"))]
    own = [source for source in found if source.suite == codename]
    for source in own or found:
        return source.uri.rstrip("/")
    raise FleetError(f"no package archive in {etc}/apt; name one: LAUNCH_FLEET_MIRROR=http://…/debian")


def proxy() -> dict[str, str]:
    """Return apt's proxy as the environment that debootstrap's downloader reads."""
    if shutil.which("apt-config") is None:
        return {}
    shown = execute("apt-config", "shell", "FOUND", "Acquire::http::Proxy", check=False)
    match = re.search(r"FOUND='([^']+)'", shown)
    return {"http_proxy": match[1]} if match and match[1] != "DIRECT" else {}


def _codename(etc: Path) -> str:
    release = etc / "os-release"
    text = release.read_text() if release.exists() else ""
    match = re.search(r"^VERSION_CODENAME=\"?(\w+)", text, re.MULTILINE)
    return match[1] if match else ""


def _sources(etc: Path) -> Iterator[Source]:
    apt = etc / "apt"
    extra = sorted((apt / "sources.list.d").glob("*"))
    for path in [apt / "sources.list", *extra]:
        if path.suffix == ".list" and path.exists():
            yield from _one_line(path.read_text().splitlines())
        elif path.suffix == ".sources":
            for stanza in re.split(r"\n\s*\n", path.read_text()):
                yield from _deb822(stanza)


def _one_line(lines: Iterable[str]) -> Iterator[Source]:
    for line in lines:
        match = re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line.strip())
        if match:
            yield Source(match[1], match[2], tuple(match[3].split()))


def _deb822(stanza: str) -> Iterator[Source]:
    fields: dict[str, list[str]] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields.setdefault(name, []).extend(line.split())
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.lower()
            fields[name] = value.split()
    if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"])[:1] != ["no"]:
        for uri in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield Source(uri, suite, tuple(fields.get("components", [])))
