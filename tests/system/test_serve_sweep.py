"""Sweeps of a served model on a real host: a stand-in whose speed follows a known law, and production put back."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fleet import Fleet
from tests.system.change_tool import begin, inside, wait_until_over
from tests.system.tool import REFERENCE, UNIT, WIPE, Launch, assert_tuned, look, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet import FleetHost

pytestmark = pytest.mark.fleet

CLIENT = Path(__file__).parents[1] / "standin" / "client.py"
#: By channels: two make all slower, four all faster, eight change nothing, twelve answer slower and read faster.
LAW = [[f"NCCL_MAX_NCHANNELS={n}", *law] for n, law in {2: (1.5, 1.5), 4: (0.6, 0.6), 12: (2.0, 0.4)}.items()]
LOADS = {
    "decode": {"concurrency": 2, "requests": 4, "input_tokens": 1, "output_tokens": 30, "metric": "tpot_ms"},
    "prefill": {"concurrency": 1, "requests": 4, "input_tokens": 40, "output_tokens": 1, "metric": "ttft_ms"},
}


def served(noise: float = 0.003) -> tuple[str, ...]:
    """Return the deployment, whose speed follows the law."""
    given = {"LAW": json.dumps(LAW), "TOKEN_SECONDS": "0.005", "PROMPT_SECONDS": "0.002", "NOISE": str(noise)}
    return (*REFERENCE, *(word for name, value in given.items() for word in ("-e", f"STANDIN_{name}={value}")))


def measured(out: Path) -> tuple[str, ...]:
    """Return how it is measured: by a small client on the host."""
    loads = [f"bench.loads.{name}.{key}={value}" for name, load in LOADS.items() for key, value in load.items()]
    command = "bench.command=python3 /opt/standin/client.py"
    return ("bench=serve", "bench.client=command", command, *loads, f"sweep.out={out}", "sweep.effect=0.15")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """A host of its own, with the measuring program."""
    with Fleet.boot(1) as booted:
        booted.hosts[0].run(f"cat > /opt/standin/client.py <<'EOF'\n{CLIENT.read_text()}\nEOF")
        yield booted


@pytest.fixture
def host(fleet: Fleet) -> FleetHost:
    """That host, with the deployment served."""
    fleet.hosts[0].run(WIPE)
    Launch(fleet)("up", *served(), "--yes")
    return fleet.hosts[0]


@pytest.mark.alone
def test_known_differences_are_found_and_production_is_back(fleet: Fleet, host: FleetHost, tmp_path: Path) -> None:
    before = look(host)
    done = Launch(fleet)("-m", "nccl.max_nchannels=2,4,8,12", *served(), *measured(tmp_path), "--yes", "--json")
    told = json.loads(done.stdout)
    labels = {point["digest"]: point["label"] for point in told["points"]}
    words = {labels[digest]: word for digest, word in told["judgement"]["overall"].items()}
    assert words.pop("baseline") == "baseline"
    assert words == {
        "nccl.max_nchannels=2": "worse",
        "nccl.max_nchannels=4": "better",
        "nccl.max_nchannels=8": "no difference",
        "nccl.max_nchannels=12": "trade",
    }
    for trial in told["trials"]:
        assert trial["proof"]["NCCL_MAX_NCHANNELS"]["word"] == "proved"
        assert not any(reading["invalid"] for reading in trial["readings"])
    after = look(host)
    assert_tuned(after)
    assert after["MainPID"] != before["MainPID"]
    assert "the old release again, restarted" in done.stderr
    assert Launch(fleet)("drift", *served()).returncode == 0
    assert (tmp_path / told["id"] / "report.html").is_file()


@pytest.mark.parametrize("more", [(), ("nccl.min_nchannels=2",)], ids=["the baseline", "another release"])
def test_production_is_measured_once_more(fleet: Fleet, host: FleetHost, tmp_path: Path, more: tuple[str, ...]) -> None:
    words = ("-m", "nccl.max_nchannels=4,12", *served(), *measured(tmp_path), *more, "sweep.closing=true", "--yes")
    done = Launch(fleet)(*words, "sweep.repeats=1", "sweep.max_repeats=1", "--json")
    after, told = look(host), json.loads(done.stdout)
    assert_tuned(after)
    assert "the old release again, restarted" in done.stderr
    (closing,) = told["closing"]["trials"]
    (sentence,) = told["closing"]["summary"]
    assert (closing["kind"], closing["failure"]) == ("closing", "")
    assert not any(reading["invalid"] for reading in closing["readings"])
    assert closing["proof"]["NCCL_MAX_NCHANNELS"]["word"] == "proved"
    assert (closing["point"] == told["points"][0]["digest"]) == (not more)
    # On a busy machine one start may not be enough to tell.
    begins = ("Production is another release than",) if more else ("Production serves as", "Production: whether it")
    assert sentence.startswith(begins)
    assert sentence in (tmp_path / told["id"] / "report.html").read_text()
    last = max((trial for trial in told["trials"]), key=lambda trial: float(trial["at"]))
    assert closing["at"] >= last["at"] + last["seconds"] - 1
    assert Launch(fleet)("drift", *served()).returncode == 0


def test_without_a_yes_nothing_is_touched(fleet: Fleet, host: FleetHost, tmp_path: Path) -> None:
    before = look(host)
    done = Launch(fleet)("-m", "nccl.algo=Ring,Tree", *served(), *measured(tmp_path), check=3)
    assert f"{UNIT}, if it runs there, makes room" in done.stdout
    assert look(host) == before
    assert list(tmp_path.iterdir()) == []


def test_a_point_that_dies_is_told_and_the_others_are_measured(fleet: Fleet, host: FleetHost, tmp_path: Path) -> None:
    done = Launch(fleet)(
        *("-m", "engine.args.standin_fault=no_algorithm,strip_env", *served(), *measured(tmp_path)),
        *("sweep.repeats=1", "sweep.max_repeats=1", "--yes", "--json"),
    )
    told = json.loads(done.stdout)
    failures = {trial["failure"] for trial in told["trials"]}
    assert failures == {"", "NCCL: no algorithm", "refused by the waiter"}
    assert_tuned(look(host))


@pytest.mark.parametrize("how", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.soak), "SIGKILL"])
def test_a_sweep_that_is_ended(fleet: Fleet, host: FleetHost, tmp_path: Path, how: str) -> None:
    words = ("-m", "nccl.algo=Ring,Tree", *served(), *measured(tmp_path), "sweep.silence=3", "--yes")
    running = begin(Launch(fleet), *words)
    running.until("2/")
    running.process.send_signal(getattr(signal, how))
    code = running.end()
    assert code == (-9 if how == "SIGKILL" else 130)
    begun = time.monotonic()
    wait_until_over(host)
    assert time.monotonic() - begun < 30
    assert_tuned(wait_for(host, "active"))
    assert inside(host, "ls /etc/launch/pending") == ""
    assert Launch(fleet)("drift", *served()).returncode == 0


def test_an_interrupt_ends_the_load_that_runs(fleet: Fleet, host: FleetHost, tmp_path: Path) -> None:
    """Production does not wait for minutes of answers that nobody wants any more."""
    usual = [word for word in measured(tmp_path) if "decode.output_tokens" not in word]
    longest = "bench.loads.decode.output_tokens=40000"  # some 200 s a request
    running = begin(Launch(fleet), "-m", "nccl.algo=Ring,Tree", *served(), *usual, longest, "--yes")
    deadline = time.monotonic() + 60
    while "client.py" not in inside(host, "pgrep -af '[/]opt/standin/client.py' || true"):
        assert time.monotonic() < deadline, running.said()
        time.sleep(0.2)
    begun = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    assert running.end(90) == 130
    assert time.monotonic() - begun < 60
    assert "the old release again, restarted" in running.said()
    wait_until_over(host)
    assert_tuned(wait_for(host, "active"))
    assert inside(host, "pgrep -af '[/]opt/standin/client.py' || true") == ""


def test_a_cable_that_is_cut_in_the_middle(fleet: Fleet, host: FleetHost, tmp_path: Path) -> None:
    """The host puts production back without anybody's help; the client notices, and its sweep can be finished."""
    words = ("-m", "nccl.max_nchannels=2,4", *served(), *measured(tmp_path), "sweep.silence=6", "--yes")
    running = begin(Launch(fleet), *words)
    running.until("2/")
    try:
        host.unplug()
        begun = time.monotonic()
        wait_until_over(host)
        assert time.monotonic() - begun < 40
        assert inside(host, f"systemctl is-active {UNIT}").strip() == "active"
        assert inside(host, "ls /etc/launch/pending") == ""
        code = running.end(120)
    finally:
        host.plug()
    assert (code, "puts back what was served before" in running.said()) == (5, True), running.said()
    assert_tuned(wait_for(host, "active"))
    assert Launch(fleet)("drift", *served()).returncode == 0
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    kept = (folder / "journal.jsonl").read_text()
    done = Launch(fleet)(*words, f"--resume={folder.name}", "--json")
    assert (folder / "journal.jsonl").read_text().startswith(kept)
    told = json.loads(done.stdout)
    labels = {point["digest"]: point["label"] for point in told["points"]}
    assert {labels[digest]: word for digest, word in told["judgement"]["overall"].items()} == {
        "baseline": "baseline",
        "nccl.max_nchannels=2": "worse",
        "nccl.max_nchannels=4": "better",
    }
    assert_tuned(look(host))
