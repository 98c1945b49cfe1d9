"""`-m` with several hosts: what is planned and refused, and collectives on hosts that are only played."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from launcher.bench.steps import steps
from launcher.cli import main
from launcher.errors import HostError, LaunchError, UnreachableError
from launcher.fleet import equal
from launcher.sweep import report
from tests.bench.test_allreduce import answer
from tests.composing import compose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TINY = ("model=tiny", "engine.tensor_parallel=2", "bench=allreduce", "bench.batches=[1,8]", "bench.prefill_tokens=[64]")
POINTS = "nccl.algo=Ring,PAT,NVLS"
BOTH = ("target=ssh", "target.hosts=[h1,h2]")
STEPS = steps(compose(TINY))
#: How much slower than the baseline each algorithm is; the second host is twice as slow in everything.
LAW = {"Ring": 1.0, "PAT": 1.5, "NVLS": 0.8}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gpu(number: int, **fields: Any) -> dict[str, Any]:
    told = {"index": number, "name": "NVIDIA A", "memory_mib": 97887, "power_limit_w": 600, "driver": "580.1"}
    return {**told, **fields}


def facts(*gpus: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"gpus": list(gpus), "engine": {"versions": {"sglang": "0.5.23"}}, "unknown": {}, **fields}


@dataclass
class Played:
    """A host that answers at once, but for what goes wrong with its n-th measurement."""

    host: str
    slow: float = 1.0
    facts: Mapping[str, Any] = field(default_factory=lambda: facts(gpu(0), gpu(1)))
    goes_wrong: Callable[[int], dict[str, Any] | None] = lambda _: None
    asked: int = 0
    alone: threading.Lock = field(default_factory=threading.Lock)

    def call(self, request: Mapping[str, Any], on_event: Callable[[str], None]) -> dict[str, Any]:  # noqa: ARG002
        assert self.alone.acquire(blocking=False), "two requests to one host at the same time"
        try:
            return self._answer(request)
        finally:
            self.alone.release()

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["verb"] == "probe":
            return {"facts": self.facts, "problems": []}
        self.asked += 1
        wrong = self.goes_wrong(self.asked)
        if wrong:
            return {"problems": [], **wrong}
        us = self.slow * LAW.get(request["spec"]["env"].get("NCCL_ALGO", ""), 1.0) * (10 + 0.01 * (self.asked % 2))
        return {**answer(STEPS, (us, us, us)), "problems": []}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let hosts that are played be those of the target."""

    def begin(*played: Played) -> None:
        named = {one.host: one for one in played}
        found: Callable[[Any], list[Played]] = lambda target: [named[host] for host in target.hosts]  # noqa: E731
        monkeypatch.setattr("launcher.fleet.rollout.transports", found)

    return begin


def ran(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Run a sweep and return its record, and what was told meanwhile."""
    assert main(["-m", *words, "--yes", "--json"]) == code
    out, err = capsys.readouterr()
    record: dict[str, Any] = json.loads(out)
    return record, err


def overall(record: Mapping[str, Any]) -> dict[str, str]:
    labels = {point["digest"]: point["label"] for point in record["points"]}
    return {labels[digest].removeprefix("nccl.algo="): word for digest, word in record["judgement"]["overall"].items()}


def homes(record: Mapping[str, Any]) -> dict[str, set[str]]:
    labels = {point["digest"]: point["label"].removeprefix("nccl.algo=") for point in record["points"]}
    found: dict[str, set[str]] = {}
    for trial in record["trials"]:
        found.setdefault(labels[trial["point"]], set()).add(trial["host"])
    return found


WORDS = {"baseline": "baseline", "Ring": "no difference", "PAT": "worse", "NVLS": "better"}


# --- plans and refusals


def test_the_plan_says_who_shares(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "-m", POINTS, *TINY, *BOTH]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 hosts share the points, at the same time, each beside a baseline of its own: h1 7, h2 5 starts\n" in out
    assert "12 fresh starts at least: about 1 min (9 s each" in out
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    digests = [point["digest"] for point in record["points"]]
    assert record["hosts"] == {
        "h1": {"points": [digests[1], digests[3]], "starts": 7}, "h2": {"points": [digests[2]], "starts": 5},
    }  # fmt: skip
    assert (record["starts"], record["seconds"]) == (12, 63.0)


def test_more_hosts_than_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-m", "nccl.algo=Ring,PAT", *TINY, "target=ssh", "target.hosts=[h1,h2,h3,h4]"]) == 0
    out = capsys.readouterr().out
    assert "2 hosts share the points" in out
    assert "left alone, for there are fewer points than hosts: h3, h4\n" in out


def test_a_plan_of_one_host_speaks_of_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-m", POINTS, *TINY, "target=ssh", "target.hosts=[h1]", "--json"]) == 0
    assert "hosts" not in json.loads(capsys.readouterr().out)


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a world": (("-m", POINTS, *TINY, *BOTH, "target.hosts_per_world=2"), "not on a world of several"),
    "one configuration": (("bench", *TINY, *BOTH), "here is one configuration: name one host"),
    "loads alone": (
        ("-m", "bench.loads.a.concurrency=1,8", "model=tiny", "bench=serve", *BOTH), "here is one configuration",
    ),
    "twice the same": (("-m", POINTS, *TINY, "target=ssh", "target.hosts=[h1,h1]", "--yes"), "names h1 more than once"),
    "twice, planned": (("plan", "-m", POINTS, *TINY, "target=ssh", "target.hosts=[h1,h1]"), "names h1 more than once"),
    "twice, in two spellings": (
        ("plan", "-m", POINTS, *TINY, "target=ssh", "target.hosts=[h1,h2,'H1:22']"),
        "names h1 more than once, as H1:22",
    ),
    "no name": (("-m", POINTS, *TINY, "target=ssh", "target.hosts=['']", "--yes"), "target.hosts: '' is not a host"),
    "closing, of nothing": (
        ("plan", "-m", POINTS, *TINY, *BOTH, "sweep.closing=true"), "with bench=allreduce no server is touched",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "part"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(words: tuple[str, ...], part: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    assert part in capsys.readouterr().err
    assert list(folder.iterdir()) == []


A, UNKNOWN = "NVIDIA A 97887 MiB", "nvidia-smi failed with 9"
UNEQUAL: dict[str, tuple[dict[str, Any], str]] = {
    "fewer": (facts(gpu(0)), f"GPUs: 2 x {A} 600 W on h1, 1 x {A} 600 W on h2"),
    "others": (facts(gpu(0), gpu(1, name="NVIDIA B")), f"1 x {A} 600 W + 1 x NVIDIA B 97887 MiB 600 W on h2"),
    "slower": (facts(gpu(0), gpu(1, power_limit_w=300)), f"1 x {A} 300 W + 1 x {A} 600 W on h2"),
    "links": (facts(gpu(0), gpu(1), topology=[["X", "SYS"], ["SYS", "X"]]), "2 x (1 SYS) on h2"),
    "driver": (facts(gpu(0, driver="590"), gpu(1, driver="590")), "driver: 580.1 on h1, 590 on h2"),
    "engine": (facts(gpu(0), gpu(1), engine={"versions": {"sglang": "1"}}), "sglang 0.5.23 on h1, sglang 1 on h2"),
    "nobody knows": (facts(gpus=None, unknown={"gpus": UNKNOWN}), f"unknown ({UNKNOWN}) on h2"),
}


@pytest.mark.parametrize(("other", "part"), UNEQUAL.values(), ids=UNEQUAL.keys())
def test_unequal_hosts_are_refused(
    other: dict[str, Any], part: str, play: Callable[..., None], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = Played("h1"), Played("h2", facts=other)
    play(*hosts)
    assert main(["-m", POINTS, *TINY, *BOTH, "--yes"]) == 2
    said = capsys.readouterr().err
    assert part in said
    assert "sweep them one at a time" in said
    assert [host.asked for host in hosts] == [0, 0]
    assert list(folder.iterdir()) == []


def test_only_the_gpus_that_are_used_must_be_equal() -> None:
    one, other = facts(gpu(0), gpu(1)), facts(gpu(0), gpu(1, name="NVIDIA B"))
    assert equal.differences({"h1": equal.traits(one, ["0"]), "h2": equal.traits(other, ["0"])}) == []
    assert len(equal.differences({"h1": equal.traits(one, ["1"]), "h2": equal.traits(other, ["1"])})) == 1


@pytest.mark.parametrize(("error", "code"), [(UnreachableError("h2", "no way"), 5), (HostError("h2", "no Python"), 1)])
def test_a_host_that_cannot_be_looked_at(
    error: LaunchError, code: int, play: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise error

    hosts = Played("h1"), Played("h2")
    monkeypatch.setattr(hosts[1], "call", fails)
    play(*hosts)
    assert main(["-m", POINTS, *TINY, *BOTH, "--yes"]) == code
    assert hosts[0].asked == 0
    assert list(folder.iterdir()) == []


# --- runs


def test_collectives_on_two_hosts(play: Callable[..., None], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(Played("h1"), Played("h2", slow=2))
    record, err = ran(capsys, POINTS, *TINY, *BOTH)
    assert overall(record) == WORDS
    assert homes(record) == {"baseline": {"h1", "h2"}, "Ring": {"h1"}, "PAT": {"h2"}, "NVLS": {"h1"}}
    assert "dropped" not in record
    assert {json.loads(line)["host"] for line in err.splitlines() if line.startswith("{")} == {"h1", "h2"}
    (out,) = (folder / "results").glob("2*")
    rows = list(csv.DictReader((out / "verdicts.csv").read_text().splitlines()))
    levels = {row["host"]: float(row["baseline_value"]) for row in rows if row["workload"] == "decode-1"}
    assert levels["h2"] / levels["h1"] == pytest.approx(2, abs=0.01)
    assert {row["host"] for row in rows if row["point"] == "nccl.algo=PAT"} == {"h2"}
    assert main(["results", record["id"]]) == 0
    shown = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in shown if row and row[0] in ("baseline", "nccl.algo=PAT")] == [
        ["baseline", "h1"], ["baseline", "h2"], ["nccl.algo=PAT", "h2"],
    ]  # fmt: skip
    assert main(["diff", "nccl.algo=Ring", "nccl.algo=PAT"]) == 0
    out_, err = capsys.readouterr()
    assert "measured on two hosts, each beside its own baseline" in err
    assert "worse" not in out_


FAILURES: dict[str, tuple[dict[str, Any], int, str]] = {
    "locked": ({"outcome": "locked", "message": "up by somebody"}, 6, "h2: up by somebody"),
    "busy": ({"outcome": "refused", "message": "GPU 0 is busy"}, 1, "h2: GPU 0 is busy"),
    "problems": ({"problems": ["not root"]}, 1, "h2: not root"),
}


@pytest.mark.parametrize(("wrong", "code", "said"), FAILURES.values(), ids=FAILURES.keys())
def test_a_host_that_fails_is_finished_later(
    wrong: dict[str, Any], code: int, said: str, play: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    play(Played("h1"), Played("h2", slow=2, goes_wrong=lambda number: wrong if number == 2 else None))
    record, err = ran(capsys, POINTS, *TINY, *BOTH, code=code)
    assert f"launch: {said}; this host drops out\n" in err
    assert record["dropped"] == [{"host": "h2", "message": said, "unfinished": ["nccl.algo=PAT"]}]
    assert record["ended"] == "h1: every point is decided; h2: dropped out"
    assert overall(record) == {**WORDS, "PAT": "undecided"}
    # On both again: the first one has nothing to do.
    hosts = Played("h1"), Played("h2", slow=2)
    play(*hosts)
    record, err = ran(capsys, POINTS, *TINY, *BOTH, f"--resume={record['id']}")
    assert overall(record) == WORDS
    assert homes(record)["PAT"] == {"h2"}
    assert (hosts[0].asked, hosts[1].asked > 2) == (0, True)
    orders = [trial["order"] for trial in record["trials"]]
    assert len(set(orders)) == len(orders)


def test_the_text_of_the_end_says_how_to_go_on(play: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    fails: dict[str, Any] = {"outcome": "refused", "message": "GPU 0 is busy"}
    play(Played("h1"), Played("h2", goes_wrong=lambda _: fails))
    assert main(["-m", POINTS, *TINY, *BOTH, "--yes"]) == 1
    out = capsys.readouterr().out
    assert "h2 dropped out, not measured to the end: 'nccl.algo=PAT'. To finish them" in out
    # On one of them alone, which takes over what nobody measured.
    play(Played("h1"))
    id_ = out.partition("--resume=")[2].split()[0]
    record, err = ran(capsys, POINTS, *TINY, "target=ssh", "target.hosts=[h1]", f"--resume={id_}")
    assert "measured by another host now: 'nccl.algo=PAT'" in err
    assert overall(record) == WORDS
    assert homes(record)["PAT"] == {"h1"}


def test_where_all_fail(play: Callable[..., None], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails: dict[str, Any] = {"outcome": "locked", "message": "held"}
    play(*(Played(name, goes_wrong=lambda _: fails) for name in ("h1", "h2")))
    record, _ = ran(capsys, POINTS, *TINY, *BOTH, code=6)
    assert [one["host"] for one in record["dropped"]] == ["h1", "h2"]
    assert list((folder / "results").glob("2*")) == []


def test_an_interrupt_does_not_wait_for_a_host(
    play: Callable[..., None], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is asked of a host over SSH ends with this program, and its thread must not keep it."""
    stays, inside = threading.Event(), threading.Barrier(2, action=lambda: os.kill(os.getpid(), signal.SIGTERM))

    def waits(number: int) -> None:
        if number == 2:
            inside.wait(10)
            stays.wait(20)

    play(*(Played(name, goes_wrong=waits) for name in ("h1", "h2")))
    begun = time.monotonic()
    record, err = ran(capsys, POINTS, *TINY, *BOTH, code=130)
    assert time.monotonic() - begun < 15
    assert "launch: interrupted; what was measured is kept" in err
    assert record["ended"] == "interrupted"
    assert homes(record) == {"baseline": {"h1", "h2"}}
    stays.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)
    (journal,) = folder.glob("results/*/journal.jsonl")
    assert len(journal.read_text().splitlines()) == 4, "a trial that ends by itself is kept, none is begun"


def test_an_interrupt_during_the_report_does_not_skip_it(
    play: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupts(number: int) -> None:
        if number == 4:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    def interrupted(*args: Any) -> list[Path]:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return write(*args)

    write = report.write
    monkeypatch.setattr(report, "write", interrupted)
    play(Played("h1", goes_wrong=interrupts), Played("h2"))
    before = signal.getsignal(signal.SIGINT)
    assert main(["-m", POINTS, *TINY, *BOTH, "--yes"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    out = capsys.readouterr().out
    assert "Ended: interrupted." in out
    assert len(list(folder.glob("results/*/report.html"))) == 1


def test_links_are_counted_and_not_compared_in_their_order() -> None:
    one = facts(gpu(0), gpu(1), gpu(2), topology=[["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]])
    other = facts(gpu(0), gpu(1), gpu(2), topology=[["X", "SYS", "SYS"], ["SYS", "X", "PIX"], ["SYS", "PIX", "X"]])
    worse = {**other, "gpus": [gpu(0), gpu(1, pcie_generation_max=5, pcie_width=8), gpu(2)]}
    first = equal.traits(one, [])
    assert first["links"] == "2 x (1 PIX 1 SYS) + 1 x (2 SYS)"
    assert equal.differences({"h1": first, "h2": equal.traits(other, [])}) == []
    (line,) = equal.differences({"h1": first, "h2": equal.traits(worse, [])})
    assert line.endswith("1 x (1 PIX 1 SYS) + 1 x (1 PIX 1 SYS, PCIe 5 x8) + 1 x (2 SYS) on h2")


def test_the_progress_of_a_resumed_sweep_counts_what_counts(
    play: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Trials of points that are not asked for any more are no part of it."""
    short = (*TINY, *BOTH, "sweep.repeats=1", "sweep.max_repeats=1", "--yes")
    play(Played("h1"), Played("h2"))
    assert main(["-m", POINTS, *short]) == 0
    capsys.readouterr()
    assert main(["-m", "nccl.algo=Ring,Tree", *short, "--resume"]) == 0
    told = [line.split()[0].split("/") for line in capsys.readouterr().err.splitlines() if line[:1].isdigit()]
    assert told
    assert [(n, of) for n, of in told if int(n) > int(of)] == []
    assert told[-1][0] == told[-1][1]


def test_a_report_that_cannot_be_written_hides_nothing(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> list[Path]:
        raise LaunchError("report.html: No space left on device; it is not written")

    monkeypatch.setattr(report, "write", full)
    play(Played("h1"), Played("h2"))
    record, err = ran(capsys, POINTS, *TINY, *BOTH, code=1)
    assert overall(record) == WORDS
    assert "launch: report.html: No space left on device; it is not written\n" in err
    assert "report:" not in err
