"""Sample sweeps for tests: made by arithmetic alone, so that every run shows the same."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from launcher.sweep.record import (
    Judgement,
    LeftOut,
    Point,
    Reading,
    Settings,
    Sweep,
    Trial,
    Verdict,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launcher.sweep.record import Overall, Word

BEGIN = 1796000000.0
DECODE = Workload("decode-1", "decode", "one token for 1 request", "us", details={"tokens": 1, "bytes": 14336})
VERIFY = Workload("verify-3", "verify", "three tokens, checked at once", "us", details={"tokens": 3})
PREFILL = Workload("prefill-2048", "prefill", "a prompt of 2048 tokens", "us", details={"tokens": 2048})
BASELINE = Point("b" * 16, "baseline")


def point(number: int, choices: Mapping[str, str], **fields: Any) -> Point:
    label = " ".join(f"{key}={value}" for key, value in choices.items())
    return Point(f"{number:016x}", label, choices, **fields)


def reading(workload: Workload, value: float, **fields: Any) -> Reading:
    return Reading(workload.name, value, value * 0.97, value * 1.05, **fields)


def trial(of: Point, order: int, readings: Sequence[Reading] = (), **fields: Any) -> Trial:
    proof = {
        "NCCL_" + key.rpartition(".")[2].upper(): {
            "word": "proved",
            "quote": f"NCCL_{key} set by environment to {value}",
        }
        for key, value in of.choices.items()
    }
    told = {"at": BEGIN + 95 * order, "seconds": 80.0, "proof": proof, **fields}
    return Trial(of.digest, order, readings=tuple(readings), **told)


def verdict(of: Point, workload: Workload, difference: float, half: float = 0.006, **fields: Any) -> Verdict:
    """Return a verdict whose word follows from its numbers, unless one is given."""
    low, high = (1 + difference) * (1 - half) - 1, (1 + difference) / (1 - half) - 1
    word: Word = "undecided"
    if high < 0 or low > 0:
        word = "better" if (high < 0) == workload.lower_is_better else "worse"
    if low > -0.02 and high < 0.02:
        word = "no difference"
    told = {"word": word, "low": low, "high": high, "trials": 2, **fields}
    return Verdict(of.digest, workload.name, difference=difference, **told)


def overall(verdicts: Sequence[Verdict]) -> Overall:
    """Return the overall word by the simplest rule; what really judges is not tested here."""
    words = {one.word for one in verdicts}
    if {"better", "worse"} <= words:
        return "trade"
    order: tuple[Overall, ...] = ("better", "worse", "undecided", "no difference", "invalid")
    return next((word for word in order if word in words), "failed")


def judge(sweep: Sweep, verdicts: Sequence[Verdict], **fields: Any) -> Judgement:
    words = {
        one.digest: overall([v for v in verdicts if v.point == one.digest and math.isfinite(v.difference)])
        for one in sweep.points[1:]
    }
    return Judgement(tuple(verdicts), {BASELINE.digest: "baseline", **words}, **fields)


def sweep(**fields: Any) -> Sweep:
    told: dict[str, Any] = {
        "name": "kimi-k2", "id": "20261130-021500-allreduce", "target": "gpu1.rack4.example.net",
        "command": "launch -m kimi-k2 nccl.algo=Ring,Tree nccl.proto=LL,LL128,Simple", "axes": {},
        "workloads": (DECODE, VERIFY, PREFILL), "points": (BASELINE,),
        "facts": {"GPUs": "8 x NVIDIA RTX PRO 6000", "versions": {"NCCL": "2.28.9", "driver": "580.95.05"},
                  "clocks_locked": False},
    }  # fmt: skip
    return Sweep(**{**told, **fields})


def usual() -> tuple[Sweep, Judgement]:
    """Return six points of two axes: a better one, trades, a failed one, an invalid one, one that is 3 x slower."""
    axes = {"nccl.algo": ("Ring", "Tree"), "nccl.proto": ("LL", "LL128", "Simple")}
    points = [
        point(n, {"nccl.algo": algo, "nccl.proto": proto})
        for n, (algo, proto) in enumerate(itertools.product(*axes.values()))
    ]
    points[0] = point(0, points[0].choices, aliases=("nccl.algo=Ring nccl.proto=LL nccl.min_channels=2",))
    points[3] = point(3, points[3].choices, notes=("LL128 needs NVLink or is slower",))
    moves = [(-0.121, -0.08, 0.004), (-0.09, 0.03, 2.1), (0.003, 0.001, 0.002), (0.013, 0.005, 0.006)]
    values = ((DECODE, 21.4), (VERIFY, 22.9), (PREFILL, 152.1))
    trials: list[Trial] = []
    for order, of in enumerate([BASELINE, *points[:4], BASELINE, *points, BASELINE], 1):
        number = points.index(of) if of in points else -1
        wave = 1 + 0.004 * math.sin(order * 1.7) + 0.0012 * order
        move = moves[number] if 0 <= number < 4 else (0, 0, 0)
        found = [
            reading(w, value * (1 + change) * wave, details={
                "us_per_allreduce": value * (1 + change), "algorithm": "RING" if "Ring" in of.label else "TREE",
                "channels": 8, "step_ms": round(value * (1 + change) * 0.122, 3), "wrong": 0})
            for (w, value), change in zip(values, move, strict=True)
        ]  # fmt: skip
        if number == 4:
            trials.append(trial(of, order, failure="no algorithm", message="NCCL found no algorithm for AllReduce",
                                evidence=("NCCL WARN Error : no algorithm/protocol available for function AllReduce",),
                                proof={}))  # fmt: skip
        elif number == 5:
            contradicted = {"NCCL_ALGO": {"word": "contradicted", "quote": "NCCL_ALGO set by environment to Ring"}}
            found = [Reading(r.workload, r.value, r.low, r.high, ("NCCL_ALGO is contradicted",)) for r in found]
            trials.append(trial(of, order, found, proof=contradicted))
        else:
            silent = {"NCCL_IB_TIMEOUT": {"word": "silent", "quote": ""}} if number == 1 else {}
            first = trial(of, order, found)
            trials.append(trial(of, order, found, proof={**first.proof, **silent}))
    made = sweep(axes=axes, points=(BASELINE, *points), trials=tuple(trials), left_out=(
        LeftOut("nccl.algo=NVLS nccl.proto=LL", ("nvls-needs-nvswitch: these GPUs have no NVSwitch",)),))  # fmt: skip
    verdicts = [
        verdict(of, w, change, half=0.015 if change == 0.013 else 0.006)
        for of, move in zip(points, moves, strict=False)
        for (w, _), change in zip(values, move, strict=True)
    ]
    lost: dict[str, Any] = {"word": "invalid", "low": -math.inf, "high": math.inf, "trials": 0}
    verdicts += [verdict(of, w, math.nan, reason="no valid trial", **lost) for of in points[4:] for w, _ in values]
    judged = judge(made, verdicts, drift={"decode-1": 0.011}, notes=("The spread of a start is 0.4 % in decode-1.",))
    words: dict[str, Overall] = {**judged.overall, points[4].digest: "failed", points[5].digest: "invalid"}
    return made, Judgement(judged.verdicts, words, judged.drift, judged.notes)


def only_failures() -> tuple[Sweep, Judgement]:
    points = [point(n, {"nccl.proto": value}) for n, value in enumerate(("LL", "LL128"))]
    trials = [
        trial(of, n, failure="hang", message="no answer for 120 s", evidence=(f"line {n}",))
        for n, of in enumerate((BASELINE, *points, BASELINE), 1)
    ]
    made = sweep(axes={"nccl.proto": ("LL", "LL128")}, points=(BASELINE, *points), trials=tuple(trials))
    return made, Judgement((), {BASELINE.digest: "baseline", **{one.digest: "failed" for one in points}})


def large(number: int = 40, workloads: int = 10) -> tuple[Sweep, Judgement]:
    kinds = ("decode", "verify", "prefill")
    works = [
        Workload(f"{kinds[n % 3]}-{2**n}", kinds[n % 3], f"{2**n} tokens", "us") for n in range(workloads)
    ]  # fmt: skip
    values = (tuple(f"A{n}" for n in range(8)), tuple(f"value{n}" for n in range(5)))
    axes = dict(zip(("nccl.algo", "nccl.min_channels"), values, strict=True))
    points = [
        point(n, dict(zip(axes, chosen, strict=True)))
        for n, chosen in enumerate(itertools.islice(itertools.product(*values), number))
    ]
    everyone = [BASELINE, *points] * 2
    trials = [
        trial(of, n, [
            reading(w, 20 * 1.4**k * (1 + 0.1 * math.sin(n % (number + 1) * (k + 1))), details={"step_ms": 12.25 + k})
            for k, w in enumerate(works)
        ])
        for n, of in enumerate(everyone, 1)
    ]  # fmt: skip
    made = sweep(axes=axes, points=(BASELINE, *points), workloads=tuple(works), trials=tuple(trials),
                 settings=Settings(effect=0.03, baseline_every=1))  # fmt: skip
    verdicts = [
        verdict(of, w, 0.1 * math.sin((n + 1) * (k + 1)) * (20 if n == 7 and k == 2 else 1), half=0.011)
        for n, of in enumerate(points)
        for k, w in enumerate(works)
    ]
    return made, judge(made, [v for v in verdicts if v.difference > -1])


def serve() -> tuple[Sweep, Judgement]:
    """Return three loads against a served model, with and without speculation, the baseline without."""
    works = tuple(
        Workload(name, name.partition("-")[0], f"{many} in flight", unit, lower_is_better=unit == "ms",
                 details={"concurrency": many, "input_tokens": 1024, "output_tokens": out})
        for name, many, unit, out in (
            ("decode-1", 1, "ms", 256), ("decode-8", 8, "tok/s", 256), ("decode-64", 64, "tok/s", 256),
            ("prefill-8192", 1, "ms", 1))
    )  # fmt: skip
    axes = {"spec": ("none", "eagle3_2step"), "nccl.proto": ("LL", "Simple")}
    points = [
        point(n, dict(zip(axes, chosen, strict=True))) for n, chosen in enumerate(itertools.product(*axes.values()))
    ]
    plain = {"decode-1": 11.26, "decode-8": 14.0, "decode-64": 31.0, "prefill-8192": 0.0}
    trials = []
    for order, of in enumerate([BASELINE, *points, BASELINE, *points, BASELINE], 1):
        slower = 1.04 if of.choices.get("nccl.proto") == "Simple" else 1 + 0.002 * math.sin(order)
        has = of.choices.get("spec") == "eagle3_2step"
        found = []
        for work in works:
            many, tpot = work.details["concurrency"], plain[work.name] * slower
            details: dict[str, Any] = {"metric": "tpot_ms"}
            if has and tpot:
                cycle = tpot * (2.016 + 0.012 * many)
                tpot = cycle / 2.35
                details |= {"acceptance_length": 2.35, "cycle_ms": round(cycle, 4)}
            if tpot:
                details |= {"tpot_ms_median": round(tpot, 4), "output_tokens_per_s_per_user": round(1000 / tpot, 4),
                            "output_tokens_per_s_per_gpu": round(950 * many / tpot / 8, 4)}  # fmt: skip
            else:
                details |= {"output_tokens_per_s_per_user": 2.1, "output_tokens_per_s_per_gpu": 0.26}
            value = 480 * slower if not tpot else tpot if work.unit == "ms" else 950 * many / tpot
            found.append(reading(work, value, details=details))
        trials.append(trial(of, order, found))
    made = sweep(id="20261130-021500-serve", axes=axes, workloads=works, points=(BASELINE, *points),
                 trials=tuple(trials))  # fmt: skip
    verdicts = [
        verdict(of, w, (-1 if w.lower_is_better else 1) * (0.1 if n > 1 and "decode" in w.name else 0.001))
        for n, of in enumerate(points)
        for w in works
    ]
    return made, judge(made, verdicts)
