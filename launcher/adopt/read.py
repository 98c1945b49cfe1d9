"""Text in, servers out: `read` decides what kind of text it is."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path  # noqa: TC003 - part of the public shape
from typing import TYPE_CHECKING

from launcher.adopt import batch, compose_file, engine_yaml, engines, markdown, net, shell, terminal, unit_file
from launcher.adopt.files import LARGEST, Files
from launcher.adopt.found import Found, Remark
from launcher.adopt.source import Source, plain
from launcher.adopt.start import Gathered, Start
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT = re.compile(r"(?:\s*(?:[#;].*)?\n)*\s*\[(?:Unit|Service|Install|Container)\]\s*(?:\n|$)")
_COMPOSE = re.compile(r"^services:\s*(?:#.*)?$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} \S.*\n\s*\n", re.MULTILINE)
_KUBERNETES = re.compile(r"^apiVersion:\s*\S+", re.MULTILINE)
_MAPPING = re.compile(r"^[A-Za-z][\w-]*:(?:\s|$)", re.MULTILINE)

_PROGRAMS = (".py", ".ipynb", ".json", ".toml", ".js", ".ts", ".go", ".rs", ".rb", ".pl", ".lua", ".tf", ".nix")
_MOST_LINES = 20
_BUILDS = ("Dockerfile", "Containerfile", "Makefile", "Jenkinsfile")
_SCRIPTS = (".sh", ".bash", ".zsh", ".sbatch", ".slurm")


def read(text: str, name: str, folder: Path | None) -> Found:
    """Return the servers that a text starts; nothing of it is run.

    Args:
        text: the input.
        name: its file, or ``-`` for standard input: for messages, and a first sign of its kind.
        folder: where files that it names may be read; None: nowhere.

    Raises:
        ConfigError: the text cannot be read at all, and why.
    """
    if len(text) > LARGEST:
        raise ConfigError(f"{name}: {len(text)} characters; launch reads texts of up to {LARGEST}")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ConfigError(f"{name}:{line}: a NUL byte: this is no text")
    into = Gathered(Files(folder), shell.nested)
    source = Source(name, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    try:
        sort = kind(source.text, name)
        READERS[sort](source, into)
        for path, written in into.files.unused().items():
            _written(path, written, into)
        if sort == "shell" or not (into.servers or into.remarks or into.owed):
            net.tell(source, into)
    except RecursionError as error:
        raise ConfigError(f"{name}: nested too deeply to be read") from error
    return into.found()


def read_paths(paths: Sequence[Path]) -> Found:
    """Return the servers of several files; drop-ins (``NAME.conf``) belong to the unit among them.

    Raises:
        ConfigError: a file cannot be read.
    """
    units = [path for path in paths if path.suffix == ".service"]
    drop_ins = [path for path in paths if path.suffix == ".conf"]
    if len(units) == 1 and drop_ins:
        into = Gathered(Files(units[0].parent), shell.nested)
        texts = [Source(str(path), _text(path)) for path in (units[0], *sorted(drop_ins, key=lambda p: p.name))]
        unit_file.read_all(texts, into)
        rest = [path for path in paths if path not in (*units, *drop_ins)]
        found = [into.found()]
    else:
        rest, found = list(paths), []
    found += [read(_text(path), str(path), path.parent) for path in rest]
    return Found(
        tuple(server for one in found for server in one.servers),
        tuple(remark for one in found for remark in one.remarks),
    )


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ConfigError(f"{path}: a folder; name the files in it")
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path}: {path.stat().st_size} bytes; launch reads texts of up to {LARGEST}")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8: this is no text") from error


def kind(text: str, name: str) -> str:
    """Return what kind of text it is, by its name and by what stands in it."""
    suffix = posixpath.splitext(name)[1].lower()
    if suffix in _PROGRAMS or posixpath.basename(name) in _BUILDS or re.match(r"#!.*\b(?:python|perl|ruby|node)", text):
        return "program"
    if text.startswith("#!"):
        return "shell"
    if suffix in (".md", ".markdown", ".mdx", ".rst"):
        return "markdown"
    if suffix in (".yaml", ".yml"):
        return _yaml_kind(text)
    if suffix in (".service", ".conf", ".container") or (suffix not in _SCRIPTS and _UNIT.match(text)):
        return "unit"
    if suffix in _SCRIPTS:
        return "shell"
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if (
        lines
        and (_MAPPING.match(lines[0]) or lines[0] == "---")
        and (_COMPOSE.search(text) or _KUBERNETES.search(text))
    ):
        return _yaml_kind(text)
    if _FENCE.search(text) or len(_HEADING.findall(text)) > 1:
        return "markdown"
    if any(map(_MAPPING.match, lines)) and all(
        _MAPPING.match(line) or line.startswith((" ", "-", "\t")) for line in lines
    ):
        return _yaml_kind(text)
    return "shell"


def _yaml_kind(text: str) -> str:
    if _KUBERNETES.search(text) and re.search(r"^kind:", text, re.MULTILINE):
        return "kubernetes"
    return "compose" if _COMPOSE.search(text) else "engine"


def _shell(source: Source, into: Gathered) -> None:
    facts = batch.directives(source)
    into.owed += facts
    script = source.text.startswith("#!") or posixpath.splitext(source.name)[1] in _SCRIPTS
    shell.read(source if script else terminal.typed(source), into, doubts=facts)


def _written(path: str, source: Source, into: Gathered) -> None:
    """Read a file that the input writes and leaves to somebody else: a unit, a compose file, a script."""
    if not re.search(r"sglang|vllm", source.text):
        return
    sort = kind(source.text, path)
    if sort == "unit":
        unit_file.read(source, into, posixpath.basename(path))
    elif sort != "engine":
        READERS[sort](source, into)


def _kubernetes(source: Source, into: Gathered) -> None:
    at = _KUBERNETES.search(source.text)
    start, end = at.span() if at is not None else (0, 0)
    why = "a manifest of Kubernetes: launch does not read it; give it the command of the container"
    into.remarks.append(source.remark(start, end, why))


def _program(source: Source, into: Gathered) -> None:
    """Tell of a text in a language that is not read, and of the lines in it that have to do with an engine."""
    why = "launch does not read this language; give it the command that this runs"
    into.remarks.append(source.remark(0, len(source.text), why))
    for match in re.finditer(r"^.*(?:sglang|vllm).*$", source.text, re.MULTILINE):
        if len(into.remarks) <= _MOST_LINES:
            into.remarks.append(source.remark(match.start(), match.end(), why))


def _engine(source: Source, into: Gathered) -> None:
    """Take a configuration of an engine alone for a server whose interpreter is not known."""
    values = engine_yaml.load(source.text, source.name)
    engine = engine_yaml.engine_of(values) if isinstance(values, dict) else ""
    if not isinstance(values, dict) or not engine:
        into.remarks.append(Remark(source.where(0), "", "YAML that is no configuration of SGLang or vLLM"))
        return
    words = plain(engine_yaml.command(engine, values), source.line(0))
    recognised = engines.recognise([word.text for word in words])
    start = Start(source, source.where(0), posixpath.basename(source.name), words)
    why = f"a configuration of {engine} alone: with which program and variables it is used is not written here"
    if recognised is not None:
        into.add(start.noted(why), recognised)


READERS = {
    "shell": _shell,
    "markdown": markdown.read,
    "unit": unit_file.read,
    "compose": compose_file.read,
    "kubernetes": _kubernetes,
    "engine": _engine,
    "program": _program,
}
