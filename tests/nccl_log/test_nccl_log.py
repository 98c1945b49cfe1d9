"""Recorded logs give the verdicts that their environments say they should; other versions and prefixes by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.agent import nccl_log
from launcher.agent.nccl_log import CONTRADICTED, PROVED, SILENT, Channels, Choice, Log, Verdict, read, verdicts
from launcher.catalogue import nccl

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = json.loads((HERE / "cases.json").read_text())
EVIDENCE = {v.name: v.log_evidence for v in nccl.variables().values()}
NO_ALGORITHM = (
    "NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype ncclInt8."
    " NCCL_ALGO was set to Tree."
)
PREFIXES = {
    "none": "",
    "journal short": "Nov 29 17:07:29 gpu1 python3[4851]: ",
    "journal iso": "2026-11-29T17:07:29+0000 gpu1 python3[4851]: ",
    "sglang": "[2026-11-29 17:59:16 TP1] ",
    "vllm": "(Worker_TP0 pid=4340) INFO 11-29 18:25:25 [pynccl.py:113] ",
    "vllm raced": "(Worker_TP1 pid=4341) (Worker_TP0 pid=4340) ",
    "vllm core": "(EngineCore pid=4234) ",
    "ray": "\x1b[36m(RayWorkerWrapper pid=663, ip=10.0.0.2)\x1b[0m ",
    "python": "INFO:root:",
    "python long": "2026-11-29 17:07:29,123 - worker - INFO - ",
    "torchrun": "[rank0]:",
    "torchrun tee": "[default0]:",
    "mpirun": "[1,0]<stdout>:",
    "srun": "0: ",
    "compose": "vllm-1  | ",
    "nccl time": "[2026-11-29 17:07:55] ",
}


def start(env: dict[str, str], pid: int = 10, rank: int = 0, nranks: int = 1, *, dot: bool = False) -> list[str]:
    head = f"host:{pid}:{pid} [{rank}] NCCL INFO "
    comm = f"ncclCommInitRank comm 0xa{rank} rank {rank} nranks {nranks} cudaDev {rank} commId 0x1 - Init "
    taken = [f"{head}{name} set by environment to {value}{'.' if dot else ''}" for name, value in env.items()]
    return [f"{head}{comm}START", *taken, f"{head}{comm}COMPLETE"]


def judge(lines: list[str], **env: str) -> dict[str, Verdict]:
    return verdicts(read(lines), {f"NCCL_{name}": value for name, value in env.items()}, EVIDENCE)


# --- recorded logs


@pytest.fixture(scope="module")
def logs() -> dict[str, Log]:
    found = {}
    for path in sorted((HERE / "logs").glob("*.txt")):
        with path.open(encoding="utf-8") as stream:
            found[path.stem] = read(stream)
    return found


def test_all_recorded_logs_have_a_case(logs: dict[str, Log]) -> None:
    assert set(logs) == set(CASES)
    assert len(CASES) == 36
    assert all(path.stat().st_size <= 15_000 for path in (HERE / "logs").iterdir())


@pytest.mark.parametrize("name", CASES)
def test_recorded_log_gives_the_verdicts_of_its_environment(name: str, logs: dict[str, Log]) -> None:
    case, log = CASES[name], logs[name]
    found = verdicts(log, case["env"], EVIDENCE)
    assert set(found) == set(case["env"])
    assert sorted(n for n, v in found.items() if v.word == PROVED) == case.get("proved", [])
    for name, quote in case.get("contradicted", {}).items():
        assert found[name].word == CONTRADICTED
        assert quote in found[name].quote
    for name, reason in case.get("silent", {}).items():
        assert found[name].word == SILENT
        assert reason in found[name].reason
    for name in case.get("proved", []):
        assert f"{name} set by environment to {case['env'][name]}" in found[name].quote
        assert found[name].reason == "taken by 2 of 2 with a communicator"
    assert sorted(set(log.taken) - set(case["env"])) == case.get("taken_besides", [])


@pytest.mark.parametrize("name", CASES)
def test_recorded_log_gives_its_facts(name: str, logs: dict[str, Log]) -> None:
    case, log = CASES[name], logs[name]
    assert set(log.versions) == {"2.28.9"}
    assert [list(c) for c in log.channels] == case.get("channels", [])
    assert sorted(log.transports) == case.get("transports", [])
    if case.get("channels"):
        assert set(log.cuda) == {"13.0"}
        assert set(log.networks) == {"Socket"}
        assert {(c.rank, c.nranks) for c in log.completed} == {(0, 2), (1, 2)}
        assert not log.unfinished
    if case.get("cause"):
        kind, line = case["cause"]
        assert log.cause is not None
        assert log.cause.kind == kind
        assert log.cause.line.endswith(line)
    else:
        assert log.cause is None
        assert not log.warnings


def test_dead_servers_are_classed_with_the_line_of_nccl(logs: dict[str, Log]) -> None:
    for name in ("warn_shm_tree_bare", "vllm_shm_tree_bare"):
        cause = logs[name].cause
        assert cause is not None
        assert cause.kind == "no algorithm"
        assert re.fullmatch(r"host:\d+:\d+ \[\d\] enqueue\.cc:1859 " + re.escape(NO_ALGORITHM), cause.line)


def test_pytorch_tells_the_cause_without_any_line_of_nccl() -> None:
    lines = (HERE / "logs/vllm_shm_tree_bare.txt").read_text().splitlines()
    log = read([line for line in lines if "NCCL WARN" not in line])
    assert not log.warnings
    assert log.cause is not None
    assert log.cause.kind == "no algorithm"
    assert NO_ALGORITHM.replace("NCCL WARN ", "") in log.cause.line


def test_algorithms_by_size(logs: dict[str, Log]) -> None:
    tuned, default = logs["info_shm_tuned"].choices, logs["info_shm_default_spt"].choices
    assert len(tuned) == len(default) == 15
    assert Choice("AllReduce", 12288, "RING", "LL") in tuned
    assert {c.size for c in default if c.protocol == "SIMPLE"} == {3145728, 25165824, 100663296}
    assert {c.protocol for c in tuned} == {"LL"}


def test_matrix(logs: dict[str, Log]) -> None:
    matrix = logs["log_seed"].matrix
    assert set(matrix) == {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}
    assert {word for word, on in matrix["AllReduce"].items() if on} == {"ll", "ring"}
    assert not logs["log_default"].matrix


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("name", ["log_seed", "log_min_gt_max", "info_shm_tuned", "warn_shm_tree_bare"])
def test_recorded_log_behind_a_prefix(name: str, prefix: str, logs: dict[str, Log]) -> None:
    lines = (HERE / f"logs/{name}.txt").read_text().splitlines()
    log, bare = read([prefix + line for line in lines]), logs[name]
    env = CASES[name]["env"]
    assert verdicts(log, env, EVIDENCE) == verdicts(bare, env, EVIDENCE)
    assert log == bare or log.cause == bare.cause
    assert log.matrix == bare.matrix
    assert log.choices == bare.choices


# --- verdicts


def test_partly_taken_is_not_proved() -> None:
    lines = start({"NCCL_ALGO": "Ring"}, 10, 0, 2) + start({}, 11, 1, 2)
    found = judge(lines, ALGO="Ring")["NCCL_ALGO"]
    assert found.word == SILENT
    assert found.reason == "taken by 1 of 2 with a communicator"
    assert found.quote.endswith("set by environment to Ring")
    lines.append(lines[0] + " [repeated 7x across cluster] (Ray deduplicates logs by default.)")
    assert "RAY_DEDUP_LOGS" in judge(lines, ALGO="Ring")["NCCL_ALGO"].reason


def test_one_rank_with_another_value_contradicts() -> None:
    lines = start({"NCCL_ALGO": "Ring"}, 10, 0, 2) + start({"NCCL_ALGO": "Tree"}, 11, 1, 2)
    found = judge(lines, ALGO="Ring")["NCCL_ALGO"]
    assert found.word == CONTRADICTED
    assert found.quote == "host:11:11 [1] NCCL INFO NCCL_ALGO set by environment to Tree"


@pytest.mark.parametrize(
    ("value", "line", "word"),
    [
        ("16", "NCCL_MAX_CTAS set by environment to 16.", PROVED),
        ("0x10", "NCCL_MAX_CTAS set by environment to 16.", PROVED),
        ("010", "NCCL_MAX_CTAS set by environment to 8.", CONTRADICTED),
        ("4M", "NCCL_MAX_CTAS set by environment to 4.", CONTRADICTED),
        ("true", "NCCL_MAX_CTAS set by environment to 0.", CONTRADICTED),
        ("-1", "NCCL_MAX_CTAS set by environment to -1.", PROVED),
        ("16", "Comm config Max CTAs reset to NCCL_MAX_CTAS=16", PROVED),
        ("16", "Comm config Max CTAs reset to NCCL_MAX_CTAS=8", CONTRADICTED),
        ("16", "Invalid value 16 for NCCL_MAX_CTAS, using default -2.", CONTRADICTED),
        ("16", "Comm config Max CTAs set to 4", SILENT),
        ("", "Comm config Blocking set to 1", SILENT),
    ],
)
def test_value_of_an_integer(value: str, line: str, word: str) -> None:
    lines = start({})
    lines.insert(1, f"host:10:10 [0] NCCL INFO {line}")
    assert judge(lines, MAX_CTAS=value)["NCCL_MAX_CTAS"].word == word


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1", "NCCL_IB_HCA set to =mlx5_0,mlx5_1"),
        ("NCCL_OOB_NET_IFNAME", "eth0", "NCCL_OOB_NET_IFNAME set to eth0"),
        ("NCCL_SOCKET_IFNAME", "^docker0,lo", "NCCL_SOCKET_IFNAME set by environment to ^docker0,lo"),
        ("NCCL_IB_RAIL_POLICY", "x", "NET/IB: NCCL_IB_RAIL_POLICY set by environment to x"),
        ("NCCL_CTA_POLICY", "EFFICIENCY", "Parsed environment variable NCCL_CTA_POLICY=EFFICIENCY to 1"),
        ("NCCL_TOPO_FILE", "/a/b.", "NCCL_TOPO_FILE set by environment to /a/b."),
        ("NCCL_P2P_DISABLE", "1", "NCCL_P2P_DISABLE set by environment to 1"),
    ],
)
def test_other_shapes_of_taken(name: str, value: str, line: str) -> None:
    lines = start({})
    lines.insert(1, f"host:10:10 [0] NCCL INFO {line}")
    assert verdicts(read(lines), {name: value}, EVIDENCE)[name].word == PROVED
    assert verdicts(read(lines), {name: "other"}, EVIDENCE)[name].word == CONTRADICTED


def test_limits_contradict_the_side_that_they_limit() -> None:
    lines = start({"NCCL_MIN_NCHANNELS": "100", "NCCL_MAX_NCHANNELS": "100"}, dot=True)
    lines.append("host:10:10 [0] NCCL INFO User asked for a minimum of 100 channels, limiting to 64")
    found = judge(lines, MIN_NCHANNELS="100", MAX_NCHANNELS="100")
    assert [v.word for v in found.values()] == [PROVED, CONTRADICTED]


@pytest.mark.parametrize(("nvls", "word"), [("0", CONTRADICTED), ("16", PROVED)])
def test_nvls_raises_the_channels_that_a_limit_does_not_bind(nvls: str, word: str) -> None:
    lines = start({"NCCL_MAX_NCHANNELS": "2"}, dot=True)
    lines.append(
        f"host:10:10 [0] NCCL INFO 16 coll channels, 16 collnet channels, {nvls} nvls channels, 4 p2p channels"
    )
    assert judge(lines, MAX_NCHANNELS="2")["NCCL_MAX_NCHANNELS"].word == word


def matrix(*rows: str) -> list[str]:
    columns = "LL     LL128    Simple   |   Tree  Ring  CollNetDirect   CollNetChain   NVLS   NVLSTree   PAT  "
    return [
        "host:10:10 [0] NCCL INFO Enabled NCCL Func/Proto/Algo Matrix:",
        f"     Function |       {columns}",
        *rows,
        "",
    ]


ALL_ON = "AllGather | 1 2 1 | 1 1 1 1 1 1 1"


@pytest.mark.parametrize(
    ("name", "value", "row", "word"),
    [
        ("ALGO", "ring,tree", "AllReduce | 1 2 1 | 1 1 0 0 0 0 0", PROVED),
        ("ALGO", "Ring", "AllReduce | 1 2 1 | 1 1 0 0 0 0 0", CONTRADICTED),
        ("ALGO", "^NVLS,NVLSTree", "AllReduce | 1 2 1 | 1 1 1 1 0 0 1", PROVED),
        ("ALGO", "^NVLS", "AllReduce | 1 2 1 | 1 1 1 1 1 1 1", CONTRADICTED),
        ("ALGO", "allreduce:tree", ALL_ON, PROVED),
        ("ALGO", "allreduce:tree", "AllGather | 1 2 1 | 0 0 0 0 0 0 0", PROVED),  # 2.31 clears what is not named
        ("ALGO", "ring;allreduce:tree", "AllReduce | 1 2 1 | 0 1 0 0 0 0 0", CONTRADICTED),
        ("ALGO", "ring;allreduce:tree", "AllReduce | 1 2 1 | 1 0 0 0 0 0 0", PROVED),
        ("PROTO", "LL,Simple", "AllReduce | 1 0 1 | 1 1 1 1 1 1 1", PROVED),
        ("PROTO", "^LL128", "AllReduce | 1 2 1 | 1 1 1 1 1 1 1", CONTRADICTED),
        ("PROTO", "LL", "AllReduce | 1 0 0 | 1 1", PROVED),  # torn: not believed
    ],
)
def test_matrix_beats_the_line_that_is_printed_before_parsing(name: str, value: str, row: str, word: str) -> None:
    found = judge(start({f"NCCL_{name}": value}) + matrix(row), **{name: value})[f"NCCL_{name}"]
    assert found.word == word
    assert word == PROVED or found.quote == row


def test_matrix_with_other_lines_between_and_in_its_rows() -> None:
    other = "gpu:11:11 [1] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512"
    lines = matrix(
        other,
        "    Broadcast |        1         2         1   |             1              1              0" + "     0" * 4,
        "       Reduce |        1         2         1   |             1         gpu:11:11 [1] NCCL INFO 4 coll",
        "    0              0              0              0              0  ",
        "Max NThreads | 1 2 1 | 1 1 1 1 1 1 1",
        ALL_ON,
    )
    assert set(read(lines).matrix) == {"Broadcast", "AllGather"}


def test_choice_beats_the_line_that_is_printed_before_parsing() -> None:
    lines = start({"NCCL_PROTO": "LL", "NCCL_ALGO": "ring;allgather:pat"})
    lines.append("host:10:10 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}")
    found = judge(lines, PROTO="LL", ALGO="ring;allgather:pat")
    assert found["NCCL_PROTO"].word == CONTRADICTED
    assert found["NCCL_PROTO"].quote == "AllReduce: 4096 Bytes -> Algo RING proto SIMPLE"
    assert found["NCCL_ALGO"].word == PROVED


def test_line_cut_by_another_process_is_not_believed() -> None:
    cut = "host:10:10 [0] NCCL INFO NCCL_ALGO set by environment to Rihost:11:11 [1] NCCL INFO Using network IB"
    log = read([*start({"NCCL_ALGO": "Ring"}), cut, "ng"])
    assert log.networks == {"IB": 1}
    assert verdicts(log, {"NCCL_ALGO": "Ring"}, EVIDENCE)["NCCL_ALGO"].word == PROVED


def test_silence_says_why() -> None:
    env = {"IB_TIMEOUT": "22", "DEBUG": "INFO", "ALGOO": "x", "P2P_LEVEL": "sys", "NO_CACHE": "ALL"}
    reasons = {name: verdict.reason for name, verdict in judge(start({}), **env).items()}
    assert reasons["NCCL_IB_TIMEOUT"].startswith("read at first use")
    assert reasons["NCCL_DEBUG"] == "never logged"
    assert reasons["NCCL_ALGOO"] == "NCCL reads no such name"
    assert reasons["NCCL_P2P_LEVEL"].startswith("logged only when accepted")
    assert EVIDENCE["NCCL_NO_CACHE"].startswith("api")
    assert "typed" in reasons["NCCL_NO_CACHE"]
    assert judge(["x"], IB_TIMEOUT="22")["NCCL_IB_TIMEOUT"].reason == "no INFO lines of NCCL: set NCCL_DEBUG=INFO"
    assert judge(start({})[:-1], IB_TIMEOUT="22")["NCCL_IB_TIMEOUT"].reason == "no communicator came up"
    assert judge(start({}), PATH="x", **{"": "x"}).keys() == {"NCCL_", "NCCL_PATH"}
    assert not verdicts(read([]), {"PATH": "/bin"}, EVIDENCE)


# --- other versions


def test_lines_of_old_versions() -> None:
    log = read(
        [
            "NCCL version 2.21.5+cuda12.4",
            "h:7:9 [0] NCCL INFO Channel 00 : 1[21000] -> 0[1000] via P2P/IPC/read",
            "h:7:9 [0] NCCL INFO Channel 00/0 : 7[7] -> 0[0] [receive] via NET/IB/0/GDRDMA",
            "h:7:9 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via direct shared memory",
            "h:7:9 [0] NCCL INFO 4 coll channels, 4 p2p channels, 2 p2p channels per peer",
            "h:7:9 [0] NCCL INFO 8 coll channels, 6 nvls channels, 12 p2p channels, 2 p2p channels per peer",
            "h:7:9 [0] NCCL INFO comm 0x7f00 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE",
            "[0] h:7:9 [0] NCCL INFO 65536 Bytes -> Algo 0 proto 2 time 37.798233",
            "h:7:9 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo 1 proto 0 time 37.798233",
        ]
    )
    assert log.versions == {"2.21.5": 1}
    assert log.cuda == {"12.4": 1}
    assert set(log.transports) == {"P2P/IPC/read", "NET/IB/0/GDRDMA", "direct shared memory"}
    assert list(log.channels) == [Channels(4, 0, 4), Channels(8, 6, 12)]
    assert [c.nranks for c in log.completed] == [8]
    assert set(log.choices) == {Choice("", 65536, "TREE", "SIMPLE"), Choice("AllReduce", 65536, "RING", "LL")}


def test_lines_of_new_versions() -> None:
    refusal = NO_ALGORITHM.replace("NCCL WARN Error : no", "No") + " NCCL_PROTO was set to LL."
    log = read(
        [
            "[2026-11-29 17:00:00] h:7:9 [0] NCCL INFO NCCL version 2.31.2+cuda13.1",
            "h:7:9 [0] NCCL INFO ncclCommInitRank [Rank 0] comm 0x7f rank 0 nranks 2 cudaDev 0 - Init START",
            "h:7:9 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 - [Rank 0] Init START",
            "[2026-11-29 17:00:00] h:7:9 [0] param.cc:6 NCCL ATTN Invalid value abc for NCCL_BUFFSIZE, using default 4",
            "[2026-11-29 17:00:00] h:7:9 [0] enqueue.cc:9 (ncclGetAlgo) NCCL WARN " + refusal,
            "h:7:9 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0} cgaClusterSize 4",
        ]
    )
    assert log.versions == {"2.31.2": 1}
    assert len(log.unfinished) == 1
    assert log.altered.keys() == {"NCCL_BUFFSIZE", "NCCL_ALGO", "NCCL_PROTO"}
    assert log.cause is not None
    assert log.cause.kind == "no algorithm"
    assert log.choices == {Choice("AllReduce", 4, "RING", "LL"): 1}


# --- cause of death


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("no network interface", "h:7:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"),
        (
            "shared memory",
            "h:7:9 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes",
        ),
        (
            "shared memory",
            "h:7:9 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
        ),
        (
            "locked memory",
            "h:7:9 [0] ibvwrap.cc:9 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        ),
        ("out of memory", "h:7:9 [0] init.cc:9 NCCL WARN Cuda failure 2 'out of memory'"),
        ("ranks differ", "h:7:9 [0] p.cc:9 NCCL WARN Message truncated : received 1024 bytes instead of 256"),
        (
            "other side ended",
            "h:7:9 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n1",
        ),
        ("network", "h:7:9 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed"),
        ("network", "h:7:9 [0] t.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=0"),
        ("CUDA error", "h:7:9 [0] transport/p2p.cc:238 NCCL WARN Cuda failure 'invalid device context'"),
        ("other", "h:7:9 [0] a.cc:9 NCCL WARN something that nobody has seen"),
        ("system error", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"),
        (
            "internal error",
            "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers",
        ),
        (
            "hang",
            "[rank0]:[E1129 17:07:55.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout",
        ),
        ("not completed", "h:7:9 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 - Init START"),
    ],
)
def test_cause(kind: str, line: str) -> None:
    assert read(["harmless", line]).cause == (kind, line)


def test_cause_skips_the_harmless_and_prefers_what_says_more() -> None:
    old = "h:7:9 [0] graph/tuning.cc:25 NCCL WARN Invalid NCCL_NTHREADS 100 (must be a multiple of 32)"
    assert read([old]).cause is None
    odd, named = "h:7:9 [0] a.cc:1 NCCL WARN odd", "h:7:9 [0] a.cc:1 NCCL WARN Message truncated"
    general = "torch.DistBackendError: NCCL error in: N.cpp:93, unhandled system error, NCCL version 2.28.9"
    assert read([old, odd, named]).cause == ("ranks differ", named)
    assert read([old, general, odd]).cause == ("system error", odd)
    assert len(read([f"h:7:9 [0] a.cc:1 NCCL WARN {n}" for n in range(99)]).warnings) == 20


# --- any text

# fmt: off
PIECES = st.sampled_from([
    "NCCL INFO", "NCCL WARN", "nccl", "h:1:2 [0]", "h:1:2 [0] a.cc:1 (f)", " ", ":", "|", "\n", "[", "]", "9",
    "Last error:", "AllReduce |", " Bytes -> Algo 1 proto 9", "comm 0x1 rank 0 nranks 1 ", "Init COMPLETE",
    "Init START", "Func/Proto/Algo Matrix", " coll channels, ", "NCCL_ALGO set by environment to ", "NCCL_ALGO=", "1 1",
    "reset to ", "Invalid ", 'when parsing "', 'Unrecognized x token "', "\x1b[0m", "²", "-", "^", ";", "tree", "ring",
    "[repeated 3x across cluster]", "was set to", "asked for a minimum of", "NCCL version 2.", "Function |",
])
# fmt: on
LINES = st.lists(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join)), max_size=12)
NAMES = st.sampled_from(
    ["NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_DEBUG", "NCCL_X", "PATH", "NCCL_IB_HCA"]
)


@settings(deadline=None, max_examples=300)
@given(LINES, st.dictionaries(NAMES, st.one_of(st.text(max_size=20), st.lists(PIECES, max_size=4).map("".join))))
def test_any_text_gives_a_verdict(lines: list[str], env: dict[str, str]) -> None:
    log = read(lines)
    found = verdicts(log, env, EVIDENCE)
    assert set(found) == {name for name in env if name.startswith("NCCL_")}
    assert {verdict.word for verdict in found.values()} <= {PROVED, CONTRADICTED, SILENT}
    assert log.cause is None or log.cause.kind


@settings(deadline=None, max_examples=100)
@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_a_number_is_proved_by_itself_alone(given_: int, taken: int) -> None:
    found = judge(start({"NCCL_BUFFSIZE": str(taken)}, dot=True), BUFFSIZE=str(given_))
    assert found["NCCL_BUFFSIZE"].word == (PROVED if given_ == taken else CONTRADICTED)


@pytest.mark.parametrize("line", ["NCCL" + "9" * 10**6, "h:1:1 [0] NCCL INFO " * 50_000, "nccl " + "a:1" * 10**6])
def test_endless_line(line: str) -> None:
    assert read([line] * 3).cause is None


@pytest.mark.parametrize("python", [*Path.home().glob(".pyenv/versions/3.[89].*/bin/python"), Path(sys.executable)])
def test_runs_on_old_python(python: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(nccl_log.__file__).parent)!r}); import nccl_log;"
        f"log = nccl_log.read(open({str(HERE / 'logs/log_min_gt_max.txt')!r}));"
        "env = {'NCCL_MAX_NCHANNELS': '2', 'NCCL_MIN_NCHANNELS': '16'};"
        "print(*(v.word for v in nccl_log.verdicts(log, env, dict.fromkeys(env, 'int_dot')).values()))"
    )
    done = subprocess.run([str(python), "-B", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [CONTRADICTED, PROVED]
