"""From one server that was found to a deployment file that was tried: it composes, renders, and was compared."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.adopt import compare, settings
from launcher.adopt.surroundings import MISSING, NO_PYTHON
from launcher.adopt.table import Row
from launcher.catalogue import rules
from launcher.compose import Layers, compose, overrides, standalone
from launcher.compose.composer import TOP_LEVEL
from launcher.errors import ConfigError, RenderError
from launcher.layers import Layer
from launcher.paths import GROUPS
from launcher.render import Release, render

if TYPE_CHECKING:
    from launcher.adopt.compare import Compared
    from launcher.adopt.found import Server
    from launcher.adopt.settings import Wanted
    from launcher.schema import Deployment

#: What a missing value is tried with; nothing of it is written.
_STAND_INS = {"engine.python": NO_PYTHON, "engine.user": MISSING.lower()}


@dataclass(frozen=True)
class Said:
    """What the user says beside the input.

    Attributes:
        groups: option by group.
        values: overrides of single values.
        environment: variables of ``-e``.
        allow: rules that may not refuse.
        name: of the deployment; empty: derived.
    """

    groups: Mapping[str, str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    name: str = ""

    @property
    def given(self) -> dict[str, str]:
        """Values of single keys, as they were typed."""
        pairs = (line.lstrip("+").partition("=") for line in self.values)
        return {**{key: value for key, _, value in pairs}, **{f"env.{name}": v for name, v in self.environment.items()}}


@dataclass(frozen=True)
class Adopted:
    """A server as a deployment file.

    Attributes:
        name: of the deployment.
        server: as it was started.
        text: of the file.
        wanted: what it became.
        deployment: what the file composes to; python and user may be missing.
        release: what it renders to; with stand-ins for what is missing.
        compared: what differs.
        findings: of the rules.
        missing: keys that a command has to say.
        unknown: values that hold something unknown, by key.
    """

    name: str
    server: Server
    text: str
    wanted: Wanted
    deployment: Deployment
    release: Release
    compared: Compared
    findings: tuple[rules.Finding, ...]
    missing: tuple[str, ...]
    unknown: Mapping[str, str]


def said(texts: tuple[str, ...], environment: Mapping[str, str], allow: tuple[str, ...]) -> Said:
    """Read the overrides of a command line.

    Raises:
        ConfigError: one cannot be read, or does not go with `adopt`.
    """
    given = overrides.read(texts, TOP_LEVEL)
    if "deployment" in given.typed:
        raise ConfigError("deployment= does not go with adopt: it writes a file of its own, name=NAME names it")
    name = given.typed.get("name", "").partition("=")[2].strip("'\"")
    values = tuple(line for key, line in given.typed.items() if key not in GROUPS and key != "name")
    return Said(dict(given.groups), values, environment, allow, name)


def adopt(server: Server, name: str, layers: Layers, told: Said) -> Adopted:
    """Return a server as a deployment file.

    Raises:
        ConfigError: it is no server that launch knows, or no deployment can be this server.
    """
    try:
        return _adopted(server, name, layers, told, ())
    except RenderError as error:
        # It was started, so what contradicts it is an option of ours that describes another model or machine.
        for without in (("model",), ("hw",), ("model", "hw")):
            with suppress(RenderError):
                return _adopted(server, name, layers, told, without, str(error))
        raise


def _adopted(
    server: Server, name: str, layers: Layers, told: Said, without: tuple[str, ...], reason: str = ""
) -> Adopted:
    wanted = settings.wanted(server, name, layers, told.groups, told.given, without)
    text = _text(wanted, wanted.deployment, server, layers)
    missing = tuple(key for key in wanted.missing if key not in told.given)
    deployment = wanted.deployment
    if told.values or told.environment or told.allow:
        deployment = _set(_tried(name, text, layers, told), dict.fromkeys(missing, MISSING))
        deployment = dataclasses.replace(deployment, allow=tuple(dict.fromkeys((*deployment.allow, *told.allow))))
        text = _text(wanted, deployment, server, layers)
    again = _tried(name, text, layers, Said())
    if keys := ", ".join(_differ(again, deployment)):
        raise ConfigError(f"the file would not say the same ({keys}); this is a mistake in launch, please report it")
    trial = _set(deployment, {key: _STAND_INS[key] for key in missing})
    release = render(trial)
    findings = rules.check(trial)
    rows = tuple(Row("left out", f"{group}=…", "", "", f"it contradicts the server: {reason}") for group in without)
    compared = compare.compare(server, dataclasses.replace(wanted, rows=(*wanted.rows, *rows)), release)
    unknown = {key: value for key, value in wanted.unknown.items() if key not in told.given}
    return Adopted(name, server, text, wanted, deployment, release, compared, findings, missing, unknown)


def _tried(name: str, text: str, layers: Layers, told: Said) -> Deployment:
    """Compose a file that is not written yet, as it will be composed."""
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        file = Path(folder) / "deployment" / f"{name}.yaml"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        tried = Layers((Layer(Path(folder), "conf", own=True), *layers.folders))
        return compose([f"deployment={name}", *told.values], tried, told.environment).deployment


def _set(deployment: Deployment, values: Mapping[str, str]) -> Deployment:
    """Return a deployment with other texts for python and user."""
    engine = deployment.engine
    python, user = values.get("engine.python", engine.python), values.get("engine.user", engine.user)
    return dataclasses.replace(deployment, engine=dataclasses.replace(engine, python=python, user=user))


def _differ(one: Deployment, other: Deployment) -> list[str]:
    """Return the parts in which two deployments differ; a flag that is taken away is as good as none."""
    sides = [dataclasses.asdict(side) for side in (one, other)]
    for side in sides:
        side["engine"]["args"] = {key: value for key, value in side["engine"]["args"].items() if value is not None}
    return [key for key, value in sides[0].items() if value != sides[1][key]]


def _text(wanted: Wanted, deployment: Deployment, server: Server, layers: Layers) -> str:
    head = [f"Adopted from {server.where}."]
    if wanted.hw.guessed:
        head += [f"hw={wanted.hw.name} is a guess, to be confirmed: {wanted.hw.why}."]
    missing = [key for key in wanted.missing if _at(deployment, key) == MISSING]
    missing += [key for key in wanted.unknown if _at(deployment, key) == _at(wanted.deployment, key)]
    if missing:
        head.append(
            f"To be said: {', '.join(missing)}: the input does not say {'it' if len(missing) == 1 else 'them'}."
        )
    unsaid = [] if deployment.engine.memory_fraction or not wanted.plain.engine.memory_fraction else ["0.0"]
    unsaid += ["null"] if any(deployment.engine.args.get(key) is None for key in wanted.plain.engine.args) else []
    if unsaid:
        head.append(f"{' and '.join(unsaid)} in engine: not given, so that the engine itself decides.")
    if deployment.takes_over:
        head.append(
            "takes_over is the server that runs: launch up stops it, starts this one, and goes back if that fails."
        )
    return standalone.text(head, wanted.options, wanted.plain, deployment, layers)


def _at(deployment: Deployment, key: str) -> object:
    """Return what a key of a deployment is set to."""
    group, _, name = key.rpartition(".")
    part: Any = deployment
    for word in group.split("."):
        part = getattr(part, word)
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name)
