"""Points of a sweep come out exactly as if Hydra composed each of them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hydra import compose as hydra_compose
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from launcher.compose import Composition, compose, find_layers
from launcher.compose import overrides as ov
from launcher.compose.composer import TOP_LEVEL, Composer, _Base, _group_lines
from launcher.compose.search_path import hydra
from launcher.errors import ConfigError
from launcher.render import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.override_parser.types import Override

    from launcher.compose import Layers

OWN = {
    "deployment/plain": "nccl: {algo: Ring}\nengine: {args: {mode: '${model.quantization}', one: 1_0}}\nenv: {A: on}\n",
    "deployment/relative": "engine: {args: {first: 1, second: '${.first}'}, working_directory: '/${..name}'}\n",
    "deployment/dynamic": "bench: {command: decode, dtype: '${.${.command}}', decode: float16}\n",
    "deployment/whole": "bench: {loads: {chat: {concurrency: 4}, same: '${.chat}'}}\n",
    "deployment/broken": "unit: {before_stop: '${nobody}'}\n",
    "deployment/empty": "unit:\nhw: {gpu_count: ???}\n",
    "unit/x": "{}\n",
}
GROUPS = [
    "hw=rtx6000x8", "+hw=h100x8", "nccl=pcie_ll_ring", "spec=eagle3_2step", "engine=vllm", "model=tiny",
    "bench=allreduce",
    "deployment=plain", "deployment=relative", "deployment=dynamic", "deployment=whole", "deployment=broken",
    "deployment=empty", "nccl=nope",
]  # fmt: skip
VALUES = [
    "nccl.algo=Tree", "+nccl.algo=Ring", "nccl.algo=null", "~nccl.algo", "++nccl.proto=LL", "nccl.buffsize=16MiB",
    "nccl.max_nchannels=${engine.tensor_parallel}", "nccl.nthreads=1_28", "nccl={algo: PAT}", "nccl.algo.x=1",
    "engine.tensor_parallel=2", "model.tensor_parallel=4", "model.name=other", "~model.tensor_parallel", "~model.path",
    "name=mine", "name=${model.quantization}", "name=null", "~name", "name.x=1", "model.path=???", "model.path=''",
    "engine.port=9000", "engine.port=${unit.stop_timeout}", "engine.port=abc", "engine.prt=1", "~engine.port",
    "engine.version=0.5.12", "engine.version=1_0", "engine.user={a: 1}", "engine.host='\\${x}'", "engine.host=a\\,b",
    "engine.working_directory=/${.name}", "engine.memory_fraction=5e-1", "engine.gpus=[0,1]", "engine.gpus=0",
    "engine.args.seed=1e3", "engine.args.seed=null", "engine.args.z=on", "engine.args.a=true", "engine.args.a=[1,b]",
    "engine.args.first=7", "engine.args.one=2_0", "engine.args.x.y=1", "~engine.args", "~engine.args.one",
    "engine.args.b='${engine.args.a}'", "engine.args.num_continuous_decode_steps=8", "engine.args.a-b=1",
    "env.X=1e3", "+env.X='a b'", "env.A=b", "~env.A", "~env", "secrets.env.T=file:/x", "secrets.env.T=bare",
    "unit.start_timeout=100", "unit={stop_timeout: 5}", "unit.stop_timeout=7",
    "unit.before_stop=${name}", "~unit.slice",
    "bench.loads.chat.concurrency=8", "bench.loads.chat.metric=nope",
    "bench.loads={a: {concurrency: 2}}", "bench.loads=1",
    "bench.command=decode", "bench.decode=float32", "bench.batches=[1,2]", "sweep.effect=0.5", "hw.gpu_count=4",
    "hw.name=x", "hw=1", "target.hosts=[a,b]", "target.hosts=a", "unit=x", "allow=[nccl-bare-tree]", "nowhere.x=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Layers:
    folder = tmp_path_factory.mktemp("own")
    for name, text in OWN.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# @package _global_\n{text}" if name.startswith("deployment") else text)
    return find_layers([], {}, folder)


class Anew(Composer):
    """Leaves everything to Hydra, in one call."""

    given: ov.Overrides

    def compose(self, texts: Sequence[str]) -> Composition:
        self.given = ov.read(texts, TOP_LEVEL)
        return super().compose(texts)

    def _data(self, base: _Base, values: Sequence[Override]) -> dict[str, Any]:  # noqa: ARG002
        lines = [*_group_lines(self.given, self._layers), *self.given.values]
        config = hydra_compose("config", lines, return_hydra_config=True)
        OmegaConf.set_struct(config, value=False)
        for key in ("hydra", "env"):
            config.pop(key, None)
        return cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True))


def result(composer: Composer, texts: Sequence[str]) -> object:
    """Return everything that somebody could see of a composition."""
    try:
        found = composer.compose(texts)
    except ConfigError as error:
        return error.problems
    deployment = found.deployment
    keys = [*VALUES, *(f"{name}=" for name in TOP_LEVEL)]
    origins = [found.sources.origins(key.lstrip("+~").partition("=")[0]) for key in keys]
    try:
        digest = render(deployment).digest
    except ConfigError as error:
        digest = str(error)
    return (
        deployment,
        list(deployment.nccl),
        list(deployment.engine.args),
        list(deployment.env),
        origins,
        digest,
        found.notes,
    )


@pytest.fixture(scope="module")
def both(layers: Layers) -> Iterator[tuple[Composer, Composer]]:
    with hydra(layers):
        yield Composer(layers, {"E": "x"}), Anew(layers, {"E": "x"})


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
    values=st.lists(st.sampled_from(VALUES), max_size=4, unique=True),
)
@example(groups=["deployment=whole"], values=["bench.loads.chat.concurrency=8"])
@example(groups=["deployment=dynamic"], values=["bench.command=decode", "bench.decode=float32"])
@example(groups=["deployment=relative"], values=["engine.args.first=7", "name=mine"])
@example(groups=["deployment=empty"], values=["unit.stop_timeout=7", "hw.gpu_count=4"])
@example(groups=[], values=["model.name=other", "nccl.algo=Tree"])
@example(groups=[], values=["engine.args.b='${engine.args.a}'", "engine.args.a=true"])
def test_as_if_each_was_composed_anew(groups: list[str], values: list[str], both: tuple[Composer, Composer]) -> None:
    texts = [*groups, *values]
    assert result(both[0], texts) == result(both[1], texts)


@pytest.mark.parametrize("value", VALUES)
def test_every_value_alone(value: str, both: tuple[Composer, Composer]) -> None:
    assert result(both[0], [value]) == result(both[1], [value])


def test_one_point_leaves_no_trace_in_the_next(layers: Layers) -> None:
    with hydra(layers):
        composer = Composer(layers, {})
        before = composer.compose(["deployment=plain"]).deployment
        for value in VALUES:
            result(composer, ["deployment=plain", value])
        assert composer.compose(["deployment=plain"]).deployment == before
    assert compose(["deployment=plain"], layers).deployment == before
