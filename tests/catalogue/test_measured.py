"""The memory of measurements: its file, what counts as the same set and hardware, and what the rule says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue import measured, nccl_sets
from launcher.catalogue.measured import Comparison, Measured, compare
from launcher.catalogue.nccl_measured_rules import slower
from launcher.errors import ConfigError
from tests.composing import compose

FOLDER = Path(measured.__file__).parent
HERE = ["+hw=h200x2", "engine.tensor_parallel=2"]
SHM = [*HERE, "nccl.p2p_disable=1"]
PREFILL, DECODE = 29360128, 14336
SIZES = [("decode", DECODE), ("prefill", PREFILL)]


def row(**changes: Any) -> Measured:
    plain = Measured(
        *("NVIDIA H200", 2, "nvlink", "off", "2.28.9", "", "", "all_reduce", 1000),
        *(10.0, 9.0, 11.0, 1, "2026-11-29", "a test"),
    )
    return replace(plain, **changes)


def pair(us: float, **changes: Any) -> list[Measured]:
    """Return a set that takes so many times as long as the default beside it."""
    default = row(**{name: value for name, value in changes.items() if name != "set"})
    return [default, row(**{"set": "PROTO=LL", **changes, "us": us, "us_low": us - 1, "us_high": us + 1})]


def found(words: list[str], rows: list[Measured], size: int = 1000) -> list[Comparison]:
    return compare(compose(words), rows, [("decode", size)])


def test_the_legend_names_the_columns() -> None:
    legend = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## Measured collectives")[2]
    table = re.findall(r"^\| (`.*?) \|", legend.partition("\n## ")[0], re.MULTILINE)
    assert tuple(name for cell in table for name in re.findall(r"`(\w+)`", cell)) == measured.COLUMNS


def test_the_shipped_file_is_as_the_tool_writes_it() -> None:
    rows = measured.shipped()
    assert measured.SHIPPED.read_text(encoding="utf-8") == measured.text(rows)
    assert len({r.key for r in rows}) == len(rows)


def test_every_shipped_set_has_its_default_beside_it() -> None:
    rows = measured.shipped()
    defaults = {(r.campaign, r.bytes) for r in rows if not r.set}
    assert {(r.campaign, r.bytes) for r in rows} == defaults


def test_the_tuned_set_of_the_reference_case_was_measured() -> None:
    decode, prefill = compare(compose([*SHM, "nccl=pcie_ll_ring"]), measured.shipped(), SIZES)
    assert (decode.workload, prefill.workload, prefill.unmeasured) == ("decode", "prefill", ())
    assert 0.9 < decode.ratio < 1.1
    assert 2.5 < prefill.ratio < 3.5
    assert prefill.clear


SETS: dict[str, tuple[dict[str, str], bool, str]] = {
    "nothing": ({}, True, ""),
    "sorted": ({"PROTO": "LL", "ALGO": "Ring"}, True, "ALGO=Ring PROTO=LL"),
    "spelling": ({"PROTO": "ll", "BUFFSIZE": "4MiB"}, True, "BUFFSIZE=4194304 PROTO=LL"),
    "transport and base": ({"P2P_DISABLE": "1", "NVLS_ENABLE": "0", "CUMEM_ENABLE": "0"}, False, ""),
    "level with P2P": ({"P2P_LEVEL": "SYS"}, True, "P2P_LEVEL=SYS"),
    "level without": ({"P2P_LEVEL": "SYS"}, False, ""),
    "logging": ({"DEBUG": "INFO", "DEBUG_SUBSYS": "INIT", "DEBUG_FILE": "/x"}, True, ""),
    "network": ({"IB_DISABLE": "1", "SOCKET_IFNAME": "eth0", "NET_PLUGIN": "none", "ENV_PLUGIN": "none"}, True, ""),
    "tuner": ({"TUNER_PLUGIN": "x", "TUNER_CONFIG_FILE": "/x"}, True, "TUNER_CONFIG_FILE=/x TUNER_PLUGIN=x"),
    "nobody's": ({"ALGOO": "Ring", "MIN_CHANNELS": "4", "TESTS_DEVICE": "1"}, True, ""),
    "what holds for it": ({"ALGO": "Ring,Tree;allreduce:Tree", "PROTO": "allgather:LL"}, True, "ALGO=Tree"),
    "order of names": ({"ALGO": "Tree,Ring", "PROTO": "^LL128,LL"}, True, "ALGO=Ring,Tree PROTO=^LL,LL128"),
    "no value of NCCL's": ({"PROTO": "X"}, True, "PROTO=X"),
    "blanks": ({"THREAD_THRESHOLDS": "8 8 8 8 8 8"}, True, "THREAD_THRESHOLDS=8_8_8_8_8_8"),
}


@pytest.mark.parametrize(("variables", "p2p", "text"), SETS.values(), ids=SETS.keys())
def test_one_spelling_of_a_set(variables: dict[str, str], p2p: bool, text: str) -> None:
    canonical = nccl_sets.canonical(variables, p2p=p2p)
    assert nccl_sets.written(canonical) == text
    assert nccl_sets.canonical(nccl_sets.read(text), p2p=p2p) == canonical


def test_a_set_of_another_collective() -> None:
    value = {"ALGO": "Ring,Tree;allreduce:Tree"}
    assert nccl_sets.canonical(value, p2p=True, collective="all_gather") == {"ALGO": "Ring,Tree"}


#: Words beside a host of two H200 without P2P, and what the measured pair has in other columns.
EQUAL: dict[str, tuple[list[str], dict[str, Any]]] = {
    "the same": (["nccl.proto=LL"], {}),
    "in env": (["env.NCCL_PROTO=LL"], {}),
    "as it is rendered": (["nccl.algo=Tree"], {"set": "ALGO=Tree"}),
    "with logging": (["nccl.proto=LL", "nccl.debug=INFO"], {}),
    "another NCCL version": (["nccl.proto=LL", "engine.nccl_version=2.30.7"], {}),
    "an edition": (["nccl.proto=LL"], {"gpu": "NVIDIA H200 Edition"}),
    "NVLS, which needs P2P": (["nccl.proto=LL", "engine=vllm"], {"base": "NVLS_ENABLE=0"}),
    "two of eight": (["nccl.proto=LL", "+hw=h200x8"], {}),
    "near in size": (["nccl.proto=LL"], {"bytes": 1900}),
}
OTHER: dict[str, tuple[list[str], dict[str, Any]]] = {
    "no set": ([], {}),
    "another set": (["nccl.proto=Simple"], {}),
    "more than this set": (["nccl.proto=LL"], {"set": "BUFFSIZE=1 PROTO=LL"}),
    "a part without the protocol": (["nccl.proto=LL", "nccl.buffsize=4MiB"], {"set": "BUFFSIZE=4194304"}),
    "another GPU": (["nccl.proto=LL"], {"gpu": "NVIDIA H20"}),
    "more GPUs": (["nccl.proto=LL"], {"gpus": 4}),
    "one GPU": (["nccl.proto=LL", "engine.tensor_parallel=1"], {"gpus": 1}),
    "two hosts": (["nccl.proto=LL", "engine.args.nnodes=2"], {}),
    "another interconnect": (["nccl.proto=LL"], {"interconnect": "pcie"}),
    "with P2P": (["nccl.proto=LL"], {"p2p": "on"}),
    "another collective": (["nccl.proto=LL"], {"collective": "all_gather"}),
    "another size": (["nccl.proto=LL"], {"bytes": 2100}),
}


@pytest.mark.parametrize(("words", "changes"), EQUAL.values(), ids=EQUAL.keys())
def test_found(words: list[str], changes: dict[str, Any]) -> None:
    hw = [] if any("hw=" in word for word in words) else ["+hw=h200x2"]
    here = [*hw, "engine.tensor_parallel=2", "nccl.p2p_disable=1", *words]
    assert [c.ratio for c in found(here, pair(20, **changes))] == [2.0]


@pytest.mark.parametrize(("words", "changes"), OTHER.values(), ids=OTHER.keys())
def test_not_found(words: list[str], changes: dict[str, Any]) -> None:
    degree = [] if any("tensor_parallel" in word for word in words) else ["engine.tensor_parallel=2"]
    assert found(["+hw=h200x2", "nccl.p2p_disable=1", *degree, *words], pair(20, **changes)) == []


def test_without_hardware_nothing_is_said() -> None:
    assert found(["engine.tensor_parallel=2", "nccl.proto=LL", "nccl.p2p_disable=1"], pair(20)) == []


def test_a_driver_without_p2p_is_p2p_off() -> None:
    rows = pair(20, gpu="NVIDIA GeForce RTX 5090", interconnect="pcie")
    assert found(["+hw=rtx5090x8", "engine.tensor_parallel=2", "nccl.proto=LL"], rows)


@pytest.mark.parametrize(("engine", "base", "is_equal"), [
    ("sglang", "", False),  # which sets NVLS_ENABLE=0 itself
    ("sglang", "NVLS_ENABLE=0", True),
    ("sglang", "CUMEM_ENABLE=0 NVLS_ENABLE=0", True),
    ("vllm", "", True),
    ("vllm", "CUMEM_ENABLE=0", False),
])  # fmt: skip
def test_nvls_has_to_be_the_same_with_p2p(engine: str, base: str, is_equal: bool) -> None:
    rows = pair(20, p2p="on", base=base)
    assert bool(found([*HERE, f"engine={engine}", "nccl.proto=LL"], rows)) == is_equal


def test_no_comparison_across_campaigns() -> None:
    default, other = pair(20)
    for elsewhere in (
        replace(other, source="b"),
        replace(other, nccl_version="2.30.7"),
        replace(other, base="NVLS_ENABLE=0"),
    ):
        assert found([*SHM, "nccl.proto=LL"], [default, elsewhere]) == []


def test_the_best_campaign_counts() -> None:
    part, old, new = pair(20), {"nccl_version": "2.28.9"}, {"nccl_version": "2.30.7"}
    whole = {"set": "BUFFSIZE=4194304 PROTO=LL"}
    words = [*SHM, "nccl.proto=LL", "nccl.buffsize=4MiB"]
    rows = [*part, *pair(30, **old, **whole), *pair(40, **new, **whole)]
    assert [(c.ratio, c.unmeasured) for c in found(words, part)] == [(2.0, ("BUFFSIZE=4194304",))]
    assert [c.ratio for c in found(words, rows)] == [4.0]
    assert [c.ratio for c in found([*words, "engine.nccl_version=2.28.9"], rows)] == [3.0]


def test_the_nearest_size_counts() -> None:
    rows = [*pair(20, bytes=1000), *pair(30, bytes=1900)]
    assert [c.ratio for c in found([*SHM, "nccl.proto=LL"], rows, 1300)] == [2.0]
    assert [c.ratio for c in found([*SHM, "nccl.proto=LL"], rows, 1500)] == [3.0]


def test_a_difference_within_the_noise_is_not_clear() -> None:
    (one,) = found([*SHM, "nccl.proto=LL"], pair(11.5))
    (other,) = found([*SHM, "nccl.proto=LL"], pair(13))
    assert (one.clear, other.clear) == (False, True)


VERIFY = 43008
#: Set: microseconds at decode, verify and prefill sizes.
US = {
    "": (24.0, 25.0, 1000.0),
    "ALGO=Ring BUFFSIZE=16777216 MAX_NCHANNELS=16 NTHREADS=512 PROTO=LL": (24.0, 25.1, 2980.0),
    "ALGO=Ring": (24.2, 25.5, 1090.0),
    "ALGO=Ring PROTO=LL": (25.2, 29.8, 3000.0),
    "ALGO=Tree": (25.7, 32.5, 920.0),
}
ROWS = [
    row(set=name, bytes=size, us=us, us_low=us - 0.5, us_high=us + 0.5)
    for name, times in US.items()
    for size, us in zip((DECODE, VERIFY, PREFILL), times, strict=True)
]
TUNED = "nccl.algo=Ring nccl.buffsize=16777216 nccl.max_nchannels=16 nccl.nthreads=512 nccl.proto=LL"
LL, PLACE = "nccl.algo=Ring nccl.proto=LL", "2 x NVIDIA H200 without P2P, NCCL 2.28.9, 2026-11-29"
SAID: dict[str, tuple[list[str], str]] = {
    "tuned": (
        ["nccl=pcie_ll_ring", "+spec=eagle3_2step"],
        (
            f"{TUNED}: measured 3.0 x slower than NCCL's default at prefill sizes (28 MiB all-reduce, {PLACE});"
            " 1.00 x at decode and verify sizes."
        ),
    ),
    "two sizes alike": (
        ["nccl.algo=Tree", "nccl.proto=Simple", "+spec=eagle3_2step"],
        (
            "nccl.algo=Tree nccl.proto=Simple: measured 2.0 x slower than NCCL's default at decode and verify sizes"
            f" (14 KiB and 42 KiB all-reduce, {PLACE}); 1.00 x at prefill sizes."
        ),
    ),
    "a part": (
        ["nccl.algo=Ring", "nccl.proto=LL", "nccl.min_nchannels=8", "nccl.cga_cluster_size=2"],
        (
            f"{LL}: measured 3.0 x slower than NCCL's default at prefill sizes (28 MiB all-reduce, {PLACE});"
            " 1.05 x at decode sizes. Not measured beside it: nccl.cga_cluster_size, nccl.min_nchannels."
        ),
    ),
    "another version": (
        ["nccl.algo=Ring", "nccl.proto=LL", "engine.nccl_version=2.30.7"],
        (
            f"{LL}: measured 3.0 x slower than NCCL's default at prefill sizes (28 MiB all-reduce,"
            f" {PLACE.replace('2.28.9', '2.28.9, not 2.30.7')}); 1.05 x at decode sizes."
        ),
    ),
    "slower for verify alone": (
        ["nccl.algo=Tree", "+spec=eagle3_2step"],
        (
            f"nccl.algo=Tree: measured 1.30 x slower than NCCL's default at verify sizes (42 KiB all-reduce, {PLACE});"
            " 1.07 x at decode sizes; 0.92 x at prefill sizes."
        ),
    ),
    "hardly slower": (["nccl.algo=Ring"], ""),
    "a model of another width": (["nccl.algo=Ring", "nccl.proto=LL", "model=gpt_oss_120b"], ""),
    "a model of unknown width": (["nccl.algo=Ring", "nccl.proto=LL", "model.hidden_size=0"], ""),
}


@pytest.mark.parametrize(("words", "text"), SAID.values(), ids=SAID.keys())
def test_what_the_rule_says(words: list[str], text: str) -> None:
    simple = [
        replace(r, set="ALGO=Tree PROTO=Simple", us=us, us_low=us - 0.5, us_high=us + 0.5)
        for r, us in zip(ROWS[:3], (48.0, 50.2, 1000.0), strict=True)
    ]
    assert list(slower(compose([*SHM, *words]), [*ROWS, *simple])) == [text] * bool(text)


def test_noise_is_named() -> None:
    rows = [*pair(30, bytes=PREFILL), *pair(11.5, bytes=DECODE)]
    (said,) = slower(compose([*SHM, "nccl.proto=LL"]), rows)
    assert said.endswith("; 1.15 x at decode sizes (within the noise).")


def test_own_file(tmp_path: Path) -> None:
    assert measured.own(tmp_path) == ()
    first, second = pair(20)
    path = measured.add([second], tmp_path)
    assert path == tmp_path / "measured.csv"
    newer = replace(second, us=15.25, us_low=15.0, us_high=16.0, starts=3, date="2026-12-01")
    measured.add([newer, first], tmp_path)
    assert measured.own(tmp_path) == (first, newer)
    assert path.read_text(encoding="utf-8") == measured.text([newer, first])
    assert [p.name for p in path.parent.iterdir()] == ["measured.csv"]


BROKEN: dict[str, tuple[str, str, str]] = {
    "header": ("gpus,", "", ": the first line has to be gpu,gpus,"),
    "fewer columns": (",a test", "", ":2: has another number of columns"),
    "more columns": (",a test", ",a test,b", ":2: has another number of columns"),
    "no number": (",10,", ",ten,", ":2: could not convert string to float: 'ten'"),
    "no size": (",1000,", ",0,", ":2: cannot be: bytes=0"),
    "order of times": (",9,", ",12,", ":2: cannot be: us=10.0"),
    "not finite": (",11,", ",inf,", ":2: cannot be: us=10.0"),
    "words": (",nvlink,off,", ",NVLink,no,", ":2: cannot be: interconnect=NVLink, p2p=no"),
    "spelling": (
        "PROTO=LL ALGO=Ring",
        "PROTO=LL ALGO=Ring",
        "set=PROTO=LL ALGO=Ring would never be found; write 'ALGO",
    ),
    "base": (",2.28.9,,", ",2.28.9,PROTO=LL,", ":2: cannot be: base=PROTO=LL"),
    "quote": (",a test", ',"a test', ": cannot be read"),
    "bytes": ("a test", "\udcff", ": cannot be read"),
}


@pytest.mark.parametrize(("old", "new", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_line_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = measured.text([row(set="PROTO=LL ALGO=Ring")])
    assert old in text
    path = tmp_path / measured.OWN

    path.write_bytes(text.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        measured.own(tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
