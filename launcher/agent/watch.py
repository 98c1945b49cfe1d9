"""The check that the host does by itself, every few minutes: journal, metrics and alert instead of a terminal."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import files, systemd, watch_memory
from .check import check, deployments
from .findings import SEVERITIES, counts
from .journal import say, say_of
from .metrics import metrics
from .processes import read_bytes
from .watch_memory import Seen

#: Held by whoever changes this host.
_LOCK = "/run/launch.lock"
_LEVELS = {"critical": 3, "warning": 4, "unknown": 5}

Report = Dict[str, Any]


class _Outcome(NamedTuple):
    """Of one deployment: what metrics are made of, what the next run wants to know, and whether all could be done."""

    report: Report
    seen: Seen
    done: bool


def watch() -> int:
    """Check every deployment of this host.

    A difference is no failure: journal, metrics and the alert tell of it.

    Returns:
        0 when everything could be done, 1 otherwise; the reason is in the journal.
    """
    begin, before = time.monotonic(), watch_memory.load()
    if _changing():
        say("drift: launch is changing this host; it is not checked this time", level=5)
        return 0
    reports = _reports()
    if reports is None:
        return 1
    if _changing():
        say("drift: launch began to change this host; what was seen in between does not count", level=5)
        return 0
    outcomes = {report["deployment"]: _one(report, before.get(report["deployment"], Seen())) for report in reports}
    for name in sorted(set(before) - set(outcomes)):
        say(f"drift: {name} is not deployed here any more", level=5)
    textfiles = _write_metrics(list(outcomes.values()), before, time.monotonic() - begin)
    try:
        watch_memory.store({name: outcome.seen for name, outcome in outcomes.items()})
    except OSError as error:
        say(f"drift: the next run cannot be told of this one ({error}), and will repeat its alerts", level=3)
        return 1
    return 0 if textfiles and all(outcome.done for outcome in outcomes.values()) else 1


def _changing() -> bool:
    """Return whether somebody holds the lock of this host.

    The lock is not tried: a deployment that begins in that moment would be refused.
    """
    try:
        status = os.stat(_LOCK)
    except OSError:
        return False
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(name in line.split() for line in (read_bytes("/proc/locks") or b"").decode().splitlines())


def _reports() -> Optional[List[Report]]:
    """Return what the check says of every deployment; ``failed`` is why where it cannot say anything."""
    try:
        names = deployments()
    except (OSError, systemd.SystemdError) as error:
        say(f"drift: it cannot be told what is deployed here: {error}", level=3)
        return None
    reports: List[Report] = []
    for name in names:
        try:
            reports.append(check(name))
        except Exception as error:  # one of them must not keep the others from being checked
            expected = isinstance(error, (OSError, systemd.SystemdError))
            said = str(error) if expected else f"{type(error).__name__}: {error}"
            reports.append({"deployment": name, "failed": said})
    return reports


def _one(report: Report, last: Seen) -> _Outcome:
    """Say what is to say about one deployment, and start its alert."""
    name, unit = report["deployment"], f"launch-{report['deployment']}.service"
    if "failed" in report:
        state = "cannot be checked"
        say_of(unit, f"drift: {name} {state}: {report['failed']}", level=3, LAUNCH_DEPLOYMENT=name)
        return _Outcome({**report, "watch": {"textfile": last.textfile}}, last._replace(state=state), done=False)
    unsure = [f for f in report["findings"] if f["severity"] == "unknown" and not f["muted"] and not counts(f)]
    # What cannot be told, and is no drift, is said once: it may stay so for the life of a host.
    for finding in [f for f in report["findings"] if counts(f)] + [f for f in unsure if _key(f) not in last.unsure]:
        _say_finding(report, unit, finding)
    state = _state(report, unsure)
    if state != last.state:
        say_of(unit, f"drift: {name}: {state}", level=5, LAUNCH_DEPLOYMENT=name)
    alerted, restarts, done = _alert(report, last)
    seen = Seen(state, [_key(f) for f in unsure], alerted, restarts, _setting(report, "textfile"))
    return _Outcome(report, seen, done=done)


def _setting(report: Report, name: str) -> str:
    """Return how a deployment wants to be watched; what launch has no record of says nothing of it."""
    return str(report["watch"].get(name, ""))


def _key(finding: Mapping[str, Any]) -> str:
    """Return the name of this very finding, as `findings.Finding.key` does."""
    return f"{finding['id']} {finding['subject']}".rstrip()


def _say_finding(report: Report, unit: str, finding: Mapping[str, Any]) -> None:
    mend = f"; {finding['mend']}" if finding["mend"] else ""
    say_of(
        unit,
        f"drift: {finding['text']} [{finding['id']}]{mend}",
        level=_LEVELS[finding["severity"]],
        LAUNCH_DEPLOYMENT=report["deployment"],
        LAUNCH_FINDING=_key(finding),
        LAUNCH_LAYER=finding["layer"],
    )


def _state(report: Report, unsure: Sequence[Mapping[str, Any]]) -> str:
    """Return a deployment's state in a few words; the same words mean that nothing has changed."""
    found = [f["severity"] for f in report["findings"] if counts(f)]
    parts = [f"{found.count(severity)} {severity}" for severity in SEVERITIES if severity in found]
    words = f"{len(found)} {'finding' if len(found) == 1 else 'findings'} ({', '.join(parts)})" if found else "no drift"
    muted = sum(bool(f["muted"]) for f in report["findings"])
    words += f", {len(unsure)} cannot be told" if unsure else ""
    return words + (f", {muted} accepted" if muted else "") + f"; release {report['running'] or 'none'} runs"


def _alert(report: Report, last: Seen) -> Tuple[List[str], int, bool]:
    """Start the alert for what is new.

    Returns:
        The findings and the restarts that it was started for, and whether it could be. One that could not be started
        is tried again by the next run.
    """
    name, unit = report["deployment"], _setting(report, "alert")
    service = f"launch-{name}.service"
    now, restarts = [_key(f) for f in report["findings"] if counts(f)], report["restarts"]
    # A start by hand sets the count back to 0: those since then are new too.
    restarted = restarts - last.restarts if restarts >= last.restarts else restarts
    new = [finding for finding in now if finding not in last.alerted]
    if not unit or not (new or restarted):
        # Without an alert nobody was told: one that is configured later tells of all that is there then.
        return [finding for finding in last.alerted if finding in now], restarts, True
    try:
        systemd.systemctl("start", "--no-block", "--", unit)
    except systemd.SystemdError as error:
        say_of(service, f"drift: the alert cannot be started: {error}", level=3, LAUNCH_DEPLOYMENT=name)
        return [finding for finding in last.alerted if finding in now], restarts - restarted, False
    reasons = new + ([f"{restarted} {'restart' if restarted == 1 else 'restarts'}"] if restarted else [])
    say_of(service, f"drift: {unit} is started for {', '.join(reasons)}", level=5, LAUNCH_DEPLOYMENT=name)
    return now, restarts, True


def _write_metrics(outcomes: Sequence[_Outcome], before: Mapping[str, Seen], seconds: float) -> bool:
    """Write the metrics file of each path that a deployment names, and remove those that nobody names any more."""
    reports: Dict[str, List[Report]] = {seen.textfile: [] for seen in before.values() if seen.textfile}
    for outcome in outcomes:
        path = _setting(outcome.report, "textfile")
        if path:
            reports.setdefault(path, []).append(outcome.report)
    done = True
    for path, here in sorted(reports.items()):
        try:
            _write_file(path, metrics(here, time.time(), seconds))
        except OSError as error:
            way = "; let launch-drift.service write there: ReadWritePaths= in a drop-in"
            hint = way if error.errno == errno.EROFS else ""
            say(f"drift: {path} cannot be written: {error.strerror or error}{hint}", level=4)
            done = False
    return done


def _write_file(path: str, text: str) -> None:
    if not os.path.lexists(os.path.dirname(path)):
        return  # no node_exporter here
    if text:
        # Its temporary file does not end in .prom, so node_exporter never reads half a file.
        files.write({"path": path, "text": text, "mode": 0o644, "group": "root"})
    else:
        files.remove(path)
