"""Serve points on a host, in place of a deployment that comes back: the client of `launcher.agent.session`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from launcher.bench.measure import LockedError
from launcher.bench.served import Life, Production
from launcher.errors import HostError
from launcher.host.requests import Limits, ask_request, point_order, session_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launcher.host.secret_values import SecretValues
    from launcher.host.transport import Transport
    from launcher.sweep.points import Candidate

    Events = Callable[[str], None]


#: What serves where no point was started.
_NOTHING = "what was there before; nothing was replaced"


class OnHost:
    """A session on one host; see `launcher.bench.served.Servers`.

    Another thread may close it while an order is carried out: the end comes right after that one.
    """

    def __init__(self, way: Transport, secrets: SecretValues, emit: Events) -> None:
        self.name = way.host
        self._way, self._secrets, self._emit = way, secrets, emit
        self._id = ""
        self._number = 0
        #: Whether a point was ordered: before that nothing is replaced.
        self._begun = False
        #: Held while an order gets its number: none may come behind the last.
        self._lock = threading.Lock()

    def open(self, baseline: Candidate, intent: Mapping[str, Any], limits: Limits) -> None:
        """Take the host: from now on it is ours, and comes back however this ends.

        Raises:
            UnreachableError: no connection; nothing was changed.
            LockedError: another one is changing the host.
            HostError: it is not ready; says why. Nothing was changed.
        """
        request = session_request(baseline.release, baseline.deployment, self._secrets, intent, limits)
        try:
            answer = self._call(request)
        except KeyboardInterrupt:
            self._id = str(request["id"])  # it may hold the host already: closing ends it
            raise
        if answer["outcome"] == "locked":
            raise LockedError(self.name, answer["message"])
        if answer["outcome"] != "open":
            raise HostError(self.name, "\n".join([answer["message"], *answer["evidence"]]))
        self._id = str(request["id"])

    def start(self, candidate: Candidate) -> Life:
        """See `Servers.start`."""
        self._begun = True
        answer = self._ask(point_order(candidate.release, candidate.deployment, self._secrets))
        if answer["outcome"] != "serving":
            return Life(
                serving=False,
                message=answer["message"],
                evidence=tuple(answer["evidence"]),
                lines=tuple(answer.get("lines", ())),
            )
        return Life(serving=True, seconds=answer["seconds"], proof=answer["proof"], lines=tuple(answer["lines"]))

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Servers.load`."""
        return self._ask({**request, "do": "load"})

    def back(self) -> Production | None:
        """Let the host put back what was there, and hold it on, to measure that; None where no point replaced it.

        Raises:
            HostError: the session is over, or the host cannot be asked.
        """
        answer = self._ask({"do": "back"})
        if answer["outcome"] == "untouched":
            return None
        if answer["outcome"] != "serving":
            return Production(Life(serving=False, message=answer["message"], evidence=tuple(answer["evidence"])))
        life = Life(serving=True, seconds=answer["seconds"], proof=answer["proof"], lines=tuple(answer["lines"]))
        told = answer["manifest"]
        return Production(life, told["digest"], told["env"], tuple(told["argv"]), told["host"], told["port"])

    def stop(self) -> None:
        """Leave it to the next start, which stops first, or to the end: each order is a connection."""

    def close(self) -> str:
        """See `Servers.close`; what the host itself has put back counts as well.

        Raises:
            HostError: what was there is not back.
        """
        with self._lock:
            id_, self._id = self._id, ""
            number = self._number + 1
        if not id_:
            return _NOTHING
        answer = self._call(ask_request(id_, number, {"do": "end"}))
        if not self._begun:
            return _NOTHING
        if answer["outcome"] not in ("restored", "rolled back"):
            raise HostError(self.name, f"not restored: {answer.get('serves') or answer['message']}; launch status")
        drift = "; DRIFT: " + "; ".join(answer["evidence"]) if answer["evidence"] else ""
        return f"{answer['serves']}{drift}"

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if not self._id:
                raise HostError(self.name, "the session was ended here")
            self._number += 1
            id_, number = self._id, self._number
        answer = self._call(ask_request(id_, number, order))
        if answer.get("over"):
            self._id = ""
            told = "; ".join(text for text in (answer["message"], answer.get("serves", "")) if text)
            raise HostError(self.name, f"the session ended: {told}")
        return answer

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._way.call(request, self._emit)
        if answer["problems"]:
            raise HostError(self.name, "; ".join(answer["problems"]))
        return answer
