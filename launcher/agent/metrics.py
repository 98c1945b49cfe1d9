"""What a check found, as text for the textfile collector of Prometheus' node_exporter. Pure.

Every series carries its deployment, so that several files of one host never hold the same series twice, which would
make node_exporter refuse all of them. Severities and layers are there with 0 too: an alert ends by a value, not by a
series that vanishes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from .findings import LAYERS, SEVERITIES, counts

Report = Mapping[str, Any]
Labels = Dict[str, str]
Sample = Tuple[Labels, float]


class _Metric(NamedTuple):
    """One metric, and what it is of a report."""

    name: str
    help: str
    samples: Callable[[Report], Iterable[Sample]]


def metrics(reports: Sequence[Report], now: float, seconds: float) -> str:
    """Return the text for these deployments.

    Args:
        reports: of the check; one with ``failed`` (why) instead of findings for a deployment that could not be checked.
        now: when the check ended, in seconds of the epoch.
        seconds: it took, all deployments of the host together.
    """
    done = [report for report in reports if "failed" not in report]
    of_all = (
        _Metric("launch_drift_check_success", "Whether the last check could be done.", _success),
        _Metric(
            "launch_drift_last_check_timestamp_seconds", "When the last check ended, since the epoch.", _always(now)
        ),
        _Metric(
            "launch_drift_check_duration_seconds",
            "How long the last check of this host took, all deployments together.",
            _always(seconds),
        ),
    )
    lines = [line for metric in _METRICS for line in _told(metric, done)]
    lines += [line for metric in of_all for line in _told(metric, reports)]
    return "".join(f"{line}\n" for line in lines)


def _told(metric: _Metric, reports: Sequence[Report]) -> List[str]:
    # All are gauges: even the restarts fall, when somebody starts the service by hand.
    head = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
    lines = [
        f"{metric.name}{_labels({'deployment': report['deployment'], **labels})} {_number(value)}"
        for report in reports
        for labels, value in metric.samples(report)
    ]
    return head + lines if lines else []


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    text = value.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def _counting(report: Report, field: str, values: Sequence[str]) -> Iterable[Sample]:
    found = [finding[field] for finding in report["findings"] if counts(finding)]
    return [({field: value}, found.count(value)) for value in values]


def _one(name: str) -> Callable[[Report], Iterable[Sample]]:
    return lambda report: [({}, report[name])]


def _always(value: float) -> Callable[[Report], Iterable[Sample]]:
    return lambda _: [({}, value)]


def _success(report: Report) -> Iterable[Sample]:
    return [({}, "failed" not in report)]


def _muted(report: Report) -> Iterable[Sample]:
    return [({}, sum(bool(finding["muted"]) for finding in report["findings"]))]


def _up(report: Report) -> Iterable[Sample]:
    return [({}, report["service"].startswith("active"))]


def _info(report: Report) -> Iterable[Sample]:
    return [({"release": (report["applied"] or {}).get("digest", ""), "running": report["running"]}, 1)]


_METRICS = (
    _Metric(
        "launch_drift_findings",
        "Differences from what was applied, by severity; without accepted ones.",
        lambda report: _counting(report, "severity", [s for s in SEVERITIES if s != "info"]),
    ),
    _Metric(
        "launch_drift_layer_findings",
        "The same differences, by the layer that they lie in.",
        lambda report: _counting(report, "layer", LAYERS),
    ),
    _Metric("launch_drift_muted_findings", "Differences that the configuration accepts.", _muted),
    _Metric("launch_unit_restarts", "Automatic restarts since the service was last started by hand.", _one("restarts")),
    _Metric("launch_processes", "Processes of the service.", _one("processes")),
    _Metric(
        "launch_processes_proven", "Processes of the service that carry every variable of the release.", _one("proven")
    ),
    _Metric("launch_deployment_up", "Whether the service is active.", _up),
    _Metric("launch_deployment_info", "The release that was applied and the one that runs.", _info),
)
