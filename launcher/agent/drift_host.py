"""Drift around a unit: NCCL's own word, the host and its software, strangers, unasked restarts. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import expect
from .findings import Finding, iso

_CONTAINER = re.compile(r"(docker|libpod|cri-containerd|crio|containerd)[-/:]")
#: Services that others start things from; without pam_systemd what a login leaves behind stays in sshd's own.
_DOOR = re.compile(r"/(sshd?|cron|crond|atd)(@[^/]*)?\.service$")


def findings(record: Mapping[str, Any], seen: Mapping[str, Any]) -> List[Finding]:
    """Return what NCCL, the host, other processes and systemd's count of restarts have to say."""
    return [
        *_library(record, seen),
        *_expected(record["intent"].get("hw", {}), seen["facts"]),
        *_changed(record["baseline"].get("facts", {}), seen["facts"]),
        *_strangers(record, seen),
        *_restarts(record, seen["loaded"]),
    ]


def _library(record: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Finding]:
    now, was = seen["nccl"], record["baseline"].get("nccl") or {}
    if seen["loaded"]["ActiveState"] != "active" or now is None:
        return
    unit = record["files"][2]["path"].rpartition("/")[2]
    base = Finding("", "library", "critical", "", "", where=(f"journalctl -u {unit}",))
    for line in now["contradicted"]:
        name, _, quote = line.partition(": ")
        yield base._replace(
            id="nccl-contradicted",
            subject=name,
            text=f"NCCL did not take {name} as it was applied",
            is_=quote,
            should=record["manifest"]["env"].get(name, ""),
            cause="this version of NCCL does not know the value, or the engine changed it",
            mend=f"launch explain nccl.{name[5:].lower()}",
        )
    if not now["versions"]:
        if was.get("versions"):
            text = "NCCL's own lines of this start are not in the journal any more"
            yield base._replace(
                id="nccl-silent",
                severity="unknown",
                subject="log",
                text=text,
                cause="the journal was rotated or vacuumed",
            )
        return
    if was.get("versions") and now["versions"] != was["versions"]:
        yield base._replace(
            id="nccl-version",
            severity="warning",
            subject="version",
            text="the server runs another NCCL than when it was proven",
            is_=", ".join(now["versions"]),
            should=", ".join(was["versions"]),
            cause="an update of the engine's packages",
            mend="launch up proves it again",
        )
    for name in sorted(set(was.get("proved", ())) - set(now["proved"])):
        if not any(line.startswith(name + ":") for line in now["contradicted"]):
            yield base._replace(
                id="nccl-not-proved",
                severity="warning",
                subject=name,
                text=f"NCCL's log of this start does not show {name}, which it did when proven",
                should=record["manifest"]["env"].get(name, ""),
                cause="another version of NCCL, or a communicator without it",
                mend="launch up proves it again",
            )


def _expected(hw: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Finding]:
    severity = {"warn": "warning", "inform": "info", "unknown": "unknown"}
    for difference in expect.differences(hw, facts) if hw else []:
        yield Finding(
            difference.id,
            "host",
            severity[difference.severity],
            "",
            difference.text,
            cause="" if difference.severity == "unknown" else "the host is not what hw= says of it",
            mend="" if difference.severity == "unknown" else "mend the host, or choose another hw=",
        )


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    base = Finding(
        "", "host", "warning", "", "", mend="launch up proves the server with it; measure again what was tuned"
    )
    for id_, name, is_, should in _compared(was, now):
        yield base._replace(
            id=id_,
            subject=name,
            severity="critical" if id_ == "gpu-changed" else "warning",
            text=f"{name}: not what it was when the deploy was proven",
            is_=is_,
            should=should,
            cause="an update, or a change of the machine",
        )


def _compared(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Tuple[str, str, str, str]]:
    """Yield id, name, value now and value then of what differs; what a look could not tell is left out."""
    kernel = [(facts.get("kernel") or {}).get("version", "") for facts in (now, was)]
    if all(kernel) and kernel[0] != kernel[1]:
        yield "kernel-changed", "kernel", kernel[0], kernel[1]
    packages = [(facts.get("engine") or {}).get("versions", {}) for facts in (now, was)]
    if all(packages):
        for name in sorted({*packages[0], *packages[1]}):
            is_, should = packages[0].get(name, "not installed"), packages[1].get(name, "not installed")
            if is_ != should:
                yield "package-changed", f"package {name}", is_, should
    if was.get("gpus") is None or now.get("gpus") is None:
        return
    cards: List[Dict[str, Mapping[str, Any]]] = [{str(g["bus"]): g for g in facts["gpus"]} for facts in (now, was)]
    for bus in sorted({*cards[0], *cards[1]}):
        is_card, was_card = cards[0].get(bus), cards[1].get(bus)
        if not is_card or not was_card:
            yield "gpu-changed", f"GPU at {bus}", "there" if is_card else "gone", "there" if was_card else "not there"
            continue
        for field, (id_, words) in _GPU.items():
            if is_card.get(field) != was_card.get(field) and None not in (is_card.get(field), was_card.get(field)):
                name = f"{words} of GPU {is_card['index']}"
                yield f"{id_}-changed", name, str(is_card[field]), str(was_card[field])


#: Fields of a GPU that matter when they change: id and words.
_GPU = {
    "driver": ("driver", "driver"),
    "name": ("gpu-name", "name"),
    "power_limit_w": ("power-limit", "power limit in W"),
    "pcie_width_max": ("pcie-width", "PCIe lanes"),
    "ecc": ("ecc", "ECC"),
    "mig": ("mig", "MIG"),
}


def _strangers(record: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Finding]:
    manifest = record["manifest"]
    for job in seen["listeners"]:
        yield _stranger(
            "port-taken",
            f"port {manifest['port']}",
            job,
            record,
            f"listens on port {manifest['port']}, which is this deployment's",
        )
    by_pid: Dict[int, List[str]] = {}
    jobs = {job["pid"]: job for job in seen["gpu_jobs"]}
    for job in seen["gpu_jobs"]:
        by_pid.setdefault(job["pid"], []).append(str(job["gpu"]))
    for pid, gpus in by_pid.items():
        yield _stranger(
            "gpu-taken",
            f"GPU {', '.join(gpus)}",
            jobs[pid],
            record,
            f"computes on GPU {', '.join(gpus)}, which this deployment uses",
        )


def _stranger(id_: str, subject: str, job: Mapping[str, Any], record: Mapping[str, Any], does: str) -> Finding:
    where = f"process {job['pid']} ({job['title'][:80] or 'no title'})"
    stop = _stop(job)
    return Finding(
        id_,
        "strays",
        "critical",
        subject,
        f"{where}, outside the unit, {does}; {_carries(job, record['manifest'])}",
        job["cgroup"],
        f"launch-{record['manifest']['name']}.service",
        (where,),
        iso(job["since"]),
        how_started(job["cgroup"]),
        f"{stop}, then systemctl start launch-{record['manifest']['name']}.service",
    )


def _stop(job: Mapping[str, Any]) -> str:
    cgroup = job["cgroup"]
    unit = cgroup.rpartition("/")[2]
    if _CONTAINER.search(cgroup):
        return "stop that container"
    own = unit.endswith(".service") and "user.slice" not in cgroup and not _DOOR.search(cgroup)
    return f"systemctl stop {unit}" if own else f"kill {job['pid']}"


def _carries(job: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return in words how far a stranger carries the release's tuned set."""
    wanted = {n: v for n, v in manifest["env"].items() if n.startswith("NCCL_") and not n.startswith("NCCL_DEBUG")}
    if job["cut"]:
        return "what it carries cannot be read"
    wrong = sorted(n for n, v in wanted.items() if job["env"].get(n) != v)
    if not wrong:
        return f"it carries all {len(wanted)} tuned variables" if wanted else "this release tunes no variable of NCCL"
    return f"of the {len(wanted)} tuned variables it lacks or changes {', '.join(wrong)}"


def how_started(cgroup: str) -> str:
    """Return how a process was likely started, by its control group."""
    if _CONTAINER.search(cgroup):
        return "started in a container"
    if re.search(r"/user\.slice/.*session-[^/]*\.scope", cgroup):
        return "started by hand in a login session (ssh, nohup, tmux)"
    if _DOOR.search(cgroup):
        return f"started by hand or by a job, through {cgroup.rpartition('/')[2]}"
    if "/user.slice/" in cgroup:
        return "started by a user's own systemd"
    if re.search(r"/run-[^/]*\.(service|scope)$", cgroup):
        return "started by systemd-run"
    if cgroup.endswith(".service"):
        return f"started by the unit {cgroup.rpartition('/')[2]}"
    return "started by hand, outside any unit" if cgroup else "it is gone, or its control group cannot be read"


def _restarts(record: Mapping[str, Any], loaded: Mapping[str, Any]) -> Iterator[Finding]:
    count: Optional[int] = loaded.get("NRestarts")
    if count:
        unit = record["files"][2]["path"].rpartition("/")[2]
        yield Finding(
            "restarted",
            "restarts",
            "warning",
            unit,
            f"systemd restarted the server {count} time{'s' if count > 1 else ''} by itself",
            str(count),
            "0",
            (unit,),
            iso(loaded.get("ExecMainStartTimestamp", 0) / 1e6),
            f"it ended without being asked to: journalctl -u {unit} -p warning",
            f"find the reason, then systemctl reset-failed {unit} sets the count to 0",
        )
