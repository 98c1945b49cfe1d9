"""What was found of servers: the seam between those that read (text, hosts) and those that write configuration."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - part of the public shape
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Remark:
    """A piece of the input that is not, or not wholly, in the result; nothing is dropped without one.

    Attributes:
        where: ``FILE:LINE`` or ``HOST``.
        quote: the piece as written, secrets masked.
        why: what launch makes of it, and what to do.
    """

    where: str
    quote: str
    why: str


@dataclass(frozen=True)
class Server:
    """One server as it was started.

    Attributes:
        where: ``FILE:LINE`` of its command, or ``HOST, process PID``.
        argv: the engine's own words, with wrappers (nohup, numactl, docker run …) taken off; the first one is the
            program as written: ``python3``, ``/opt/venv/bin/python``, ``vllm``, ``sglang``.
        env: what was set for it on purpose (text), or all of its environment (a process).
        whole_env: whether ``env`` is all of the environment of a process.
        unset: variables taken away on purpose (``unset``, ``env -u``).
        hosts: where it runs, as ssh or the user named them; empty: not said.
        user: system user, empty: not said.
        working_directory: empty: not said.
        log_file: where its output is appended or written; empty: not said.
        wrappers: what stood before it, outermost first, such as ``("numactl", "--cpunodebind=0")``.
        python: interpreter's absolute path where it is known (a process, an activated environment); empty: not said.
        image: of a container, as written; empty: none.
        unit: of systemd; empty: none.
        engine_version: as installed, e.g. ``0.5.17``; empty: not known.
        nccl_version: as loaded, e.g. ``2.28.9``; empty: not known.
        gpus: names of the host's GPUs as nvidia-smi prints them, one for each; empty: not known.
        argv_digest: of a running process, what ``launch up`` recognises it by; empty: not running.
        name: the input's own name for it (compose service, unit, container); empty: none.
        remarks: what of it is not in the fields above.
    """

    where: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    whole_env: bool = False
    unset: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    user: str = ""
    working_directory: str = ""
    log_file: str = ""
    wrappers: tuple[tuple[str, ...], ...] = ()
    python: str = ""
    image: str = ""
    unit: str = ""
    engine_version: str = ""
    nccl_version: str = ""
    gpus: tuple[str, ...] = ()
    argv_digest: str = ""
    name: str = ""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class Found:
    """All servers of one input in the order of the input, and what belongs to none of them."""

    servers: tuple[Server, ...]
    remarks: tuple[Remark, ...] = ()
