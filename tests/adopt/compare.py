"""What a reader found of a case against what was seen: every difference as a line of text."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tests.adopt.corpus import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.found import Found, Remark, Server
    from tests.adopt.corpus import Case, Started

#: What images of the engines put before the words of `docker run`.
ENTRYPOINTS = (("vllm", "serve"), ("python3", "-m", "vllm.entrypoints.openai.api_server"))
#: Set by an activation, not by the text.
OF_ACTIVATION = re.compile(r"VIRTUAL_ENV|CONDA_.*|PATH")
SECRET = re.compile(r"hf_[A-Za-z0-9]{8,}|sk-(?:line|env|file|unit)-\w+")


def differences(case: Case, found: Found) -> list[str]:
    """Return what is wrong with a reading; nothing where it is right."""
    remarks = [*found.remarks, *(remark for server in found.servers for remark in server.remarks)]
    wrong = _remarks(case, remarks)
    if case.head.get("servers") == "unknown":
        return wrong
    left = list(found.servers)
    for started in case.expected():
        if not left:
            wrong.append(f"no server for {started.argv}")
            continue
        tried = [(_server(case, started, server), number) for number, server in enumerate(left)]
        best, number = min(tried, key=lambda pair: len(pair[0]))
        wrong += best
        del left[number]
    wrong += [f"a server that nobody started: {server.argv}" for server in left]
    return wrong


def _remarks(case: Case, remarks: Sequence[Remark]) -> list[str]:
    quoted = [remark.quote for remark in remarks]
    wrong = [
        f"no remark quotes {piece!r}: {quoted}"
        for piece in case.head.get("remark_lines", ())
        if not any(piece in quote for quote in quoted)
    ]
    wrong += [f"a secret in a remark: {quote}" for quote in quoted if SECRET.search(quote)]
    return wrong


def _server(case: Case, started: Started, server: Server) -> list[str]:
    wrong = []
    if not _same_program(case, started, server):
        wrong.append(f"program: {server.argv[0]} (python {server.python!r}) for {started.argv[0]}")
    if not _fits(started.argv[1:], server.argv[1:]) and not _behind_entrypoint(started, server):
        wrong.append(f"argv: {server.argv} for {started.argv}")
    wrong += _environment(started, server)
    if started.host is not UNKNOWN and server.hosts != ((started.host,) if started.host else ()):
        wrong.append(f"hosts: {server.hosts} for {started.host!r}")
    for name in ("user", "working_directory", "log_file", "image"):
        seen, read = getattr(started, name), getattr(server, name)
        if name == "log_file":
            read = read and posixpath.normpath(posixpath.join(server.working_directory, read))
        if seen and seen != read:
            wrong.append(f"{name}: {read!r} for {seen!r}")
    if UNKNOWN in (*started.argv[1:], *(v for k, v in started.env.items() if k != "PATH")) and not server.remarks:
        wrong.append("something of it cannot be known, and no remark says so")
    for wrapper in case.head.get("wrappers", ()):
        if tuple(wrapper) not in server.wrappers:
            wrong.append(f"wrappers: {server.wrappers} without {wrapper}")
    return wrong


def _same_program(case: Case, started: Started, server: Server) -> bool:
    """Tell whether the first word is that of the program which ran, or the environment around it is said."""
    ran, read = started.argv[0], server.argv[0]
    if ran is UNKNOWN or ran == read or _behind_entrypoint(started, server):
        return True
    folder = posixpath.dirname(ran)
    if not folder or posixpath.basename(ran) != read:
        return False
    if folder in case.text() or folder.removesuffix("/bin") in case.text():
        return posixpath.dirname(server.python) == folder
    return not server.python or posixpath.dirname(server.python) == folder


def _behind_entrypoint(started: Started, server: Server) -> bool:
    return bool(started.image) and any(_fits((*entrypoint, *started.argv), server.argv) for entrypoint in ENTRYPOINTS)


def _fits(seen: Sequence[str | None], read: Sequence[str]) -> bool:
    """Tell whether words are the same; one that cannot be known stands for none to three."""
    if not seen:
        return not read
    if seen[0] is UNKNOWN:
        return any(_fits(seen[1:], read[count:]) for count in range(min(3, len(read)) + 1))
    return bool(read) and seen[0] == read[0] and _fits(seen[1:], read[1:])


def _environment(started: Started, server: Server) -> list[str]:
    known = {name: value for name, value in started.env.items() if value is not UNKNOWN}
    read = {name: value for name, value in server.env.items() if name not in started.env or name in known}
    extra = [name for name in read.keys() - known.keys() if not OF_ACTIVATION.fullmatch(name)]
    wrong = [f"env: {name}={read.get(name)!r} for {known[name]!r}" for name in known if read.get(name) != known[name]]
    wrong += [f"env: {name}={read[name]!r} for nothing" for name in extra]
    wrong += [f"unset: {name} is not said" for name in started.unset if name not in server.unset]
    return wrong
