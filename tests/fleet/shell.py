"""Running programs, and the one error of this package."""

from __future__ import annotations

import subprocess


class FleetError(Exception):
    """The fleet cannot do what was asked; the message says why and what to do."""


def execute(*argv: str, check: bool = True, timeout: float = 60, stdin: str | None = None) -> str:
    """Run a program and return its standard output; a failure carries what it printed."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as err:
        raise FleetError(f"{argv[0]} is not installed") from err
    except subprocess.TimeoutExpired as err:
        raise FleetError(f"{' '.join(argv)}: no end within {timeout} s") from err
    if check and done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise FleetError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return done.stdout
