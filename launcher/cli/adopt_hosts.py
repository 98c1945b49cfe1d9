"""The running servers of hosts, for `adopt --host`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.compose import compose
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from launcher.adopt.found import Found
    from launcher.cli.parser import CommandLine
    from launcher.compose import Layers


def look(line: CommandLine, path: Layers) -> Found:
    """Return what runs on the hosts; how they are reached is said by ``target.*`` as everywhere.

    Raises:
        ConfigError: a host is named twice.
        LaunchError: a host cannot be reached, or something failed there.
    """
    if len(set(line.hosts)) < len(line.hosts):
        raise ConfigError(f"--host names a host twice: {', '.join(line.hosts)}")
    from launcher.fleet.adopt import look as found_on

    typed = [word for word in line.overrides if word.lstrip("+~").startswith("target")]
    chosen = [] if any(word.lstrip("+").startswith("target=") for word in typed) else ["target=ssh"]
    target = compose([*chosen, *typed], path).deployment.target
    return found_on(line.hosts or target.hosts, target)
