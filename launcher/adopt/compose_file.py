"""Compose files: the services that are an engine."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import box_options, containers, dot_env, yaml_text
from launcher.adopt.found import Remark
from launcher.adopt.source import NOTHING, Source, Word, quote
from launcher.adopt.start import Gathered, Start, follow
from launcher.adopt.wrappers import step
from launcher.adopt.yaml_text import At
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAKEN = (
    "image",
    "command",
    "entrypoint",
    "environment",
    "env_file",
    "container_name",
    "working_dir",
    "user",
    "extends",
)
#: What is about containers as such, and about nothing of the server.
_OURS = ("restart", "healthcheck", "depends_on", "labels", "logging", "profiles", "networks", "tty", "stdin_open",
         "pull_policy", "build", "hostname", "init", "stop_grace_period", "expose", "annotations")  # fmt: skip
_VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+?])([^{}]*))?\})")


def read(source: Source, into: Gathered) -> None:
    """Read every service of a compose file."""
    data = yaml_text.load(source.text, source.name)
    services = data["services"].value if isinstance(data, dict) and "services" in data else None
    if not isinstance(services, dict):
        line = data["services"].line if isinstance(data, dict) and "services" in data else 1
        raise ConfigError(f"{source.name}:{line}: services: is not a mapping of services")
    known = _dot_env(into)
    for name, service in services.items():
        if not isinstance(service.value, dict):
            where = f"{source.name}:{service.line + source.line(0) - 1}"
            into.remarks.append(Remark(where, quote(name), "a service without settings"))
            continue
        Service(source, into, name, service, services, known).read()


def _dot_env(into: Gathered) -> dict[str, str]:
    text = into.files.text(".env")
    return dot_env.parse(text) if text is not None else {}


class Service:
    """One service being read."""

    def __init__(
        self,
        source: Source,
        into: Gathered,
        name: str,
        service: At,
        services: Mapping[str, At],
        known: Mapping[str, str],
    ) -> None:
        self.source, self.into, self.name, self.known = source, into, name, known
        self.at = service.line
        self.remarks: list[Remark] = []
        self.settings: dict[str, At] = self._extended(service.value, services, 0)

    def _extended(self, own: dict[str, At], services: Mapping[str, At], depth: int) -> dict[str, At]:
        """Return the settings with those of the service that it extends underneath."""
        if "extends" not in own or depth > 10:
            return own
        value = own["extends"].value
        name, file = value, ""
        if isinstance(value, dict):
            name = value["service"].value if "service" in value else ""
            file = value["file"].value if "file" in value else ""
        if file:
            text = self.into.files.text(str(file))
            data = yaml_text.load(text, str(file)) if text is not None else None
            found = data["services"].value if isinstance(data, dict) and "services" in data else {}
            services = found if isinstance(found, dict) else {}
        base = services.get(str(name))
        if base is None or not isinstance(base.value, dict):
            self._tell(
                own["extends"], f"extends: {file} {name}".strip(), "it is not here, so what it sets is not known"
            )
            return own
        under = self._extended(base.value, services, depth + 1)
        merged = {**under, **own}
        if "environment" in under and "environment" in own:
            merged["environment"] = At(
                {**_pairs(under["environment"]), **_pairs(own["environment"])}, own["environment"].line
            )
        return merged

    def _line(self, at: At) -> int:
        return at.line + self.source.line(0) - 1

    def _tell(self, at: At, text: str, why: str) -> None:
        self.remarks.append(Remark(f"{self.source.name}:{self._line(at)}", quote(text), why))

    def read(self) -> None:
        """Take the service for a server if it is an engine."""
        image, entry = self._text("image"), self.settings.get("entrypoint")
        where = f"{self.source.name}:{self.at + self.source.line(0) - 1}"
        container = self._text("container_name")
        env = self._environment()
        self._others()
        command = self.settings.get("command")
        start = Start(
            self.source, where, self.name, (), env=env, name=container.text or self.name, image=image.text,
            folder=self._text("working_dir"), user=self._text("user").text, wrappers=(("docker", "compose", "up"),),
            remarks=(*self.remarks, *image.doubts),
        )  # fmt: skip
        words = self._command(command) if command is not None else ()
        box = containers.Box(
            image.text, words, self._command(entry) if entry is not None and entry.value is not None else None
        )
        if not words and box.entrypoint is None and "vllm-openai" not in image.text:
            why = "a service that starts what its image starts, which is not written here"
            self.into.remarks.append(start.remark(why, f"{self.name}: {image.text}"))
            return
        result = containers.inside(start, box, self.into)
        if isinstance(result, Start):
            line = " ".join(word.text for word in result.words)
            follow(replace(result, quote=quote(line)), self.into, step)

    def _text(self, name: str) -> Word:
        at = self.settings.get(name)
        return self._filled(at) if at is not None and isinstance(at.value, str) else NOTHING

    def _filled(self, at: At) -> Word:
        """Return a value with compose's variables filled in from ``.env``."""
        doubts: list[Remark] = []

        def one(match: re.Match[str]) -> str:
            dollar, plain, braced, operator, other = match.groups()
            if dollar:
                return "$"
            name = plain or braced
            value = self.known.get(name)
            if operator and "+" in operator:
                return other if value else ""
            if value is not None and (value or ":" not in (operator or "")):
                return value
            why = f"{name} is not set in a file beside it"
            if operator and "-" in operator:
                doubts.append(
                    Remark(f"{self.source.name}:{self._line(at)}", match.group(), f"{why}; its default is taken")
                )
                return other
            doubts.append(
                Remark(f"{self.source.name}:{self._line(at)}", match.group(), f"{why}: edit what launch writes")
            )
            return match.group()

        text = _VARIABLE.sub(one, str(at.value))
        return Word(text, tuple(doubts), ((0, self._line(at)),))

    def _command(self, at: At) -> tuple[Word, ...]:
        if isinstance(at.value, list):
            return tuple(self._filled(item) for item in at.value if isinstance(item.value, str))
        if not isinstance(at.value, str):
            return ()
        filled = self._filled(at)
        try:
            texts = shlex.split(filled.text)
        except ValueError:
            self._tell(at, filled.text, "a quote in it is not closed, so compose refuses it")
            return ()
        return tuple(Word(text, filled.doubts, filled.marks) for text in texts)

    def _environment(self) -> dict[str, Word]:
        env: dict[str, Word] = {}
        files = self.settings.get("env_file")
        for item in _items(files):
            path = item.value["path"].value if isinstance(item.value, dict) and "path" in item.value else item.value
            text = self.into.files.text(str(path))
            if text is None:
                self._tell(
                    item, f"env_file: {path}", "it is not here, so what it sets is not known: put it beside the file"
                )
                continue
            env |= {name: Word(value, marks=((0, self._line(item)),)) for name, value in dot_env.parse(text).items()}
        at = self.settings.get("environment")
        for name, value in (_pairs(at) if at is not None else {}).items():
            if value.value is not None:
                env[name] = self._filled(value)
            elif name in self.known:
                env[name] = Word(self.known[name], marks=((0, self._line(value)),))
            else:
                why = "its value comes from whoever starts the service, and is not written here"
                env[name] = Word(f"${name}", (Remark(f"{self.source.name}:{self._line(value)}", name, why),))
        return env

    def _others(self) -> None:
        ours = [name for name in self.settings if name in _OURS]
        if ours:
            self._tell(self.settings[ours[0]], ", ".join(ours), "of the container; launch does not need it")
        for name, at in self.settings.items():
            if name not in _TAKEN and name not in _OURS:
                told = [_plain(item.value, deepest=8) for item in _items(at)]
                self._tell(at, f"{name}: {_plain(at.value)}", box_options.why(name, told))


def _items(at: At | None) -> list[At]:
    if at is None or at.value is None:
        return []
    return at.value if isinstance(at.value, list) else [at]


def _pairs(at: At) -> dict[str, At]:
    """Return an environment that is a mapping or a list of assignments."""
    if isinstance(at.value, dict):
        return at.value
    found: dict[str, At] = {}
    for item in _items(at):
        if isinstance(item.value, str):
            name, equals, value = item.value.partition("=")
            found[name] = At(value if equals else None, item.line)
    return found


def _plain(value: object, deepest: int = 4) -> str:
    if deepest < 0:
        return "…"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_plain(v.value, deepest - 1)}" for k, v in list(value.items())[:20]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(v.value, deepest - 1) for v in value[:20]) + "]"
    return str(value)
