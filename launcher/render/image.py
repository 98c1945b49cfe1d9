"""What every container needs to know of a deployment: its image, what it sees of the host, how it is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from launcher.errors import ConfigError, RenderError

if TYPE_CHECKING:
    from launcher.schema import Deployment

#: Where the program that starts the server lies in a container.
PROGRAM = "/launch/program.py"
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]{64})?")
#: No ``:`` and ``,``: the tools split there.
_PATH = re.compile(r"/[A-Za-z0-9/._+@=-]*")

#: What images fight with, and what of them is not seen before a start.
HIDDEN = (
    "the image's own variables and its /etc/nccl.conf are not known before a start: what of them would change NCCL or"
    " the engine is refused then, by name"
)


class Mount(NamedTuple):
    """A folder of the host in the container."""

    source: str
    target: str
    read_only: bool = True


def image(deployment: Deployment) -> str:
    """Return the image.

    Raises:
        ConfigError: none is named, or its name is none.
    """
    name = deployment.runtime.image
    if not name:
        raise ConfigError(
            "runtime.image is empty, and a container needs an image: runtime.image=NAME@sha256:DIGEST; engine.python is"
            " then the interpreter in it (engine.python=/usr/bin/python3)"
        )
    if not _IMAGE.fullmatch(name):
        raise RenderError(f"runtime.image={name!r} is no image: write it as NAME@sha256:DIGEST, or NAME:TAG")
    return name


def mounts(deployment: Deployment) -> list[Mount]:
    """Return what the container sees of the host: the models where they are paths, and what ``runtime.mounts`` names.

    Raises:
        RenderError: a path that the tools would take apart, or two for one place.
    """
    models = [("model.path", deployment.model.path), ("spec.draft_model_path", deployment.spec.draft_model_path)]
    found = [(key, Mount(path, path)) for key, path in models if path.startswith("/")]
    problems: list[str] = []
    for text in deployment.runtime.mounts:
        source, *rest = text.split(":")
        mode = rest[1] if len(rest) > 1 else "ro"
        if len(rest) > 2 or mode not in ("ro", "rw"):
            problems.append(f"runtime.mounts: {text!r} must be PATH, PATH:TARGET or PATH:TARGET:rw")
            continue
        found.append(("runtime.mounts", Mount(source, rest[0] if rest else source, mode == "ro")))
    for key, mount in found:
        bad = [path for path in dict.fromkeys(mount[:2]) if not _PATH.fullmatch(path)]
        problems += [f"{key}: {path!r} must be an absolute path of letters, digits and /._+@=-" for path in bad]
    by_target: dict[str, Mount] = {}
    for _, mount in found:
        if by_target.setdefault(mount.target, mount) != mount:
            problems.append(f"runtime.mounts: two folders for {mount.target}")
    if problems:
        raise RenderError(*problems)
    return list(by_target.values())


def start_words(deployment: Deployment) -> list[str]:
    """Return what stands before the server's command: the image's interpreter runs our program."""
    return [deployment.engine.python, "-I", "-X", "utf8", PROGRAM]


def health_url(deployment: Deployment) -> str:
    """Return where the server says whether it is well, from inside of the container."""
    host = deployment.engine.host
    address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{'https' if has_tls(deployment) else 'http'}://{address}:{deployment.engine.port}/health"


def has_tls(deployment: Deployment) -> bool:
    """Return whether the server speaks HTTPS."""
    return any(key.replace("-", "_") == "ssl_certfile" and value for key, value in deployment.engine.args.items())
