"""What a sweep knows, as frozen plain data: points, what was measured of them, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the journal reads these annotations at run time
from dataclasses import dataclass, field
from typing import Any, Literal

#: See the words of design: "no difference" lies inside the smallest effect that matters, "trade" is said of a point
#: that is better in one workload and worse in another, "failed" of one that never gave a valid trial.
Word = Literal["better", "worse", "no difference", "undecided", "invalid"]
Overall = Literal["baseline", "better", "worse", "no difference", "trade", "undecided", "invalid", "failed"]
#: Of a field that is written only where it is not empty: most sweeps have nothing to say there.
_SPARSE = {"sparse": True}


@dataclass(frozen=True)
class Workload:
    """One thing that is measured of every point; the readings of it are in ``unit``.

    Attributes:
        name: such as ``decode-1``, ``verify-3``, ``prefill-2048``; unique in a sweep.
        kind: what the name begins with.
        text: for people, in a few words.
        unit: of the readings, such as ``us``.
        lower_is_better: whether a smaller reading is the better one.
        details: what else is known of it, such as tokens and bytes.
    """

    name: str
    kind: str
    text: str
    unit: str
    lower_is_better: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One configuration of a sweep.

    Attributes:
        digest: of its release; equal digests are one point.
        label: its choices as overrides, such as ``nccl.algo=Tree nccl.proto=LL``; "baseline" without any.
        choices: value by axis, such as {"nccl.algo": "Tree"}.
        aliases: labels of points that render to the same release.
        notes: warnings of rules, one line each.
        words: what it was composed from, as a command line takes it: overrides, ``-e NAME=VALUE``, ``--allow RULE``.
        env: of its release.
        argv: of its release.
        values: what choices came to, by axis, where that is spelled otherwise: 16777216 of ``16MiB``.
    """

    digest: str
    label: str
    choices: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, metadata=_SPARSE)


@dataclass(frozen=True)
class LeftOut:
    """A point that is not measured: a rule refuses it."""

    label: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """What one trial measured of one workload.

    Attributes:
        workload: its name.
        value: the median or mean over the runs within this one start, in the workload's unit.
        low: of the runs within this start, the smallest that is shown (tenth percentile or minimum).
        high: likewise the largest.
        invalid: why it counts for nothing; empty when it counts.
        details: what else was read, such as ``us_per_allreduce``, ``algorithm``.
    """

    workload: str
    value: float
    low: float
    high: float
    invalid: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One measured start of a point: everything in it is averaged before trials are compared.

    Attributes:
        point: digest.
        order: place in the sweep, from 1.
        at: seconds since 1970 at its begin.
        seconds: that it took.
        readings: by workload; empty when it failed.
        failure: class of what went wrong, such as "no algorithm" or "hang"; empty when nothing did.
        message: of the failure, for people.
        evidence: quoted lines that show it.
        proof: word by variable, and quote: {"NCCL_ALGO": {"word": "proved", "quote": "…"}}.
        facts: versions, GPU readings before and after, and what else a reader may ask for.
        host: where it ran, of a sweep that several hosts share; else empty.
        kind: ``closing`` of what serves when production is back (`launcher.sweep.closing`): ``point`` is the digest of
            its release then, which need be no point of the sweep. Empty of every start of a point.
    """

    point: str
    order: int
    at: float
    seconds: float
    readings: tuple[Reading, ...] = ()
    failure: str = ""
    message: str = ""
    evidence: tuple[str, ...] = ()
    proof: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    host: str = field(default="", metadata=_SPARSE)
    kind: str = field(default="", metadata=_SPARSE)


@dataclass(frozen=True)
class Settings:
    """How a sweep is run and judged.

    Attributes:
        effect: smallest relative difference that matters.
        repeats: valid starts of a point before it may be judged.
        max_repeats: starts after which a point stays undecided.
        baseline_every: points between two trials of the baseline.
        minutes: after its first trial, when no further one begins; 0: no such limit.
        confidence: of all intervals of a sweep together.
        closing: whether production is measured once more when it is back.
    """

    effect: float = 0.02
    repeats: int = 2
    max_repeats: int = 6
    baseline_every: int = 6
    minutes: float = 0
    confidence: float = 0.95
    closing: bool = field(default=False, metadata=_SPARSE)


@dataclass(frozen=True)
class Verdict:
    """A point against the baseline for one workload.

    Attributes:
        difference: relative, point over baseline minus 1, of geometric means; 0.024 is 2.4 % more. NaN when one of the
            two has no valid start.
        low: of its interval; -inf when there is none.
        high: likewise; inf.
        trials: valid starts of the point.
        reason: in a few words, for undecided and invalid ones.
    """

    point: str
    workload: str
    word: Word
    difference: float
    low: float
    high: float
    trials: int
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """What a sweep has found out.

    Attributes:
        verdicts: one for every point but the baseline and every workload, in their order.
        overall: by digest.
        drift: by workload, how much the baseline moved from the first to the last trial, relative; only where it is
            more than chance. Where several hosts share the sweep, the names are those of `launcher.sweep.shares.on`.
        notes: what a reader has to know about the numbers, one line each.
    """

    verdicts: tuple[Verdict, ...]
    overall: Mapping[str, Overall]
    drift: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """A sweep from its plan to its end.

    Attributes:
        name: of the deployment.
        id: such as ``20261130-021500-allreduce``; names its folder.
        command: as typed, for the report.
        target: where it ran, such as "this machine" or a host.
        axes: swept keys with their values, in the order typed.
        workloads: what is measured.
        points: the baseline first.
        left_out: refused ones.
        settings: how it is run and judged.
        facts: hardware, versions, notes on the method.
        trials: that count, in the order in which they ran.
        past: likewise those that count for nothing any more; see `launcher.sweep.current`.
        gone: points of an earlier run that were not asked for again; their trials are past.
        since: seconds since 1970 at which it was resumed for the last time; 0: never.
        forgiven: orders of failed trials that no longer keep their point from being started.
        hosts: that share the points, as named last; empty where one machine measures them all.
        homes: of such a sweep, the host of every point but the baseline, by digest; every host has the baseline. See
            `launcher.sweep.shares`.
        search: how many points, beside the baseline, are chosen to be measured; 0: all are. See `launcher.search`.
        late: of a search, why a point is chosen only after all others, by digest.
        closing: what production gave when it was back; no trials of a point.
    """

    name: str
    id: str
    command: str
    target: str
    axes: Mapping[str, tuple[str, ...]]
    workloads: tuple[Workload, ...]
    points: tuple[Point, ...]
    left_out: tuple[LeftOut, ...] = ()
    settings: Settings = field(default_factory=Settings)
    facts: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    past: tuple[Trial, ...] = ()
    gone: tuple[Point, ...] = ()
    since: float = 0.0
    forgiven: tuple[int, ...] = ()
    hosts: tuple[str, ...] = field(default=(), metadata=_SPARSE)
    homes: Mapping[str, str] = field(default_factory=dict, metadata=_SPARSE)
    search: int = field(default=0, metadata=_SPARSE)
    late: Mapping[str, str] = field(default_factory=dict, metadata=_SPARSE)
    closing: tuple[Trial, ...] = field(default=(), metadata=_SPARSE)

    @property
    def baseline(self) -> Point:
        """The point that all others are compared with."""
        return self.points[0]
