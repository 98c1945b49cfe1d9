"""The waiter: returns when the server answers and every process of its unit was checked; fails with a reason."""

from __future__ import annotations

import http.client
import json
import os
import time
from typing import Any, Dict, Optional, Tuple

from . import credentials, ports
from .guard import REFUSAL_FILE, say
from .manifest import ManifestError, load
from .processes import Verdict, cgroup_of, cgroup_pids, judge, read_bytes, unit_processes

#: SGLang's health check sleeps a second before it looks; a busy server answers late.
ANSWER_SECONDS = 10
#: A contradiction must still be there after this long: helpers of a start come and go.
SETTLE_SECONDS = 2.0


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
        return 1
    verdict = settled(manifest, main, cgroup_of("self"))
    for line in verdict.unknown + verdict.odd:
        say(f"warning: {line}", level=4)
    if verdict.contradictions:
        say("\n".join(("REFUSED after the start:", *verdict.contradictions)), level=3)
        _leave_refusal(manifest["digest"], verdict)
        return 1
    say(
        f"proof: release {manifest['digest']}, {len(verdict.pids)} processes checked,"
        f" {len(verdict.variables)} variables each, ready after {time.monotonic() - begin:.1f} s"
    )
    return 0


def settled(manifest: Dict[str, Any], main: int, cgroup: str) -> Verdict:
    """Judge all processes of the unit; look again before a contradiction is believed."""
    skip = {os.getpid()}
    verdict = judge(list(unit_processes(cgroup, skip)), manifest, main)
    if verdict.contradictions:
        time.sleep(SETTLE_SECONDS)
        verdict = judge(list(unit_processes(cgroup, skip)), manifest, main)
    return verdict


def wait_until_ready(manifest: Dict[str, Any], main: int, deadline: float) -> None:
    """Return when the unit's own process answers health and one completion.

    Raises:
        NotReadyError: the main process ended, or the time is over.
    """
    started = start_time(main)
    cgroup = cgroup_of(main)
    last = "nothing listens on its port yet"
    while True:
        if started is None or start_time(main) != started:
            raise NotReadyError(f"the server ended during its start (process {main}); its last lines stand above")
        if time.monotonic() > deadline:
            raise NotReadyError(f"port {manifest['port']} did not get ready in time: {last}")
        last = _look(manifest, cgroup, credentials.api_key(manifest, main))
        if not last:
            return
        time.sleep(0.5)


def start_time(pid: int) -> Optional[bytes]:
    """Return what tells a process from a later one with its number; None when it is gone or a zombie."""
    fields = (read_bytes(f"/proc/{pid}/stat") or b"").rpartition(b") ")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None


def _look(manifest: Dict[str, Any], cgroup: str, key: str) -> str:
    """Return what is still missing, "" when the server is ready."""
    inodes = ports.listening(manifest["port"])
    if not inodes:
        return "nothing listens on its port yet"
    if not ports.owner(inodes, cgroup_pids(cgroup)):
        return "another process listens on its port"
    status, text = request(manifest, key, "GET", "/health")
    if status != 200:
        return f"/health answers {status or text}"
    return _complete(manifest, key)


def _complete(manifest: Dict[str, Any], key: str) -> str:
    status, text = request(manifest, key, "GET", "/v1/models")
    try:
        model = json.loads(text)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return f"/v1/models answers {status or text}"
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
    status, text = request(manifest, key, "POST", "/v1/completions", body)
    return "" if status == 200 else f"/v1/completions answers {status or text}"


def request(manifest: Dict[str, Any], key: str, method: str, path: str, body: str = "") -> Tuple[int, str]:
    """Ask the server; return status and text, or 0 and the reason."""
    host = manifest["host"]
    address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    headers = {"Content-Type": "application/json"} if body else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection(address, manifest["port"], timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, f"nothing ({type(error).__name__}: {error})"
    finally:
        connection.close()


def _leave_refusal(digest: str, verdict: Verdict) -> None:
    """Tell the guard of the automatic start that follows, so that it ends the loop."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "")
    if folder:
        with open(os.path.join(folder, REFUSAL_FILE), "w", encoding="utf-8") as stream:
            stream.write("\n".join([digest, *verdict.contradictions]) + "\n")
