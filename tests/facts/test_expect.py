from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.expect import Difference
from launcher.agent.expect import differences as judge
from launcher.paths import data_dir
from launcher.schema import Hardware
from tests.facts.replay import H200, HERE, RTX6000, parsed

if TYPE_CHECKING:
    from pathlib import Path

H200X2 = Hardware("h200x2", "NVIDIA H200", 2, 141, "nvlink", 5, "possible", 1, 700)
RTX6000X8 = Hardware("rtx6000x8", "NVIDIA RTX PRO 6000 Blackwell", 8, 96, "pcie", 5, "possible", 2, 600)
FINE = {
    "iommu": {"mode": "off", "groups": 0},
    "acs": {"bridges": 8, "on": []},
    "numa_nodes": 1,
    "shm": {"size_mib": 262144, "free_mib": 262144},
}


def h200(**changes: Any) -> dict[str, Any]:
    """The recorded machine; ``gpu_FIELD`` changes GPU 0."""
    found = {**parsed(H200), **FINE}
    for name, value in changes.items():
        if name.startswith("gpu_"):
            found["gpus"][0][name[4:]] = value
        else:
            found[name] = value
    return found


def rtx6000(p2p: str = "rtx6000x8", **changes: Any) -> dict[str, Any]:
    """The made-up machine with its faults mended."""
    found = {**parsed(RTX6000, HERE / "made_up" / p2p), **FINE, "numa_nodes": 2}
    for gpu in found["gpus"]:
        gpu.update(pcie_generation=5, pcie_width=16, power_limit_w=600, persistence=True)
    return {**found, **changes}


def differences(hw: Hardware, facts: dict[str, Any]) -> list[Difference]:
    """As the host itself judges: `hw` has become plain data."""
    return judge(asdict(hw), facts)


def told(hw: Hardware, facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(found.id, found.severity, found.text) for found in differences(hw, facts)]


def test_recorded_machine_is_what_its_preset_says() -> None:
    assert differences(replace(H200X2, numa_nodes=0), h200()) == []
    assert differences(RTX6000X8, rtx6000()) == []


def test_made_up_machine_with_all_its_faults() -> None:
    facts = {**parsed(RTX6000), **FINE, "numa_nodes": 2}
    assert told(RTX6000X8, facts) == [
        ("hw-pcie-generation-now", "warn", "GPU 6: PCIe generation 4 now, 5 at most, under load"),
        (
            "hw-pcie-generation-now",
            "inform",
            "GPU 0, 1, 2, 3, 4, 5: PCIe generation 1 now, 5 at most: an idle GPU lowers it to save power",
        ),
        (
            "hw-pcie-width",
            "warn",
            "GPU 3: 8 PCIe lanes now, 16 at most: look at the slot, the riser and the firmware's bifurcation",
        ),
        ("hw-power-limit", "warn", "GPU 5: power limit 450 W, 600 W by default; hw.power_limit_w=600"),
        (
            "hw-persistence",
            "inform",
            (
                "all 8 GPUs: persistence mode is off: limits of power and clocks are lost, and the next start is"
                " slower, when the last process leaves"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("changes", "id_", "severity", "text"),
    [
        ({"gpu_name": "NVIDIA H100"}, "hw-gpu-name", "warn", "GPU 0: NVIDIA H100; hw.gpu=NVIDIA H200"),
        ({"gpu_name": ""}, "hw-gpu-name", "warn", "GPU 0: without a name; hw.gpu=NVIDIA H200"),
        ({"gpus": []}, "hw-gpu-count", "warn", "0 GPUs; hw.gpu_count=2"),
        (
            {"gpu_memory_mib": 97887},
            "hw-gpu-memory",
            "warn",
            "GPU 0: 97887 MiB (96 GiB) of memory; hw.gpu_memory_gb=141",
        ),
        ({"gpu_memory_mib": None}, "hw-gpu-memory", "unknown", "GPU 0: nvidia-smi does not say; hw.gpu_memory_gb=141"),
        (
            {"gpu_pcie_generation_max": 4, "gpu_pcie_generation": 4},
            "hw-pcie-generation",
            "warn",
            "GPU 0: PCIe generation 4 at most, by the slot or the firmware; hw.pcie_generation=5",
        ),
        (
            {"gpu_pcie_generation_max": 6, "gpu_pcie_generation": 6},
            "hw-pcie-generation",
            "inform",
            "GPU 0: PCIe generation 6 at most; hw.pcie_generation=5",
        ),
        (
            {"gpu_pcie_generation_max": None},
            "hw-pcie-generation",
            "unknown",
            "GPU 0: nvidia-smi does not say; hw.pcie_generation=5",
        ),
        (
            {"gpu_power_limit_w": 500},
            "hw-power-limit",
            "warn",
            "GPU 0: power limit 500 W, 700 W by default; hw.power_limit_w=700",
        ),
        (
            {"gpu_power_limit_w": 500, "gpu_power_default_w": 500},
            "hw-power-limit",
            "warn",
            "GPU 0: power limit 500 W, 500 W by default; hw.power_limit_w=700",
        ),
        (
            {"gpu_power_limit_w": None},
            "hw-power-limit",
            "unknown",
            "GPU 0: nvidia-smi does not say; hw.power_limit_w=700",
        ),
        (
            {"gpu_mig": True},
            "hw-mig",
            "warn",
            "GPU 0: MIG is on: an engine gets a part of a GPU, and parts have no P2P",
        ),
        (
            {"topology": [["X", "SYS"], ["SYS", "X"]]},
            "hw-interconnect",
            "warn",
            "no NVLink between any two GPUs; hw.interconnect=nvlink",
        ),
        (
            {"p2p_read": [["X", "NS"], ["OK", "X"]]},
            "hw-p2p",
            "warn",
            "nvidia-smi topo -p2p r says NS (not supported) from GPU 0 to 1; hw.p2p=possible",
        ),
        (
            {"p2p_read": [["X", "U"], ["U", "X"]]},
            "hw-p2p",
            "unknown",
            "nvidia-smi topo -p2p r says U (unknown) between any two GPUs; hw.p2p=possible",
        ),
        ({"numa_nodes": 4}, "hw-numa-nodes", "warn", "4 NUMA nodes; hw.numa_nodes=1"),
        (
            {"shm": {"size_mib": 64, "free_mib": 64}},
            "hw-shm",
            "warn",
            "64 MiB in /dev/shm, 64 of them free; NCCL may want 512 for 2 GPUs without P2P",
        ),
        (
            {"shm": {"size_mib": 4096, "free_mib": 10}},
            "hw-shm",
            "inform",
            "4096 MiB in /dev/shm, 10 of them free; NCCL may want 512 for 2 GPUs without P2P",
        ),
        ({"gpus": None, "unknown": {"gpus": "nvidia-smi is not installed"}}, "hw-gpus", "unknown", None),
        ({"topology": None}, "hw-interconnect", "unknown", "hw.interconnect=nvlink: the host was not asked"),
        ({"p2p_read": None}, "hw-p2p", "unknown", "hw.p2p=possible: the host was not asked"),
        ({"numa_nodes": None}, "hw-numa-nodes", "unknown", "hw.numa_nodes=1: the host was not asked"),
        ({"shm": None}, "hw-shm", "unknown", "hw.gpu_count=2: the host was not asked"),
    ],
)
def test_one_difference_one_finding(changes: dict[str, Any], id_: str, severity: str, text: str | None) -> None:
    (found,) = differences(H200X2, h200(**changes))
    assert (found.id, found.severity) == (id_, severity)
    assert text in (None, found.text)


def test_more_gpus_than_expected_only_inform() -> None:
    facts = h200()
    facts["gpus"].append({**facts["gpus"][0], "index": 2})
    assert told(H200X2, facts) == [("hw-gpu-count", "inform", "3 GPUs; hw.gpu_count=2")]


def test_name_is_compared_as_whole_words() -> None:
    hw = Hardware(gpu="NVIDIA L40")
    assert [found.id for found in differences(hw, h200(gpu_name="NVIDIA L40S"))] == ["hw-gpu-name"] * 2
    (found,) = differences(hw, h200(gpu_name="NVIDIA L40"))
    assert found.text == "GPU 1: NVIDIA H200; hw.gpu=NVIDIA L40"


@pytest.mark.parametrize(
    ("mib", "gb"),
    [(143771, 141), (81559, 80), (81920, 80), (183359, 180), (32607, 32), (97887, 96), (46068, 48), (24564, 24)],
)
def test_memory_as_real_drivers_show_it(mib: int, gb: int) -> None:
    assert differences(Hardware(gpu_memory_gb=gb), {"gpus": [{**h200()["gpus"][0], "memory_mib": mib}]}) == []


def test_p2p_between_sockets_only() -> None:
    text = "nvidia-smi topo -p2p r says CNS (chipset not supported) from GPU 0 to 4 and 31 pairs more"
    assert told(RTX6000X8, rtx6000("rtx6000x8_cns")) == [("hw-p2p", "warn", f"{text}; hw.p2p=possible")]


def test_p2p_of_a_stock_geforce_driver() -> None:
    hw = replace(RTX6000X8, p2p="impossible")
    assert differences(hw, rtx6000("rtx5090x8_ns")) == []
    assert told(hw, rtx6000()) == [
        ("hw-p2p", "inform", "nvidia-smi topo -p2p r says OK between any two GPUs; hw.p2p=impossible")
    ]


def test_nvlink_where_only_pcie_is_expected() -> None:
    hw = replace(H200X2, interconnect="pcie")
    facts = h200(acs={"bridges": 2, "on": []}, gpu_virtualization="None")
    facts["gpus"][1]["virtualization"] = "N/A"
    assert told(hw, facts) == [("hw-interconnect", "warn", "NVLink between any two GPUs; hw.interconnect=pcie")]


@pytest.mark.parametrize(
    ("iommu", "severity"),
    [("off", None), ("passthrough", None), ("translated", "warn"), (None, "unknown")],
)
def test_iommu_in_the_way_of_p2p(iommu: str | None, severity: str | None) -> None:
    found = differences(RTX6000X8, rtx6000(iommu={"mode": iommu, "groups": 90}))
    assert [(f.id, f.severity) for f in found] == ([("hw-iommu", severity)] if severity else [])


def test_acs_in_the_way_of_p2p() -> None:
    on = [f"0000:{number}0:01.1" for number in range(6)]
    (found,) = differences(RTX6000X8, rtx6000(acs={"bridges": 8, "on": on}))
    where = "0000:00:01.1, 0000:10:01.1, 0000:20:01.1, 0000:30:01.1 and 2 more"
    assert found.text == f"ACS is on in {where}: P2P goes through the processor, or hangs; hw.p2p=possible"
    assert found.severity == "warn"


def test_acs_of_the_host_of_a_virtual_machine_is_unknown() -> None:
    facts = rtx6000()
    facts["gpus"][0]["virtualization"] = "Pass-Through"
    assert [(found.id, found.severity) for found in differences(RTX6000X8, facts)] == [("hw-acs", "unknown")]


@pytest.mark.parametrize("changes", [{"interconnect": "nvlink"}, {"p2p": "impossible"}, {"p2p": "unknown"}])
def test_iommu_and_acs_matter_for_p2p_over_pcie_alone(changes: dict[str, Any]) -> None:
    facts = rtx6000(iommu={"mode": "translated", "groups": 90}, acs={"bridges": 8, "on": ["0000:00:01.1"]})
    found = differences(replace(RTX6000X8, **changes), facts)
    assert {"hw-iommu", "hw-acs"}.isdisjoint(f.id for f in found)


def test_mig_on_a_single_gpu_informs() -> None:
    facts = h200(gpu_mig=True)
    facts["gpus"].pop()
    assert [(f.id, f.severity) for f in differences(Hardware(gpu_count=1), facts)] == [("hw-mig", "inform")]


def test_hardware_that_says_nothing_expects_nothing() -> None:
    assert differences(Hardware(), {}) == []
    assert differences(Hardware(), {"unknown": {"gpus": "nvidia-smi is not installed"}}) == []
    assert differences(Hardware(), h200()) == []


def test_fields_that_an_older_deployment_does_not_have_say_nothing() -> None:
    assert judge({}, h200()) == []
    assert judge({"gpu_count": 3}, h200()) == [Difference("hw-gpu-count", "warn", "2 GPUs; hw.gpu_count=3")]


def test_host_that_tells_nothing_is_unknown_in_everything_said() -> None:
    found = differences(RTX6000X8, {})
    ids = ["hw-gpus", "hw-interconnect", "hw-p2p", "hw-iommu", "hw-acs", "hw-numa-nodes", "hw-shm"]
    assert [f.id for f in found] == ids
    assert {f.severity for f in found} == {"unknown"}


@pytest.mark.parametrize("path", sorted((data_dir("conf") / "hw").glob("*.yaml")), ids=lambda path: path.stem)
def test_preset_is_met_by_a_host_like_it(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    hw = Hardware(**data.get("hw", data))
    link = {"nvlink": "NV18", "pcie": "SYS"}[hw.interconnect]
    peer = "GNS" if hw.p2p == "impossible" else "OK"
    gpu = {
        **h200()["gpus"][0],
        "name": f"{hw.gpu} Server Edition",
        "memory_mib": int(hw.gpu_memory_gb * 1024 * 0.94),
        **dict.fromkeys(("pcie_generation", "pcie_generation_max"), hw.pcie_generation or None),
        **dict.fromkeys(("power_limit_w", "power_default_w"), hw.power_limit_w or 600),
        "virtualization": "None",
    }
    facts = {
        **FINE,
        "gpus": [{**gpu, "index": number} for number in range(hw.gpu_count)],
        "topology": _matrix(hw.gpu_count, link),
        "p2p_read": _matrix(hw.gpu_count, peer),
        "numa_nodes": hw.numa_nodes or 2,
    }
    assert differences(hw, facts) == []


def _matrix(count: int, cell: str) -> list[list[str]]:
    return [["X" if i == j else cell for j in range(count)] for i in range(count)]


_GPU = st.fixed_dictionaries(
    {
        "index": st.integers(0, 9),
        "name": st.text(max_size=5),
        "virtualization": st.sampled_from(["", "None", "Pass-Through"]),
        **{
            name: st.none() | st.integers(0, 10**6)
            for name in h200()["gpus"][0]
            if name.startswith(("pcie", "power", "memory", "load", "sm"))
        },
        **{name: st.none() | st.booleans() for name in ("mig", "ecc", "persistence")},
    }
)
_HARDWARE = st.builds(
    Hardware,
    gpu=st.text(max_size=5),
    gpu_count=st.integers(0, 9),
    gpu_memory_gb=st.integers(0, 300),
    interconnect=st.sampled_from(["unknown", "pcie", "nvlink"]),
    pcie_generation=st.integers(0, 7),
    p2p=st.sampled_from(["unknown", "possible", "impossible"]),
    numa_nodes=st.integers(0, 9),
    power_limit_w=st.integers(0, 1200),
)


@given(_HARDWARE, st.lists(_GPU, max_size=4))
def test_any_gpus(hw: Hardware, gpus: list[dict[str, Any]]) -> None:
    for found in differences(hw, {"gpus": gpus}):
        assert isinstance(found, Difference)
        assert found.text
