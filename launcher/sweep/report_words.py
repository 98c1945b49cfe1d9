"""Facts, spans of time and the method of a sweep, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .figures import counted

if TYPE_CHECKING:
    from .record import Sweep


def facts(data: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Return nested facts as lines of name and text."""
    lines: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{above} {key}".strip().replace("_", " ")
        lines += facts(value, name) if isinstance(value, Mapping) else [(name, flat(value))]
    return [line for line in lines if line[1]]


def flat(value: Any) -> str:  # noqa: ANN401 - any fact
    """Return a fact as one text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(flat, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {flat(inner)}" for key, inner in value.items())
    return str(value)


def lasted(seconds: float) -> str:
    """Return a span of time for people."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def method(sweep: Sweep) -> list[str]:
    """Return how the numbers came about."""
    settings = sweep.settings
    effect, confidence = f"{settings.effect * 100:.3g} %", f"{settings.confidence * 100:.3g} %"
    every = "every point" if settings.baseline_every == 1 else f"every {settings.baseline_every} points"
    few, most = settings.repeats, settings.max_repeats
    starts = counted(most, "start") if few == most else f"{few} to {most} starts"
    ratio = "A difference is the geometric mean of the starts of a point over that of the baseline, minus 1"
    sides = "Better or worse: the interval is on one side of 0 and the difference matters"
    inside = f"no difference: the interval is inside ±{effect}"
    several = f"{len(set(sweep.homes.values()))} equal hosts share the points, and each has the baseline as well"
    shared = f"{several}: a point is compared with that of its own host, with the confidence over all points of all."
    chosen = f"Optuna chose which points were started, at most {sweep.search} of {len(sweep.points) - 1}, once each"
    searched = f"{chosen}; those that may be best got further starts. The confidence is over all points, chosen or not."
    return [
        "A trial is one fresh start of a point; all runs within it make one reading for each workload.",
        f"The baseline comes first and again after {every}; a point gets {starts}.",
        *([shared] if sweep.homes else []),
        *([searched] if sweep.search else []),
        f"{ratio}; all intervals together hold with {confidence} confidence.",
        f"{sides}; {inside}; undecided: neither; trade: kinds of workloads disagree.",
        "Only readings count whose settings are not contradicted; points that render to the same release are one.",
    ]
