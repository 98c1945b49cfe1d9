"""Commands that hand a text or a command to another shell: ``bash -c``, ``ssh HOST``, tmux, screen."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt.options import Options, Spec, split
from launcher.adopt.source import NOTHING, Word, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.adopt.source import Source
    from launcher.adopt.start import Gathered, Start

_SSH = Spec("BbcDEeFIiJLlmOoPpQRSWw")
_SHELL = Spec("oO", frozenset(("--rcfile", "--init-file")))
_TMUX = Spec("Lfc S".replace(" ", ""))
_TMUX_NEW = Spec("cenFstxy")
_TMUX_KEYS = Spec("tNc")
_SCREEN = Spec("SsctTpehxX", single_dash=frozenset(("-Logfile",)))
_KEYS = re.compile(r"Enter|KPEnter|Space|Escape|Tab|[CM]-\w+|\^\w")


def shell(start: Start, into: Gathered) -> Start | bool | None:
    """``bash -c TEXT``, ``bash FILE``, ``bash -s < TEXT``."""
    words, name = start.words, start.words[0].text
    found = split(words[1:], _SHELL)
    letters = "".join(option[1:] for option, _ in found.options if not option.startswith("--"))
    start = _login(start, name, letters)
    if "c" in letters:
        if not found.rest:
            return True
        into.shell(found.rest[0], replace(start, words=found.rest[1:] or (words[0],)), into)
        return None
    if found.rest and "s" not in letters:
        return _file(start, found.rest, into)
    if start.stdin is not None:
        into.shell(start.stdin, replace(start, words=(words[0], *found.rest), stdin=None), into)
        return None
    return True


def _login(start: Start, name: str, letters: str) -> Start:
    if "l" in letters or "i" in letters:
        return start.noted("a login shell reads its user's profile, which is not here", f"{name} -{letters}")
    return start


def _file(start: Start, rest: Sequence[Word], into: Gathered) -> Start | bool | None:
    source = into.files.source(rest[0].text)
    if source is None:
        into.remarks.append(start.remark(f"{rest[0].text} is not here, so it is not read: name it to adopt as well"))
        return None
    run(start, source, rest, into)
    return None


def run(start: Start, source: Source, words: Sequence[Word], into: Gathered) -> None:
    """Read a script that is started with these words."""
    into.shell(Word(source.text, (), source.marks), replace(start, words=tuple(words), source=source, stdin=None), into)


def script(start: Start, into: Gathered) -> bool:
    """Read a program that is a script and here; returns False where it is neither."""
    path = start.words[0].text
    source = into.files.source(path) if "/" in path else None
    if (
        source is None
        or not (source.text.startswith("#!") or path.endswith(".sh"))
        or "python" in source.text[:60].split("\n")[0]
    ):
        return False
    run(start, source, start.words, into)
    return True


def ssh(start: Start, into: Gathered) -> Start | bool | None:
    """``ssh [OPTIONS] HOST [COMMAND…]``: the words are joined with blanks, and the host's shell reads them."""
    found = split(start.words[1:], _SSH)
    if not found.rest:
        return True
    host = found.rest[0].text.removeprefix("ssh://")
    user, port = found.last("-l"), found.last("-p")
    after = split(found.rest[1:], _SSH)  # options may stand behind the host as well
    user, port = user or after.last("-l"), port or after.last("-p")
    host = f"{user.text}@{host}" if user is not None and "@" not in host else host
    if port is not None and port.text != "22":
        name = host.rpartition("@")[2]
        host = f"{host.removesuffix(name)}[{name}]:{port.text}" if ":" in name else f"{host}:{port.text}"
    text = joined(after.rest) if after.rest else start.stdin
    if text is None:
        into.remarks.append(start.remark("it opens a shell on the host; if what follows was typed there, say so"))
        return None
    inner = _at_host(start, host, found.rest[0], found.values("-o", "-J"))
    if after.rest and start.stdin is not None:
        inner = replace(inner, stdin=start.stdin)
    into.shell(text, inner, into)
    return None


def _at_host(start: Start, host: str, word: Word, ways: Sequence[Word]) -> Start:
    """Return the command as the host's login shell gets it: with nothing of the environment here."""
    inner = replace(
        start, words=(), env={}, unset=(), folder=NOTHING, python="", hosts=(host,), user="", stdin=None,
        remarks=(*start.remarks, *word.doubts),
    )  # fmt: skip
    if start.env:
        names = [f"{name}={value.text}" for name, value in start.env.items()]
        inner = inner.noted("set here but not handed on by ssh, so the server does not get it", " ".join(names))
    if start.hosts:
        inner = inner.noted(f"reached through {', '.join(start.hosts)}: put the way into your ssh configuration")
    jumps = [way.text for way in ways if "=" not in way.text or way.text.lower().startswith("proxyjump")]
    if jumps:
        inner = inner.noted(f"reached through {jumps[0]}: put the way into your ssh configuration")
    return inner


def tmux(start: Start, into: Gathered) -> Start | bool | None:
    """``tmux new -d -s NAME COMMAND`` and ``tmux send-keys … COMMAND Enter``."""
    words = split(start.words[1:], _TMUX).rest
    for piece in _commands(words):
        verb = piece[0].text
        if re.fullmatch(r"new(-s(ession)?)?|neww|new-window|splitw|split-window|respawn-(pane|window)", verb):
            _pane(start, split(piece[1:], _TMUX_NEW), into)
        elif verb in ("send-keys", "send"):
            keys = split(piece[1:], _TMUX_KEYS).rest
            typed = [word for word in keys if not _KEYS.fullmatch(word.text)]
            if typed:
                into.shell(joined(typed, ""), replace(start, words=(), stdin=None), into)
    return True


def _commands(words: Sequence[Word]) -> list[list[Word]]:
    pieces: list[list[Word]] = [[]]
    for word in words:
        if word.text == ";":
            pieces.append([])
        else:
            pieces[-1].append(word)
    return [piece for piece in pieces if piece]


def _pane(start: Start, found: Options, into: Gathered) -> None:
    if not found.rest:
        return
    folder, env = found.last("-c"), dict(start.env)
    for word in found.values("-e"):
        name, _, value = word.text.partition("=")
        env[name] = Word(value, word.doubts, word.marks)
    inner = replace(start, words=(), env=env, folder=folder if folder is not None else start.folder, stdin=None)
    if env:
        why = "if a tmux server was running before, it did not hand these variables on: what is written here is taken"
        inner = inner.noted(why)
    text = found.rest[0] if len(found.rest) == 1 else _quoted(found.rest)
    into.shell(text, inner, into)


def _quoted(words: Sequence[Word]) -> Word:
    return joined([Word(shlex.quote(word.text), word.doubts, word.marks) for word in words])


def screen(start: Start, into: Gathered) -> Start | bool | None:
    """``screen -dmS NAME COMMAND…`` and ``screen -S NAME -X stuff TEXT``."""
    words = list(start.words[1:])
    texts = [word.text for word in words]
    if "-X" in texts:
        at = texts.index("-X")
        if texts[at + 1 : at + 2] == ["stuff"] and at + 2 < len(words):
            word = words[at + 2]
            clean = re.sub(r"(\^M|\\n|\\r|\r)\s*$", "\n", word.text)
            into.shell(Word(clean, word.doubts, word.marks), replace(start, words=(), stdin=None), into)
        return True
    found = split(words, _SCREEN)
    log = found.last("-Logfile")
    if log is not None:
        start = replace(start, log=log)
    return start.inside(found.rest) if found.rest else True
