"""The schedule of a sweep: rounds, interleaved baselines, repeats, failures, the limit of time, and its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.sweep.record import Judgement, Point, Reading, Settings, Sweep, Trial, Verdict, Workload
from launcher.sweep.schedule import expected, given_up, next_point, why_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from launcher.sweep.record import Word

NAMES = "BPQRSTUVWXYZ"
NOTHING = Judgement((), {})


def a_sweep(points: int, **settings: Any) -> Sweep:
    named = tuple(Point(name, name) for name in NAMES[: points + 1])
    workload = Workload("decode-1", "decode", "", "us")
    return Sweep("llm", "id", "launch", "here", {}, (workload,), named, settings=Settings(**settings))


def trials_of(text: str) -> tuple[Trial, ...]:
    """Return trials from letters: "P!hang" is a start of P that hung, "Q?" one of Q that counts for nothing."""
    found = []
    for number, word in enumerate(text.split()):
        name, _, failure = word.partition("!")
        reading = Reading("decode-1", 1, 1, 1, ("cut",) if name.endswith("?") else ())
        trial = Trial(name[0], number + 1, 60.0 * number, 60.0, () if failure else (reading,), failure)
        found.append(trial)
    return tuple(found)


def words(by_point: Mapping[str, str]) -> Judgement:
    """Return verdicts from words by point."""
    code: dict[str, Word] = {"u": "undecided", "b": "better", "w": "worse", "n": "no difference", "i": "invalid"}
    verdicts = [
        Verdict(point, "decode-1" if place == 0 else f"x{place}", code[letter], 0, 0, 0, 2)
        for point, letters in by_point.items()
        for place, letter in enumerate(letters)
    ]
    return Judgement(tuple(verdicts), {})


def follow(sweep: Sweep, judge: Callable[[Sweep], Judgement], bad: Iterable[str] = (), most: int = 200) -> Sweep:
    """Run a sweep to its end; every start of a bad point hangs."""
    for number in range(most):
        point = next_point(sweep, judge(sweep), 60.0 * number)
        if point is None:
            return sweep
        word = point.digest + ("!hang" if point.digest in bad else "")
        sweep = replace(sweep, trials=trials_of(" ".join([*_written(sweep), word])))
    pytest.fail("the sweep does not end")


def _written(sweep: Sweep) -> list[str]:
    return [trial.point + (f"!{trial.failure}" if trial.failure else "") for trial in sweep.trials]


def line(sweep: Sweep) -> str:
    return "".join(trial.point for trial in sweep.trials)


@pytest.mark.parametrize(
    ("points", "settings", "order"),
    [
        (0, {}, "B"),
        (1, {}, "BPBPB"),
        (3, {}, "BPQRBRQPB"),
        (3, {"baseline_every": 1}, "BPBQBRBRBQBPB"),
        (3, {"baseline_every": 2}, "BPQBRBRQBPB"),
        (3, {"repeats": 1}, "BPQRB"),
        (2, {"repeats": 3}, "BPQBQPBPQB"),
        (7, {}, "BPQRSTUBVBVUTSRQBPB"),
        (3, {"repeats": 3, "max_repeats": 2}, "BPQRBRQPBPQRB"),
    ],
)
def test_rounds(points: int, settings: dict[str, Any], order: str) -> None:
    """The baseline first, last and between; every other round backwards; as many as were expected."""
    sweep = follow(a_sweep(points, **settings), lambda _: NOTHING)
    assert line(sweep) == order
    assert expected(sweep) == len(order)
    assert why_over(sweep, NOTHING, 1e9) == "every point is decided"


@pytest.mark.parametrize(
    ("trials", "settings", "verdicts", "wanted"),
    [
        ("", {}, {}, "B"),
        ("B!hang", {}, {}, "B"),
        ("B?", {}, {}, "B"),
        ("B!hang B", {}, {}, "P"),
        ("B P", {}, {}, "Q"),
        ("B P!hang", {}, {}, "Q"),
        ("B P Q R B R", {}, {}, "Q"),
        ("B P Q!hang R B R", {}, {}, "Q"),
        ("B P Q!hang R B R Q!hang P", {}, {}, "B"),
        ("B P Q!hang R B R Q P", {}, {}, "B"),
        ("B P Q!hang R B R Q P B", {}, {}, "Q"),
        ("B P Q!hang R B R Q!crash P B", {}, {}, "Q"),
        ("B P Q!hang R B R Q!crash P B Q!oom B", {}, {}, "Q"),
        ("B P Q? R B R Q? P B", {}, {}, ""),
        ("B P Q R B R Q P B", {}, {"P": "b", "Q": "u", "R": "u"}, "Q"),
        ("B P Q R B R Q P B", {}, {"P": "w", "Q": "wu", "R": "u"}, "R"),
        ("B P Q R B R Q P B", {}, {"P": "uw", "Q": "wu", "R": "b"}, "P"),
        ("B P Q R B R Q P B Q", {}, {"Q": "u", "R": "u"}, "R"),
        ("B P Q R B R Q P B Q R", {}, {"Q": "u", "R": "u"}, "B"),
        ("B P Q R B R Q P B Q R", {}, {}, "B"),
        ("B P Q R B R Q P B", {"max_repeats": 2}, {"Q": "u"}, ""),
        ("B P Q R B R Q P B", {}, {"Q": "nu", "R": "i"}, ""),
        ("B P Q R", {"minutes": 6}, {}, "B"),
        ("B P Q R B", {"minutes": 6}, {}, "R"),
        ("B P Q R B", {"minutes": 6.5}, {}, "R"),
        ("B P Q R B", {"minutes": 5.5}, {}, ""),
        ("B P Q R", {"minutes": 5}, {}, "B"),
        ("B P Q R", {"minutes": 4.9}, {}, ""),
        ("B P Q R B R!hang", {"minutes": 7.5}, {}, "B"),
    ],
)
def test_next(trials: str, settings: dict[str, Any], verdicts: dict[str, str], wanted: str) -> None:
    """Only the trials decide, so a sweep that was cut off goes on at the same place. A trial takes a minute."""
    sweep = replace(a_sweep(3, **settings), trials=trials_of(trials))
    now = 60.0 * len(sweep.trials)
    point = next_point(sweep, words(verdicts), now)
    assert (point.digest if point else "") == wanted
    assert bool(why_over(sweep, words(verdicts), now)) == (not wanted)


def test_the_first_verdict_names_a_workload_the_baseline_has() -> None:
    """A workload that the baseline never did cannot be decided by further starts of a point."""
    sweep = replace(a_sweep(1), trials=trials_of("B P B P B"))
    assert next_point(sweep, words({"P": "u"}), 0) == sweep.points[1]
    assert next_point(sweep, words({"P": "nu"}), 0) is None


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ("P!hang P!hang", "hang"),
        ("P!hang P!crash", ""),
        ("P!hang P!crash P!hang", "hang"),
        ("P!hang P P!hang", ""),
        ("P P!hang P!hang", "hang"),
        ("P? P?", "no valid reading"),
        ("P P", ""),
    ],
)
def test_given_up(trials: str, reason: str) -> None:
    assert given_up(trials_of(trials)) == reason


@pytest.mark.parametrize(
    ("trials", "settings", "verdicts", "reason"),
    [
        ("B!hang B!crash", {}, {}, "the baseline failed twice in a row: crash"),
        ("B? B?", {}, {}, "the baseline failed twice in a row: no valid reading"),
        ("B P Q", {"minutes": 1.5}, {}, "the 1.5 minutes are over"),
        ("B P Q B Q P B", {}, {"P": "b", "Q": "n"}, "every point is decided"),
        ("B P Q B Q P B", {"max_repeats": 2}, {"P": "u", "Q": "n"}, "1 point undecided after 2 starts"),
        ("B P Q B Q P B", {}, {"P": "nu", "Q": "n"}, "1 point undecided where the baseline has no valid reading"),
        ("B P!x Q B Q P!x B", {}, {"P": "u", "Q": "n"}, "1 point given up after failing the same way twice"),
    ],
)
def test_why_over(trials: str, settings: dict[str, Any], verdicts: dict[str, str], reason: str) -> None:
    sweep = replace(a_sweep(2, **settings), trials=trials_of(trials))
    assert why_over(sweep, words(verdicts), 60.0 * len(sweep.trials)) == reason
    assert next_point(sweep, words(verdicts), 60.0 * len(sweep.trials)) is None


def test_the_undecided_are_repeated_up_to_the_limit() -> None:
    """Three of five points stay undecided, one always hangs: the counts are exact and the baseline is last."""
    sweep = follow(a_sweep(5), lambda _: words({"P": "u", "Q": "b", "R": "u", "S": "u", "T": "u"}), bad="T")
    counts = {point.digest: line(sweep).count(point.digest) for point in sweep.points}
    assert counts == {"B": 7, "P": 6, "Q": 2, "R": 6, "S": 6, "T": 2}
    assert line(sweep)[-1] == "B"
    assert why_over(sweep, words({"P": "u", "R": "u", "S": "u", "T": "u"}), 0) == (
        "3 points undecided after 6 starts, 1 point given up after failing the same way twice"
    )


def test_a_sweep_whose_baseline_always_fails_ends_at_once() -> None:
    assert line(follow(a_sweep(5), lambda _: NOTHING, bad="B")) == "BB"


@pytest.mark.parametrize("cut", range(1, 30))
def test_resume_anywhere(cut: int) -> None:
    """Cut off anywhere, with other points done, a sweep ends with every point in its rounds."""
    whole = follow(a_sweep(11), lambda _: NOTHING)
    assert expected(whole) == len(whole.trials) == 27
    assert line(follow(replace(whole, trials=whole.trials[:cut]), lambda _: NOTHING)) == line(whole)


@pytest.mark.parametrize("minutes", range(1, 12))
def test_time_is_never_overdrawn(minutes: int) -> None:
    sweep = follow(a_sweep(3, minutes=minutes), lambda _: NOTHING)
    assert len(sweep.trials) == min(minutes, 9)
    whole = "BPQRBRQPB"
    assert line(sweep)[:-1] == whole[: len(sweep.trials) - 1], "the last one may be the baseline's before its turn"
    assert "B" in line(sweep)[-2:], "one start may be without a baseline after it"
