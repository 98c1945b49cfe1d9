"""What a sweep tries: values as they are written, whole sweeps from files, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.compose import ComposedSweep, compose_sweep, find_layers
from launcher.compose.composer import TOP_LEVEL
from launcher.compose.expand import expand, named
from launcher.errors import ConfigError
from launcher.schema import Load
from tests.composing import compose_points, packaged

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.schema import Deployment


def axes(*texts: str) -> dict[str, tuple[str, ...]]:
    return named(expand(texts, packaged(), TOP_LEVEL).axes)


# --- values

VALUES: dict[str, tuple[str, ...]] = {
    "x=a,b": ("a", "b"),
    "x=a, b ,c": ("a", "b", "c"),
    "x=choice(a,b)": ("a", "b"),
    "x=choice(a)": ("a",),
    "x=range(1,4)": ("1", "2", "3"),
    "x=range(2,18,5)": ("2", "7", "12", "17"),
    "x=range(4,1,-1)": ("4", "3", "2"),
    "x=range(3)": ("0", "1", "2"),
    "x=range(0,1,0.25)": ("0.0", "0.25", "0.5", "0.75"),
    "x=sort(3,1,2)": ("1", "2", "3"),
    "x=sort(choice(b,a),reverse=true)": ("b", "a"),
    "x=sort(1e3,2,1_0)": ("2", "1_0", "1e3"),
    "x=1e3,1_000,0x10,on,true,null,12:30,007,1.10": (
        "1e3", "1_000", "0x10", "on", "true", "null", "12:30", "007", "1.10",
    ),
    "x='a,b',c": ("'a,b'", "c"),
    'x="a(b",c': ('"a(b"', "c"),
    "x='it\\'s, so',c": ("'it\\'s, so'", "c"),
    "x=a\\,b,c": ("a\\,b", "c"),
    "x=[1,2],[3]": ("[1,2]", "[3]"),
    "x={a:1,b:2},{c:3}": ("{a:1,b:2}", "{c:3}"),
    "x=${model.name},b": ("${model.name}", "b"),
    "x=int(1.0,2.0)": ("1", "2"),
    "x=str(1,2)": ("1", "2"),
    "x=tag(t,choice(a,b))": ("a", "b"),
    "x=a,a": ("a", "a"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "values"), VALUES.items())
def test_values_stay_as_they_are_written(text: str, values: tuple[str, ...]) -> None:
    assert axes(text.replace("x=", "engine.args.x=", 1)) == {"engine.args.x": values}


def test_shuffled_are_the_same_in_another_order() -> None:
    assert sorted(axes("nccl.algo=shuffle(Ring,Tree,PAT)")["nccl.algo"]) == ["PAT", "Ring", "Tree"]
    assert sorted(axes("env.A=shuffle(range(0,9))")["env.A"]) == [str(number) for number in range(9)]


GLOBS: dict[str, tuple[str, ...]] = {
    "spec=glob(*)": ("eagle3_2step", "eagle3_5step", "mtp", "ngram", "off"),
    "+spec=glob(eagle*)": ("eagle3_2step", "eagle3_5step"),
    "spec=glob([eagle*,o*])": ("eagle3_2step", "eagle3_5step", "off"),
    "spec=glob(*,exclude=eagle*)": ("mtp", "ngram", "off"),
    "spec=glob([eagle*,n*],exclude=[*5step,off])": ("eagle3_2step", "ngram"),
}


@pytest.mark.parametrize(("text", "values"), GLOBS.items())
def test_patterns_pick_options(text: str, values: tuple[str, ...]) -> None:
    assert axes(text) == {"spec": values}


def test_patterns_see_options_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "conf/nccl").mkdir(parents=True)
    (tmp_path / "conf/nccl/mine.yaml").write_text("algo: Tree\n")
    sweep = compose_sweep(["nccl=glob(mi*)"], find_layers([], {}, tmp_path))
    assert [dict(p.composition.deployment.nccl) for p in sweep.points] == [{"algo": "Tree"}]


def test_every_kind_of_key() -> None:
    points = compose_points(["spec=off,ngram", "env.A=1e3,on", "engine.args.seed=1e3,2", "+nccl.proto=LL,Simple"])
    found = [(d.spec.method, d.env["A"], d.engine.args["seed"], d.nccl["proto"]) for _, d in points]
    assert len(found) == 16
    assert found[0] == ("off", "1e3", "1e3", "LL")
    assert found[-1] == ("ngram", "on", "2", "Simple")


def test_the_last_axis_is_the_fastest() -> None:
    sweep = compose_sweep(["env.A=1,2", "env.B=x,y", "env.C=z"], packaged())
    assert [p.label for p in sweep.points] == [
        "env.A=1 env.B=x",
        "env.A=1 env.B=y",
        "env.A=2 env.B=x",
        "env.A=2 env.B=y",
    ]
    assert sweep.points[0].words == ("env.C=z", "env.A=1", "env.B=x")


REFUSED = {
    "a word to a key": (["nccl.algo=glob(R*)"], "glob() picks options of a group"),
    "no step": (["env.A=range(1,5,0)"], "steps of 0"),
    "package": (["hw@x=a,b"], "'@' is not used here"),
    "map": (["env=a,b"], "set the names one by one: env.NAME=VALUE"),
    "two experiments": (["experiment=nccl_pcie", "experiment=nccl_pcie"], "choose one experiment"),
    "experiments": (["experiment=a,b"], "choose one experiment by name, as experiment=NAME"),
    "no experiment": (["experiment=nccl_pci"], "did you mean 'nccl_pcie'"),
    "two of both": (["spec=glob(*)", "spec=off,ngram"], "spec is swept twice"),
}


@pytest.mark.parametrize(("texts", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(texts: list[str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_sweep(texts, packaged())
    assert part in str(caught.value)


def test_too_many_are_counted_before_anything_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.compose.sweep.hydra", lambda _: pytest.fail("composed"))
    with pytest.raises(ConfigError, match=r"a sweep of 1,000,000 points \(1000 x 1000\): 5,000 at most"):
        compose_sweep(["env.A=range(0,1000)", "env.B=range(0,1000)"], packaged())
    with pytest.raises(ConfigError, match="a range of 2,000,000,000 values"):
        compose_sweep(["env.A=shuffle(range(0,1000000000,0.5))"], packaged())


# --- experiments

FILE = """\
# Source: our own.
spec: ngram
engine:
  args: {seed: 1e3}
  port: 9000
env.A: on
axes:
  nccl.algo: [Ring, Tree]
  nccl.max_nchannels: range(2,5,2)
pairs:
  - {nccl.p2p_level: SYS, env.B: '1,2'}
  - {nccl.p2p_level: PHB, env.B: ^x}
filters:
  - {nccl.algo: Tree, nccl.max_nchannels: [2, 4], nccl.p2p_level: PHB}
baseline:
  spec: off
"""


def swept(folder: Path, text: str, *words: str, **environment: str) -> ComposedSweep:
    path = folder / "conf/experiment/mine.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return compose_sweep(["experiment=mine", *words], find_layers([], {}, folder), environment)


def seen(deployment: Deployment) -> tuple[str | None, ...]:
    nccl = deployment.nccl
    return nccl.get("algo"), nccl.get("max_nchannels"), nccl.get("p2p_level"), deployment.env.get("B")


def test_an_experiment(tmp_path: Path) -> None:
    sweep = swept(tmp_path, FILE)
    assert sweep.axes == {
        "nccl.algo": ("Ring", "Tree"),
        "nccl.max_nchannels": ("2", "4"),
        "nccl.p2p_level": ("SYS", "PHB"),
        "env.B": ('"1,2"', '"^x"'),
    }
    assert [seen(p.composition.deployment) for p in sweep.points] == [
        ("Ring", "2", "SYS", "1,2"), ("Ring", "2", "PHB", "^x"),
        ("Ring", "4", "SYS", "1,2"), ("Ring", "4", "PHB", "^x"),
        ("Tree", "2", "SYS", "1,2"), ("Tree", "4", "SYS", "1,2"),
    ]  # fmt: skip
    assert [label.partition(" env.B")[0] for label, _ in sweep.filtered] == [
        "nccl.algo=Tree nccl.max_nchannels=2 nccl.p2p_level=PHB",
        "nccl.algo=Tree nccl.max_nchannels=4 nccl.p2p_level=PHB",
    ]
    assert sweep.filtered[0][1] == (
        "conf/experiment/mine.yaml: filter 1 leaves out nccl.algo=Tree with nccl.max_nchannels=2 or 4 with"
        " nccl.p2p_level=PHB"
    )
    baseline, point = sweep.baseline.composition.deployment, sweep.points[0].composition.deployment
    assert (seen(baseline), baseline.spec.method, point.spec.method) == ((None,) * 4, "off", "ngram")
    assert (point.engine.port, point.engine.args["seed"], point.env["A"]) == (9000, "1e3", "on")
    assert (
        sweep.points[0].composition.sources.origins("engine.port")[0] == "conf/experiment/mine.yaml: 'engine.port=9000'"
    )


WINS: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "a value over an axis": (("nccl.algo=PAT",), {"nccl.max_nchannels": ("2", "4")}),
    "an axis over an axis": (("nccl.algo=PAT,NVLS",), {"nccl.max_nchannels": ("2", "4"), "nccl.algo": ("PAT", "NVLS")}),
    "an axis over a value": (
        ("spec=off,mtp", "model=deepseek_v3"),
        {"nccl.algo": ("Ring", "Tree"), "nccl.max_nchannels": ("2", "4"), "spec": ("off", "mtp")},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), WINS.values(), ids=WINS.keys())
def test_the_command_line_wins(words: tuple[str, ...], expected: dict[str, object], tmp_path: Path) -> None:
    text = FILE[: FILE.index("pairs:")]
    assert swept(tmp_path, text, *words).axes == expected


def test_the_command_line_wins_over_pairs_values_and_baseline(tmp_path: Path) -> None:
    sweep = swept(tmp_path, FILE, "nccl.p2p_level=LOC", "engine.port=1", "spec=off", "nccl.algo=Ring,Tree", B="z")
    assert "env.B" not in sweep.axes
    assert "nccl.p2p_level" not in sweep.axes
    found = [p.composition.deployment for p in sweep.points]
    assert {(d.nccl["p2p_level"], d.env["B"], d.engine.port, d.spec.method) for d in found} == {("LOC", "z", 1, "off")}
    assert len(found) == 4
    assert sweep.baseline.composition.deployment.nccl == {"p2p_level": "LOC"}


def test_a_filter_also_sees_what_was_typed(tmp_path: Path) -> None:
    sweep = swept(tmp_path, FILE, "nccl.algo=Tree", "nccl.p2p_level=PHB")
    assert (sweep.points, len(sweep.filtered)) == ((), 4)


def test_several_lists_of_pairs(tmp_path: Path) -> None:
    text = "pairs:\n- [{env.A: 1, env.B: 1}, {env.A: 2}]\n- [{nccl: {algo: Ring, proto: LL}}, {nccl.algo: Tree}]\n"
    sweep = swept(tmp_path, text)
    assert [p.label for p in sweep.points] == [
        "env.A=1 env.B=1 nccl.algo=Ring nccl.proto=LL", "env.A=1 env.B=1 nccl.algo=Tree",
        "env.A=2 nccl.algo=Ring nccl.proto=LL", "env.A=2 nccl.algo=Tree",
    ]  # fmt: skip


WRONG = {
    "a key of its own": ("axis: {nccl.algo: [Ring]}\n", ["mine.yaml:1: there is no key 'axis'; did you mean 'axes'?"]),
    "a group": ("a: 1\nspce: off\n", ["mine.yaml:2: there is no key 'spce'; did you mean 'spec'?"]),
    "a key": ("axes:\n  engine.prt: [1, 2]\n", ["conf/experiment/mine.yaml: 'engine.prt=1'", "did you mean 'port'"]),
    "a value": ("axes:\n  nccl.algo: [Ring, Treee]\n", ["conf/experiment/mine.yaml: ", "did you mean 'Tree'"]),
    "an option": ("axes:\n  nccl: [pcie_ll_rng]\n", ["conf/experiment/mine.yaml: 'nccl=pcie_ll_rng'", "pcie_ll_ring"]),
    "a value of all": ("nccl.algo: Treee\n", ["the baseline", "conf/experiment/mine.yaml: 'nccl.algo=Treee'"]),
    "a filter's key": (
        "axes: {nccl.algo: [Ring]}\nfilters:\n- {nccl.agol: Ring}\n",
        ["filter 1: 'nccl.agol' is no axis of this file; did you mean 'nccl.algo'?"],
    ),
    "a filter's value": (
        "axes: {nccl.algo: [Ring, Tree]}\nfilters:\n- {nccl.algo: [Ring, Tre]}\n",
        ["filter 1: nccl.algo=Tre is no value of its axis; did you mean 'Tree'?"],
    ),
    "an axis and a value": ("nccl.algo: Ring\naxes: {nccl.algo: [Tree]}\n", ["nccl.algo is an axis and has a value"]),
    "twice": ("axes: {env.A: [1]}\npairs: [{env.A: 1}]\n", ["env.A is in 'axes' and in 'pairs'"]),
    "twice a value": ("engine: {port: 1}\nengine.port: 2\n", ["mine.yaml:2: engine.port is set twice"]),
    "one value": ("axes: {nccl.algo: Ring}\n", ["mine.yaml:1: axes.nccl.algo is one value"]),
    "no values": ("axes: {nccl.algo: []}\n", ["axes.nccl.algo names no values"]),
    "an interval": ("axes: {nccl.nthreads: 'interval(1,2)'}\n", ["mine.yaml:1", "interval() names no values"]),
    "a map": ("axes: {nccl.algo: {a: 1}}\n", ["axes.nccl.algo holds a list"]),
    "lists": (
        "pairs: {a: 1}\nfilters: x\n",
        ["mine.yaml:1: 'pairs' holds a list", "mine.yaml:2: 'filters' holds a list"],
    ),
    "a list": ("- a\n", ["mine.yaml:1: the file holds names and values"]),
    "no YAML": ("axes: [\n", ["conf/experiment/mine.yaml:2: no valid YAML"]),
    "secrets": ("axes: {secrets.env.T: ['file:/a']}\n", ["a secret is no axis"]),
    "the sweep": ("axes: {sweep.effect: [0.1, 0.2]}\n", ["conf/experiment/mine.yaml: sweep.effect says how a sweep"]),
}


@pytest.mark.parametrize(("text", "parts"), WRONG.values(), ids=WRONG.keys())
def test_mistakes_are_named_with_file_and_key(text: str, parts: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        swept(tmp_path, text)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


# --- axes of the client

SERVE = ("bench.kind=serve", "bench.loads.chat.concurrency=4", "bench.loads.long.input_tokens=8000")


def test_axes_of_the_client_are_loads_and_no_points() -> None:
    words = [*SERVE[:1], SERVE[2], "bench.loads.chat.concurrency=1,8", "bench.loads.chat.input_tokens=128,512"]
    sweep = compose_sweep([*words, "nccl.algo=Ring,Tree"], packaged())
    assert sweep.axes == {"nccl.algo": ("Ring", "Tree")}
    assert list(sweep.client_axes) == ["bench.loads.chat.concurrency", "bench.loads.chat.input_tokens"]
    assert [p.label for p in sweep.points] == ["nccl.algo=Ring", "nccl.algo=Tree"]
    for item in (sweep.baseline, *sweep.points):
        assert item.composition.deployment.bench.loads == {
            "long": Load(input_tokens=8000),
            "chat-concurrency-1-input_tokens-128": Load(concurrency=1, input_tokens=128),
            "chat-concurrency-1-input_tokens-512": Load(concurrency=1, input_tokens=512),
            "chat-concurrency-8-input_tokens-128": Load(concurrency=8, input_tokens=128),
            "chat-concurrency-8-input_tokens-512": Load(concurrency=8, input_tokens=512),
        }


def test_axes_of_the_client_alone_are_one_configuration() -> None:
    sweep = compose_sweep([*SERVE, "bench.loads.chat.input_tokens=128,512"], packaged())
    assert (sweep.points, sweep.axes) == ((), {})
    loads = sweep.baseline.composition.deployment.bench.loads
    assert list(loads) == ["chat-input_tokens-128", "chat-input_tokens-512", "long"]
    assert {load.concurrency for name, load in loads.items() if name != "long"} == {4}


def test_each_load_has_its_own_variants(tmp_path: Path) -> None:
    text = "bench.kind: serve\naxes: {bench.loads.a.concurrency: [1, 2, 4], bench.loads.b.concurrency: [8, 16]}\n"
    text += "filters: [{bench.loads.a.concurrency: 2}]\n"
    loads = swept(tmp_path, text).baseline.composition.deployment.bench.loads
    assert list(loads) == ["a-concurrency-1", "a-concurrency-4", "b-concurrency-8", "b-concurrency-16"]


def test_without_a_served_model_they_are_keys_like_others() -> None:
    assert list(compose_sweep(["bench.loads.a.concurrency=1,2"], packaged()).axes) == ["bench.loads.a.concurrency"]


CLIENT = {
    "what measures": (["bench.client=vllm,sglang"], "bench.client says how is measured"),
    "the group": (["bench=allreduce,allreduce"], "bench says how is measured"),
    "a bad value": (["bench.loads.chat.concurrency=1,x"], "load 'bench.loads.chat.concurrency=x': "),
}


@pytest.mark.parametrize(("texts", "part"), CLIENT.values(), ids=CLIENT.keys())
def test_what_no_axis_of_the_client_can_be(texts: list[str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_sweep(["bench.kind=serve", *texts], packaged())
    assert part in str(caught.value)


def test_client_and_server_are_no_pair(tmp_path: Path) -> None:
    text = "bench.kind: serve\npairs: [{bench.loads.a.concurrency: 1, nccl.algo: Ring}]\n"
    with pytest.raises(ConfigError, match="are no pair"):
        swept(tmp_path, text)
    text = "bench.kind: serve\naxes: {bench.loads.a.concurrency: [1], nccl.algo: [Ring]}\n"
    with pytest.raises(ConfigError, match=r"filter 1 .* mixes bench.loads"):
        swept(tmp_path, text + "filters: [{bench.loads.a.concurrency: 1, nccl.algo: Ring}]\n")
