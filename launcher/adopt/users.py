"""Commands that run another one as another user."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt.options import Spec, split
from launcher.adopt.source import NOTHING, Word, part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.start import Gathered, Start

_SUDO = Spec(
    "CDghpRrTtUu",
    frozenset(("--user", "--group", "--chdir", "--host", "--prompt", "--close-from", "--chroot", "--role", "--type",
               "--command-timeout", "--other-user")),
)  # fmt: skip
_SYSTEMD_RUN = Spec(
    "EpMCH",
    frozenset(("--unit", "--property", "--setenv", "--uid", "--gid", "--slice", "--working-directory", "--description",
               "--service-type", "--nice", "--on-active", "--on-boot", "--on-calendar", "--machine", "--host",
               "--background", "--timer-property")),
)  # fmt: skip


def sudo(start: Start, into: Gathered) -> Start | bool | None:
    """``sudo -u USER -E A=b COMMAND``: variables of the caller get through only where they are named."""
    found = split(start.words[1:], _SUDO)
    env, rest = {}, list(found.rest)
    kept = [name for word in found.values("--preserve-env") for name in word.text.split(",")]
    everything = any(n == "-E" or (n == "--preserve-env" and v is None) for n, v in found.options)
    env = {name: value for name, value in start.env.items() if everything or name in kept}
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0].text):
        word = rest.pop(0)
        name = word.text.partition("=")[0]
        env[name] = part(word, len(name) + 1)
    lost = sorted(set(start.env) - set(env))
    if lost:
        start = start.noted(f"sudo takes these away, so the server does not get them: {', '.join(lost)}", "sudo")
    elif env:
        start = start.noted("sudo hands these variables on only if its rules on the host allow it", "sudo")
    user = found.last("-u", "--user")
    start = replace(start, env=env, user=user.text if user is not None else "root")
    folder = found.last("-D", "--chdir")
    start = replace(start, folder=folder) if folder is not None else start
    if found.has("-i", "--login", "-s", "--shell"):
        start = replace(start, folder=NOTHING) if found.has("-i", "--login") else start
        if rest:
            return replace(start, words=tuple(rest)).noted("a login shell reads its user's profile, which is not here")
        return _typed(start, into)
    return replace(start, words=tuple(rest)) if rest else True


def doas(start: Start, _into: Gathered) -> Start | bool | None:
    """``doas -u USER COMMAND``."""
    found = split(start.words[1:], Spec("aCu"))
    user = found.last("-u")
    return replace(start, words=found.rest, env={}, user=user.text if user else "root") if found.rest else True


def su(start: Start, into: Gathered) -> Start | bool | None:
    """``su - USER -c TEXT``; its options may stand anywhere."""
    user, text, login = "root", None, False
    words = list(start.words[1:])
    while words:
        word = words.pop(0)
        if word.text in ("-c", "--command", "--session-command") and words:
            text = words.pop(0)
        elif word.text.startswith("--command="):
            text = part(word, 10)
        elif word.text in ("-", "-l", "--login"):
            login = True
        elif word.text in ("-s", "--shell", "-g", "-G", "-w") and words:
            words.pop(0)
        elif not word.text.startswith("-"):
            user = word.text
    start = replace(start, user=user, env={} if login else start.env)
    if text is None:
        return _typed(start, into)
    into.shell(text, replace(start, words=(), stdin=None), into)
    return None


def runuser(start: Start, into: Gathered) -> Start | bool | None:
    """``runuser -u USER -- COMMAND``, and otherwise as ``su``."""
    found = split(start.words[1:], Spec("ugGw", frozenset(("--user", "--group", "--supp-group"))))
    user = found.last("-u", "--user")
    if user is None:
        return su(start, into)
    return replace(start, words=found.rest, user=user.text) if found.rest else True


def gosu(start: Start, _into: Gathered) -> Start | bool | None:
    """``gosu USER COMMAND`` and its like."""
    if len(start.words) < 3 or start.words[1].text.startswith("-"):
        return False
    return replace(start.without(1), words=start.words[2:], user=start.words[1].text.partition(":")[0])


def _typed(start: Start, into: Gathered) -> Start | bool | None:
    if start.stdin is not None:
        into.shell(start.stdin, replace(start, words=(), stdin=None), into)
        return None
    into.remarks.append(start.remark("it opens a shell of another user; what is typed there is not known"))
    return None


def systemd_run(start: Start, _into: Gathered) -> Start | bool | None:
    """``systemd-run --unit=NAME --setenv=A=b COMMAND``: a unit without a file."""
    found = split(start.words[1:], _SYSTEMD_RUN)
    if not found.rest:
        return True
    scope = found.has("--scope")
    env = dict(start.env) if scope else {}
    for word in (*found.values("-E", "--setenv"), *_properties(found.values("-p", "--property"), "Environment")):
        name, equals, _ = word.text.partition("=")
        env[name] = part(word, len(name) + 1) if equals else start.env.get(name, Word(f"${name}"))
    unit, user, folder = found.last("--unit"), found.last("--uid"), found.last("--working-directory")
    others = [word.text for word in found.values("-p", "--property") if not word.text.startswith("Environment=")]
    if others:
        start = start.noted("properties of the unit, which are not taken over", " ".join(f"-p {o}" for o in others))
    return replace(
        start.inside(found.rest),
        env=env,
        unit=unit.text.removesuffix(".service") + ".service" if unit is not None else "",
        user=user.text if user is not None else ("" if found.has("--user") else "root"),
        folder=folder if folder is not None else start.folder,
    )


def _properties(words: Sequence[Word], name: str) -> list[Word]:
    return [part(word, len(name) + 1) for word in words if word.text.startswith(f"{name}=")]
