"""The report of a sweep: its words, its numbers, and what a real browser makes of its page."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import LaunchError
from launcher.sweep import (
    figures,
    report,
    report_plots,
    report_rates,
    report_rows,
    report_speculation,
    report_view,
    report_words,
    tables,
)
from launcher.sweep.record import Judgement, LeftOut, Point, Reading, Settings, Sweep, Verdict, Workload
from tests import browser
from tests.sweep import cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Each would leave a mark on the window around it, or an element that this page never has.
ATTACK = (
    """'"></code></style></title></svg></pre></details><script>top.hacked=1</script>"""
    """<img src=x onerror="top.hacked=1"><a href="javascript:top.hacked=1">{{ 7*7 }}{% raw %}&lt;b&gt;"""
)
LONG = "x" * 200
WIDTHS = [320, 360, 768, 1280]
NOTHING = Judgement((), {})


def text_of(html: str) -> str:
    """Return the words of a page, without its elements."""
    return " ".join(re.sub(r"<wbr>", "", re.sub(r"<(?!wbr)[^>]+>", " ", html.partition("<body>")[2])).split())


def made(differences: Sequence[Sequence[float]], half: float = 0.006) -> tuple[Sweep, Judgement]:
    """Return a sweep with points that differ like this in decode, verify and prefill."""
    points = [cases.point(n, {"a": str(n)}) for n in range(len(differences))]
    works = (cases.DECODE, cases.VERIFY, cases.PREFILL)
    sweep = cases.sweep(points=(cases.BASELINE, *points), trials=(cases.trial(cases.BASELINE, 1),))
    verdicts = [
        cases.verdict(of, work, difference, half)
        for of, row in zip(points, differences, strict=True)
        for work, difference in zip(works, row, strict=True)
    ]
    return sweep, cases.judge(sweep, verdicts)


@pytest.mark.parametrize(
    ("difference", "told"),
    [
        (0.024, "+2.4 %"), (-0.024, "-2.4 %"), (0.0, "0.0 %"), (-0.0001, "0.0 %"), (0.4, "+40.0 %"), (0.4999, "1.5 x"),
        (1.5, "2.5 x"), (2.0, "3.0 x"), (8.96, "10 x"), (24, "25 x"), (-0.5, "0.50 x"), (-0.9, "0.10 x"),
        (math.nan, "?"), (math.inf, "?"),
    ],
)  # fmt: skip
def test_relative(difference: float, told: str) -> None:
    assert tables.relative(difference) == told


@pytest.mark.parametrize(
    ("low", "middle", "high", "told"),
    [
        (0.018, 0.024, 0.03, "±0.6"), (-0.1, 0.0, 0.11, "±10.5"), (0.0, 0.1, 0.3, "+0.0 to +30.0 %"),
        (1.9, 2.0, 2.1, "2.9 to 3.1 x"), (0.3, 0.45, 0.6, "±15.0"), (-0.1, 0.45, 1.5, "-10.0 to +150 %"),
        (0.2, 0.9, 2.0, "1.2 to 3 x"), (49, 98.8, 98.9, "50 to 100 x"),
        (-math.inf, 0.1, math.inf, ""), (0.1, math.nan, 0.2, ""), (-1.0, 0.3, 7.9e9, "not known yet"),
        (-0.995, -0.2, 4.0, "not known yet"),
    ],
)  # fmt: skip
def test_interval(low: float, middle: float, high: float, told: str) -> None:
    assert figures.interval(Verdict("p", "w", "better", middle, low, high, 2)) == told


@pytest.mark.parametrize(
    ("value", "told"), [(16.7, "16.7"), (152.09, "152.1"), (1234.5, "1,234"), (0.01234567, "0.01235"), (math.nan, "?")]
)
def test_figure(value: float, told: str) -> None:
    assert figures.figure(value) == told


def test_level() -> None:
    assert figures.level([1, 100]) == pytest.approx(10)
    assert math.isnan(figures.level([]))
    assert math.isnan(figures.level([0, 1]))


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ([(-0.1, -0.2, -0.1), (0, 0, 0)],
         ["1 of 2 points is better in decode, verify and prefill and worse nowhere: a=0 (verify-3 -20.0 %).",
          "1 of 2 points shows no difference of 2 % or more: a=1."]),
        ([(-0.1, 0, 0.3), (-0.2, 0, 0.2), (0.1, 0, 0)],
         ["Nothing beats the baseline everywhere.",
          "2 of 3 points are better in decode and worse in prefill (trade): a=1, a=0.",
          "1 of 3 points is worse in decode and better nowhere: a=2."]),
        ([(0, 0, 0)] * 5, ["Nothing separates these points from the baseline: every difference is smaller than 2 %."]),
        ([(0.1, 0.1, 0.1)] * 5,
         ["Nothing beats the baseline.",
          "All 5 points are worse in decode, verify and prefill and better nowhere: a=0, a=1, a=2 and 2 more."]),
        ([(-0.1, 0, 0.003)], ["The only point is better in decode and worse nowhere: a=0 (decode-1 -10.0 %)."]),
        ([(-0.1, -0.1, 0.1), (0.1, -0.1, -0.1), (-0.1, 0.1, -0.1), (0.1, 0, -0.1)],
         ["Nothing beats the baseline everywhere.",
          ("All 4 points are a trade, each in its own way, better in some workloads and worse in others: "
           "a=0, a=1, a=2 and 1 more.")]),
    ],
)  # fmt: skip
def test_the_summary(differences: Sequence[Sequence[float]], told: list[str]) -> None:
    sweep, judgement = made(differences)
    assert tables.summary(sweep, judgement) == told


def test_the_summary_of_what_is_not_certain() -> None:
    sweep, judgement = made([(-0.1, 0.015, 0), (0, 0.015, 0)], half=0.017)
    first, second = tables.summary(sweep, judgement)
    assert first == "1 of 2 points is better in decode and undecided in verify: a=0 (decode-1 -10.0 %)."
    assert second == "1 of 2 points is undecided: a=1."
    (only,) = tables.summary(*made([(0.015, 0, 0)], half=0.017))[1:]
    assert only == "The only point is undecided: a=0."
    assert tables.summary(*made([(0.015, 0, 0)], half=0.017))[0] == "Nothing is known to beat the baseline."


def test_the_summary_without_results() -> None:
    refused = (LeftOut("a=1", ("no",)),)
    assert tables.summary(cases.sweep(left_out=refused * 2), NOTHING) == [
        "No trial has run: nothing is known yet.", "2 points were left out, for a rule refuses them.",
    ]  # fmt: skip
    alone = cases.sweep(left_out=refused, trials=(cases.trial(cases.BASELINE, 1),))
    assert tables.summary(alone, NOTHING) == [
        "Only the baseline was measured: there is nothing to compare it with.",
        "1 point was left out, for a rule refuses it.",
    ]
    assert tables.summary(*cases.only_failures()) == [
        "No point gave a valid result: nothing can be said about any.",
        "All 2 points failed (hang): nccl.proto=LL, nccl.proto=LL128.",
    ]


def test_a_kind_that_disagrees_in_itself_is_told_by_workload() -> None:
    works = tuple(Workload(f"decode-{n}", "decode", "", "us") for n in (1, 8))
    point = cases.point(1, {"a": "1"})
    sweep = cases.sweep(workloads=works, points=(cases.BASELINE, point), trials=(cases.trial(point, 1),))
    judgement = cases.judge(sweep, [cases.verdict(point, works[0], -0.1), cases.verdict(point, works[1], 0.1)])
    assert (
        tables.summary(sweep, judgement)[1]
        == "The only point is better in decode-1 and worse in decode-8 (trade): a=1."
    )


def test_the_table() -> None:
    header, *rows = tables.table(*cases.usual())
    assert header == ["point", "overall", "decode-1", "verify-3", "prefill-2048"]
    assert rows[0][:2] == ["baseline", "baseline"]
    assert re.fullmatch(r"21\.\d+ us", rows[0][2])
    assert rows[1] == ["nccl.algo=Ring nccl.proto=LL", "better", "-12.1 % ±0.5", "-8.0 % ±0.6", "+0.4 % ±0.6"]
    assert rows[2][1:] == ["trade", "-9.0 % ±0.5", "+3.0 % ±0.6", "3.1 x (3.08 to 3.12 x)"]
    assert rows[4][1:3] == ["undecided", "+1.3 % ±1.5 ?"]
    assert rows[5][1:] == ["invalid"] * 4
    assert rows[6][1:] == ["failed: no algorithm", "-", "-", "-"]
    assert tables.table(cases.sweep(), NOTHING)[1:] == [["baseline", "baseline", "-", "-", "-"]]


def test_the_better_direction_may_be_up() -> None:
    work = Workload("serve", "serve", "", "tokens/s", lower_is_better=False)
    points = [cases.point(n, {"a": str(n)}) for n in range(2)]
    sweep = cases.sweep(workloads=(work,), points=(cases.BASELINE, *points), trials=(cases.trial(points[0], 1),))
    judgement = cases.judge(sweep, [cases.verdict(points[0], work, 0.1), cases.verdict(points[1], work, 0.2)])
    assert [point.label for point in tables.ranked(sweep, judgement)] == ["baseline", "a=1", "a=0"]
    assert "a=1 (serve +20.0 %)" in tables.summary(sweep, judgement)[0]
    assert "← worse · better →" in report.page(sweep, judgement)


@pytest.mark.parametrize("effect", [0.001, 0.02, 0.2])
@pytest.mark.parametrize("differences", [(), (0.01, 2), (-0.9, 30), (-0.004, 0.003), (math.inf, -math.inf, math.nan)])
def test_a_scale_keeps_order_and_its_names_apart(effect: float, differences: tuple[float, ...]) -> None:
    scale = report_plots.Scale.over(differences, effect)
    places = [scale.at(one) for one in (-1, -effect, 0, effect, 2 * effect, math.inf)]
    assert places == sorted(set(places))
    assert places[0] == 0
    assert places[-1] == 100
    assert all(5 < scale.at(one) < 95 for one in differences if math.isfinite(one))
    ticks = scale.ticks()
    assert "0" in [name for _, name in ticks]
    assert all(b[0] - a[0] >= 17 for a, b in itertools.pairwise(ticks))
    assert len({name for _, name in ticks}) == len(ticks) >= 2


def test_a_small_and_a_large_difference_are_both_seen() -> None:
    scale = report_plots.Scale.over([0.01, 2.0], 0.02)
    assert scale.at(0.01) - scale.at(0) > 4
    assert scale.at(2.0) - scale.at(0.01) > 30


def test_the_proof_of_a_point_is_the_gravest_of_its_starts() -> None:
    point = cases.point(1, {"a": "1"})
    proofs = [{"A": ("proved", "x"), "B": ("proved", "y")}, {"A": ("contradicted", "z"), "C": ("silent", "")}]
    trials = tuple(
        cases.trial(point, n, proof={k: {"word": word, "quote": quote} for k, (word, quote) in one.items()})
        for n, one in enumerate(proofs)
    )
    proof = report_view.proof_of(cases.sweep(points=(cases.BASELINE, point), trials=trials), point)
    assert (proof.word, proof.told) == ("contradicted", "1 contradicted, 1 silent, 1 proved")
    assert proof.variables == [("A", "contradicted", "z"), ("C", "silent", ""), ("B", "proved", "y")]
    whole = report_view.proof_of(cases.sweep(points=(cases.BASELINE, point), trials=trials[:1]), point)
    assert (whole.word, whole.told) == ("proved", "all 2 proved")
    assert report_view.proof_of(cases.sweep(points=(cases.BASELINE, point)), point).told == "no proof"


def test_the_effect_of_a_value_is_a_mean_of_ratios() -> None:
    axes = {"a": ("1", "2"), "b": ("x", "y")}
    points = [cases.point(n, {"a": a, "b": b}) for n, (a, b) in enumerate(itertools.product(*axes.values()))]
    sweep = cases.sweep(axes=axes, workloads=(cases.DECODE,), points=(cases.BASELINE, *points))
    differences = (1.0, -0.5, 0.1, math.nan)
    judgement = Judgement(
        tuple(Verdict(p.digest, "decode-1", "undecided", d, d, d, 1) for p, d in zip(points, differences, strict=True)),
        {},
    )
    (_, of_a), (_, of_b) = report_view.effects(sweep, judgement)
    assert of_a == [("1", 2, ["0.0 %"]), ("2", 1, ["+10.0 %"])]
    assert of_b[1] == ("y", 1, ["0.50 x"])
    assert report_view.effects(replace(sweep, axes={"a": ("1", "2")}), judgement) == []


def test_the_timeline_is_relative_to_the_own_mean() -> None:
    sweep, judgement = cases.usual()
    track = report_plots.timeline(sweep, judgement)[0]
    assert [told.partition(",")[0] for _, _, told in track.baseline] == ["trial 1", "trial 6", "trial 13"]
    assert track.baseline[0][0] == 4
    assert track.baseline[-1][0] == 96
    assert len(track.others) == 8
    assert track.drift == "+1.1 %"
    assert report_plots.timeline(cases.sweep(), NOTHING) == []


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ({"versions": {"NCCL": "2", "driver": None}, "locked": False}, [("versions NCCL", "2"), ("locked", "no")]),
        ({"gpu_names": ["a", {"b": 1}], "empty": ""}, [("gpu names", "a, b 1")]),
    ],
)
def test_facts(data: dict[str, Any], lines: list[tuple[str, str]]) -> None:
    assert report_words.facts(data) == lines


@pytest.mark.parametrize(("seconds", "told"), [(80, "80 s"), (150, "2 min"), (3600, "1 h 0 min"), (7830, "2 h 10 min")])
def test_spans_of_time(seconds: float, told: str) -> None:
    assert report_words.lasted(seconds) == told


def test_the_numbers_for_other_programs() -> None:
    sweep, judgement = cases.usual()
    rows = list(csv.DictReader(io.StringIO(report_rows.results_csv(sweep))))
    assert len(rows) == 3 * 12 + 1
    first = rows[0]
    assert (first["order"], first["point"], first["workload"], first["unit"]) == ("1", "baseline", "decode-1", "us")
    assert (first["valid"], first["nccl.algo"], first["channels"], first["at"][:4]) == ("true", "", "8", "2026")
    assert float(first["value"]) == pytest.approx(sweep.trials[0].readings[0].value)
    (failed,) = [row for row in rows if row["failure"]]
    assert (failed["workload"], failed["value"], failed["valid"]) == ("", "", "false")
    assert (failed["failure"], failed["nccl.proto"]) == ("no algorithm", "LL128")
    assert [row["invalid"] for row in rows if row["workload"] and row["valid"] == "false"] == [
        "NCCL_ALGO is contradicted"
    ] * 3
    lines = [json.loads(line) for line in report_rows.results_jsonl(sweep).splitlines()]
    assert [line["value"] for line in lines[:3]] == [reading.value for reading in sweep.trials[0].readings]
    assert lines[3]["choices"] == {"nccl.algo": "Ring", "nccl.proto": "LL"}
    told = list(csv.DictReader(io.StringIO(report_rows.verdicts_csv(sweep, judgement))))
    assert len(told) == 18
    assert (told[0]["word"], told[0]["overall"], told[0]["nccl.algo"]) == ("better", "better", "Ring")
    assert float(told[0]["point_value"]) / float(told[0]["baseline_value"]) == pytest.approx(0.88, abs=0.01)
    assert (told[-1]["low"], told[-1]["difference"], told[-1]["reason"]) == ("-inf", "nan", "no valid trial")


def test_columns_with_taken_names_are_named_in_full() -> None:
    point = Point("p", "value=1", {"value": "1"})
    reading = Reading("decode-1", 2, 1, 3, (), {"value": 7, "order": "x", "nested": {"a": 1}})
    sweep = cases.sweep(
        axes={"value": ("1",)}, points=(cases.BASELINE, point), trials=(cases.trial(point, 1, [reading]),)
    )
    (row,) = csv.DictReader(io.StringIO(report_rows.results_csv(sweep)))
    assert (row["value"], row["choices.value"], row["details.value"], row["details.order"]) == ("2", "1", "7", "x")
    assert "nested" not in row


def test_the_files(tmp_path: Path) -> None:
    sweep, judgement = cases.usual()
    (tmp_path / "report.html").write_text("old")
    paths = report.write(tmp_path, sweep, judgement)
    assert [path.name for path in paths] == ["report.html", "results.csv", "results.jsonl", "verdicts.csv"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert paths[0].read_text("utf-8") == report.page(sweep, judgement)
    with pytest.raises(LaunchError, match=r"report\.html: No such file or directory; it is not written"):
        report.write(tmp_path / "gone", sweep, judgement)


def test_the_page_in_words() -> None:
    told = text_of(report.page(*cases.usual()))
    for words in (
        "Sweep of kimi-k2 on gpu1.rack4.example.net · 2026-11-30 00:54:55",
        "1 of 6 points is better in decode and verify and worse nowhere", "✓ 1 better ⇄ 1 trade",
        "launch -m kimi-k2 nccl.algo=Ring,Tree", "2026-11-30 00:54:55 to 01:15:15 UTC, 20 min",
        "7 points with the baseline, 3 workloads, 13 trials", "versions NCCL 2.28.9", "clocks locked no",
        "decode-1 µs, less is better", "-12.1 % ±0.5 ✓ better est. 2.295 ms a step", "✗ worse", "≈ no difference",
        "3.1 x 3.08 to 3.12", "– invalid no valid trial",  # noqa: RUF001 - a sign
        "! failed no algorithm", "1, 1 failed",
        "✓ all 2 proved", "1 silent, 2 proved", "✗ 1 contradicted", "NCCL_ALGO set by environment to Ring",
        "The spread of a start is 0.4 %", "the baseline moved by +1.1 %", "The baseline itself moved by +1.1 %",
        "NCCL found no algorithm for AllReduce trial 11;", "NCCL WARN Error : no algorithm/protocol available",
        "NCCL_ALGO is contradicted decode-1, verify-3, prefill-2048; trial 12",
        "nccl.algo=NVLS nccl.proto=LL : nvls-needs-nvswitch: these GPUs have no NVSwitch",
        "nccl.algo=Ring nccl.proto=LL nccl.min_channels=2 = nccl.algo=Ring nccl.proto=LL",
        "LL128 needs NVLink or is slower", "2 points without a difference", "µs per all-reduce",
        "The baseline comes first and again after every 6 points; a point gets 2 to 6 starts.",
    ):  # fmt: skip
        assert words in told, words


def test_pages_of_next_to_nothing() -> None:
    told = text_of(report.page(cases.sweep(), NOTHING))
    assert "No trial has run: nothing is known yet." in told
    assert "no trial has run" in told
    for words in ("Differences from", "per user", "Speculat", "While the sweep", "What went", "Proof:", "All trials"):
        assert words not in told
    told = text_of(report.page(*cases.only_failures()))
    assert "no answer for 120 s trials 1, 4;" in told
    assert told.count("! hang") == 3 + 4
    assert "Differences from" not in told


def test_what_cannot_be_seen_is_written_out() -> None:
    told = report.page(cases.sweep(command="a\x1b[1m\u202eb\udcff\0"), NOTHING)
    assert r"a\x1b[1m\u202eb\udcff\x00" in told
    told.encode("utf-8")


@pytest.mark.parametrize(
    ("pairs", "kept"),
    [
        ([], []),
        ([(1, 1)], [(1, 1)]),
        ([(1, 1), (1, 1)], [(1, 1)]),
        ([(3, 1), (1, 3), (2, 2), (1, 1)], [(1, 3), (2, 2), (3, 1)]),
        ([(1, 3), (1, 2), (2, 3), (2, 1)], [(2, 3)]),
        ([(5, 1), (4, 1), (1, 9), (2, 9)], [(2, 9), (5, 1)]),
    ],
)  # fmt: skip
def test_the_front(pairs: list[tuple[float, float]], kept: list[tuple[float, float]]) -> None:
    assert report_rates.front(pairs) == kept


@pytest.mark.parametrize(
    ("values", "is_log"), [((5.0,), False), ((1.0, 10.0), False), ((40, 43), False), ((1.0, 10.1), True),
                           ((0.02, 3000.0), True), ((8, 9000), True)],
)  # fmt: skip
def test_an_axis(values: tuple[float, ...], is_log: bool) -> None:
    axis = report_rates.Axis.over(values)
    assert axis.is_log == is_log
    assert all(5 < axis.at(value) < 95 for value in values)
    ticks = axis.ticks(19)
    assert len({name for _, name in ticks}) == len(ticks) >= 2
    assert all(b[0] - a[0] >= 19 for a, b in itertools.pairwise(ticks))


def test_a_mark_is_the_median_of_its_valid_starts() -> None:
    work = Workload("decode-8", "decode", "", "tok/s", lower_is_better=False)

    def rated(order: int, user: float, *invalid: str) -> Any:
        details = {"output_tokens_per_s_per_user": user, "output_tokens_per_s_per_gpu": 2 * user}
        return cases.trial(cases.BASELINE, order, [Reading("decode-8", 1, 1, 1, invalid, details)])

    trials = (rated(1, 10), rated(2, 90), rated(3, 12), rated(4, 1000, "no"))
    found = report_rates.rates(cases.sweep(workloads=(work,), trials=trials), NOTHING)
    assert found
    (mark,) = found.marks
    assert (mark.user, mark.gpu, mark.is_baseline, mark.on_front) == (12, 24, True, True)
    assert report_rates.rates(*cases.usual()) is None


def test_the_rates_of_a_served_model() -> None:
    found = report_rates.rates(*cases.serve())
    assert found
    assert len(found.marks) == 3 * 5
    assert [name for name, _, _ in found.keys] == ["decode-1", "decode-8", "decode-64"]
    assert len({(style, shape) for _, style, shape in found.keys}) == 3
    assert [mark.is_baseline for mark in found.painted[-3:]] == [True] * 3
    assert found.logarithmic == "the axis upwards"
    assert not found.is_mixed
    assert len(found.front) == len({(mark.user, mark.gpu) for mark in found.marks if mark.on_front})
    assert found.front == sorted(found.front)
    assert [down for _, down in found.front] == sorted(down for _, down in found.front)


def test_where_speculation_pays() -> None:
    found = {work.name: lines for work, lines in report_speculation.speculation(*cases.serve())}
    assert list(found) == ["decode-1", "decode-8", "decode-64"]
    line = next(one for one in found["decode-1"] if "Simple" in one.point.label)
    assert line.against
    assert line.against.label == "spec=none nccl.proto=Simple"
    assert line.told == "pays from 2.03 tokens a verify step on; measured 2.35"
    assert found["decode-64"][0].told.startswith("pays from 2.7")
    assert report_speculation.speculation(*cases.usual()) == []


def test_speculation_without_anything_to_compare_it_with() -> None:
    def told(*, tpot: float | None = None, cycle: float | None = 22.7) -> str:
        point = cases.point(1, {"spec": "eagle"})
        details = {"acceptance_length": 2.1, **({"cycle_ms": cycle} if cycle else {})}
        trials = [cases.trial(point, 1, [cases.reading(cases.DECODE, 1, details=details)])]
        # Its prefill shows no acceptance, and is no baseline for that.
        trials += [cases.trial(point, 2, [cases.reading(cases.DECODE, 1, details={"tpot_ms_mean": 1.0})])]
        if tpot:
            trials += [cases.trial(cases.BASELINE, 3, [cases.reading(cases.DECODE, 1, details={"tpot_ms_mean": tpot})])]
        sweep = cases.sweep(points=(cases.BASELINE, point), trials=tuple(trials))
        ((_, (line,)),) = report_speculation.speculation(sweep, NOTHING)
        return line.told

    assert told(tpot=1000 / 88.8) == "pays from 2.02 tokens a verify step on; measured 2.10"
    assert told() == "measured 2.10; nothing without speculation ran under this load"
    assert told(tpot=11.0, cycle=None) == "measured 2.10; nobody told the time of a token"


def test_the_blocks_of_a_served_model_are_there_when_their_data_is() -> None:
    html = report.page(*cases.serve())
    told = text_of(html)
    blocks = ("Tokens per second per user against per GPU", "Speculation")
    for words in (*blocks, "pays from 2.03 tokens a verify step on; measured 2.35", "Logarithmic: the axis upwards."):
        assert words in told
    assert html.count('<svg class="mark') == 15
    for words in blocks:
        assert words not in text_of(report.page(*cases.usual()))


def test_nothing_is_fetched_and_no_script_is_there() -> None:
    told = report.page(*cases.usual())
    assert "default-src 'none'" in told
    assert not re.search(r"<script|<link|<img|<use|@import|url\(|https?:| on\w+=", told)


def nasty() -> tuple[Sweep, Judgement]:
    """Return the usual sweep with an attack and something long in every text."""
    return spoilt(*cases.usual())


def nasty_serve() -> tuple[Sweep, Judgement]:
    return spoilt(*cases.serve())


def spoilt(sweep: Sweep, judgement: Judgement) -> tuple[Sweep, Judgement]:
    bad = ATTACK + LONG
    names = {work.name: f"{bad}{work.name}" for work in sweep.workloads}

    def worse(name: str) -> Any:
        return [{"word": bad, "quote": bad}, {"word": "contradicted", "quote": bad}][len(name) % 2]

    trials = [
        replace(
            trial,
            readings=tuple(
                replace(one, workload=names[one.workload], invalid=one.invalid and (bad,),
                        details={**one.details, bad: bad})
                for one in trial.readings
            ),
            failure=trial.failure and bad, message=bad, evidence=(bad,) * 8, facts={bad: bad},
            proof={bad: worse(bad), **{name + bad: worse(name) for name in trial.proof}},
        )
        for trial in sweep.trials
    ]  # fmt: skip
    points = [replace(one, label=one.label + bad, aliases=(bad, bad), notes=(bad,)) for one in sweep.points]
    changed = replace(
        sweep, name=bad, id=bad, command=bad, target=bad, axes={bad: (bad, bad), **sweep.axes}, points=tuple(points),
        workloads=tuple(replace(one, name=names[one.name], text=bad, unit=bad) for one in sweep.workloads),
        left_out=(LeftOut(bad, (bad, bad)),), facts={bad: {bad: bad}}, trials=tuple(trials),
    )  # fmt: skip
    verdicts = [replace(one, workload=names[one.workload], reason=bad) for one in judgement.verdicts]
    return changed, replace(judgement, verdicts=tuple(verdicts), drift={names["decode-1"]: 0.1}, notes=(bad, bad))


MEASURE = """
const root = document.documentElement;
const names = new Set([...document.querySelectorAll("*")].map(e => e.localName));
const linear = c => c.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
const light = c => linear(c).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const rgb = text => text.match(/[\\d.]+/g).map(Number);
const behind = e => { const c = rgb(window.getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  return e.parentElement ? behind(e.parentElement) : [255, 255, 255]; };
const colour = e => { const s = window.getComputedStyle(e); return e.localName === "text" ? s.fill : s.color; };
const contrast = e => { const [a, b] = [light(rgb(colour(e)).slice(0, 3)), light(behind(e))]
  .sort((a, b) => b - a); return (a + .05) / (b + .05); };
const written = [...document.body.querySelectorAll("*:not(title)")].filter(
  e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility());
const inside = e => e.closest(".scroll, svg");
return {
  innerWidth: window.innerWidth, scrollWidth: root.scrollWidth, clientWidth: root.clientWidth,
  hacked: Boolean(window.top.hacked || window.hacked),
  foreign: ["script", "img", "a", "iframe", "link"].filter(n => names.has(n)),
  handlers: [...document.querySelectorAll("*")].flatMap(e => [...e.attributes]).filter(
    a => a.name.startsWith("on") || a.value.startsWith("javascript:")).map(a => a.name),
  pale: written.filter(e => contrast(e) < 4.5).map(e => [e.localName, e.className, contrast(e)]),
  cut: written.filter(e => !inside(e) && e.getBoundingClientRect().right > window.innerWidth + .5)
    .map(e => [e.localName, e.className, e.textContent.slice(0, 40)]),
  dark: light(behind(document.body)) < .2,
  unlabelled: [...document.querySelectorAll("section, .scroll")].filter(e =>
    !(e.getAttribute("aria-label") || document.getElementById(e.getAttribute("aria-labelledby"))?.textContent)).length,
  fetched: window.performance.getEntriesByType("resource").map(e => e.name),
  bands: [...document.querySelectorAll(".plot .band")].filter(e => e.checkVisibility()).map(
    e => e.getBoundingClientRect()).filter(r => r.width < 2 || r.height < 10).length,
};
"""


def without_policy(text: str) -> str:
    """Return a page without its ban on scripts, so that only its escaping protects it."""
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert bare != text
    return bare


@pytest.mark.parametrize("scheme", [browser.LIGHT, browser.DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    "case",
    [cases.usual, cases.serve, nasty, nasty_serve, cases.large, cases.only_failures, lambda: (cases.sweep(), NOTHING)],
    ids=["usual", "serve", "nasty", "nasty-serve", "large", "failures", "empty"],
)  # fmt: skip
def test_in_a_browser(case: Callable[[], tuple[Sweep, Judgement]], scheme: int, tmp_path: Path) -> None:
    html = without_policy(report.page(*case()))
    for seen, width in zip(browser.measure(html, WIDTHS, MEASURE, tmp_path, scheme), WIDTHS, strict=True):
        assert seen["innerWidth"] == width
        assert seen["scrollWidth"] <= seen["clientWidth"] <= seen["innerWidth"]
        assert seen["dark"] == (scheme == browser.DARK)
        assert not seen["hacked"]
        for fault in ("foreign", "handlers", "pale", "cut", "unlabelled", "fetched", "bands"):
            assert not seen[fault], (fault, width)


@pytest.mark.parametrize(
    ("tick", "name"),
    [(0.0, "0"), (0.02, "+2 %"), (-0.5, "0.5 x"), (1, "2 x"), (9, "10 x"), (29, "30 x"), (99, "100 x")],
)
def test_a_tick_is_named_as_people_write_numbers(tick: float, name: str) -> None:
    assert report_plots._name(tick) == name


def test_one_of_a_thing_is_no_plural() -> None:
    alone = cases.sweep(
        workloads=(cases.DECODE,), trials=(cases.trial(cases.BASELINE, 1),), settings=Settings(repeats=1, max_repeats=1)
    )
    page = report.page(alone, NOTHING)
    assert "1 point with the baseline, 1 workload, 1 trial<" in page
    assert "a point gets 1 start." in page
    assert not re.search(r"\b1 (points|workloads|trials|starts)\b", page)


def test_a_column_has_what_a_choice_came_to() -> None:
    point = cases.point(1, {"nccl.buffsize": "16MiB"}, values={"nccl.buffsize": "16777216"})
    sweep = cases.sweep(
        points=(cases.BASELINE, point), axes={"nccl.buffsize": ("16MiB",)}, trials=(cases.trial(point, 1),)
    )
    (row,) = csv.DictReader(io.StringIO(report_rows.results_csv(sweep)))
    assert (row["nccl.buffsize"], row["point"]) == ("16777216", "nccl.buffsize=16MiB")
