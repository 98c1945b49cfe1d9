"""The engines' own configuration files: ``--config FILE.yaml`` merged into the arguments as the engine does it.

SGLang (server_args_config_parser.py) and vLLM (argparse_utils.py) put the file's arguments before those of the
command line, so that the latter win; for ``vllm serve MODEL`` they come after the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from launcher.adopt.found import Remark
from launcher.adopt.source import Word, plain, quote
from launcher.catalogue import engines as catalogue
from launcher.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.adopt.engines import Engine
    from launcher.adopt.files import Files

#: Keys that name a server of either engine; one of them makes a flat YAML file a configuration.
_MODEL = ("model", "model-path", "model_path", "model-tag", "model_tag")


@dataclass(frozen=True)
class Merged:
    """The words of a command after its configuration file, and what is to be said about it."""

    words: tuple[Word, ...]
    remarks: tuple[Remark, ...] = ()


def load(text: str, name: str) -> object:
    """Return what a YAML text holds.

    Raises:
        ConfigError: it is no YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise ConfigError(f"{name}:{line}: not valid YAML: {problem}") from error
    except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:  # a date that there is not
        raise ConfigError(f"{name}:1: not valid YAML: {error}") from error


def merged(words: tuple[Word, ...], engine: Engine, files: Files, name: str) -> Merged:
    """Merge the file of ``--config`` into the words of an engine."""
    at = next((i for i, w in enumerate(words) if w.text.split("=", 1)[0] == "--config" and i >= engine.arguments), None)
    if at is None:
        return Merged(words)
    inline = words[at].text.startswith("--config=")
    path = words[at].text[9:] if inline else (words[at + 1].text if at + 1 < len(words) else "")
    where = f"{name}:{words[at].line}"
    text = files.text(path)
    if text is None:
        why = f"the engine reads more arguments from {path or 'a file'}, which is not here: put it beside the input"
        return Merged(words, (Remark(where, quote(f"--config {path}"), why),))
    rest = (*words[:at], *words[at + (1 if inline else 2) :])
    values = load(text, path)
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"{path}:1: a configuration of an engine is a mapping of its arguments")
    given = _given(rest, engine)
    arguments = [
        word
        for key, value in (values or {}).items()
        if _canonical(engine.name, f"--{key}") not in given
        for word in plain(as_arguments(engine.name, str(key), value), words[at].line)
    ]
    place = engine.arguments
    if place < len(rest) and engine.name == "vllm" and not rest[place].text.startswith("-"):
        place += 1
        if arguments and arguments[0].text == "--model":
            arguments = arguments[2:]
    why = "its arguments are taken into the command; those on the command line win"
    found = (*rest[:place], *arguments, *rest[place:])
    return Merged(found, (Remark(where, quote(f"--config {path}"), why),))


def _given(words: Sequence[Word], engine: Engine) -> set[str]:
    return {_canonical(engine.name, word.text) for word in words[engine.arguments :] if word.text.startswith("-")}


def _canonical(engine: str, word: str) -> str:
    found = catalogue.find(engine, word)
    return found[1].name if found else word.split("=", 1)[0]


def as_arguments(engine: str, key: str, value: object) -> list[str]:
    """Return the arguments that an engine makes of one entry of its file."""
    flag = f"--{key}"
    if isinstance(value, bool):
        return _switch(engine, flag, on=value)
    if isinstance(value, list):
        return [flag, *(str(item) for item in value)] if value else []
    if isinstance(value, dict) and engine == "vllm":
        return [flag, json.dumps(value, default=str)]
    return [flag, str(value)]


def _switch(engine: str, flag: str, *, on: bool) -> list[str]:
    known = catalogue.find(engine, flag)
    if engine == "sglang" and known is not None and known[1].takes != "none":
        return [flag, str(on).lower()]
    if on:
        return [flag]
    off = f"--no-{flag[2:]}"
    return [off] if engine == "vllm" and catalogue.find(engine, off) is not None else []


def engine_of(values: Mapping[str, object]) -> str:
    """Return whose configuration a flat YAML file is; empty: neither's, or not sure."""
    keys = [str(key) for key in values]
    if not any(key in _MODEL for key in keys):
        return ""
    counts = {
        engine: sum(catalogue.find(engine, f"--{key}") is not None for key in keys) for engine in ("sglang", "vllm")
    }
    best = max(counts, key=lambda engine: counts[engine])
    if counts[best] * 2 < len(keys) or counts["sglang"] == counts["vllm"]:
        return "" if counts["sglang"] != counts["vllm"] or counts[best] * 2 < len(keys) else _by_model(keys)
    return best


def _by_model(keys: Sequence[str]) -> str:
    return "sglang" if any(key.startswith("model-path") or key == "model_path" for key in keys) else "vllm"


def command(engine: str, values: Mapping[str, object]) -> list[str]:
    """Return the command that a configuration alone stands for."""
    arguments = [word for key, value in values.items() for word in as_arguments(engine, str(key), value)]
    if engine == "sglang":
        return ["python3", "-m", "sglang.launch_server", *arguments]
    model = next((str(values[key]) for key in ("model", "model_tag", "model-tag") if key in values), "")
    others = [
        word
        for key, value in values.items()
        if str(key) not in ("model", "model_tag", "model-tag")
        for word in as_arguments(engine, str(key), value)
    ]
    return ["vllm", "serve", *([model] if model else []), *others]
