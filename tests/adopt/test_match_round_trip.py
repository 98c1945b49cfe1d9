"""A deployment, written as a shell line and adopted again, is the same command and environment."""

from __future__ import annotations

import dataclasses
import shlex
import string
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from launcher.adopt import flags, match, names, program, read
from launcher.adopt.secret import is_secret_flag, is_secret_variable
from launcher.catalogue import engines
from launcher.compose import compose
from launcher.errors import ConfigError
from launcher.render import Release, render
from tests.composing import packaged

if TYPE_CHECKING:
    from launcher.adopt.found import Server

_LAYERS = packaged()
_OWN = ("LAUNCH_DEPLOYMENT", "LAUNCH_DIGEST")
#: What YAML, Hydra and shells have ideas of their own about.
_ODD = (
    "1e5",
    "on",
    "08",
    "1:30",
    "null",
    "~",
    "???",
    "${x}",
    "\\${x}",
    "1_000",
    "0x10",
    "-1",
    "'",
    '"',
    "a b",
    "#",
    "!x",
    "é",
    "=",
    "%d",
    "$HOME",
    "{a: b}",
    "[1,2]",
)
_TEXT = st.one_of(
    st.sampled_from(_ODD), st.text(string.ascii_letters + string.digits + " ./:,_'\"\\$#%{}[]é", max_size=12)
)
_VALUE = _TEXT.filter(lambda text: not flags.is_flag(text))
_Choices = tuple[list[str], ...]
_MODEL: _Choices = (
    [],
    ["model.served_name=prod"],
    ["model.path=/data/m"],
    ["model.path=org/Kimi-K2.5"],
)
_NCCL: _Choices = (
    [],
    ["spec.profile=true"],
    ["nccl.max_nchannels=3"],
    ["nccl.buffsize=1MiB"],
    ["nccl.debug=WARN"],
)
_NAME = st.from_regex(r"[A-Z][A-Z0-9_]{2,12}", fullmatch=True)


def _known(engine: str) -> st.SearchStrategy[tuple[str, Any]]:
    """Return flags of an engine with values of the kind that they take."""
    common = {"--model", "--model-path", "--config", "--host", "--port", "--help", "--version", "--middleware"}
    kinds = {"none": st.just(True), "one": _VALUE, "optional": _VALUE, "many": st.lists(_VALUE, min_size=2, max_size=3)}
    found = [
        st.tuples(st.just(flag.name[2:].replace("-", "_")), kinds[flag.takes])
        for flag in engines.flags(engine).values()
        if flag.name.startswith("--") and flag.name not in common and not flag.name.startswith(("--no-", "--spec"))
        and "size" not in flag.name and "mem" not in flag.name and "trust" not in flag.name
        and not is_secret_flag(flag.name, ("x",))
    ]  # fmt: skip
    unknown = st.tuples(st.from_regex(r"zz_[a-z]{1,8}", fullmatch=True), st.one_of(st.just(True), _VALUE))
    return st.one_of(st.sampled_from(found).flatmap(lambda x: x), unknown)


@st.composite
def _overrides(draw: st.DrawFn) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    engine = draw(st.sampled_from(("sglang", "vllm")))
    texts = [
        f"engine={engine}",
        f"model={draw(st.sampled_from(_LAYERS.options('model')))}",
        f"nccl={draw(st.sampled_from(_LAYERS.options('nccl')))}",
        *draw(st.sampled_from(([], *([f"+hw={name}"] for name in _LAYERS.options("hw"))))),
        *draw(st.sampled_from(([], *([f"+spec={name}"] for name in _LAYERS.options("spec"))))),
        f"engine.port={draw(st.integers(1, 65535))}",
        f"engine.memory_fraction={draw(st.sampled_from(('0', '0.5', '0.88', '1', '0.9', '0.123456')))}",
        f"engine.tensor_parallel={draw(st.sampled_from((1, 2, 4, 8)))}",
        *draw(st.sampled_from(_MODEL)),
        *draw(st.sampled_from(_NCCL)),
        *draw(st.sampled_from(([], ["engine.gpus=[0,1,2,3,4,5,6,7]"], ["engine.gpus=[3]"]))),
    ]  # fmt: skip
    env = draw(st.dictionaries(_NAME, _TEXT, max_size=4))
    args = dict(draw(st.lists(_known(engine), max_size=5, unique_by=lambda pair: pair[0])))
    return texts, env, args


def _release(texts: list[str], env: dict[str, str], args: dict[str, Any]) -> Release:
    """Return a release, or give the example up: not everything that can be drawn is a deployment."""
    try:
        deployment = compose(texts, _LAYERS, env).deployment
        kept = {key: tuple(value) if isinstance(value, list) else value for key, value in args.items()}
        engine = dataclasses.replace(deployment.engine, args={**deployment.engine.args, **kept})
        return render(dataclasses.replace(deployment, engine=engine))
    except ConfigError:
        assume(False)
        raise


def _line(release: Release) -> str:
    return shlex.join(["env", *(f"{name}={value}" for name, value in release.env.items()), *release.argv])


def _read(line: str) -> Server:
    found = read.read(line, "line.sh", None)
    (server,) = found.servers
    assert (server.remarks, found.remarks) == ((), ())
    return dataclasses.replace(server, user="llm")


def _canonical(release: Release) -> dict[str, tuple[str, ...]]:
    found = program.read(release.argv)
    assert found is not None
    known = flags.read(found.engine, found.words, "", found.positional)
    return {"": (*found.head, *known.words), **{o.flag: o.values for o in known.options}}


@given(_overrides())
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_a_deployment_comes_back_from_its_shell_line(
    drawn: tuple[list[str], dict[str, str], dict[str, Any]],
) -> None:
    texts, env, args = drawn
    env = {name: value for name, value in env.items() if not is_secret_variable(name, value)}
    assume(
        not any(
            is_secret_flag(f"--{key}", tuple(map(str, v if isinstance(v, list) else [v]))) for key, v in args.items()
        )
    )
    release = _release(texts, env, args)
    server = _read(_line(release))
    (name,) = names.of([server])
    adopted = match.adopt(server, name, _LAYERS, match.said((), {}, ()))
    assert _canonical(adopted.release) == _canonical(release)
    own = {key: value for key, value in release.env.items() if key not in _OWN}
    assert {key: value for key, value in adopted.release.env.items() if key not in _OWN} == own
    assert [r for r in adopted.compared.rows if r.kind != "added" and r.what not in (*_OWN, "model=…", "hw=…")] == []
    assert not adopted.missing
