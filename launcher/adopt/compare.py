"""Compare a server as it was started with the release that its deployment renders to."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt import flags, program
from launcher.adopt.common_flags import DEFAULTS, NAMES
from launcher.adopt.kept_variables import left_out
from launcher.adopt.secret import is_secret_flag, is_secret_variable
from launcher.adopt.settings import SECRETS
from launcher.adopt.surroundings import MISSING, NO_PYTHON
from launcher.adopt.table import SHOWN, Row, ordered
from launcher.render.environment import ADDED

if TYPE_CHECKING:
    from launcher.adopt.flags import Flags, Option
    from launcher.adopt.found import Server
    from launcher.adopt.program import Program
    from launcher.adopt.settings import Wanted
    from launcher.render import Release

_ADDED = {
    "SPT_NOENV": "workers keep their environment readable, so that it can be proven",
    "NCCL_DEBUG": "NCCL prints which settings it took: the proof; no cost in speed",
    "NCCL_DEBUG_SUBSYS": "which of its messages NCCL prints: versions and settings",
}
_SAID = "you say so"
_PYTHON_UNSAID = "which interpreter this is, the input does not say"


@dataclass(frozen=True)
class Compared:
    """The differences, and what is the same in other words."""

    rows: tuple[Row, ...]
    same: tuple[str, ...]


def compare(server: Server, wanted: Wanted, release: Release) -> Compared:
    """Return every difference between a server and a release, with its reason."""
    rows = [*wanted.rows]
    same: list[str] = []
    now = program.read(release.argv)
    assert now is not None  # noqa: S101 - launch's own command
    rows += _programs(wanted.program, now)
    old = flags.read(wanted.program.engine, wanted.program.words, server.engine_version, wanted.program.positional)
    new = flags.read(now.engine, now.words, server.engine_version, now.positional)
    rows += _flags(wanted, old, new, same)
    rows += _variables(server, wanted, release)
    rows += _unknown(wanted, release)
    words = [f"{o.written} is {o.name}" for o in old.options if o.written not in (o.name, o.flag) and "." not in o.flag]
    if words:
        same.insert(0, f"other words for the same: {', '.join(words)}")
    if old.repeated:
        same.append(f"given more than once, of which the last one counts: {', '.join(old.repeated)}")
    return Compared(ordered(rows), tuple(same))


def _programs(was: Program, will: Program) -> list[Row]:
    """Return the row of the program; only how it is called may differ."""
    plain = tuple(word for word in was.head if word not in was.options)
    if plain == will.head:
        return []
    shown = shlex.join(will.head).replace(NO_PYTHON, MISSING)
    if plain[1:] == will.head[1:]:
        why = _PYTHON_UNSAID if will.head[0] == NO_PYTHON else "the same interpreter, by its full path"
    else:
        why = "the same server, by the module that launch starts"
        why += f"; {_PYTHON_UNSAID}" if will.head[0] == NO_PYTHON else ""
    return [Row("changed", "program", shlex.join(was.head), shown, why)]


def _flags(wanted: Wanted, old: Flags, new: Flags, same: list[str]) -> list[Row]:
    engine = wanted.program.engine
    told = {row.what for row in wanted.rows}
    model = NAMES[engine]["model.path"]
    before = {option.switch: option for option in old.options}
    after = {option.switch: option for option in new.options}
    paths = [_path(found, positional, model) for found, positional in ((old, wanted.program.positional), (new, 1))]
    rows = [] if paths[0] == paths[1] else [Row("changed", "model", paths[0], paths[1], _SAID)]
    for switch in dict.fromkeys((*before, *after)):
        was, will = before.get(switch), after.get(switch)
        if switch == model:
            continue
        if was is None and will is not None:
            rows.append(Row("added", will.written, "", _words(will), _why_added(engine, will)))
        elif was is not None and will is None:
            rows += _gone(wanted, was, told, same)
        elif was is not None and will is not None and (was.flag, was.values) != (will.flag, will.values):
            rows += _changed(was, will, same)
    return rows


def _path(found: Flags, positional: int, model: str) -> str:
    option = found.get(model)
    return found.words[0] if positional and found.words else option.values[0] if option and option.values else ""


def _words(option: Option) -> str:
    """Return the values of a flag as people read them."""
    return SHOWN if is_secret_flag(option.name, option.values) else shlex.join(option.values) if option.values else "on"


def _why_added(engine: str, option: Option) -> str:
    if option.values == (DEFAULTS[engine].get(option.flag),):
        return "the engine's own default, written out"
    if option.flag == "--config":
        return "secret flags reach the engine by a file that only its user can read"
    if option.flag == "--speculative-num-draft-tokens":
        return "what SGLang takes by itself: with topk 1, steps + 1"
    return _SAID


def _gone(wanted: Wanted, option: Option, told: set[str], same: list[str]) -> list[Row]:
    if option.flag == "--no-trust-remote-code":
        same.append("--no-trust-remote-code is what the engine does by itself")
        return []
    if option.key in wanted.deployment.secrets.args and is_secret_flag(option.name, option.values):
        return [_secret(wanted, option.written, "args", option.key)]
    if option.written in told or option.name in told:
        return []
    return [Row("left out", option.written, _words(option), "", _SAID)]


def _secret(wanted: Wanted, what: str, group: str, key: str) -> Row:
    place = f"{SECRETS}/{wanted.deployment.name}/{key}"
    why = f"the value is in {place}, and in no configuration"
    if f"secrets.{group}.{key}" in wanted.unknown:
        why = f"the input does not know the value: write it to {place} (mode 0600)"
    return Row("secret", what, SHOWN, f"secrets.{group}.{key}", why)


def _changed(was: Option, will: Option, same: list[str]) -> list[Row]:
    if was.flag == will.flag and _equal(was.values, will.values):
        same.append(f"{was.written} {shlex.join(was.values)} is {shlex.join(will.values)}")
        return []
    why = _SAID
    if was.flag == "--speculative-algorithm" and was.values == ("NEXTN",):
        why = "SGLang has two words for this"
    elif was.flag == "--speculative-algorithm" and was.values[0].upper() == will.values[0]:
        why = "SGLang takes either spelling"
    elif was.flag == "--speculative-num-draft-tokens":
        why = "with topk 1 SGLang itself changes it to steps + 1"
    return [Row("changed", was.written, _words(was), _words(will), why)]


def _equal(was: tuple[str, ...], will: tuple[str, ...]) -> bool:
    """Whether values are the same numbers or the same JSON."""
    if len(was) != len(will):
        return False
    for left, right in zip(was, will, strict=True):
        if left == right:
            continue
        try:
            if json.loads(left, parse_float=repr) == json.loads(right, parse_float=repr) or float(left) == float(right):
                continue
        except (ValueError, TypeError):
            pass
        if not _same_number(left, right):
            return False
    return True


def _same_number(left: str, right: str) -> bool:
    try:
        return float(left) == float(right)
    except ValueError:
        return False


def _variables(server: Server, wanted: Wanted, release: Release) -> list[Row]:
    gone = left_out(server.env, whole=server.whole_env)
    told = {row.what for row in wanted.rows}
    was = {name: value for name, value in server.env.items() if name not in gone and name not in told}
    rows = []
    for name, value in release.env.items():
        if name in was or name.startswith("LAUNCH_"):
            continue
        why = _ADDED[name] if ADDED.get(name) == value else _SAID
        rows.append(Row("added", name, "", value, why))
    rows.append(Row("added", "LAUNCH_DEPLOYMENT, LAUNCH_DIGEST", "", "by release", "each process says whose it is"))
    for name, value in was.items():
        if name in wanted.deployment.secrets.env and is_secret_variable(name, value):
            rows.append(_secret(wanted, name, "env", name))
        elif name not in release.env:
            rows.append(Row("left out", name, value, "", _SAID))
        elif release.env[name] != value:
            rows.append(Row("changed", name, value, release.env[name], _why_changed(name)))
    rows += [
        Row("changed", name, "unset", release.env[name], _SAID if name not in ADDED else _ADDED[name])
        for name in server.unset
        if name in release.env and name not in server.env
    ]
    return rows


def _unknown(wanted: Wanted, release: Release) -> list[Row]:
    """Return a row for each value that reaches the server with something unknown in it."""
    reached = {*release.argv, *release.env.values()}
    return [
        Row(
            "cannot be said",
            key,
            value,
            value,
            "the input does not know it: say it behind the command, or edit the file",
        )
        for key, value in wanted.unknown.items()
        if not key.startswith("secrets.") and (value in reached or set(value.split(" ")) <= reached)
    ]


def _why_changed(name: str) -> str:
    if name == "NCCL_ALGO":
        return "so that every collective keeps an algorithm; --allow nccl-bare-tree writes it as it was"
    return _SAID
