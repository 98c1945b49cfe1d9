"""Every error that a user can meet.

LaunchError                   1  the root; the command line prints it without a traceback
├── ConfigError               2  the configuration, or the command line, is refused
│   └── RenderError           2  a value that cannot survive the trip to the process
└── HostError                 1  a host was reached and something failed there
    └── UnreachableError      5  a host could not be reached; nothing was changed on it
        └── HostKeyError      5  its host key is unknown or has changed

The number is the exit code. What became of hosts (3, 6, 7, 8) is no error but a result:
`launcher.fleet.rollout.Result`. Anything that is not a `LaunchError` is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class LaunchError(Exception):
    """A mistake or failure that the user can act on: what is wrong, where, and what to do next."""

    exit_code: ClassVar[int] = 1


class ConfigError(LaunchError):
    """The configuration or the command line is refused; holds one line for each problem."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RenderError(ConfigError):
    """A value cannot reach the process unchanged, so no release is made from it."""


class HostError(LaunchError):
    """Something failed on a host that was reached."""

    def __init__(self, host: str, message: str) -> None:
        super().__init__(f"{host}: {message}")
        self.host = host
        self.message = message


class UnreachableError(HostError):
    """The host could not be reached or logged in to; nothing was changed on it."""

    exit_code = 5


class HostKeyError(UnreachableError):
    """The host's key is unknown, or is not the one on record."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest valid word, or an empty string when none is close."""
    import difflib

    spelled = {name.lower(): name for name in valid}
    match = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean '{spelled[match[0]]}'?" if match else ""
