"""The waiter: returns when the server answers and every process of its unit was checked; fails with a reason."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from . import credentials, ports
from .evidence import settled, unguarded
from .guard import REFUSAL_FILE
from .journal import say
from .manifest import ManifestError, load
from .processes import cgroup_of, cgroup_pids, read_bytes, start_time, unit_cgroup

#: SGLang's health check sleeps a second before it looks; a busy server answers late.
ANSWER_SECONDS = 10
#: How long the guard may take to come to its own verdict.
GUARD_SECONDS = 15


class NotReadyError(Exception):
    """The server did not come up; the text says why."""


def wait(path: str, main: int, deadline: float) -> int:
    """Wait for the server, check all its processes, write the proof into the journal.

    Args:
        path: of the manifest.
        main: process id of the server.
        deadline: in seconds from now.

    Returns:
        0 when it serves and carries its release; 1 otherwise.
    """
    begin = time.monotonic()
    try:
        manifest = load(path)
        wait_until_ready(manifest, main, begin + deadline)
    except (ManifestError, NotReadyError) as error:
        say(f"NOT READY: {error}", level=3)
        _let_the_guard_speak(main)
        return 1
    folder, invocation = os.environ.get("RUNTIME_DIRECTORY", ""), os.environ.get("INVOCATION_ID", "")
    wrong = unguarded(folder, manifest, main, invocation)
    verdict = settled(manifest, main, unit_cgroup(cgroup_of("self")), {os.getpid()})
    for line in verdict.unknown + verdict.odd:
        say(f"warning: {line}", level=4)
    wrong += verdict.contradictions
    if wrong:
        say("\n".join(("REFUSED after the start:", *wrong)), level=3)
        _leave_refusal(folder, manifest["digest"], wrong)
        return 1
    unknown = f", {len(verdict.unknown)} unknown" if verdict.unknown else ""
    say(
        f"proof: release {manifest['digest']}, {len(verdict.proven)} processes carry all {len(verdict.variables)}"
        f" variables{unknown}, ready after {time.monotonic() - begin:.1f} s"
    )
    return 0


def _let_the_guard_speak(main: int) -> None:
    """Wait a moment for a main process that is about to end by itself: its 78 is final, a kill is not."""
    started, deadline = start_time(main), time.monotonic() + GUARD_SECONDS
    while started is not None and start_time(main) == started and time.monotonic() < deadline:
        if b"\0guard\0" not in (read_bytes(f"/proc/{main}/cmdline") or b""):
            return  # it is the server already
        time.sleep(0.1)


def wait_until_ready(manifest: Dict[str, Any], main: int, deadline: float) -> None:
    """Return when the unit's own process answers health and one completion.

    Raises:
        NotReadyError: the main process ended, or the time is over.
    """
    started = start_time(main)
    cgroup = unit_cgroup(cgroup_of(main))
    last = "nothing listens on its port yet"
    while True:
        if started is None or start_time(main) != started:
            raise NotReadyError(f"the server ended during its start (process {main}); its own lines say why")
        if time.monotonic() > deadline:
            raise NotReadyError(f"port {manifest['port']} did not get ready in time: {last}")
        last = missing(manifest, lambda: cgroup_pids(cgroup), credentials.api_key(manifest, main))
        if not last:
            return
        time.sleep(0.5)


def missing(manifest: Mapping[str, Any], pids: Callable[[], Iterable[int]], key: str) -> str:
    """Return what a server of these processes still lacks, "" when it is ready; ``key`` is its clients' key."""
    inodes = ports.listening(manifest["port"])
    if not inodes:
        return "nothing listens on its port yet"
    if not ports.owner(inodes, pids()):
        return "another process listens on its port"
    status, text = request(manifest, key, "GET", "/health")
    if status != 200:
        return f"/health answers {status or text}"
    return _complete(manifest, key) if manifest["ready"] == "completion" else ""


def _complete(manifest: Mapping[str, Any], key: str) -> str:
    status, text = request(manifest, key, "GET", "/v1/models")
    try:
        model = json.loads(text)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return f"/v1/models answers {status or text}"
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
    status, text = request(manifest, key, "POST", "/v1/completions", body)
    if status != 200:
        return f"/v1/completions answers {status or text}"
    # A token may be one that has no text, so that an empty text is sane.
    try:
        sane = isinstance(json.loads(text)["choices"][0]["text"], str)
    except (ValueError, LookupError, TypeError):
        sane = False
    return "" if sane else f"/v1/completions answers something else than a completion: {text[:200]!r}"


def request(manifest: Mapping[str, Any], key: str, method: str, path: str, body: str = "") -> Tuple[int, str]:
    """Ask the server; return status and text, or 0 and the reason."""
    host = manifest["host"]
    address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    headers = {"Content-Type": "application/json"} if body else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = _connection(manifest, address)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, f"nothing ({type(error).__name__}: {error})"
    finally:
        connection.close()


def _connection(manifest: Mapping[str, Any], address: str) -> http.client.HTTPConnection:
    if not any(word.startswith("--ssl-certfile") for word in manifest["argv"]):
        return http.client.HTTPConnection(address, manifest["port"], timeout=ANSWER_SECONDS)
    # The question is whether this very process answers; who it is was settled by its socket.
    context = ssl._create_unverified_context()  # noqa: S323, SLF001
    return http.client.HTTPSConnection(address, manifest["port"], timeout=ANSWER_SECONDS, context=context)


def _leave_refusal(folder: str, digest: str, reasons: List[str]) -> None:
    """Tell the guard of the automatic start that follows, so that it ends the loop."""
    try:
        with open(os.path.join(folder, REFUSAL_FILE), "w", encoding="utf-8") as stream:
            stream.write("\n".join([digest, *reasons]) + "\n")
    except OSError as error:
        say(f"warning: the next automatic start cannot be told ({error})", level=4)
