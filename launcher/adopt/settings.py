"""From a server as it was started to the typed deployment, and the options of the groups that it is written with."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.adopt import apart, flags, presets, surroundings
from launcher.compose import compose
from launcher.errors import ConfigError
from launcher.schema import Model, Secrets, Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.adopt.apart import Apart
    from launcher.adopt.flags import Option
    from launcher.adopt.found import Server
    from launcher.adopt.presets import Hw
    from launcher.adopt.program import Program
    from launcher.adopt.table import Row
    from launcher.compose import Layers
    from launcher.schema import ArgValue, Deployment

_WHOLE = re.compile(r"0|[1-9][0-9]*")
#: Below the home of whoever deploys; files are named by variable or flag.
SECRETS = "~/.config/launch/secrets"


@dataclass(frozen=True)
class Wanted:
    """What a server becomes.

    Attributes:
        deployment: python and user may be `surroundings.MISSING`.
        options: by group; no model (None) where none of the options is this one.
        plain: what these options alone compose to.
        hw: the machine, and why.
        secrets: values by the name of their file; not of those whose value the input does not know.
        missing: keys that the input does not say.
        unknown: values that hold something unknown, such as a variable that nothing sets, by key.
        rows: what is no part of the deployment.
        program: the engine's program, as it was started.
    """

    deployment: Deployment
    options: Mapping[str, str | None]
    plain: Deployment
    hw: Hw
    secrets: Mapping[str, str]
    missing: tuple[str, ...]
    unknown: Mapping[str, str]
    rows: tuple[Row, ...]
    program: Program


def wanted(
    server: Server,
    name: str,
    layers: Layers,
    chosen: Mapping[str, str],
    given: Mapping[str, str],
    without: tuple[str, ...] = (),
) -> Wanted:
    """Return what a server becomes.

    Args:
        server: as it was started.
        name: of the deployment.
        layers: search path.
        chosen: options of groups that the user named.
        given: values of single keys that the user named; where the input does not know one, it is needed here.
        without: groups whose options were found not to fit.

    Raises:
        ConfigError: it is no server that launch knows, or says something that no deployment can.
    """
    read = apart.read(server, given)
    around = surroundings.read(server, read.program)
    hw = _hardware(server, read, layers, chosen) if "hw" in chosen or "hw" not in without else presets.Hw()
    options = _options(read, hw, bool(around.hosts), layers, chosen)
    if "model" in without and "model" not in chosen:
        options["model"] = None
    plain = _plain(options, read, layers)
    deployment = _deployment(server, read, around, plain, name)
    return Wanted(
        deployment,
        options,
        plain,
        hw,
        secrets=read.known_secrets,
        missing=around.missing,
        unknown=read.unknown,
        rows=(*read.rows, *read.variables.rows, *around.rows),
        program=read.program,
    )


def _plain(options: Mapping[str, str | None], read: Apart, layers: Layers) -> Deployment:
    """Return what the options alone compose to; without a model none of the first configuration's stays."""
    plain = compose([f"{group}={option}" for group, option in options.items() if option], layers).deployment
    if options["model"] is not None:
        return plain
    engine = dataclasses.replace(plain.engine, tensor_parallel=read.common.tensor_parallel)
    return dataclasses.replace(plain, model=Model("", ""), engine=engine)


def _hardware(server: Server, read: Apart, layers: Layers, chosen: Mapping[str, str]) -> Hw:
    if "hw" in chosen:
        return presets.Hw(chosen["hw"], "as you say")
    degree = len(read.variables.gpus) or read.common.tensor_parallel
    return presets.hardware(layers, server.gpus, read.variables.nccl, degree)


def _options(read: Apart, hw: Hw, reached: bool, layers: Layers, chosen: Mapping[str, str]) -> dict[str, str | None]:  # noqa: FBT001
    usual = presets.usual_set(layers, hw.name)
    spec = presets.speculation(layers, read.spec)
    found: dict[str, str | None] = {
        **({"hw": hw.name} if hw.name else {}),
        "model": presets.model(layers, read.common.path) or None,
        "nccl": presets.nccl_set(layers, read.variables.nccl, usual),
        **({"spec": spec} if spec else {}),
        "engine": read.program.engine,
        **({"target": "ssh"} if reached else {}),
        **chosen,
    }
    if found["engine"] not in (read.program.engine, None) and "engine" in chosen:
        # An option of one's own may be this engine under another name; what it composes to decides.
        composed = compose([f"engine={chosen['engine']}"], layers).deployment.engine.name
        if composed != read.program.engine:
            raise ConfigError(f"engine={chosen['engine']} is {composed}, and this server is {read.program.engine}")
    return found


def _deployment(server: Server, read: Apart, around: surroundings.Around, plain: Deployment, name: str) -> Deployment:
    common, sorted_out = read.common, read.variables
    model = plain.model
    if not model.name:
        model = Model(model_name(common.path), common.path, tensor_parallel=common.tensor_parallel)
    model = dataclasses.replace(
        model, path=common.path, served_name=common.served_name, trust_remote_code=common.trust_remote_code
    )
    engine = dataclasses.replace(
        plain.engine,
        python=around.python,
        user=around.user,
        version=server.engine_version or plain.engine.version,
        nccl_version=server.nccl_version or plain.engine.nccl_version,
        host=common.host,
        port=common.port,
        tensor_parallel=common.tensor_parallel,
        memory_fraction=common.memory_fraction,
        gpus=sorted_out.gpus,
        working_directory=around.working_directory,
        args=_args(read, plain),
    )
    return dataclasses.replace(
        plain,
        name=name,
        model=model,
        engine=engine,
        nccl=_like(plain.nccl, sorted_out.nccl),
        spec=_spec(read.spec, plain.spec, model),
        unit=dataclasses.replace(plain.unit, log_file=around.log_file),
        secrets=Secrets(_sources(name, sorted_out.secrets), _sources(name, read.secret_args)),
        target=dataclasses.replace(plain.target, hosts=around.hosts) if plain.target.kind == "ssh" else plain.target,
        env=sorted_out.env,
        takes_over=server.argv_digest,
    )


def model_name(path: str) -> str:
    """Return a short name for weights that no option describes."""
    name = "" if "$" in path or "`" in path else presets.base_name(path)
    return re.sub(r"[^a-z0-9]+", "_", name).strip("_") or "model"


def _sources(name: str, values: Mapping[str, str]) -> dict[str, str]:
    return {key: f"file:{SECRETS}/{name}/{key}" for key in values}


def _like(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return a map in the order of the one that it changes."""
    return {key: after[key] for key in (*(k for k in before if k in after), *(k for k in after if k not in before))}


def _spec(found: Speculation, plain: Speculation, model: Model) -> Speculation:
    """Return the speculation; what model a draft was trained for is known only of the option's own draft model."""
    same = presets.base_name(found.draft_model_path) == presets.base_name(plain.draft_model_path)
    trained_for = plain.draft_for if same and found.draft_model_path and plain.draft_for == model.name else ""
    # Keys that this engine does not read stay as the option has them.
    longest = found.ngram_max or (plain.ngram_max if found.method == plain.method == "ngram" else 0)
    return dataclasses.replace(found, draft_for=trained_for, ngram_max=longest)


def _args(read: Apart, plain: Deployment) -> dict[str, ArgValue]:
    """Return the further flags; one that the options set in other words keeps their key and their kind of value."""
    known = {flags.canonical(read.program.engine, key): key for key in plain.engine.args}
    found: dict[str, ArgValue] = {}
    for option in read.args:
        key = known.get(option.flag, option.key)
        value = _value(option)
        if option.flag.startswith("--no-") and option.known and option.switch != option.flag:
            key = known.get(option.switch, option.key[3:])
            value = False
        before = plain.engine.args.get(key)
        found[key] = before if _text(before) == _text(value) else value
    return {key: found[key] for key in (*(k for k in plain.engine.args if k in found), *found)}


def _value(option: Option) -> ArgValue:
    """Return a value as its file will be read: YAML knows whole numbers in a list, and writes them as they were."""
    if not option.values:
        return True
    if len(option.values) == 1:
        return option.values[0]
    return tuple(int(value) if _WHOLE.fullmatch(value) else value for value in option.values)


def _text(value: ArgValue) -> object:
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return value if value is None or isinstance(value, bool) else str(value)
