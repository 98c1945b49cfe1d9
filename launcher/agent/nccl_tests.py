"""NVIDIA's nccl-tests: the command for one measurement, and what its output says. Pure.

Written after the source of nccl-tests 2.19.1 (src/common.cu, src/util.cu) and the text form of older builds. What a
reader of the numbers has to know:

- A time is the mean of all iterations and graph replays of one cycle, over the ranks; no median and no spread comes out
  of one cycle. ``cycles`` repeats it, and gives one time each.
- ``us`` are the in-place times: PyTorch's and SGLang's all-reduce overwrite their input. vLLM's pynccl and every
  all-gather write elsewhere: ``us_out_of_place``.
- With several sizes in one run the buffers are as large as the largest, and the smaller ones wander through them from
  one iteration to the next: so one size a command.
- The size of an all-gather is that of its whole result, on each rank.
- Its JSON holds the whole environment, secrets and all, and the host's name: nothing of either is taken over. The file
  itself has to be deleted by whoever had it written.
- An option that a build does not know makes it print its usage and exit 0; a type that it does not know becomes float.
  So check ``dtype`` and ``graph`` of a result, not the exit code alone. ``errors`` of a run that came to its end may be
  no more than NCCL's last warning, and the exit code is not 0 where numbers are wrong.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Union

#: Bytes of a type, by its name for ``-d``.
WIDTHS = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
PROGRAMS = {"all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf"}
#: Each rank's part of an all-gather is rounded down to so many bytes.
_ALIGN = 16
_WARMUP, ITERATIONS = 5, 20

_HEAD = re.compile(r"^# nThread \d+ nGpus \d+ .*\bwarmup iters: \d+\s+iters: (\d+)(?: .*\bgraph: (\d+))?")
_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*\s(#wrong|error)\s*$")
_DEVICE = re.compile(r"^#\s+Rank\s+\d+ .*\bdevice\s+\d+ \[[^\]]*\] (.+?)\s*$")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)((?:\s+\S+){8,10})\s*$")
_VERSIONS = (re.compile(r"\bnccl-library=(\d+)"), re.compile(r"\bNCCL version (\d+(?:\.\d+)+)"))
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*: (\d+)")
_USAGE = re.compile(r"^USAGE: \S+", re.MULTILINE)
_RELEASE = re.compile(r"^# nccl-tests version v?(\S+)", re.MULTILINE)
_WRITING = re.compile(r"^# Writing JSON output to (.+)$", re.MULTILINE)
_ERROR = re.compile(
    r"^# error: \S|\bTest (?:NCCL |CUDA )?failure\b|\bTest timeout\b|^invalid |^Invalid number of GPUs"
    r"|^# skipping json output|\bnot supported\b.*Ignoring|^# Reducing maxBytes"
)


class NcclTestsError(ValueError):
    """The output is not what nccl-tests writes, or was cut off."""


class _Row(NamedTuple):
    """One cycle of one size; times in microseconds, ``wrong`` elements, None where they were not counted."""

    bytes: int
    dtype: str
    out_of_place: Optional[float]
    in_place: float
    wrong: Optional[int]


def command(
    program: str, gpus: int, collective: str, bytes_: int, dtype: str, replays: int, json_path: str, cycles: int = 1
) -> List[str]:
    """Return the command for one size on GPUs of one host, from one process without MPI.

    Args:
        program: path of the program, or of the folder that holds it.
        gpus: ranks, one a GPU, from the first visible one on.
        collective: all_reduce or all_gather.
        bytes_: of the message; of an all-gather the whole result.
        dtype: one of `WIDTHS`.
        replays: of a CUDA graph that holds 20 collectives; 0: no graph.
        json_path: of a file that does not exist yet, ending in .json, by which the program knows the format; an
            existing one is kept, and `json_file` tells the name that was taken instead. Empty for builds before
            2.17.3, which have text only.
        cycles: of the whole measurement; each gives one time.

    Raises:
        ValueError: the program would measure something else than what was asked for.
    """
    if collective not in PROGRAMS:
        raise ValueError(f"no program for {collective!r}")
    if dtype not in WIDTHS:
        raise ValueError(f"nccl-tests has no type {dtype!r} and would take float")
    step = gpus * _ALIGN if collective == "all_gather" else WIDTHS[dtype]
    if gpus < 1 or bytes_ < 1 or bytes_ % step or cycles < 1 or replays < 0:
        raise ValueError(f"{bytes_} bytes on {gpus} GPUs, {cycles} cycles, {replays} replays: has to be {step} x n")
    if json_path and not json_path.lower().endswith(".json"):
        raise ValueError(f"{json_path}: nccl-tests writes a file only when its name ends in .json")
    return [
        _program(program, PROGRAMS[collective]),
        *("-b", str(bytes_), "-e", str(bytes_), "-g", str(gpus), "-d", dtype),
        *("-w", str(_WARMUP), "-n", str(ITERATIONS), "-c", "1"),
        *(("-G", str(replays)) if replays else ()),
        *(("-N", str(cycles)) if cycles > 1 else ()),
        *(("-J", json_path) if json_path else ()),
    ]


def _program(path: str, name: str) -> str:
    """Return the path of a program: in a folder, or beside the other one of the same build.

    A build may give its names a suffix, as all_reduce_perf_mpi.
    """
    folder, last = posixpath.split(path)
    other = next((one for one in PROGRAMS.values() if last.startswith(one)), "")
    if other and (other == name or other == PROGRAMS["all_reduce"]):
        return posixpath.join(folder, name + last[len(other) :])
    if "_perf" in last:
        raise ValueError(f"{path} is not {name}")
    return posixpath.join(path, name)


def usage_lacks(stdout: str, *letters: str) -> Optional[List[str]]:
    """Return which options a build does not know that printed its usage instead of a measurement; None: it did not.

    It exits with 0 then, and names an unknown option in words that are the C library's.
    """
    return [letter for letter in letters if f"[-{letter}," not in stdout] if _USAGE.search(stdout) else None


def json_file(stdout: str) -> str:
    """Return the path that the program says it writes to; empty when it writes none."""
    found = _WRITING.search(stdout)
    return found[1].strip() if found else ""


def release(stdout: str) -> str:
    """Return the version of nccl-tests; builds before 2.17 say none."""
    found = _RELEASE.search(stdout)
    return found[1] if found else "of unknown version"


def read(json_text: str) -> Dict[str, Any]:
    """Return what a JSON file of nccl-tests says, without the environment and the host's name.

    Returns:
        ``nccl`` version of the loaded library, ``gpu`` name of the first, ``ranks``, ``dtype``, ``graph`` replays,
        ``iterations`` a cycle, ``sizes``: a list of ``bytes``, ``us`` and ``us_out_of_place`` (one of each a cycle),
        ``wrong`` (elements; None: not counted); ``out_of_bounds`` (sizes and places with wrong elements; None: the
        run did not come to its end) and ``errors``, lines for people.

    Raises:
        NcclTestsError: it is no such file, or was cut off.
    """
    try:
        data = json.loads(json_text)
        config = data.get("config") or {}
        devices = config.get("devices") or data.get("devices") or []
        # A run that broke off closes its last row where it was.
        rows = [_json_row(result) for result in data.get("results") or [] if result.get("in_place")]
        return {
            "nccl": _version(data["nccl_version"]),
            "gpu": str(devices[0]["device_info"]) if devices else "",
            "ranks": int(config.get("nthreads", 0)) * int(config.get("ngpus", 0)) * max(1, len(devices)),
            "graph": int(config.get("graph", 0)),
            "iterations": int(config.get("iterations", 0)),
            "out_of_bounds": data["out_of_bounds"]["count"] if "out_of_bounds" in data else None,
            "errors": [error for error in data.get("errors") or [] if error],
            **_summary(rows),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NcclTestsError(f"no JSON of nccl-tests: {type(error).__name__}: {error}") from error


def _json_row(result: Dict[str, Any]) -> _Row:
    places = [result[place] for place in ("out_of_place", "in_place") if result[place] is not None]
    counted = [int(float(place["nwrong"])) for place in places if place["nwrong"] is not None]
    return _Row(
        int(result["size"]),
        str(result["type"]),
        None if result["out_of_place"] is None else _finite(result["out_of_place"]["time"]),
        _finite(result["in_place"]["time"]),
        max(counted) if counted else None,
    )


def read_text(stdout: str) -> Dict[str, Any]:
    """Return the same of the text that every build prints.

    Times have three to four digits there. NCCL's own log on the same stream can tear a row, which is then not found:
    send the log to a file (NCCL_DEBUG_FILE).

    Raises:
        NcclTestsError: it holds neither a row nor an error.
    """
    lines = stdout.splitlines()
    heads = [found for found in map(_HEAD.match, lines) if found]
    devices = [found[1] for found in map(_DEVICE.match, lines) if found]
    bounds = [int(found[1]) for found in map(_BOUNDS.match, lines) if found]
    headers = [found[1] for found in map(_HEADER.match, lines) if found]
    rows = [row for row in (_text_row(line, counts="#wrong" in headers) for line in lines) if row]
    errors = [line.strip() for line in lines if _ERROR.search(line)]
    if not rows and not errors:
        raise NcclTestsError("no output of nccl-tests: neither a row nor an error in it")
    return {
        "nccl": next((_version(f[1]) for pattern in _VERSIONS for f in [pattern.search(stdout)] if f), ""),
        "gpu": devices[0] if devices else "",
        "ranks": len(devices),
        "graph": int(heads[0][2] or 0) if heads else 0,
        "iterations": int(heads[0][1]) if heads else 0,
        "out_of_bounds": bounds[-1] if bounds else None,
        "errors": errors,
        **_summary(rows),
    }


def _text_row(line: str, counts: bool) -> Optional[_Row]:  # noqa: FBT001 - of one call
    """Return the row of a line; the columns redop and root are not there for every collective and build."""
    found = _ROW.match(line)
    if not found:
        return None
    cells = found[4].split()[-8:]
    try:
        times = [_finite(cells[0]), _finite(cells[4])]
        # Builds before #wrong print the largest difference there, which is no count.
        wrong = [int(float(cell)) for cell in (cells[3], cells[7]) if counts and cell != "N/A"]
    except ValueError:
        return None
    return _Row(int(found[1]), found[3], times[0], times[1], max(wrong) if wrong else None)


def _summary(rows: Iterable[_Row]) -> Dict[str, Any]:
    """Return type and sizes of some rows, those of one size together."""
    by_size: Dict[int, List[_Row]] = {}
    for row in rows:
        by_size.setdefault(row.bytes, []).append(row)
    sizes = []
    for size, cycles in sorted(by_size.items()):
        wrong = [row.wrong for row in cycles if row.wrong is not None]
        sizes.append(
            {
                "bytes": size,
                "us": [row.in_place for row in cycles],
                "us_out_of_place": [row.out_of_place for row in cycles if row.out_of_place is not None],
                "wrong": max(wrong) if wrong else None,
            }
        )
    types = {row.dtype for cycles in by_size.values() for row in cycles}
    return {"dtype": " ".join(sorted(types)), "sizes": sizes}


def _finite(value: "Union[str, float]") -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is no time")
    return number


def _version(code: "Union[str, int]") -> str:
    """Return a version as people write it; nccl.h counts in other steps from 2.9 on (22809, but 2804)."""
    if "." in str(code):
        return str(code)
    number = int(code)
    major, rest = divmod(number, 10_000 if number >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
