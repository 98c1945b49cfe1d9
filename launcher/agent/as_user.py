"""Questions that a user's rights decide, answered in a child process that is that user.

So the kernel itself answers, with the user's groups, access lists and NFS servers that trust no root; and a disk that
hangs holds up the child, not the deploy.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, TypeVar

if TYPE_CHECKING:
    import pwd

_Answer = TypeVar("_Answer")


class Unanswered(Exception):  # noqa: N818 - an answer, no error
    """Why there is no answer."""


def ask(user: pwd.struct_passwd, question: Callable[[], _Answer], seconds: float) -> _Answer:
    """Return what a question gives when it is asked as a user.

    Args:
        user: whom to become; nothing changes where this process is not root's.
        question: gives plain data, which comes back as JSON brings it: lists for tuples.
        seconds: after which the child is left behind.

    Raises:
        Unanswered: not in time, or the question failed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(user, question, writer)
    os.close(writer)
    try:
        text = _read(reader, time.monotonic() + seconds)
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        # What hangs in the kernel dies later, and nobody waits for it.
        os.waitpid(child, os.WNOHANG)
        raise Unanswered(f"no answer within {seconds:g} s") from None
    finally:
        os.close(reader)
    os.waitpid(child, 0)
    answer: Dict[str, Any] = json.loads(text or '{"failed": "the child process died"}')
    if "failed" in answer:
        raise Unanswered(answer["failed"])
    found: _Answer = answer["is"]
    return found


def _answer(user: pwd.struct_passwd, question: Callable[[], object], writer: int) -> None:
    """Become the user, write the answer and leave; never returns."""
    try:
        try:
            # A child that hangs must not keep the connection open that its parent answers over.
            for stream in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            if os.geteuid() == 0:
                os.initgroups(user.pw_name, user.pw_gid)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            os.chdir("/")
            answer: Dict[str, object] = {"is": question()}
        except Exception as why:
            answer = {"failed": f"{type(why).__name__}: {why}"}
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _read(reader: int, deadline: float) -> str:
    parts: List[bytes] = []
    while True:
        if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts).decode("utf-8")
        parts.append(part)
