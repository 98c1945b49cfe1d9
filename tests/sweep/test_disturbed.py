"""A sweep says when somebody else worked on the machine meanwhile."""

from __future__ import annotations

import pytest

from launcher.sweep import disturbed
from launcher.sweep.statistics import judge
from tests.sweep import cases


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([0.02, 0.1, 0.19], ""),
        ([None, None], ""),
        (
            [0.02, 0.9, 0.3],
            "up to 0.9 of 2 processors busy while decode-1 was measured (more than 10% in 2 of 3 starts)",
        ),
        ([None, 1.5], "up to 1.5 of 2 processors busy while decode-1 was measured (more than 10% in 1 of 1 starts)"),
    ],
)
def test_it_is_told_by_workload(others: list[float | None], told: str) -> None:
    trials = tuple(
        cases.trial(
            cases.BASELINE,
            order,
            [
                cases.reading(
                    cases.DECODE, 100, details={} if one is None else {"other_processors": one, "processors": 2.0}
                ),
                cases.reading(cases.PREFILL, 100),
            ],
        )
        for order, one in enumerate(others, start=1)
    )
    found = list(disturbed.notes(cases.sweep(trials=trials)))
    assert len(found) == bool(told)
    assert told in "".join(found)
    assert [note for note in judge(cases.sweep(trials=trials)).notes if "other programs" in note] == found


def test_an_invalid_reading_disturbs_nothing() -> None:
    details = {"other_processors": 2.0, "processors": 2.0}
    reading = cases.reading(cases.DECODE, 100, invalid=("a request failed",), details=details)
    assert not list(disturbed.notes(cases.sweep(trials=(cases.trial(cases.BASELINE, 1, [reading]),))))
