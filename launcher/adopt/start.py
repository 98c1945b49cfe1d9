"""A command on its way to becoming a server: its words, and all that is known around it."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 - part of the public shape
from dataclasses import dataclass, field, replace

from launcher.adopt import engine_yaml, engines
from launcher.adopt.files import Files  # noqa: TC001 - part of the public shape
from launcher.adopt.found import Found, Remark, Server
from launcher.adopt.source import NOTHING, Source, Word, quote
from launcher.errors import ConfigError

_MOST_TURNS = 10_000
_HELP = re.compile(r"-h|--help(=.*)?|--version")
_PART = (
    "one part of a server over several hosts: each part is a deployment of its own, and none is ready before all run,"
    " so start them at the same time, each by a launch up of its own"
)


@dataclass(frozen=True)
class Start:
    """A command with what wrappers, shell and file say about it; the fields are those of `Server`."""

    source: Source
    where: str
    quote: str
    words: tuple[Word, ...]
    env: Mapping[str, Word] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    user: str = ""
    folder: Word = NOTHING
    log: Word = NOTHING
    wrappers: tuple[tuple[str, ...], ...] = ()
    python: str = ""
    image: str = ""
    unit: str = ""
    name: str = ""
    stdin: Word | None = None
    remarks: tuple[Remark, ...] = ()

    def remark(self, why: str, piece: str = "") -> Remark:
        """Return a remark on this command, or on a piece of it."""
        return Remark(self.where, quote(piece) if piece else self.quote, why)

    def noted(self, why: str, piece: str = "") -> Start:
        """Return the command with one more remark."""
        return replace(self, remarks=(*self.remarks, self.remark(why, piece)))

    def without(self, count: int) -> Start:
        """Take a wrapper off that is so many words long."""
        taken = tuple(word.text for word in self.words[:count])
        return replace(self, words=self.words[count:], wrappers=(*self.wrappers, taken))

    def inside(self, rest: tuple[Word, ...]) -> Start:
        """Take a wrapper off; ``rest`` is what it runs, the last words of this command."""
        return self.without(len(self.words) - len(rest))


@dataclass
class Gathered:
    """What the readers have found so far.

    Attributes:
        files: those beside the input.
        shell: reads a word as a shell script; it is given here since the shell and its wrappers need each other.
        turns: of loops and calls so far.
        owed: remarks for the servers that come later; told on their own where none comes.
    """

    files: Files
    shell: Callable[[Word, Start, Gathered], None]
    servers: list[Server] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    owed: list[Remark] = field(default_factory=list)
    turns: int = 0

    def turn(self, name: str) -> None:
        """Count a turn of a loop, or a call of a function or script.

        Raises:
            ConfigError: there are more of them than in any script that starts servers.
        """
        self.turns += 1
        if self.turns > _MOST_TURNS:
            raise ConfigError(
                f"{name}: its loops and functions take more than {_MOST_TURNS} turns; launch stops reading"
            )

    def add(self, start: Start, engine: engines.Engine) -> None:
        """Take a command for a server."""
        words = engine_yaml.merged(start.words, engine, self.files, start.source.name)
        start = _interpreter(start)
        if any(word.text.startswith("--disaggregation-mode") for word in words.words):
            start = start.noted("one part of disaggregated serving; its other parts are servers of their own")
        if (nodes := _nodes(words.words)) not in ("", "1"):
            start = start.noted(_PART, f"--nnodes {nodes}")
        doubts = [
            *start.remarks,
            *words.remarks,
            *(doubt for word in (*words.words, *start.env.values(), start.folder, start.log) for doubt in word.doubts),
        ]
        self.servers.append(
            Server(
                where=start.where,
                argv=tuple(word.text for word in words.words),
                env={name: value.text for name, value in start.env.items()},
                unset=start.unset,
                hosts=start.hosts,
                user=start.user,
                working_directory=start.folder.text,
                log_file=start.log.text,
                wrappers=start.wrappers,
                python=start.python,
                image=start.image,
                unit=start.unit,
                name=start.name,
                remarks=tuple(dict.fromkeys(Remark(one.where, one.quote, one.why) for one in doubts)),
            )
        )

    def found(self) -> Found:
        """Return everything that was found."""
        told = {remark for server in self.servers for remark in server.remarks}
        rest = [remark for remark in (*self.remarks, *self.owed) if remark not in told]
        return Found(tuple(self.servers), tuple(dict.fromkeys(rest)))


def _nodes(words: Sequence[Word]) -> str:
    """Return over how many hosts the engine is told to spread itself, or nothing."""
    texts = [word.text for word in words]
    for word, after in itertools.pairwise((*texts, "")):
        if word.partition("=")[0] == "--nnodes":
            return word.partition("=")[2] or after
    return ""


def _interpreter(start: Start) -> Start:
    """Say which interpreter runs the engine, where the words say so."""
    program = start.words[0].text
    if "$" in program or start.image:
        return replace(start, python="") if start.image else start
    if "/" not in program:
        return start if start.python else _from_path(start)
    if not program.startswith("/"):
        if not start.folder.text.startswith("/"):
            return replace(start, python="").noted("its folder is not known, so its full path is not", program)
        program = posixpath.normpath(posixpath.join(start.folder.text, program))
    if engines.is_python(program):
        return replace(start, python=program)
    if program.startswith(("/usr/bin/", "/usr/local/bin/")):
        return replace(start, python="").noted(
            "which interpreter runs this script is written in its first line", program
        )
    python = posixpath.join(posixpath.dirname(program), "python")
    return replace(start, python=python).noted(f"taken to run with the interpreter beside it, {python}", program)


def _from_path(start: Start) -> Start:
    """Take the interpreter from the first folder of a ``PATH`` that the text sets."""
    path = start.env.get("PATH", NOTHING).text.partition(":")[0]
    if not path.startswith("/") or "$" in path or path.startswith(("/usr/", "/bin", "/sbin")):
        return start
    why = f"the program is taken to be in the first folder of PATH, so that {path}/python runs it"
    return replace(start, python=f"{path}/python").noted(why, f"PATH={path}:…")


def follow(start: Start, into: Gathered, step: Callable[[Start, Gathered], Start | bool | None]) -> None:
    """Take wrappers off a command until the engine is reached; ``step`` says False for what it does not know."""
    while start.words:
        engine = engines.recognise([word.text for word in start.words])
        if engine is not None and engine.name and any(_HELP.fullmatch(word.text) for word in start.words):
            into.remarks.append(start.remark("it prints a text and ends"))
            return
        if engine is not None and engine.name:
            into.add(start, engine)
            return
        if engine is not None:
            into.remarks.append(start.remark(f"{engine.what}: launch does not run it, so it is left out"))
            return
        result = step(start, into)
        if result is None or result is True:
            return
        if result is False:
            into.remarks += unknown(start)
            return
        start = result


def unknown(start: Start) -> list[Remark]:
    """Return the remark for a command that is no engine and no known wrapper."""
    texts = [word.text for word in start.words]
    for at in range(1, len(texts)):
        engine = engines.recognise(texts[at:])
        if engine is not None and engine.name:
            why = f"launch does not know what {engines.program(texts[0])} does to the server behind it; left out"
            return [start.remark(why)]
    # A command whose words only the host knows, and that may be a server there.
    doubts = [doubt for word in start.words for doubt in word.doubts if "sglang" in doubt.why or "vllm" in doubt.why]
    return [start.remark("not a server, and not read"), *doubts]
