"""The adapter for nccl-tests.

The samples are written after the source of nccl-tests 2.19.1 (src/common.cu, src/util.cu: names, order and number
formats) and after the text that users quote of older builds; none was recorded from a run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.agent.nccl_tests import NcclTestsError, command, json_file, read, read_text, release, usage_lacks

SECRET = "HF_TOKEN=hf_secret"


def result(size: int, out_of_place: float | None, in_place: float, wrong: float | None = 0.0) -> dict[str, Any]:
    def place(time: float) -> dict[str, Any]:
        return {"time": time, "alg_bw": 0.85, "bus_bw": 0.85, "nwrong": wrong}

    return {
        "size": size,
        "count": size // 2,
        "type": "bfloat16",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": None if out_of_place is None else place(out_of_place),
        "in_place": place(in_place),
        "actual_iterations": 20,
        "experiment_name": "",
    }


def report(*results: dict[str, Any], **changes: Any) -> str:
    """Return a JSON file of a program built without MPI: one record in `devices`, whatever the number of GPUs."""
    document = {
        "version": 2,
        "start_time": "2026-11-29 18:00:00",
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-J", "/tmp/x.json"],
        "env": [SECRET, "PATH=/usr/bin"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": 2,
            "minimum_bytes": 14336,
            "maximum_bytes": 14336,
            "step_bytes": 1048576,
            "warmup_iters": 5,
            "iterations": 20,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 20,
            "blocking_collectives": "false",
            "per_iter_timing": "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": 0,
                    "group": 0,
                    "pid": 4711,
                    "hostname": "secrethost",
                    "device": 0,
                    "device_hex": "0000:04:00",
                    "device_info": "NVIDIA H200",
                }
            ],
        },
        "results": list(results),
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 0.85, "okay": "unchecked"},
        "errors": [""],
        "end_time": "2026-11-29 18:00:05",
        **changes,
    }
    return json.dumps({name: value for name, value in document.items() if value is not None}, separators=(",", ":"))


def test_a_command() -> None:
    argv = command("/opt/build/all_reduce_perf", 2, "all_reduce", 14336, "bfloat16", 20, "/tmp/x.json")
    assert " ".join(argv) == (
        "/opt/build/all_reduce_perf -b 14336 -e 14336 -g 2 -d bfloat16 -w 5 -n 20 -c 1 -G 20 -J /tmp/x.json"
    )


def test_a_command_for_an_old_build_without_graph() -> None:
    argv = command("/opt/build", 8, "all_gather", 1024, "half", 0, "", cycles=3)
    assert " ".join(argv) == "/opt/build/all_gather_perf -b 1024 -e 1024 -g 8 -d half -w 5 -n 20 -c 1 -N 3"


@pytest.mark.parametrize(
    ("program", "path"),
    [
        ("/opt/nccl_perf/build", "/opt/nccl_perf/build/all_reduce_perf"),
        ("all_reduce_perf_mpi", "all_reduce_perf_mpi"),
        ("build/", "build/all_reduce_perf"),
        ("", "all_reduce_perf"),
    ],
)
def test_the_path_of_the_program(program: str, path: str) -> None:
    assert command(program, 2, "all_reduce", 16, "half", 1, "")[0] == path
    other = path.replace("all_reduce", "all_gather")
    assert command(program, 2, "all_gather", 32, "half", 1, "")[0] == other


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "collective": ({"collective": "broadcast"}, "no program for 'broadcast'"),
    "another program": ({"program": "/opt/build/all_gather_perf"}, "is not all_reduce_perf"),
    "type": ({"dtype": "bf16"}, "would take float"),
    "size": ({"bytes_": 15}, "has to be 2 x n"),
    "nothing": ({"bytes_": 0}, "has to be"),
    "a part that is rounded": ({"collective": "all_gather", "program": "", "bytes_": 48}, "has to be 32 x n"),
    "without a GPU": ({"gpus": 0}, "on 0 GPUs"),
    "for ever": ({"cycles": 0}, "0 cycles"),
    "file that is not written": ({"json_path": "/tmp/x"}, "ends in .json"),
}


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_measure_something_else_is_refused(changes: dict[str, Any], said: str) -> None:
    plain = {
        "program": "/opt/build/all_reduce_perf",
        "gpus": 2,
        "collective": "all_reduce",
        "bytes_": 16,
        "dtype": "half",
        "replays": 1,
        "json_path": "/tmp/x.json",
    }
    command(**plain)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=said):
        command(**{**plain, **changes})


def test_read() -> None:
    assert read(report(result(14336, 16.9, 16.7))) == {
        "nccl": "2.28.9",
        "gpu": "NVIDIA H200",
        "ranks": 2,
        "dtype": "bfloat16",
        "graph": 20,
        "iterations": 20,
        "sizes": [
            {
                "bytes": 14336,
                "us": [16.7],
                "us_out_of_place": [16.9],
                "wrong": 0,
            }
        ],
        "out_of_bounds": 0,
        "errors": [],
    }


def test_nothing_of_environment_and_host_is_taken_over() -> None:
    text = report(result(14336, 16.9, 16.7))
    assert SECRET in text
    taken = json.dumps(read(text))
    assert "secret" not in taken
    assert "PATH" not in taken


def test_cycles_of_one_size_are_one_size() -> None:
    results = [result(1024, 9, 12), result(2048, 9, 1), result(1024, 8, 10), result(1024, 7, 17)]
    small, large = read(report(*results))["sizes"]
    assert small == {"bytes": 1024, "us": [12, 10, 17], "us_out_of_place": [9, 8, 7], "wrong": 0}
    assert (large["bytes"], large["us"]) == (2048, [1])


COUNTED: dict[str, tuple[dict[str, Any], int | None]] = {
    "right": (result(16, 1, 1, 0.0), 0),
    "wrong": (result(16, 1, 1, 3.0), 3),
    "not counted": (result(16, 1, 1, None), None),
    "in place only": (result(16, None, 1), 0),
}


@pytest.mark.parametrize(("measured", "wrong"), COUNTED.values(), ids=COUNTED.keys())
def test_wrong_elements(measured: dict[str, Any], wrong: int | None) -> None:
    assert read(report(measured))["sizes"][0]["wrong"] == wrong


def test_errors_and_a_run_that_broke_off() -> None:
    cut = {"size": 16, "count": 8, "type": "bfloat16", "redop": "sum", "root": "    -1", "out_of_place": None}
    seen = read(report(cut, out_of_bounds=None, errors=None))
    assert (seen["sizes"], seen["out_of_bounds"], seen["errors"]) == ([], None, [])
    assert read(report(errors=["NCCL WARN Cuda failure"]))["errors"] == ["NCCL WARN Cuda failure"]
    assert read(report(out_of_bounds={"count": 2, "okay": "false"}))["out_of_bounds"] == 2


@pytest.mark.parametrize(("code", "version"), [(22809, "2.28.9"), (23203, "2.32.3"), (2804, "2.8.4"), (20908, "2.9.8")])
def test_versions(code: int, version: str) -> None:
    assert read(report(nccl_version=code))["nccl"] == version


NO_REPORT = {
    "empty": "",
    "cut off": report(result(16, 1, 1))[:-40],
    "a list": "[]",
    "another document": '{"version": 2}',
    "no time": report({**result(16, 1, 1), "in_place": {"time": "nan", "nwrong": None}}),
    "CPU times": report({**result(16, 1, 1), "in_place": {"cpu_time": 3.0, "nwrong": None}}),
    "results of another kind": report(results={"16": 3}),
}


@pytest.mark.parametrize("text", NO_REPORT.values(), ids=NO_REPORT.keys())
def test_no_report(text: str) -> None:
    with pytest.raises(NcclTestsError, match="no JSON of nccl-tests"):
        read(text)


NEW = """\
# Writing JSON output to /tmp/x.json.0
# nccl-tests version 2.19.1 nccl-headers=22809 nccl-library=22907
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 14336 maxBytes 14336 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 20 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on secrethost device  0 [0000:04:00] NVIDIA H200
#  Rank  1 Group  0 Pid   4711 on secrethost device  1 [0000:05:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
       14336          7168  bfloat16     sum      -1    16.90    0.85    0.85       0    16.70    0.86    0.86       0
       14336          7168  bfloat16     sum      -1    17.10    0.84    0.84       0    17.30    0.83    0.83     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.85
#
# Collective test concluded: all_reduce_perf
#

"""
OLD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on ip-172-31-20-228 device  1 [0x00] Tesla V100-SXM2-16GB
NCCL version 2.7.8+cuda11.0
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum    12.90    0.00    0.00  1e-07    12.87    0.00    0.00  1e-07
   134217728      33554432     float     sum  1.2e+05    1.10    1.10  2e-07   1211.2  110.81  110.81  2e-07
# Out of bounds values : 1 FAILED
# Avg bus bandwidth    : 8.62002
#
"""
GATHER = """\
# nThread 1 nGpus 4 minBytes 64 maxBytes 64 step: 1(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
          64             8      half    none      -1    12.90    0.00    0.00      0    12.87    0.00    0.00      7
# Out of bounds values : 1 FAILED
"""
ROW = {"bytes": 14336, "us": [16.7, 17.3], "us_out_of_place": [16.9, 17.1], "wrong": 0}


def test_read_text() -> None:
    assert read_text(NEW) == {
        "nccl": "2.29.7",
        "gpu": "NVIDIA H200",
        "ranks": 2,
        "dtype": "bfloat16",
        "graph": 20,
        "iterations": 20,
        "sizes": [ROW],
        "out_of_bounds": 0,
        "errors": [],
    }


def test_text_and_json_have_the_same_fields() -> None:
    as_json, as_text = read(report(result(16, 1, 1))), read_text(NEW)
    assert as_json.keys() == as_text.keys()
    assert as_json["sizes"][0].keys() == as_text["sizes"][0].keys()


def test_the_text_of_an_old_build() -> None:
    seen = read_text(OLD)
    assert (seen["nccl"], seen["gpu"], seen["graph"], seen["out_of_bounds"]) == ("2.7.8", "Tesla V100-SXM2-16GB", 0, 1)
    assert [(s["bytes"], s["us"], s["us_out_of_place"], s["wrong"]) for s in seen["sizes"]] == [
        (8, [12.87], [12.9], None),
        (134217728, [1211.2], [120000.0], None),
    ]


def test_the_text_of_an_all_gather() -> None:
    seen = read_text(GATHER)
    assert [(s["bytes"], s["us"], s["wrong"]) for s in seen["sizes"]] == [(64, [12.87], 7)]


ERRORS = {
    "option": "invalid option 'J'\nUSAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n",
    "GPUs": "Invalid number of GPUs: 8 requested but only 2 were found.\n",
    "NCCL": "host: Test NCCL failure common.cu:962 'invalid usage / '\n .. host pid 1: Test failure common.cu:1\n",
    "CUDA": "host: Test CUDA failure common.cu:1 'out of memory'\n",
    "time": "host: Test timeout (10s) common.cu:1\n",
    "file": "# skipping json output; /x/y.json not accessible\n",
    "at the end": "# error: NCCL WARN something\n",
}


@pytest.mark.parametrize("text", ERRORS.values(), ids=ERRORS.keys())
def test_errors_of_the_text(text: str) -> None:
    assert read_text(text)["errors"][0] == text.splitlines()[0]


@pytest.mark.parametrize(
    "line",
    [
        "invalid type bfloat16, defaulting to float .. ",
        "Option -G (CUDA graph) not supported before NCCL 2.9 + CUDA 11.3. Ignoring",
        "# Reducing maxBytes to 1024 due to memory limitation",
    ],
)
def test_a_measurement_of_something_else_is_an_error(line: str) -> None:
    assert read_text(f"{line}\n{NEW}")["errors"] == [line.strip()]


def test_a_row_that_the_log_of_nccl_tore() -> None:
    torn = "        1024           512  bfloat16     sum      -1host:1:2 [0] NCCL INFO AllReduce: 1024 Bytes\n"
    torn += "    17.08    0.00    0.00      0    16.76    0.00    0.00      0\n"
    assert read_text(torn + NEW)["sizes"] == [ROW]


def test_no_output() -> None:
    with pytest.raises(NcclTestsError, match="neither a row nor an error"):
        read_text("hello\n1 2 float\n")


USAGE = """\
invalid option '?'
USAGE: all_reduce_perf
\t[-n,--iters <iteration count>]
\t[-N,--run_cycles <cycle count> run & print each cycle (default: 1; 0=infinite)]
\t[-G,--cudagraph <num graph launches>]
\t[-h,--help]
"""


def test_the_options_that_a_build_does_not_know() -> None:
    assert usage_lacks(USAGE, "G", "N", "J") == ["J"]
    assert usage_lacks(USAGE, "G", "N") == []
    assert usage_lacks(NEW, "J") is None


def test_the_release() -> None:
    assert (release(NEW), release(OLD)) == ("2.19.1", "of unknown version")
    assert release("# nccl-tests version v2.20.0 (1a2b3c) nccl-headers=22809 nccl-library=22809") == "2.20.0"


def test_the_file_that_was_written() -> None:
    assert json_file(NEW) == "/tmp/x.json.0"
    assert json_file(OLD) == ""
