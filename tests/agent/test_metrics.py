"""Reports of the check as metrics: which series there are, and that Prometheus' own linter has nothing to say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from launcher.agent.findings import LAYERS, Finding, as_data
from launcher.agent.metrics import metrics
from tests.promtool import check_metrics


def report(*findings: Finding, **changes: Any) -> dict[str, Any]:
    return {
        "deployment": "a",
        "applied": {"digest": "0123456789abcdef", "at": 1, "by": "me", "launch": "1"},
        "running": "0123456789abcdef",
        "service": "active (running)",
        "restarts": 2,
        "main": 7,
        "proven": 4,
        "processes": 5,
        "findings": as_data(findings),
        "watch": {"alert": "", "textfile": ""},
        **changes,
    }


def series(text: str) -> dict[str, str]:
    """Values by series, without the name's prefix."""
    lines = [line.removeprefix("launch_") for line in text.splitlines() if not line.startswith("#")]
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines)
    return found


CRITICAL = Finding("file-content", "files", "critical", "/etc/x", "x")
UNKNOWN = Finding("env-unread", "processes", "unknown", "7", "x")
NOT_TOLD = Finding("hw-acs", "host", "unknown", "acs", "x")
INFO = Finding("i", "host", "info", "i", "x")
MUTED = CRITICAL._replace(muted="accepted until 2030-01-01: x")

CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no drift": (
        report(),
        {
            'drift_findings{deployment="a",severity="critical"}': "0",
            'drift_findings{deployment="a",severity="warning"}': "0",
            'drift_findings{deployment="a",severity="unknown"}': "0",
            'drift_muted_findings{deployment="a"}': "0",
            'unit_restarts{deployment="a"}': "2",
            'processes{deployment="a"}': "5",
            'processes_proven{deployment="a"}': "4",
            'deployment_up{deployment="a"}': "1",
            'drift_check_success{deployment="a"}': "1",
            'drift_last_check_timestamp_seconds{deployment="a"}': "1700000000.250",
            'drift_check_duration_seconds{deployment="a"}': "1.500",
        },
    ),
    "drift": (
        report(CRITICAL, UNKNOWN),
        {
            'drift_findings{deployment="a",severity="critical"}': "1",
            'drift_findings{deployment="a",severity="unknown"}': "1",
            'drift_layer_findings{deployment="a",layer="files"}': "1",
            'drift_layer_findings{deployment="a",layer="processes"}': "1",
            'drift_layer_findings{deployment="a",layer="host"}': "0",
        },
    ),
    "accepted": (
        report(MUTED),
        {
            'drift_findings{deployment="a",severity="critical"}': "0",
            'drift_layer_findings{deployment="a",layer="files"}': "0",
            'drift_muted_findings{deployment="a"}': "1",
        },
    ),
    "what is no drift": (
        report(NOT_TOLD, INFO),
        {
            'drift_findings{deployment="a",severity="unknown"}': "0",
            'drift_layer_findings{deployment="a",layer="host"}': "0",
        },
    ),
    "starting": (report(service="activating (start-post)"), {'deployment_up{deployment="a"}': "0"}),
    "failed": (report(service="failed (failed)"), {'deployment_up{deployment="a"}': "0"}),
    "nothing applied": (
        report(applied=None),
        {'deployment_info{deployment="a",release="",running="0123456789abcdef"}': "1"},
    ),
    "odd bytes": (
        report(running='a"b\\c\nd\udcff'),
        {'deployment_info{deployment="a",release="0123456789abcdef",running="a\\"b\\\\c\\nd?"}': "1"},
    ),
}


@pytest.mark.parametrize(("seen", "told"), CASES.values(), ids=CASES.keys())
def test_series(seen: dict[str, Any], told: dict[str, str]) -> None:
    text = metrics([seen], 1_700_000_000.25, 1.5)
    text.encode()
    assert told.items() <= series(text).items()
    assert check_metrics(text) == ""


def test_the_same_series_with_and_without_drift() -> None:
    """An alert ends by a value: no series comes or goes with a finding."""
    names = {tuple(series(metrics([one], 1, 1))) for one in (report(), report(CRITICAL, UNKNOWN, MUTED, NOT_TOLD))}
    assert len(names) == 1
    assert len([name for name in names.pop() if name.startswith("drift_layer")]) == len(LAYERS)


def test_a_deployment_that_could_not_be_checked() -> None:
    text = metrics([report(), {"deployment": "b", "failed": "systemctl: no answer"}], 1, 1)
    of_b = {name: value for name, value in series(text).items() if '"b"' in name}
    assert of_b == {
        'drift_check_success{deployment="b"}': "0",
        'drift_last_check_timestamp_seconds{deployment="b"}': "1",
        'drift_check_duration_seconds{deployment="b"}': "1",
    }
    assert 'unit_restarts{deployment="a"}' in series(text)
    assert check_metrics(text) == ""


def test_the_linter_would_say_something() -> None:
    assert check_metrics("launch_things_total 1\n") != ""


def test_nothing_to_tell() -> None:
    assert metrics([], 1, 1) == ""


def test_two_files_of_a_host_share_no_series() -> None:
    """node_exporter refuses all files when two hold the same series; the help of a metric has to be the same too."""
    one, other = (metrics([report(deployment=name)], 1, 1) for name in "ab")
    assert set(series(one)).isdisjoint(series(other))
    assert re.findall("^#.*", one, re.MULTILINE) == re.findall("^#.*", other, re.MULTILINE)
