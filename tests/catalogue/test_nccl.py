from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.catalogue import nccl, values
from launcher.errors import ConfigError

REFERENCE = "NCCL_PROTO=LL NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS NCCL_MAX_NCHANNELS=16 NCCL_BUFFSIZE=16777216"
REFERENCE += " NCCL_NTHREADS=512"
ROWS = list(nccl.variables().values())
KINDS = {
    "address", "algo-expr", "bool", "bytes", "cpuset", "enum", "enum-flags", "enum-list", "float", "hca-list",
    "iface-list", "int", "int-list", "level", "lib-or-suffix", "name-list", "path", "proto-expr", "string",
}  # fmt: skip


def refusal(key: str, value: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        nccl.canonical(key, value)
    assert len(caught.value.problems) == 1
    return str(caught.value)


@pytest.mark.parametrize("variable", ROWS, ids=lambda v: v.key)
def test_row(variable: nccl.Variable) -> None:
    assert re.fullmatch(r"NCCL_[A-Z0-9_]+", variable.name)
    assert nccl.PREFIX + variable.key.upper() == variable.name
    assert nccl.variables()[variable.key] is variable
    assert variable.kind in KINDS
    assert variable.note
    assert variable.reader
    spec = values.allowed(variable.allowed)
    assert spec.words or spec.ranges or spec.free


@pytest.mark.parametrize("variable", [v for v in ROWS if v.is_setting], ids=lambda v: v.key)
def test_every_allowed_alternative_is_accepted_as_it_stands(variable: nccl.Variable) -> None:
    spec = values.allowed(variable.allowed)
    for text in [*spec.words, *(str(r.low) for r in spec.ranges if r.holds(r.low))]:
        assert nccl.canonical(variable.key, text) == text


@pytest.mark.parametrize("variable", [v for v in ROWS if v.is_setting], ids=lambda v: v.key)
def test_default_that_is_a_plain_number_is_accepted(variable: nccl.Variable) -> None:
    if re.fullmatch(r"-?\d+", variable.default):
        assert nccl.canonical(variable.key, int(variable.default)) == variable.default


def test_number_of_rows() -> None:
    assert len(ROWS) == 333
    assert len(nccl.settings()) == 333 - 14
    assert sum(v.reader == "nobody" for v in ROWS) == 5


def test_settings() -> None:
    assert {"NCCL_ALGO", "NCCL_INSPECTOR_ENABLE", "NCCL_ASYNC_ERROR_HANDLING"} <= nccl.settings()
    assert not {"NCCL_MIN_CHANNELS", "NCCL_LL_THRESHOLD", "NCCL_P2P_NET_DISABLE"} & nccl.settings()


@pytest.mark.parametrize("pair", REFERENCE.split())
def test_reference_set_passes_through_exactly(pair: str) -> None:
    name, _, value = pair.partition("=")
    assert nccl.canonical(name.removeprefix("NCCL_").lower(), value) == value


ACCEPTED: list[tuple[str, Any, str]] = [
    ("algo", "ring", "Ring"),
    ("algo", "RING,tree", "Ring,Tree"),
    ("algo", "Tree,Ring,tree", "Tree,Ring"),
    ("algo", "^nvls,NVLSTree", "^NVLS,NVLSTree"),
    ("algo", "collnet", "CollNet"),
    ("algo", "ring,tree;AllReduce:tree", "Ring,Tree;allreduce:Tree"),
    ("algo", "allreduce:tree", "allreduce:Tree"),
    ("algo", "allreduce:^ring;BROADCAST:ring", "allreduce:^Ring;broadcast:Ring"),
    ("proto", "ll", "LL"),
    ("proto", "^LL128", "^LL128"),
    ("proto", "ll,simple;allreduce:^ll", "LL,Simple;allreduce:^LL"),
    ("buffsize", "16MiB", "16777216"),
    ("buffsize", "64kib", "65536"),
    ("buffsize", "1GiB", "1073741824"),
    ("buffsize", 16777216, "16777216"),
    ("max_nchannels", 16, "16"),
    ("max_nchannels", "+16", "16"),
    ("max_nchannels", 64, "64"),
    ("shm_disable", True, "1"),
    ("shm_disable", False, "0"),
    ("shm_disable", "Yes", "1"),
    ("shm_disable", "off", "0"),
    ("shm_disable", 1, "1"),
    ("net_shared_buffers", -2, "-2"),
    ("p2p_disable", False, "0"),
    ("p2p_level", "sys", "SYS"),
    ("p2p_level", "NVB", "NVB"),
    ("p2p_level", 5, "5"),
    ("debug", "info", "INFO"),
    ("debug_subsys", "init,Env", "INIT,ENV"),
    ("debug_subsys", "^COLL", "^COLL"),
    ("cta_policy", "zero|efficiency", "ZERO|EFFICIENCY"),
    ("cta_policy", 2, "2"),
    ("cumem_enable", "-2", "-2"),
    ("ib_tc", -1, "-1"),
    ("netdevs_policy", "auto", "AUTO"),
    ("netdevs_policy", "MAX:2", "MAX:2"),
    ("tests_min_bw", 1.5, "1.5"),
    ("tests_min_bw", "20.0", "20"),
    ("socket_ifname", "=eth0,eth1", "=eth0,eth1"),
    ("ib_hca", "=mlx5_0:1,mlx5_1", "=mlx5_0:1,mlx5_1"),
    ("debug_file", "/var/log/nccl.%h.%p", "/var/log/nccl.%h.%p"),
    ("debug_timestamp_format", "", ""),
    ("env_plugin", "none", "none"),
    ("socket_magic", "0x10", "0x10"),
    ("thread_thresholds", "8 8 8 8 8 8", "8 8 8 8 8 8"),
    ("launch_mode", "group", "GROUP"),
    ("async_error_handling", "1", "1"),
]


@pytest.mark.parametrize(("key", "value", "text"), ACCEPTED, ids=lambda v: repr(v))
def test_accepted(key: str, value: Any, text: str) -> None:
    assert nccl.canonical(key, value) == text
    assert nccl.canonical(key, text) == text


REFUSED: list[tuple[str, Any, str]] = [
    ("algo", "Treee", "nccl.algo='Treee': 'Treee' is no NCCL algorithm; did you mean 'Tree'? Known: Ring, Tree,"),
    ("algo", "Treee", "initialisation would fail (>=2.24)"),
    ("algo", "Ring, Tree", "must not contain blanks"),
    ("algo", " Ring", "must not contain blanks"),
    ("algo", "Ring\n", "must not contain blanks"),
    ("algo", "Ring,,Tree", "has an empty entry"),
    ("algo", "Ring,", "has an empty entry"),
    ("algo", "Ring;", "has an empty entry"),
    ("algo", ";allreduce:tree", "has an empty entry"),
    ("algo", "allreduce:", "has an empty entry"),
    ("algo", ":ring", "has an empty entry"),
    ("algo", "^", "has an empty entry"),
    ("algo", "", "counts as not set: leave the key out"),
    ("algo", "^Ring,^Tree", "the caret stands once, before the whole list"),
    ("algo", "allreduce:ring;tree", "'tree' lacks its function"),
    ("algo", "allreduce:ring;allReduce:tree", "names allreduce twice"),
    ("algo", "allreduc:ring", "'allreduc' is no collective; did you mean 'allreduce'?"),
    ("algo", "a:b:Ring", "'a:b' is no collective."),
    ("algo", ["Ring", "Tree"], "must be one text, not a list"),
    ("algo", True, "put it in quotes"),
    ("algo", 1, "'1' is no NCCL algorithm."),
    ("proto", "LL256", "did you mean 'LL128'?"),
    ("proto", "Ring", "is no NCCL protocol. Known: LL, LL128, Simple"),
    ("nthreads", 100, "nccl.nthreads=100: must be one of 64, 128, 256, 512. NCCL would change it"),
    ("nthreads", 512.0, "must be one of 64, 128, 256, 512, in plain decimal"),
    ("nthreads", "５１２", "in plain decimal"),  # noqa: RUF001
    ("max_nchannels", "abc", "NCCL would read it as 0"),
    ("max_nchannels", "4M", "NCCL would read it as 4"),
    ("max_nchannels", "010", "NCCL would read it as 8"),
    ("max_nchannels", "0x10", "NCCL would read it as 16"),
    ("max_nchannels", "1_6", "NCCL would read it as 1"),
    ("max_nchannels", " 16", "NCCL would read it as 16"),
    ("max_nchannels", "", "counts as not set"),
    ("max_nchannels", 0, "must be 1 to 64"),
    ("max_nchannels", 65, "must be 1 to 64"),
    ("max_nchannels", True, "must be 1 to 64, in plain decimal"),
    ("max_nchannels", 10**5000, "does not fit into 64 bits"),
    ("max_nchannels", "9" * 6000, "does not fit into 64 bits"),
    ("connect_round_max_peers", 2**63, "does not fit into 64 bits"),
    ("buffsize", "16M", "such as 16MiB. NCCL would read it as 16"),
    ("buffsize", "16K", "such as 16MiB"),
    ("buffsize", "64KB", "such as 16MiB"),
    ("buffsize", "64kb", "such as 16MiB"),
    ("buffsize", "16 MiB", "such as 16MiB"),
    ("buffsize", "1.5MiB", "such as 16MiB"),
    ("buffsize", "016MiB", "such as 16MiB"),
    ("buffsize", "2GiB", "is 2147483648 bytes, and must be 65536 to 1073741824"),
    ("buffsize", "abc", "NCCL would read it as 0"),
    ("buffsize", -1, "must be 65536 to 1073741824 and a multiple of 8. NCCL would take it unchecked"),
    ("buffsize", 65537, "and a multiple of 8"),
    ("work_fifo_bytes", 3, "a power of two. NCCL would use its default with a warning"),
    ("ib_timeout", 40, "must be 0 to 31"),
    ("ib_tc", 256, "must be -1 or 0 to 255"),
    ("shm_disable", "maybe", "must be one of 0, 1 (or true, false, yes, no, on, off). NCCL would read it as 0"),
    ("shm_disable", "01", "must be one of 0, 1"),
    ("shm_disable", 2, "must be one of 0, 1"),
    ("p2p_disable", 2, "NCCL would ignore it without a message"),
    ("nvls_enable", True, "must be one of 0, 1, 2, in plain decimal"),
    ("p2p_level", "PXBB", "did you mean 'PXB'? NCCL would ignore it without a message"),
    ("p2p_level", "NODE", "must be LOC, NVL"),
    ("p2p_level", -1, "or at least 4"),
    ("debug", "debug", "NCCL would switch its log off without a message"),
    ("debug", True, "must be one of VERSION, WARN, ATTN, INFO, ABORT, TRACE"),
    ("debug_subsys", "INIT,ENVV", "did you mean 'ENV'?"),
    ("cta_policy", "ZERO,EFFICIENCY", "must be one of DEFAULT"),
    ("cta_policy", "ZERO|1", "must be one of DEFAULT, EFFICIENCY, ZERO."),
    ("cta_policy", "ZERO|", "must be one of DEFAULT"),
    ("ras_timeout_factor", 0.5, "must be at least 1"),
    ("tests_min_bw", 0, "must be a decimal number above 0"),
    ("tests_min_bw", "nan", "must be a decimal number above 0"),
    ("tests_min_bw", "1e9999", "must be a decimal number above 0"),
    ("socket_ifname", True, "put it in quotes"),
    ("hostid", 1.10, "put it in quotes"),
    ("inspector_enable", "x", "must be one of 0, 1"),
    ("alg", "Ring", "nccl.alg: NCCL reads no variable NCCL_ALG; did you mean 'algo'?"),
    ("NCCL_ALGO", "Ring", "write NCCL_ALGO as nccl.algo"),
    ("ALGO", "Ring", "write NCCL_ALGO as nccl.algo"),
    ("zzzz", 1, "nccl.zzzz: NCCL reads no variable NCCL_ZZZZ"),
    ("", 1, "reads no variable"),
    ("min_channels", 8, "NCCL has never read NCCL_MIN_CHANNELS. Typo for MIN_NCHANNELS."),
    ("ll_threshold", 1, "NCCL no longer reads NCCL_LL_THRESHOLD."),
]


@pytest.mark.parametrize(("key", "value", "part"), REFUSED, ids=lambda v: f"{v!r:.40}" if v != 10**5000 else "huge")
def test_refused(key: str, value: Any, part: str) -> None:
    assert part in refusal(key, value)


@pytest.mark.parametrize("variable", [v for v in ROWS if not v.is_setting], ids=lambda v: v.key)
def test_dead_names_give_their_note(variable: nccl.Variable) -> None:
    assert variable.note in refusal(variable.key, "1")


def test_message_of_a_long_value_is_short() -> None:
    assert len(refusal("nthreads", "9" * 10_000)) < 200


@pytest.mark.parametrize(
    ("text", "read"),
    [("", 0), ("x", 0), ("010", 8), ("09", 0), ("-0x1fz", -31), ("+7", 7), (" 16", 16), ("0", 0), ("0xg", 0)],
)
def test_would_read_is_what_c_reads(text: str, read: int) -> None:
    assert nccl.would_read(text) == read


PIECES = [
    "Ring",
    "tree",
    "LL",
    "ll128",
    "^",
    ",",
    ";",
    ":",
    "allreduce",
    "INFO",
    "env",
    "SYS",
    "zero",
    "|",
    "on",
    "No",
    "0",
    "1",
    "16",
    "-",
    "MiB",
    "kib",
    "0x",
    ".5",
    "e3",
    "CX9:",
    "MAX:2",
]
words = st.sampled_from([*PIECES, " "])
texts = st.one_of(st.text(max_size=12), st.lists(words, max_size=6).map("".join))
anything = st.one_of(texts, st.integers(), st.booleans(), st.floats(), st.integers(0, 70).map(str))


@given(key=st.sampled_from([v.key for v in ROWS]), value=anything)
def test_canonical_is_idempotent_or_refuses(key: str, value: Any) -> None:
    try:
        once = nccl.canonical(key, value)
    except ConfigError:
        return
    assert nccl.canonical(key, once) == once


@given(key=st.text(max_size=12), value=anything)
def test_unknown_keys_are_refused_whatever_they_are(key: str, value: Any) -> None:
    if key not in nccl.variables():
        assert refusal(key, value).startswith(f"nccl.{key}: ")


@given(names=st.lists(st.sampled_from(["Ring", "TREE", "nvls", "Pat"]), min_size=1), caret=st.sampled_from(["", "^"]))
def test_algorithm_lists_keep_their_meaning(names: list[str], caret: str) -> None:
    out = nccl.canonical("algo", caret + ",".join(names))
    assert {n.lower() for n in out.removeprefix("^").split(",")} == {n.lower() for n in names}
    assert out.startswith("^") == bool(caret)
