"""One measurement of collectives on this machine: refused while others compute, explained when it fails.

The same code answers a client over SSH, as root under the lease, and `launch` itself on a machine without systemd.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional

from . import comm, nccl_tests_run, preflight_host, systemd
from .comm_process import EMPTY, Abandoned, Gone, never
from .facts import Unknown, facts, gpus, output
from .lease import MEASURING, LeaseHeld, lease
from .preflight import environment
from .processes import cgroup_of

if TYPE_CHECKING:
    from .comm_ranks import Ranks

#: Lines of each rank that a failure is explained with.
_LAST = 4
#: Likewise of a program whose ranks are threads.
_LAST_OF_ALL = 12
#: Memory of a GPU that nobody seems to use: what the driver itself keeps is less.
_IDLE_MIB = 1024
_UNIT = re.compile(r"launch-.+\.service")
#: Seconds for imports, the first communicator and the end, beside the deadline of each silence.
_SLACK = 600
Emit = Callable[[str], None]


def bench(request: Mapping[str, Any], emit: Emit) -> Dict[str, Any]:
    """Measure once on a host, under its lease: nobody deploys meanwhile. It ends with its client.

    Args:
        request: ``spec`` (see `comm.run` and `nccl_tests_run.run`; ``env`` without what the manager gives), ``name``,
            ``by``, ``allow``.
        emit: told what is being measured.
    """
    spec = request["spec"]
    try:
        user = pwd.getpwnam(spec["user"])
    except KeyError:
        return _not_begun("refused", f"user {spec['user']!r} does not exist here: set engine.user=NAME")
    try:
        with lease(request["by"], request["name"], MEASURING, _SLACK), _ends_with_its_ranks():
            whole = {**spec, "env": _of_a_unit(spec["env"], user)}
            try:
                return measure(whole, request["allow"], emit, gone=nobody_listens)
            except Abandoned:
                return _not_begun("failed", "the client is gone")
    except LeaseHeld as held:
        return _not_begun("locked", str(held))


def _of_a_unit(own: Mapping[str, str], user: pwd.struct_passwd) -> Dict[str, str]:
    """Return what a process of the unit gets on this host: PATH and LANG are the manager's own, and differ."""
    try:
        given = systemd.manager()["environment"]
    except systemd.SystemdError:
        given = {}
    plain = environment({}, user)
    who = {name: value for name, value in plain.items() if name not in ("PATH", "LANG")}
    return {**plain, **given, **who, **own}


@contextlib.contextmanager
def _ends_with_its_ranks() -> Iterator[None]:
    """Let SIGTERM, as of a change that is ended, unwind: ranks and their folder go with this process."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def nobody_listens() -> bool:
    """Return whether nobody can read any more what this program prints: its client, or the way to it, is gone."""
    listening = select.poll()
    listening.register(sys.__stdout__ or 1, 0)
    return any(event for _, event in listening.poll(0))


def measure(
    spec: Mapping[str, Any],
    allow: List[str],
    emit: Emit,
    ahead: "Optional[Ranks]" = None,
    gone: Gone = never,
) -> Dict[str, Any]:
    """Measure once; like `comm.run`, and ``refused`` when something else holds the GPUs.

    Where ``spec`` has ``nccl_tests``, that measures, see `nccl_tests_run.run`.

    A failure or a hang comes with ``last`` (the newest lines of each rank) and ``hints`` from what this machine is.
    """
    if spec["rank"]["backend"] == "nccl" and "gpu-busy" not in allow:
        held = busy(spec["gpus"])
        if held:
            if ahead:
                ahead.stop()
            return _not_begun("refused", "; ".join(held))
    threads = bool(spec.get("nccl_tests"))
    answer = nccl_tests_run.run(spec, emit, gone) if threads else comm.run(spec, emit, ahead, gone)
    if answer["outcome"] in ("failed", "hung"):
        answer["last"] = [f"rank {n}: {line}" for n, lines in enumerate(answer["lines"]) for line in lines[-_LAST:]]
        if threads:
            answer["last"] = [line for lines in answer["lines"][-1:] for line in lines[-_LAST_OF_ALL:]]
        met = spec["rank"]["backend"] == "nccl" and any(phase.startswith("join") for phase, _ in answer["phases"])
        answer["hints"] = hints(facts(spec["python"], spec["user"] or _me()), spec) if met else []
    return answer


def link_test(wanted: Mapping[str, Any], emit: Emit) -> "tuple[str, List[str]]":
    """Do a few collectives under a release's environment before its server is started.

    Args:
        wanted: ``spec`` (see `comm.run`; ``env`` without what the manager gives) and ``beside`` (the old server runs).
        emit: told what is being done.

    Returns:
        What is wrong ("" when nothing is), and lines that show it.
    """
    spec = wanted["spec"]
    emit(f"link test: {spec['world']} ranks, {len(spec['rank']['sizes'])} sizes")
    env = _of_a_unit(spec["env"], pwd.getpwnam(spec["user"]))
    with _ends_with_its_ranks():
        answer = measure({**spec, "env": env}, ["gpu-busy"] if wanted["beside"] else [], lambda _: None)
    if answer["outcome"] != "measured":
        lines = answer.get("last") or [f"rank {r['rank']}: {r['exit']} in: {r['phase']}" for r in answer["ranks"]]
        return f"the link test failed: {answer['message']}", [*lines, *(f"hint: {h}" for h in answer.get("hints", []))]
    told = [
        f"{row['wrong']} numbers of the {row['collective']} of {row['bytes']} bytes are wrong on"
        f" rank {', '.join(map(str, row['wrong_ranks']))}"
        for row in answer["rows"]
        if row["wrong"]
    ]
    if told:
        known = facts(spec["python"], spec["user"])
        return "the link test brought wrong sums", [*told, *(f"hint: {text}" for text in hints(known, spec))]
    medians = (f"{row['bytes']} bytes {sorted(row['us'])[len(row['us']) // 2]:.0f} us" for row in answer["rows"])
    emit(f"link test passed: {', '.join(medians)}")
    return "", []


def _not_begun(outcome: str, message: str) -> Dict[str, Any]:
    return {**EMPTY, "outcome": outcome, "message": message}


def busy(indices: List[str]) -> List[str]:
    """Return who holds the GPUs, one line each; nothing where nvidia-smi is silent: the ranks will find out."""
    try:
        seen = gpus(output("nvidia-smi", "-q", "-x"))
    except Unknown:
        return []
    found = [o.text + " [gpu-busy]" for o in preflight_host.gpus(seen, indices, set())]
    found += [
        f"GPU {', '.join(on)}: {unit} computes there, stop it first: systemctl stop {unit} [gpu-busy]"
        for unit, on in _served(seen, indices).items()
    ]
    found += [
        f"GPU {gpu['index']}: {_used(gpu)} MiB of its memory are in use, by nobody that this machine shows: another"
        " container, or what a killed process has left [gpu-busy]"
        for gpu in seen
        if not found and (not indices or str(gpu["index"]) in indices) and _used(gpu) > _IDLE_MIB
    ]
    return found


def _served(seen: List[Dict[str, Any]], indices: List[str]) -> Dict[str, List[str]]:
    """Return the servers of ours that compute on GPUs, with the numbers of those."""
    found: Dict[str, List[str]] = {}
    for gpu in seen:
        units = {part for pid in gpu["pids"] for part in cgroup_of(pid).split("/") if _UNIT.fullmatch(part)}
        for unit in sorted(units) if not indices or str(gpu["index"]) in indices else ():
            found.setdefault(unit, []).append(str(gpu["index"]))
    return found


def _used(gpu: Mapping[str, Any]) -> int:
    total, free = gpu["memory_mib"], gpu["memory_free_mib"]
    return 0 if total is None or free is None else int(total - free)


def hints(known: Mapping[str, Any], spec: Mapping[str, Any]) -> List[str]:
    """Return what on this machine is known to make collectives hang or fail.

    Sources: NVIDIA/nccl#2079, #1999; NCCL's troubleshooting page on ACS and IOMMU; vllm-project/vllm#51513.
    """
    found: List[str] = []
    env = spec["env"]
    iommu, acs, shm = known["iommu"], known["acs"], known["shm"]
    direct = env.get("NCCL_P2P_DISABLE") != "1"
    if direct and iommu and iommu["mode"] == "translated":
        found.append("the IOMMU translates addresses, P2P over PCIe hangs or brings wrong data: boot with iommu=pt")
    if direct and acs and acs["on"]:
        ports = ", ".join(acs["on"][:4])
        found.append(f"ACS redirects P2P at {len(acs['on'])} PCIe ports ({ports}): switch it off (setpci, or the BIOS)")
    if direct and (iommu is None or acs is None):
        found.append("IOMMU or ACS cannot be seen from here (a virtual machine, or no lspci)")
    cells = known["p2p_read"] or []
    if direct and any(cell not in ("X", "OK") for row in cells for cell in row):
        found.append("nvidia-smi topo -p2p r: not every GPU reaches every other one")
    if direct:
        found.append("try nccl.p2p_disable=1: if that works, it is the links between the GPUs")
    if shm and shm["free_mib"] < 64 * spec["world"]:
        found.append(f"{shm['free_mib']} MiB are free in /dev/shm: NCCL needs about 10 MB a channel and peer there")
    files = known["nccl_files"] or {}
    found += [f"{path} sets {', '.join(names)} as well" for path, names in files.items()]
    return found


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "root"
