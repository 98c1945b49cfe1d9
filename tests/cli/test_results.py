"""`results`, `diff`, `promote` and `--resume` from the command line, over sweeps that were made up."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.cli import main, verbs
from launcher.cli.parser import parse
from launcher.compose import compose, compose_sweep, find_layers
from launcher.errors import ConfigError
from launcher.render import render
from launcher.sweep import journal, lock
from launcher.sweep.points import build
from tests.sweep import cases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from launcher.cli.parser import CommandLine
    from launcher.sweep.record import Point, Sweep, Trial

TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce", "bench.batches=[1,8]", "bench.prefill_tokens=[64]")
VERSIONS = {"nccl": "2.28.9", "driver": "580.95.05"}
WORKLOADS = (cases.DECODE, cases.PREFILL)
ID = "20261130-021500-tiny-allreduce"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(
    *texts: str,
    id_: str = ID,
    env: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    gains: Callable[[int], tuple[float, float]] = lambda place: (1 - 0.05 * place, 1 - 0.05 * place),
    versions: Mapping[str, str] = VERSIONS,
    **fields: Any,
) -> Sweep:
    """Record a sweep as if it had run: every point twice, the baseline once more; ``gains`` by place of the point."""
    composed = compose_sweep(texts, find_layers([], {}, Path.cwd()), env)
    built = build(composed, allow, lambda _, release: release.digest, env)
    points = tuple(candidate.point for candidate in built.candidates)
    trials: list[Trial] = []
    for point in (*points, *points, points[0]):
        wave = 1 + 0.001 * (len(trials) * 7 % 5)
        values = zip(WORKLOADS, (21.4, 152.1), gains(points.index(point)), strict=True)
        readings = [cases.reading(w, value * gain * wave) for w, value, gain in values]
        trials.append(cases.trial(point, len(trials) + 1, readings, facts={"versions": dict(versions)}))
    told = {"axes": built.axes, "points": points, "workloads": WORKLOADS, "trials": tuple(trials), **fields}
    made = cases.sweep(id=id_, name=built.candidates[0].deployment.name, **told)
    journal.create(Path("results"), made)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int | None = 0) -> tuple[str, str]:
    assert main(list(words)) == code
    said = capsys.readouterr()
    return said.out, said.err


def record(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *words, "--json")[0])
    return found


ALGORITHMS = ("nccl.algo=Ring,Tree", "model=tiny")

# --- the words


def test_resume_takes_no_word_for_its_value() -> None:
    line = parse(["-m", "--resume", "nccl.algo=Ring,Tree"])
    assert (line.verb, line.overrides, line.resume, line.resume_failed) == (
        "up",
        ("nccl.algo=Ring,Tree",),
        "newest",
        False,
    )
    assert parse(["-m", "--resume", "up", "reference", "a=1,2"]).names == ("reference",)
    assert parse(["-m", "a=1,2", "--resume=20261130"]).resume == "20261130"
    again = parse(["-m", "a=1,2", "--resume-failed"])
    assert (again.resume, again.resume_failed) == ("newest", True)
    assert parse(["-m", "a=1,2"]).resume == ""


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "an id behind it": (("-m", "--resume", "20261130", "a=1,2"), "--resume=20261130"),
    "an empty id": (("-m", "--resume=", "a=1,2"), "--resume= is empty"),
    "no sweep": (("up", "--resume"), "--resume goes with a sweep"),
    "a plan": (("plan", "-m", "a=1,2", "--resume"), "--resume goes with a sweep"),
    "one configuration": (("bench", "--resume-failed"), "--resume goes with a sweep"),
    "no sweep to show": (("plan", "--html", "x"), "--html goes with status and results"),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG.keys())
def test_words_that_are_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(words)


def test_labels_and_settings_are_told_apart() -> None:
    line = parse(["diff", "nccl.algo=Ring", "baseline", "sweep.out=x"])
    assert (line.verb, line.names, line.overrides) == ("diff", ("nccl.algo=Ring", "baseline"), ("sweep.out=x",))
    line = parse(["promote", "target=ssh", "target.hosts=[a]", "nccl.algo=Ring nccl.proto=LL", "mine"])
    assert line.names == ("nccl.algo=Ring nccl.proto=LL", "mine")
    assert line.overrides == ("target=ssh", "target.hosts=[a]")


# --- results


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "results") == ("there is no sweep in results\n", "")
    assert record(capsys, "results")["sweeps"] == []
    sweep(*ALGORITHMS)
    sweep("model=tiny", id_="20261201-000000-tiny-allreduce")
    out, err = run(capsys, "results")
    title, first, second = out.splitlines()
    assert title.split() == ["sweep", "deployment", "bench", "points", "trials", "ended", "found"]
    assert first.split()[:5] == [ID, "tiny", "allreduce", "3", "7"]
    assert "every point is decided" in first
    assert "better in decode and prefill" in first
    assert "one configuration" in second
    assert err == ""
    one, _ = record(capsys, "results")["sweeps"]
    assert (one["points"], one["trials"], one["not_counted"], one["problem"]) == (3, 7, 0, "")


def test_broken_folders_are_told_and_fatal_to_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    (Path("results") / "20270101-000000-broken-allreduce").mkdir()
    (Path("results") / "20270101-000000-broken-allreduce/sweep.json").write_text("{")
    with (Path("results") / ID / "journal.jsonl").open("a") as stream:
        stream.write('{"torn')
    out, err = run(capsys, "results")
    assert ID in out
    assert "sweep.json: broken JSON" in err
    assert "torn (6 bytes, no end) and is passed over" in err
    assert "broken JSON" in record(capsys, "results")["sweeps"][1]["problem"]
    run(capsys, "results", "20270101", code=1)


def test_one_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    out, _ = run(capsys, "results", "20261130")
    assert out.splitlines()[1].split()[:2] == ["point", "overall"]
    assert "nccl.algo=Tree  better    -9.9 %" in out
    assert "effect on a step" in out
    assert "Ended: every point is decided." in out
    assert "report:" not in out
    out, _ = run(capsys, "results", ID, "--html", "page.html")
    assert "report: page.html" in out
    assert "nccl.algo=Tree" in (folder / "page.html").read_text()
    told = record(capsys, "results", "20261130")
    assert (told["id"], len(told["trials"]), told["not_counted"]) == (ID, 7, [])
    assert told["points"][1]["words"] == ["model=tiny", "nccl.algo=Ring"]


def test_how_a_sweep_stands(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS)
    short = replace(made, id="20261201-000000-tiny-allreduce", trials=made.trials[:4])
    at = journal.create(Path("results"), short)
    assert f"--resume={short.id}" in run(capsys, "results", short.id)[0]
    with lock.held(at, "me"):
        assert "Ended: not yet, it is running." in run(capsys, "results", short.id)[0]
    stale = replace(made.trials[0], order=8, facts={"versions": {**VERSIONS, "driver": "590"}})
    journal.append(Path("results") / ID, stale)
    assert "7 trials count for nothing any more: driver 580.95.05 -> 590" in run(capsys, "results", ID)[0]


RESULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no such sweep": (("results", "20290101"), "there is no sweep '20290101' in results"),
    "too short": (("results", "20"), "there is no sweep '20'"),
    "two": (("results", "a", "b"), "results takes one sweep"),
    "a page of all": (("results", "--html", "x"), "--html needs a sweep"),
    "a sweep": (("results", "-m"), "-m does not go with results"),
    "no such point": (("diff", "baseline", "nccl.algo=Tre"), "'nccl.algo=Tre'; did you mean 'nccl.algo=Tree'?"),
    "one point": (("diff", "baseline"), "diff takes two points or two sweeps"),
    "the same point": (("diff", "baseline", "baseline"), "both are the same point"),
    "a point and a sweep": (("diff", "baseline", "20261130"), "not one of each"),
    "the same sweep": (("diff", "20261130", ID), "both are the same sweep"),
    "nothing to promote": (("promote",), "promote takes a point and a name"),
    "a sweep to promote": (("promote", "20261130"), f"is a sweep, not a point; a point of it is {ID}:POINT"),
    "two names": (("promote", "baseline", "a", "b"), "promote takes a point and a name"),
    "a bad name": (("promote", "baseline", "Not-A-Name"), "a name is a word of a-z"),
    "a variable": (("promote", "baseline", "-e", "A=b"), "-e and --allow do not go with promote"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "told"), RESULTS.values(), ids=RESULTS.keys())
def test_refused(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    assert told in run(capsys, *words, code=2)[1]
    assert not Path("conf").exists()


def test_nothing_to_look_into(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("results", "20261130"), ("diff", "a", "b"), ("promote", "a"), ("results", "x", "sweep.out=here")):
        assert "there is no sweep in " in run(capsys, *words, code=2)[1]


# --- diff


def test_two_points(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep("nccl.algo=Ring,Tree", "engine.args.seed=1,2", "model=tiny", env={"ODD": "a b"})
    out, err = run(capsys, "diff", "baseline", "nccl.algo=Tree engine.args.seed=2")
    assert "overrides\n  nccl.algo: (none) -> Tree\n  engine.args.seed: (none) -> 2\n" in out
    assert "environment\n  NCCL_ALGO: (none) -> Ring,Tree;allreduce:Tree\n" in out
    assert "arguments\n  --random-seed: (none) -> 2\n" in out or "arguments\n  --seed: (none) -> 2\n" in out
    assert "ODD" not in out
    assert err == ""
    told = record(capsys, "diff", made.points[1].digest, f"2026:{made.points[4].digest[:6]}")
    (decode, _) = told["figures"]
    assert (told["left"]["label"], decode["word"]) == (made.points[1].label, "better")
    assert math.isclose(decode["difference"], 0.80 / 0.95 - 1, rel_tol=0.01)
    assert decode["low"] < decode["difference"] < decode["high"] < 0
    assert (told["warnings"], told["exit_code"]) == ([], 0)
    # The other way round.
    back = record(capsys, "diff", made.points[4].digest, made.points[1].digest)
    assert back["figures"][0]["word"] == "worse"
    assert back["changes"][0]["left"] == told["changes"][0]["right"]


def test_a_point_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS)
    bad = [replace(t, readings=(), failure="hang") if t.point == made.points[1].digest else t for t in made.trials]
    journal.create(Path("results"), replace(made, id="20261201-000000-tiny-allreduce", trials=tuple(bad)))
    out, _ = run(capsys, "diff", "baseline", "nccl.algo=Ring")
    assert [line.split()[-2:] for line in out.splitlines()[-2:]] == [["-", "-"], ["-", "-"]]


def test_points_of_two_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    other = "20261201-000000-tiny-allreduce"
    sweep(*ALGORITHMS, id_=other, gains=lambda _: (1.1, 1.1))
    out, err = run(capsys, "diff", f"{ID}:nccl.algo=Tree", "nccl.algo=Tree")
    assert "decode-1" in out
    assert "+22." in out
    assert "warning: measured in two sweeps" in err
    told = record(capsys, "diff", ID, other)
    assert [point["label"] for point in told["points"]] == ["baseline", "nccl.algo=Ring", "nccl.algo=Tree"]
    assert (told["only_left"], told["only_right"], told["changes"]) == ([], [], [])
    out, _ = run(capsys, "diff", ID, other)
    assert "3 points in common" in out


def test_what_cannot_be_compared_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    sweep("nccl.algo=Ring,PAT", "model=tiny", id_="20261201-000000-tiny-allreduce",
          versions={**VERSIONS, "driver": "590.1"}, target="gpu2")  # fmt: skip
    for words in ((f"{ID}:baseline", "baseline"), (ID, "20261201")):
        out, err = run(capsys, "diff", *words)
        assert "versions\n  target: gpu1.rack4.example.net -> gpu2\n  driver: 580.95.05 -> 590.1\n" in out
        assert "measured with another target, driver: the figures cannot be compared" in err
    assert "only in A: nccl.algo=Tree\nonly in B: nccl.algo=PAT\n" in out


def test_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS, "secrets.env.HF_TOKEN=command:echo hf_REAL")
    run(capsys, "diff", "baseline", "nccl.algo=Ring")
    words = replace(made.points[1], words=("secrets.env.HF_TOKEN=file:/hf_REAL",))
    journal.create(
        Path("results"), replace(made, id="20261201-0-tiny-allreduce", points=(made.points[0], words, *made.points[2:]))
    )
    out, _ = run(capsys, "diff", "baseline", "nccl.algo=Ring")
    assert "hf_REAL" not in out


def test_a_sweep_of_an_older_launch(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS)
    path = Path("results") / ID / "sweep.json"
    plan = json.loads(path.read_text())
    for point in plan["points"]:
        for name in ("words", "env", "argv"):
            del point[name]
    path.write_text(json.dumps({key: value for key, value in plan.items() if key not in ("gone", "since", "forgiven")}))
    assert len(journal.load(path.parent).trials) == len(made.trials)
    assert "nccl.algo: (none) -> Tree" in run(capsys, "diff", "baseline", "nccl.algo=Tree")[0]
    assert "an older launch wrote it" in run(capsys, "promote", "nccl.algo=Tree", code=2)[1]


# --- promote

POINTS: dict[str, tuple[tuple[str, ...], dict[str, str], tuple[str, ...], str]] = {
    "a value": (ALGORITHMS, {}, (), "nccl.algo=Tree"),
    "the baseline": (ALGORITHMS, {}, (), "baseline"),
    "groups": (
        ("+nccl=default,roce_h100", "hw=h100x8", "spec=eagle3_2step,eagle3_5step"), {}, (),
        "nccl=roce_h100 spec=eagle3_5step",
    ),
    "spec off": (("spec=off,ngram", "hw=rtx6000x8"), {}, (), "spec=ngram"),
    "another engine": (("engine=sglang,vllm", "model=tiny"), {}, (), "engine=vllm"),
    "a value taken away": (("hw=rtx6000x8", "~nccl.proto", "nccl.algo=Ring,Tree"), {}, (), "nccl.algo=Tree"),
    "environment": (
        ("env.MY_OWN=1e3,on", "model=tiny"), {"ODD": 'a ${b} \\${c} \\ "q" \'s\' # 1_000', "ON": "on", "T": "12:30"},
        (), "env.MY_OWN=on",
    ),
    "arguments": (
        ("engine.args.chunked_prefill_size=1_000,4096", "engine.args.enable_metrics=true", "engine.args.z_list=[1,b]",
         "engine.args.a_text='x: \\${y} 1'", "engine.args.b_text='a\\\\b \\\\\\${c} #'",
         "engine.args.num_continuous_decode_steps=8", "model=tiny"), {}, (),
        "engine.args.chunked_prefill_size=1_000",
    ),
    "an argument taken away": (
        ("~engine.args.num_continuous_decode_steps", "engine.args.seed=1,2", "model=tiny"), {}, (),
        "engine.args.seed=2",
    ),
    "the unit": (
        ("unit.before_stop='echo \\${x}'", "unit.drain_seconds=5", "engine.memory_fraction=0.5,0.6",
         "engine.gpus=[0,1]", "model=tiny"), {}, (),
        "engine.memory_fraction=0.6",
    ),
    "a rule that was let through": (ALGORITHMS, {}, ("nccl-bare-tree",), "nccl.algo=Tree"),
    "a deployment": (("deployment=reference", "nccl.algo=Ring,Tree"), {}, (), "nccl.algo=Tree"),
    "secrets": ((*ALGORITHMS, "secrets.env.HF_TOKEN=file:/etc/token"), {}, (), "nccl.algo=Tree"),
    "how it was measured": (
        (*TINY, "nccl.algo=Ring,Tree", "sweep.effect=0.5", "target=process"), {}, (), "nccl.algo=Tree",
    ),
}  # fmt: skip


def promoted(name: str) -> str:
    return Path(f"conf/deployment/{name}.yaml").read_text()


def digest(name: str) -> str:
    return render(compose([f"deployment={name}"], find_layers([], {}, Path.cwd())).deployment).digest


@pytest.mark.parametrize(("texts", "env", "allow", "label"), POINTS.values(), ids=POINTS.keys())
def test_what_is_promoted_is_that_point(
    texts: tuple[str, ...],
    env: dict[str, str],
    allow: tuple[str, ...],
    label: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = sweep(*texts, env=env, allow=allow)
    (point,) = (point for point in made.points if point.label == label)
    out, _ = run(capsys, "promote", label, "mine")
    assert f"written: conf/deployment/mine.yaml  ('{label}', release {point.env['LAUNCH_DIGEST']})" in out
    assert digest("mine") == point.env["LAUNCH_DIGEST"]
    text = promoted("mine")
    assert text.startswith(f"# @package _global_\n# Promoted from sweep {ID}: ")
    assert "bench" not in text.partition("defaults:")[2]
    assert record_of_plan(capsys, "mine") == point.env["LAUNCH_DIGEST"]


def record_of_plan(capsys: pytest.CaptureFixture[str], name: str) -> str:
    (told,) = json.loads(run(capsys, "plan", name, "--json")[0])
    return str(told["digest"])


def test_the_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS, gains=lambda place: (1 - 0.1 * place, 1 + 0.1 * place))
    out, err = run(capsys, "promote", made.points[2].digest[:8])
    text = promoted("tiny")
    assert "# Overall: trade.\n#   decode-1: better, -19.9 % " in text
    assert " us against 21.4" in text
    assert "# Versions: nccl 2.28.9, driver 580.95.05.\n" in text
    assert "# Warning: trade: better in decode, worse in prefill.\n" in text
    assert "launch: warning: trade: better in decode, worse in prefill\n" in err
    assert "launch: warning: measured by bench=allreduce alone" in err
    assert out.splitlines()[-1] == "No host is named. Next: launch plan tiny target=ssh 'target.hosts=[HOST]'"
    # Once more, it is there already, and the same.
    before = Path("conf/deployment/tiny.yaml").stat().st_mtime_ns
    run(capsys, "promote", "nccl.algo=Tree")
    assert Path("conf/deployment/tiny.yaml").stat().st_mtime_ns == before
    run(capsys, "promote", "baseline", "base")
    assert "Warning: this is the baseline" in promoted("base")


def test_a_label_of_several_words(capsys: pytest.CaptureFixture[str]) -> None:
    sweep("nccl.algo=Ring,Tree", "nccl.proto=LL,Simple", "model=tiny")
    run(capsys, "promote", "nccl.algo=Tree", "nccl.proto=LL", "mine")
    assert "nccl:\n  algo: Tree\n  proto: LL\n" in promoted("mine")


def test_a_file_is_not_overwritten_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS)
    run(capsys, "promote", "nccl.algo=Ring", "mine")
    first = promoted("mine")
    out, err = run(capsys, "promote", "nccl.algo=Tree", "mine", code=3)
    assert "-  algo: Ring\n+  algo: Tree\n" in out
    assert "is there already; nothing was written: confirm with --yes" in err
    assert promoted("mine") == first
    run(capsys, "promote", "nccl.algo=Tree", "mine", "--yes")
    assert digest("mine") == made.points[2].env["LAUNCH_DIGEST"]


OWN = """\
# @package _global_
defaults:
  - /bench: allreduce
  - override /model: tiny
  - override /target: local
  - _self_
name: served
engine:
  args:
    b_first: 1
    a_second: x
sweep:
  effect: 0.05
drift:
  alert: page@{deployment}.service
"""


def test_a_deployment_of_ones_own_keeps_what_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("conf/deployment").mkdir(parents=True)
    Path("conf/deployment/mine.yaml").write_text(OWN)
    made = sweep("deployment=mine", "nccl.algo=Ring,Tree", "engine.args.a_new=3", "target=process")
    up: list[CommandLine] = []
    monkeypatch.setattr(verbs, "up", lambda line: up.append(line))
    out, _ = run(capsys, "promote", "nccl.algo=Tree", "--yes", code=None)
    (line,) = up
    assert (line.verb, line.names, line.overrides, line.yes) == ("up", ("mine",), (), True)
    text = promoted("mine")
    assert "override /target: local" in text
    assert "/bench: allreduce" in text
    assert "effect: 0.05" in text
    assert 'alert: "page@{deployment}.service"' in text
    assert "+nccl:" in out
    assert digest("mine") == made.points[2].env["LAUNCH_DIGEST"]
    assert "No host" not in out


def test_a_host_named_for_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = sweep(*ALGORITHMS, "target=process")
    monkeypatch.setattr(verbs, "up", lambda _: 7)
    words = ("promote", "nccl.algo=Tree", "target=ssh", "target.hosts=[gpu1,gpu2]")
    _, err = run(capsys, *words, "--json", code=7)
    told = json.loads(err.splitlines()[-1])
    assert (told["deploys"], told["file"], told["deployment"]) == (True, "conf/deployment/tiny.yaml", "tiny")
    assert "hosts:\n    - gpu1\n    - gpu2\n" in promoted("tiny")
    assert digest("tiny") == made.points[2].env["LAUNCH_DIGEST"]


def test_points_without_anything_valid_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep(*ALGORITHMS)

    def with_(name: str, change: Callable[[Trial], Trial]) -> None:
        trials = [change(t) if t.point == made.points[1].digest else t for t in made.trials]
        journal.create(Path("results"), replace(made, id=f"2027010{name}-000000-tiny-allreduce", trials=tuple(trials)))

    with_("1", lambda t: replace(t, readings=(), failure="hang"))
    assert (
        "'nccl.algo=Ring' of sweep 20270101-000000-tiny-allreduce is not promoted: hang"
        in run(capsys, "promote", "nccl.algo=Ring", code=2)[1]
    )
    with_("2", lambda t: replace(t, readings=tuple(replace(r, invalid=("wrong sums",)) for r in t.readings)))
    assert "is not promoted: its readings are invalid" in run(capsys, "promote", "nccl.algo=Ring", code=2)[1]
    journal.create(Path("results"), replace(made, id="20270103-000000-tiny-allreduce", trials=made.trials[:1]))
    assert "is not promoted: no valid start of it counts" in run(capsys, "promote", "nccl.algo=Ring", code=2)[1]
    assert not Path("conf").exists()


def test_a_configuration_that_has_changed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf/deployment").mkdir(parents=True)
    Path("conf/deployment/mine.yaml").write_text(OWN)
    sweep("deployment=mine", "nccl.algo=Ring,Tree")
    Path("conf/deployment/mine.yaml").write_text(OWN.replace("b_first: 1", "b_first: 2"))
    _, err = run(capsys, "promote", "nccl.algo=Tree", "new", code=2)
    assert "the configuration has changed since sweep" in err
    assert "argument --b-first was 1 and is 2" in err
    assert not Path("conf/deployment/new.yaml").exists()


def test_a_stronger_file_of_that_name_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(*ALGORITHMS)
    (folder / "own/deployment").mkdir(parents=True)
    (folder / "own/deployment/mine.yaml").write_text("# @package _global_\nname: mine\n")
    _, err = run(capsys, "promote", "nccl.algo=Tree", "mine", "--config-dir", "own", code=2)
    assert "own has a deployment 'mine' that stands before ./conf" in err


# --- going on


class Fake:
    """Stands for the measuring program: a point takes no time; after ``limit`` starts the command is interrupted."""

    starts: list[str]
    limit: int
    driver: str

    def __init__(self, *_: object) -> None: ...

    def __call__(self, point: Point, order: int, upcoming: Point | None) -> Trial:  # noqa: ARG002
        if len(Fake.starts) >= Fake.limit:
            raise KeyboardInterrupt
        Fake.starts.append(point.label)
        workloads = ("decode-1", "decode-8", "prefill-64")
        found = [
            replace(cases.reading(cases.DECODE, 20.0, details={"us_per_allreduce": 1.0}), workload=w) for w in workloads
        ]
        facts = {"versions": {"torch": "2.9", "driver": Fake.driver}}
        return replace(cases.trial(point, order, found, facts=facts), at=time.time(), seconds=0.001)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    from launcher.bench import measure

    monkeypatch.setattr(measure, "AllReduce", Fake)
    Fake.starts, Fake.limit, Fake.driver = [], 99, "580"
    return Fake


GOING = ("-m", "nccl.algo=Ring,Tree", *TINY, "target=process", "sweep.max_repeats=2", "sweep.baseline_every=2")


def test_a_sweep_that_was_interrupted_goes_on(fake: type[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    fake.limit = 3
    run(capsys, *GOING, code=130)
    (at,) = Path("results").glob("*-tiny-allreduce")
    fake.limit = 99
    out, err = run(capsys, *GOING, "--resume")
    assert f"launch: going on with sweep {at.name}: 3 trials of it count\n" in err
    assert fake.starts.count("nccl.algo=Ring") == fake.starts.count("nccl.algo=Tree") == 2
    assert fake.starts[3] == "baseline"
    assert "Ended: every point is decided." in out
    assert len(journal.load(at).trials) == len(fake.starts)
    assert list(Path("results").glob("*-tiny-allreduce")) == [at]
    # One more point, by its id.
    _, err = run(capsys, *("-m", "nccl.algo=Ring,Tree,PAT", *GOING[2:]), f"--resume={at.name[:15]}")
    assert "launch: new: 'nccl.algo=PAT'\n" in err
    assert fake.starts.count("nccl.algo=Ring") == 2
    assert fake.starts.count("nccl.algo=PAT") == 2


def test_a_new_driver_makes_old_trials_stale(fake: type[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    fake.limit = before = 6
    run(capsys, *GOING, code=130)
    fake.limit, fake.driver = 99, "590"
    out, err = run(capsys, *GOING, "--resume")
    assert f"launch: {before} trials count for nothing any more: driver 580 -> 590\n" in err
    assert f"{before} trials count for nothing any more: driver 580 -> 590\n" in out
    assert len(fake.starts) == before + 7
    assert "driver 580 -&gt; 590" in next(Path("results").glob("*/report.html")).read_text()


def test_what_differs_is_refused(fake: type[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *GOING)
    before = len(fake.starts)
    other = tuple("bench.batches=[1]" if word.startswith("bench.batches") else word for word in GOING)
    _, err = run(capsys, *other, "--resume", code=2)
    assert "workloads was decode-1, decode-8, prefill-64 and is decode-1, prefill-64" in err
    _, err = run(capsys, *GOING, "-e", "NCCL_NTHREADS=64", "--resume", code=2)
    assert "variable NCCL_NTHREADS of the baseline was none and is 64" in err
    assert len(fake.starts) == before


def test_a_sweep_that_runs_is_not_run_twice(fake: type[Fake], capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *GOING)
    (at,) = Path("results").glob("*-tiny-allreduce")
    with lock.held(at, "somebody"):
        _, err = run(capsys, *GOING, "--resume", code=6)
    assert f"sweep {at.name} is being run by somebody, process {os.getpid()}" in err
