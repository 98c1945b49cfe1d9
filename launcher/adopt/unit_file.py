"""systemd units with their drop-ins and environment files."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import unit_syntax
from launcher.adopt.found import Remark
from launcher.adopt.source import NOTHING, Source, Word, quote
from launcher.adopt.start import Gathered, Start, follow
from launcher.adopt.unit_syntax import Setting, UnitError
from launcher.adopt.wrappers import step
from launcher.agent import env_file

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Read for the server itself.
_TAKEN = ("Environment", "EnvironmentFile", "UnsetEnvironment", "PassEnvironment", "ExecStart", "WorkingDirectory",
          "User", "StandardOutput")  # fmt: skip
#: What every unit of `launch` has in its own way.
_OURS = re.compile(
    r"Type|Restart\w*|TimeoutSt\w+|Timeout|KillMode|KillSignal|SyslogIdentifier|StandardError|StandardInput|RemainAfterExit"
    r"|Group|SuccessExitStatus|NotifyAccess|GuessMainPID|PIDFile|ExecReload|ExecStop|SendSIGKILL|StartLimit\w+"
)
_LISTS = ("Environment", "EnvironmentFile", "UnsetEnvironment", "PassEnvironment", "ExecStart", "ExecStartPre",
          "ExecStartPost", "ExecStop")  # fmt: skip
_ORDER = re.compile(r"Requires|After|Wants|BindsTo|PartOf|Assert|Condition")
_USUAL = re.compile(r"(?:(?:network|multi-user|nss-lookup|time-sync)\S*\s*)*")
_ENGINE = re.compile(r"sglang|vllm")
_VERSION = 255  # of systemd, whose rules for comments in environment files are followed


def read(source: Source, into: Gathered, unit: str = "") -> None:
    """Read a unit and the drop-ins in the folder beside it; ``unit`` is its name where its file has another one."""
    unit = unit or posixpath.basename(source.name)
    drop_ins: list[Source] = []
    if into.files.folder is not None and "\0" not in unit:
        folder = into.files.folder / f"{unit}.d"
        try:
            paths = sorted(folder.glob("*.conf")) if unit.endswith(".service") else []
        except OSError:
            paths = []
        for path in paths:
            text = into.files.text(f"{unit}.d/{path.name}")
            if text is not None:
                drop_ins.append(Source(f"{source.name}.d/{path.name}", text))
    Unit([source, *drop_ins], into, unit).read()


def read_all(sources: Sequence[Source], into: Gathered) -> None:
    """Read a unit whose drop-ins follow it in the order in which systemd takes them."""
    Unit(sources, into, posixpath.basename(sources[0].name)).read()


class Unit:
    """One unit being read."""

    def __init__(self, sources: Sequence[Source], into: Gathered, name: str) -> None:
        self.into, self.source, self.name = into, sources[0], name
        self.whole = True  # all variables that the unit names are known
        self.all: list[Setting] = []
        self.remarks: list[Remark] = []
        self.env: dict[str, Word] = {}
        for source in sources:
            for entry in unit_syntax.settings(source):
                if isinstance(entry, Word):
                    where = f"{source.name}:{entry.line}"
                    self.into.remarks.append(Remark(where, quote(entry.text), "no setting; systemd ignores it as well"))
                else:
                    self._take(entry)

    def _take(self, entry: Setting) -> None:
        """Keep one assignment; an empty one empties its list."""
        if entry.name in _LISTS and not entry.value.text:
            self.all = [old for old in self.all if (old.section, old.name) != (entry.section, entry.name)]
        else:
            self.all.append(entry)

    def read(self) -> None:
        """Take its commands for servers, where they are an engine."""
        self._environment()
        unset = tuple(w.text for s in self._named("UnsetEnvironment") for w in self._words(s, "is left out"))
        for assignment in unset:
            name, equals, value = assignment.partition("=")
            if not equals or (name in self.env and self.env[name].text == value):
                self.env.pop(name, None)
        self._others()
        self._foreign()
        for setting in self._named("ExecStart"):
            self._command(setting, tuple(name for name in unset if "=" not in name))
        if not self._named("ExecStart"):
            if any(setting.section == "Container" for setting in self.all):
                why = "a unit of podman (Quadlet): launch does not read it; give it the command of the container"
                self.into.remarks.append(Remark(self.source.where(0), self.name, why))
            self.into.remarks += self.remarks

    def _named(self, name: str) -> list[Setting]:
        return [setting for setting in self.all if setting.section == "Service" and setting.name == name]

    def _last(self, name: str) -> Word:
        found = self._named(name)
        return self._specified(found[-1].value, found[-1]) if found else NOTHING

    def _words(self, setting: Setting, effect: str) -> list[Word]:
        try:
            return [self._specified(word, setting) for word in unit_syntax.split(setting.value)]
        except UnitError as error:
            self.remarks.append(Remark(setting.where, quote(setting.text), f"{error}, so it {effect}"))
            return []

    def _specified(self, word: Word, setting: Setting) -> Word:
        base = self.name.removesuffix(".service")
        prefix, at, instance = base.partition("@")
        known = {"n": self.name, "N": base, "p": prefix}
        if not self.name.endswith(".service"):
            known = {}
        elif at and instance:
            known["i"] = instance
        filled, unknown = unit_syntax.specified(word, known)
        if unknown:
            why = f"systemd fills in {', '.join(dict.fromkeys(unknown))}, which is not known from the file"
            filled = replace(filled, doubts=(*filled.doubts, Remark(setting.where, quote(setting.text), why)))
        return filled

    def _foreign(self) -> None:
        """Quote what has to do with an engine in sections that are not systemd's."""
        for setting in self.all:
            if setting.section not in ("Unit", "Service", "Install", "Container") and _ENGINE.search(
                setting.value.text
            ):
                why = f"in [{setting.section}], which is no section of systemd: launch does not read it"
                self.into.remarks.append(Remark(setting.where, quote(setting.text), why))

    def _environment(self) -> None:
        for setting in self._named("PassEnvironment"):
            why = "handed on from the service manager, whose variables are not written here"
            self.remarks.append(Remark(setting.where, quote(setting.text), why))
            self.whole = False
        for setting in self._named("Environment"):
            for word in self._words(setting, "is left out by systemd"):
                name, equals, value = word.text.partition("=")
                if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                    self.env[name] = Word(value, word.doubts, word.marks)
                else:
                    why = "no assignment; systemd leaves it out"
                    self.remarks.append(Remark(setting.where, quote(word.text), why))
        for setting in self._named("EnvironmentFile"):
            self._file(setting)

    def _file(self, setting: Setting) -> None:
        path = self._specified(setting.value, setting).text
        optional, path = path.startswith("-"), path.removeprefix("-")
        content = self.into.files.content(path)
        if content is None:
            why = "it is not here, so what it sets is not known: put it beside the unit"
            why += "; systemd does without it, too" if optional else ""
            self.whole = self.whole and optional
            self.remarks.append(Remark(setting.where, quote(setting.text), why))
            return
        try:
            values = env_file.parse(content, _VERSION)
        except env_file.EnvFileError as error:
            self.remarks.append(Remark(setting.where, quote(setting.text), f"systemd refuses this file: {error}"))
            return
        line = setting.value.line
        self.env |= {name: Word(value, marks=((0, line),)) for name, value in values.items()}

    def _others(self) -> None:
        ours = [s for s in self.all if s.section == "Service" and s.name not in _TAKEN and _OURS.fullmatch(s.name)]
        if ours:
            text = "; ".join(setting.text for setting in ours)
            self.remarks.append(Remark(ours[0].where, quote(text), "launch's own unit has these in its own way"))
        for setting in self.all:
            if setting.section == "Service" and setting not in ours and setting.name not in _TAKEN:
                why = "not taken over: if the server needs it, say so in the configuration"
                self.remarks.append(Remark(setting.where, quote(setting.text), why))
            elif setting.section == "Unit" and _ORDER.match(setting.name) and not _USUAL.fullmatch(setting.value.text):
                why = "not taken over: it orders the unit among others"
                self.remarks.append(Remark(setting.where, quote(setting.text), why))

    def _command(self, setting: Setting, unset: tuple[str, ...]) -> None:
        try:
            words = [self._specified(word, setting) for word in unit_syntax.split(setting.value)]
        except UnitError as error:
            why = f"{error}, so systemd refuses the unit"
            self.into.remarks.append(Remark(setting.where, quote(setting.text), why))
            return
        one: list[Word] = []
        for word in (*words, Word(";")):
            if word.text == ";":
                self._one(setting, one, unset)
                one = []
            else:
                one.append(word)

    def _one(self, setting: Setting, words: list[Word], unset: tuple[str, ...]) -> None:
        signs = re.match(r"[-@:+!]*", words[0].text) if words else None
        if signs is None:
            return
        words[0] = replace(words[0], text=words[0].text[signs.end() :])
        if "@" in signs.group() and len(words) > 1:
            words = [words[0], *words[2:]]
        unknown: list[str] = []
        if ":" not in signs.group():
            words[1:], unknown = unit_syntax.expanded(words[1:], self.env, keep=not self.whole)
        folder, output = self._last("WorkingDirectory"), self._last("StandardOutput")
        log = re.fullmatch(r"(?:append|file|truncate):(.+)", output.text)
        start = Start(
            setting.source, setting.where, quote(setting.text), tuple(words), env=dict(self.env), unset=unset,
            user=self._last("User").text, folder=replace(folder, text=folder.text.removeprefix("-")),
            log=replace(output, text=log.group(1)) if log else NOTHING,
            unit=self.name if self.name.endswith(".service") else "",
            name=self.name.removesuffix(".service") if self.name.endswith(".service") else "",
            remarks=tuple(self.remarks),
        )  # fmt: skip
        for name in dict.fromkeys(unknown):
            why = "not set in the unit: " + ("systemd puts nothing there" if self.whole else "edit what launch writes")
            start = start.noted(why, name)
        if "+" in signs.group():
            start = start.noted("run as root, whatever User= says", signs.group())
        follow(start, self.into, step)
