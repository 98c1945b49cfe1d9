"""What fits at the cursor of a command line: verbs, names, groups, keys, values, flags and what they take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.cli import parser
from launcher.completion import SHELLS
from launcher.completion.line import Line, line
from launcher.completion.offer import FILES, Candidate, Offer, offer, plain
from launcher.errors import ConfigError
from launcher.layers import Layers, find_layers
from launcher.paths import EXPERIMENT, GROUPS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Verbs whose words are names of deployments.
_NAMED = {
    *("up", "plan", "render", "status", "drift", "history", "rollback", "uninstall", "check", "run", "bench", "explain")
}
#: Verbs with words of their own.
_WORDS: dict[str, tuple[str, ...]] = {"completion": SHELLS, "schema": (*GROUPS, EXPERIMENT), "init": ()}
#: The verbs of a flag; one that is not here goes with any.
_ONLY_WITH = {
    "--fix": ("drift",),
    "--follow": ("status",),
    "--break-lease": ("up",),
    "--host": ("adopt",),
    "--html": ("status", "results"),
    "--format": ("render",),
    "--resume": ("up",),
    "--resume-failed": ("up",),
    "--search": ("up", "plan"),
    "--multirun": ("up", "plan"),
    "-m": ("up", "plan"),
}
#: Those that go with a sweep.
_OF_SWEEPS = ("--resume", "--resume-failed", "--search")
_ENGINE = re.compile(r"^\s*(?:-\s+)?(?:override\s+)?/?engine:\s*(\w+)\s*$", re.MULTILINE)
_ENGINE_NAME = re.compile(r"^name:\s*(\w+)\s*$", re.MULTILINE)


def complete(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> Offer:
    """Return what fits at the cursor, which is at the end of the last word; the program is not among the words."""
    flags = {name: action for action in parser.flags() for name in action.option_strings}
    read = line(words, [name for name, action in flags.items() if action.nargs != 0 and name not in _BARE])
    try:
        layers = find_layers(read.given("--config-dir"), environ, folder)
    except ConfigError:
        layers = find_layers([], {}, folder)
    word = read.current
    if read.asks:
        return _flag_value(read, read.asks, "", flags, folder)
    if word.startswith("-"):
        name, sign, _ = word.partition("=")
        return _flag_value(read, name, f"{name}=", flags, folder) if sign else _flags(read, flags)
    if "=" in word:
        return _value(read, layers)
    return _word(read, layers, folder)


#: Flags that take a value behind ``=`` only, and none otherwise.
_BARE = ("--resume", "--search")


def _flags(read: Line, flags: Mapping[str, argparse.Action]) -> Offer:
    verb = read.verb or "up"
    fitting = [
        Candidate(name, action.help or "")
        for name, action in flags.items()
        if verb in _ONLY_WITH.get(name, (verb,)) and (read.sweeps or name not in _OF_SWEEPS)
    ]
    return offer(read.current, fitting)


def _flag_value(read: Line, name: str, before: str, flags: Mapping[str, argparse.Action], folder: Path) -> Offer:
    word = read.current
    if name in ("--html", "--config-dir"):
        return FILES
    if name == "--allow":
        return offer(word, _rules(before))
    if name == "--resume":
        return offer(word, plain(_sweeps(read, folder), before))
    action = flags.get(name)
    return offer(word, plain(map(str, action.choices or ()), before)) if action else Offer()


def _rules(before: str) -> list[Candidate]:
    """Return the rules that ``--allow`` takes."""
    from launcher.catalogue import rules

    return [Candidate(f"{before}{name}", told) for name, told in rules.forced().items()]


def _sweeps(read: Line, folder: Path) -> list[str]:
    """Return the ids of the sweeps, newest first."""
    out = folder / read.overrides.get("sweep.out", "results")
    return sorted((path.parent.name for path in out.glob("*/sweep.json")), reverse=True)


def _word(read: Line, layers: Layers, folder: Path) -> Offer:
    """Return what a word without ``=`` may become."""
    word, verb = read.current, read.verb
    if verb == "adopt":
        return FILES
    if verb in _WORDS:
        return offer(word, plain(_WORDS[verb]))
    found: list[Candidate] = []
    if not verb:
        found += [Candidate(name, told) for name, told in parser.VERBS.items()]
    elif verb == "explain" and len(read.bare) == 1:
        return _keys(read, layers, sign="")
    elif verb in _NAMED:
        taken = read.bare[1:]
        names = [*layers.options("deployment"), *(["all"] if layers.options("deployment", own=True) else [])]
        found += [Candidate(name, "deployment") for name in names if name not in taken]
    elif verb in ("results", "diff", "promote"):
        found += [Candidate(name, "sweep") for name in _sweeps(read, folder)]
    if verb or word:
        plus = "+" * (len(word) - len(word.lstrip("+")))
        found += [Candidate(f"{plus}{group}=", "group") for group in (*GROUPS, EXPERIMENT)]
    keys = _keys(read, layers, sign="=").candidates if word.strip("+") else ()
    return offer(word, [*found, *keys])


def _keys(read: Line, layers: Layers, sign: str) -> Offer:
    """Return the keys that go on as the word began; a key ends with the sign."""
    from launcher.completion import keys

    word = read.current.lstrip("+")
    plus = read.current[: len(read.current) - len(word)]
    engine = _engine(read, layers) if word.startswith("engine.args.") else ""
    found = keys.keys(word, engine)
    ends = [c._replace(text=f"{plus}{c.text.removesuffix('=')}{sign if c.text.endswith('=') else ''}") for c in found]
    return offer(read.current, ends)


def _value(read: Line, layers: Layers) -> Offer:
    """Return what fits behind ``=``; in a sweep what fits behind the last comma, and was not named yet."""
    name, _, value = read.current.partition("=")
    key = name.lstrip("+")
    listed, comma, _ = value.rpartition(",") if read.sweeps else ("", "", value)
    if key in (*GROUPS, EXPERIMENT):
        found = plain(layers.options(key))
    else:
        from launcher.completion import keys

        found = keys.choices(key, _engine(read, layers) if key.startswith("engine.args.") else "")
    fresh = [c for c in found if c.text not in listed.split(",")]
    whole = [c._replace(text=f"{name}={listed}{comma}{c.text}") for c in fresh]
    return offer(read.current, whole, goes_on=read.sweeps)


def _engine(read: Line, layers: Layers) -> str:
    """Return the engine of a command line: as typed, else of the named deployment's file, else of ``config.yaml``."""
    if name := read.overrides.get("engine.name"):
        return name
    named = [*read.bare[1:], *filter(None, [read.overrides.get("deployment")])]
    files = [*(f"deployment/{name}" for name in named), "config"]
    option = read.overrides.get("engine") or next(filter(None, (_found(layers, f, _ENGINE) for f in files)), "")
    return _found(layers, f"engine/{option}", _ENGINE_NAME) or option


def _found(layers: Layers, name: str, pattern: re.Pattern[str]) -> str:
    hit = layers.find(name)
    try:
        found = pattern.search(hit[1].read_text(encoding="utf-8")) if hit else None
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""
