"""Whether somebody else worked on the machine while it was measured: repeats do not help when that comes and goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.sweep.record import Reading, Sweep

#: Part of all processors from which on others count as a disturbance.
_MUCH = 0.1


def notes(sweep: Sweep) -> Iterator[str]:
    """Yield a sentence for each workload that was disturbed, for people."""
    for workload in sweep.workloads:
        found = [
            reading
            for trial in sweep.trials
            for reading in trial.readings
            if reading.workload == workload.name and not reading.invalid and _part(reading) is not None
        ]
        disturbed = [reading for reading in found if (_part(reading) or 0.0) > _MUCH]
        if disturbed:
            most = max(disturbed, key=lambda reading: _part(reading) or 0.0)
            used, all_ = most.details["other_processors"], most.details["processors"]
            yield (
                f"other programs kept up to {used:.1f} of {all_:.0f} processors busy while {workload.name} was measured"
                f" (more than {_MUCH:.0%} in {len(disturbed)} of {len(found)} starts): differences there may be theirs;"
                " measure again when the machine is quiet"
            )


def _part(reading: Reading) -> float | None:
    """Return the part of all processors that others used; None where nobody looked."""
    used, all_ = reading.details.get("other_processors"), reading.details.get("processors")
    return used / all_ if isinstance(used, (int, float)) and isinstance(all_, (int, float)) and all_ > 0 else None
