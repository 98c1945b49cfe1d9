"""What an export is, and the choice of its builder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from launcher.render.release import File, Release
    from launcher.schema import Deployment

#: Longest line of a comment.
_WIDTH = 116


class Programs(Protocol):
    """The two programs of ours that exported files carry, as texts; both are ASCII."""

    def task(self, manifest: str, place: str) -> str:
        """Return the program that checks, starts and proves one server without systemd (`bundle.task_program`)."""

    def shared(self, python: str) -> Sequence[File]:
        """Return what is the same for every deployment on a host: the agent and the units of ``systemd/``."""


@dataclass(frozen=True)
class Export:
    """Files beside a release, and what a reader should know of them.

    Attributes:
        files: to write beside the release.
        kept: what of the promise the files keep, a sentence each.
        lost: what ``launch up`` does and they cannot, a sentence each; also a comment in the main file.
        next: the command that uses them, ``{folder}`` being where they lie.
    """

    files: tuple[File, ...]
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    next: str


#: Kept by everything that starts `launcher.agent.task` in place of the server.
KEPT_BY_TASK = (
    "before each start environment and command are compared with the release; a difference ends it with 78 and a name",
    "after each start every process of the server is compared; the line 'proof:' in the log says so",
    "files in which NCCL finds variables that the release leaves unset (/etc/nccl.conf, ~/.nccl.conf) are refused",
)
NO_DRIFT = "no check for drift: nobody looks again at a server that runs"
NO_WAY_BACK = "no transaction: the old server is not put back when the new one does not start, and there is no rollback"
NO_PLACE = "hosts are not looked at before: neither model files, port, GPUs and memory, nor installed versions"
NO_LIMITS = "engine.user, unit.slice and the unit's limits do not hold; the process has those of whoever starts it"


def export(form: str, deployment: Deployment, release: Release, programs: Programs) -> Export:
    """Return a release in another tool's format; the same release gives the same bytes.

    Raises:
        ConfigError: the format cannot carry the release, and what to do.
    """
    from launcher.render.exports import ansible, compose, env, k8s, quadlet, shell

    if deployment.runtime.kind != "venv":
        raise ConfigError(
            f"--format {form} carries the engine's own command, not podman's: leave out runtime=podman; runtime.image"
            " stays"
        )
    build: Callable[[Deployment, Release, Programs], Export] = {
        "ansible": ansible.build,
        "compose": compose.build,
        "k8s": k8s.build,
        "quadlet": quadlet.build,
        "env": env.build,
        "shell": shell.build,
    }[form]
    return build(deployment, release, programs)


def head(release: Release, use: str, kept: Sequence[str], lost: Sequence[str]) -> str:
    """Return the comment at the head of a file: what it is, how it is used, what it keeps and what is lost."""
    lines = [f"Release {release.digest} of {release.name}, written by launch: {use}"]
    lines += ["Change the configuration and render it again, not this file."]
    for title, sentences in (("Kept", kept), ("Lost, compared with launch up", lost)):
        lines += [f"{title}:", *(f"- {sentence}" for sentence in sentences)] if sentences else []
    return "".join(f"# {part}\n" for line in lines for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    import textwrap

    indent = "  " if line.startswith("- ") else ""
    return textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def plain_name(name: str) -> str:
    """Return a deployment's name in letters, digits and ``-``, as Kubernetes and Compose want names."""
    return "launch-" + re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def refuse_nodes(deployment: Deployment, what: str) -> list[str]:
    """Return why one file cannot carry a server over several nodes, or nothing."""
    if str(deployment.engine.args.get("nnodes") or "1") == "1":
        return []
    return [f"engine.args.nnodes: a server over several nodes has another command on each; {what} carries one"]


def raise_all(problems: Sequence[str]) -> None:
    """Raise what was found.

    Raises:
        ConfigError: there is something.
    """
    if problems:
        raise ConfigError(*problems)
