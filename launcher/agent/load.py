"""One load against a served model: counters, the measuring program, counters again, and what else says that it counts.

Runs beside the server, on a host as root or in the process of `launch`. Standard library only. Secrets are used and
not told: a key that the server asks for reaches the client in its environment and is taken out of all that it prints.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from . import as_user, client
from .comm_process import Abandoned
from .cpu import Cpu
from .evidence import steady
from .readings import Gpus, Log, Pids, Server, lasting, pages, processes, server, told
from .wait import request as ask

if TYPE_CHECKING:
    import pwd

#: In the words of a command: the private folder that it runs in.
FOLDER = "@FOLDER@"
_SECRET = re.compile(r"(_TOKEN|_KEY|_PASSWORD|_SECRET)$")
#: Seconds for the command that tells a version, and for reading a result.
_VERSION, _READING = 120.0, 60.0
#: Seconds in which a server ends one of whose processes has died.
_LAST_GASP = 8.0
#: An answer that says nothing.
EMPTY: Dict[str, Any] = {
    "message": "",
    "version": "",
    "exit": "",
    "result": "",
    "stdout": "",
    "stderr": "",
    "left": 0,
    "alive": True,
    "warmup": {},
    "flushed": [],
    "before": {},
    "after": {},
    "processes_before": [],
    "processes_after": [],
    "contradictions": [],
    "unknown": [],
    "proven": 0,
    "seconds": {},
    "gpus": [],
    "cpu": {},
    "log": {"nccl": [], "last": [], "patterns": {}},
    "death": [],
}


def _never() -> bool:
    return False


def run(
    request: Mapping[str, Any],
    emit: Callable[[str], None],
    pids: "Optional[Pids]" = None,
    gone: Callable[[], bool] = _never,
) -> Dict[str, Any]:
    """Run one load.

    Args:
        request: ``client``: ``argv`` (words may hold `FOLDER`), ``result`` (its file in that folder; "": its standard
            output) and ``drop`` (keys left out of its result); {} only tells the version. ``version``: a command that
            prints it, or []. ``warmup``: a command whose result is thrown away, or []. ``env`` beside the user's own
            (``warmup_env``: of the warm-up alone),
            ``cwd`` ("": the private folder), ``user`` ("": this one). ``timeout``: seconds for each command.
            ``flush``: paths that are posted before the warm-up and after it. ``pages``: see `readings.pages`.
            ``patterns``: see `readings.told`. ``server``, from whoever started it: ``manifest``, ``main`` (0: not
            known), ``cgroup`` (of its unit; "": all below the main process), ``key`` (without a unit), ``log``
            (see `readings.Log`).
        emit: told what is being done.
        pids: finds the processes of the server; instead of ``cgroup``.
        gone: whether nobody waits for the answer any more; asked several times a second.

    Returns:
        ``outcome``: measured, failed (the client did), timeout, dead (the server is gone) or lacking (the client
        cannot be started here); and the keys of `EMPTY`. ``message`` for people, ``exit`` and the ends of what the
        client printed, ``result`` as it is, ``left`` processes that it did not end, ``death`` (last lines of the log of
        a server that is gone), pages and processes ``before`` and ``after``, how the environments of the server's
        processes contradict the manifest, ``seconds`` by part.

    Raises:
        Abandoned: nobody waits for the answer any more; nothing of the client is left.
    """
    measured = server(request["server"], pids)
    folder = tempfile.mkdtemp(prefix="launch-load-")
    try:
        answer = _Load(request, measured, folder, emit, gone).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return answer


class _Load:
    """The steps of one load."""

    def __init__(
        self,
        request: Mapping[str, Any],
        measured: Server,
        folder: str,
        emit: Callable[[str], None],
        gone: Callable[[], bool],
    ) -> None:
        self._request, self._server, self._folder = request, measured, folder
        self._emit, self._gone = emit, gone
        self._gpus = Gpus()
        self._env: Dict[str, str] = {}
        self._user: "Optional[pwd.struct_passwd]" = None
        self._answer: Dict[str, Any] = {**EMPTY, "seconds": {}, "flushed": []}

    def run(self) -> Dict[str, Any]:
        """Do them in their order; what cannot be told stays empty."""
        begin = time.monotonic()
        request, answer = self._request, self._answer
        version = self._tell_version()
        if version or not request["client"]:
            return self._over("lacking" if version else "measured", version, begin)
        if self._server.dead():
            return self._over("dead", "the server was gone before the load", begin)
        self._flush()
        if request["warmup"]:
            self._emit("warm-up")
            done = self._command("warm-up", request["warmup"], request["warmup_env"])
            answer["warmup"] = {"outcome": done.outcome, "exit": done.exit}
            if done.outcome != "ended" or done.exit != "exit code 0":
                return self._over(*self._verdict(done, "warm-up"), begin, done)
            self._flush()
        return self._measure(begin)

    def _measure(self, begin: float) -> Dict[str, Any]:
        request, answer, measured = self._request, self._answer, self._server
        whole = not request["client"]["result"]
        answer["before"] = self._pages()
        answer["processes_before"] = processes(measured.pids())
        log = Log(measured.log)
        self._gpus = Gpus()
        self._emit("load")
        cpu = Cpu(measured.pids)
        done = self._command("client", request["client"]["argv"], whole=whole)
        answer["cpu"] = cpu.seen()
        answer["gpus"] = self._gpus.busiest()
        answer["left"] = done.left
        text = done.out if whole else self._file()
        answer["result"] = self._clean(client.without(text, request["client"]["drop"]))
        answer["processes_after"] = self._settled(answer["processes_before"])
        if not measured.dead():
            answer["after"] = self._pages()
            verdict = steady(measured.manifest, measured.main, measured.look) if measured.main else None
            if verdict is not None:
                answer["contradictions"], answer["unknown"] = verdict.contradictions, verdict.unknown
                answer["proven"] = len(verdict.proven)
        answer["log"] = told([self._clean(line) for line in log.read()], request["patterns"])
        return self._over(*self._verdict(done, "client"), begin, done)

    def _settled(self, before: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Return the processes of the server; where one is gone, the others get a moment to end as well.

        vLLM's main process ends some 5 s after one of its workers.
        """
        deadline = time.monotonic() + _LAST_GASP
        while True:
            after = processes(self._server.pids())
            gone = len(lasting(before)) - sum(one in after for one in lasting(before))
            if not gone or self._server.dead() or time.monotonic() > deadline:
                return after
            time.sleep(0.2)

    def _verdict(self, done: client.Done, what: str) -> "tuple[str, str]":
        """Return the outcome of a command and its message."""
        if done.outcome == "lacking":
            return "lacking", done.message
        if done.outcome == "bereft" or self._server.dead():
            return "dead", f"the server (process {self._server.main}) ended during the {what}"
        if done.outcome == "timeout":
            return "timeout", f"the {what} took longer than {self._request['timeout']:g} s and was ended"
        if done.exit != "exit code 0":
            return "failed", f"the {what} ended with {done.exit}"
        if what == "client" and not self._answer["result"].strip():
            return "failed", "the client ended without a result"
        return "measured", ""

    def _over(self, outcome: str, message: str, begin: float, done: "Optional[client.Done]" = None) -> Dict[str, Any]:
        answer = self._answer
        if done is not None:
            whole = self._request["client"] and not self._request["client"]["result"]
            answer["exit"], answer["stderr"] = done.exit, self._clean(done.err)
            said = "" if whole and outcome == "measured" else self._clean(done.out)
            answer["stdout"] = said[-client.TAIL :] if whole else said
        answer["alive"] = not self._server.dead()
        if not answer["alive"]:
            answer["death"] = [self._clean(line) for line in Log(self._server.log).end()]
        answer["seconds"]["all"] = round(time.monotonic() - begin, 3)
        return {**answer, "outcome": outcome, "message": self._clean(message)}

    def _tell_version(self) -> str:
        """Ask the client for its version; return what is wrong when it has none."""
        if not self._request["version"]:
            return ""
        done = self._command("version", self._request["version"], limit=_VERSION)
        lines = [line for line in done.out.splitlines() if line.strip()]
        if done.outcome == "ended" and done.exit == "exit code 0" and lines:
            self._answer["version"] = lines[-1].strip()[:100]
            return ""
        said = [line for line in self._clean(done.err).splitlines() if line.strip()][-1:]
        return done.message or f"{self._request['version'][0]}: {(said or [done.exit])[0].strip()}"

    def _command(
        self,
        part: str,
        argv: List[str],
        env: "Optional[Mapping[str, str]]" = None,
        limit: float = 0,
        *,
        whole: bool = False,
    ) -> client.Done:
        """Run one command in the private folder, and take note of its time.

        Raises:
            Abandoned: nobody waits for the answer any more.
        """
        request = self._request
        own = {**request["env"], **(env or {}), **({"OPENAI_API_KEY": self._server.key} if self._server.key else {})}
        words = [word.replace(FOLDER, self._folder) for word in argv]
        try:
            wanted = client.command(words, own, request["cwd"] or self._folder, request["user"])
        except KeyError:
            return client.Done("lacking", f"there is no user {request['user']!r} here", "", 0.0, "", "", 0)
        if wanted.user:
            os.chown(self._folder, wanted.user.pw_uid, wanted.user.pw_gid)
        self._env, self._user = wanted.env, wanted.user
        limit = limit or request["timeout"]
        done = client.run(wanted, limit, whole=whole, dead=self._server.dead, gone=self._gone, gpus=self._gpus)
        if done.outcome == "abandoned":
            raise Abandoned
        seconds = self._answer["seconds"]
        seconds[part] = round(seconds.get(part, 0.0) + done.seconds, 3)
        return done

    def _flush(self) -> None:
        for path in self._request["flush"]:
            status, _ = ask(self._server.manifest, self._server.key, "POST", path)
            self._answer["flushed"].append({"path": path, "status": status})

    def _pages(self) -> Dict[str, Dict[str, Any]]:
        found = pages(self._server.manifest, self._server.key, self._request["pages"])
        for page in found.values():
            values = page.get("values", {})
            values.update({key: self._clean(value) for key, value in values.items() if isinstance(value, str)})
        return found

    def _file(self) -> str:
        """Return the result file, read as the user who wrote it: its links lead no further than that user may look."""
        path = os.path.join(self._folder, self._request["client"]["result"])
        if self._user is None:
            return client.text_of(path)
        try:
            return as_user.ask(self._user, lambda: client.text_of(path), _READING)
        except as_user.Unanswered:
            return ""

    def _clean(self, text: str) -> str:
        """Return a text without the key of the server and what the environment calls secret."""
        secrets = {self._server.key, *(value for name, value in self._env.items() if _SECRET.search(name))}
        for value in sorted((value for value in secrets if len(value) > 5), key=len, reverse=True):
            text = text.replace(value, "•••")
        return text
