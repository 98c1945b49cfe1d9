"""A stand-in for all_reduce_perf and all_gather_perf: no GPU, no NCCL, invented figures.

What it prints and writes has the names, the order and the number formats of nccl-tests 2.19.1 (src/common.cu,
src/util.cu), as read in the source; none of it was recorded from a run. ``STANDIN`` in its environment, a JSON object,
says how it misbehaves:

- ``lacks``: letters of options that this build does not know: it prints its usage and exits with 0.
- ``fault``: what goes wrong, and ``where``: "start", "join" or "measure"; or what it measures instead, see `Program`.
- ``wrong``: elements; ``warns``: NCCL's last warning.
- ``only``: bytes of the one size that all but ``lacks`` is about.
"""

from __future__ import annotations

import getopt
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any, NoReturn

OPTIONS = "t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:hG:C:a:R:J:"
TYPES = {"half": 2, "bfloat16": 2, "float": 4}
HOST = "standinhost"
NAME = Path(sys.argv[0]).name
NO_ALGORITHM = "WARN Error : no algorithm/protocol available for function AllReduce with datatype ncclBfloat16."
INTERNAL = "internal error - please report this issue to the NCCL developers / "


def say(text: str) -> None:
    """Print a line as a program does whose output is line buffered."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(code: int, text: str = "") -> NoReturn:
    """End as a failed check does."""
    if text:
        say(f"{HOST}: {text}")
    say(f" .. {HOST} pid {os.getpid()}: Test failure common.cu:1234")
    raise SystemExit(code)


def parse(lacks: str) -> dict[str, str]:
    """Return the options; exits with 0 where one is not known."""
    known = "".join(part + ":" for part in OPTIONS.replace("h", "h:").split(":")[:-1] if part not in lacks)
    try:
        return dict(getopt.getopt(sys.argv[1:], known)[0])
    except getopt.GetoptError as error:
        sys.stderr.write(f"{NAME}: invalid option -- '{error.opt}'\n")
        say("invalid option '?'")
        say(f"USAGE: {NAME} ")
        for letter in known.replace(":", ""):
            say(f"\t[-{letter},--something <value>] ")
        raise SystemExit(0) from None


class Log:
    """NCCL's: on standard output where its file cannot be opened."""

    def __init__(self) -> None:
        self._stream: IO[str] = sys.stdout
        try:
            self._stream = Path(os.environ["NCCL_DEBUG_FILE"]).open("w")  # noqa: SIM115 - to the end
        except (KeyError, OSError):
            return

    def say(self, text: str) -> None:
        """Print a line."""
        self._stream.write(f"{HOST}:{os.getpid()}:{os.getpid()} [0] NCCL {text}\n")
        self._stream.flush()


class Report:
    """The JSON file, which begins with the arguments and the environment; a run that breaks off leaves it so."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("x")  # noqa: SIM115 - to the end
        say(f"# Writing JSON output to {path}")
        head = {"version": 2, "start_time": "2026-11-29 18:00:00", "args": sys.argv}
        head |= {"env": [f"{name}={value}" for name, value in os.environ.items()], "nccl_version": 22809}
        self._file.write(json.dumps(head, separators=(",", ":"))[:-1])
        self._file.flush()

    def end(self, **rest: Any) -> None:
        """Write the rest."""
        self._file.write("," + json.dumps(rest, separators=(",", ":"))[1:])
        self._file.close()


class Program:
    """One run."""

    def __init__(self, asked: dict[str, Any]) -> None:
        options = parse(asked.get("lacks", ""))
        self.gpus, self.size, self.type = int(options["-g"]), int(options["-b"]), options["-d"]
        self.iterations, self.warmup = int(options.get("-n", "20")), int(options.get("-w", "5"))
        self.replays, self.cycles = int(options.get("-G", "0")), int(options.get("-N", "1"))
        self.asked = asked if asked.get("only", self.size) == self.size else {}
        self.fault = self.asked.get("fault", "")
        self.gathers = NAME.startswith("all_gather")
        if self.fault == "no type":
            sys.stderr.write(f"invalid type {self.type}, defaulting to float .. \n")
            self.type = "float"
        if self.fault == "no graph":
            say("Option -G (CUDA graph) not supported before NCCL 2.9 + CUDA 11.3. Ignoring")
            self.replays = 0
        path = options.get("-J", "")
        if path and self.fault == "skips JSON":
            say(f"# skipping json output; {path} not accessible")
        self.report = Report(path) if path and self.fault != "skips JSON" else None
        self.log = Log()

    def trouble(self, where: str) -> None:
        """Do what was asked for at this place."""
        fault = self.fault if self.asked.get("where", "join") == where else ""
        if fault == "hang":
            time.sleep(600)
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "nccl":
            self.log.say(NO_ALGORITHM)
            fail(3, f"Test NCCL failure all_reduce.cu:44 '{INTERNAL}'")
        if fault == "memory":
            fail(2, "Test CUDA failure common.cu:890 'out of memory'")
        if fault == "child":  # something that goes on when it is gone
            if os.fork() == 0:
                time.sleep(600)
            raise SystemExit(1)
        while fault == "flood":
            self.log.say("INFO still here")
            time.sleep(0.02)

    def run(self) -> None:
        """Print everything."""
        self.trouble("start")
        self.head()
        self.trouble("join")
        self.log.say("INFO NCCL version 2.28.9+cuda13.0")
        self.joined("START")
        for name, value in sorted(os.environ.items()):
            if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"):
                self.log.say(f"INFO {name} set by environment to {value}{'.' if value.isdigit() else ''}")
        self.joined("COMPLETE")
        self.columns()
        self.trouble("measure")
        what = "AllGather" if self.gathers else "AllReduce"
        self.log.say(f"INFO {what}: {self.size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}")
        wrong = int(self.asked.get("wrong", 0))
        rows = [self.row(cycle, wrong) for cycle in range(self.cycles)]
        self.foot(rows, wrong)

    def joined(self, stage: str) -> None:
        """Print what NCCL says of each rank."""
        for rank in range(self.gpus):
            comm = f"comm 0x{rank + 1:x}000 rank {rank} nranks {self.gpus} cudaDev {rank} nvmlDev {rank} busId {rank}0"
            self.log.say(f"INFO ncclCommInitRankConfig {comm} commId 0x1 - Init {stage}")

    def head(self) -> None:
        """Print what is measured on what."""
        say("# nccl-tests version 2.19.1 nccl-headers=22809 nccl-library=22809")
        say(f"# Collective test starting: {NAME}")
        say(
            f"# nThread 1 nGpus {self.gpus} minBytes {self.size} maxBytes {self.size} step: 1048576(bytes)"
            f" warmup iters: {self.warmup} iters: {self.iterations} agg iters: 1 validation: 1"
            f" graph: {self.replays} unalign: 0"
        )
        say("#")
        say("# Using devices")
        if self.fault == "no GPUs":
            sys.stderr.write(f"Invalid number of GPUs: {self.gpus} requested but only 1 were found.\n")
            sys.stderr.write("Please check the number of processes and GPUs per process.\n")
            fail(5)
        for rank in range(self.gpus):
            place = f"Rank {rank:2} Group  0 Pid {os.getpid():6} on {HOST:>10} device {rank:2} [0000:{rank + 4:02x}:00]"
            say(f"#  {place} NVIDIA Stand-in")

    def columns(self) -> None:
        """Print the head of the table."""
        say("#")
        say(f"# {'':50}           out-of-place                       in-place          ")
        for names, each in (
            (("size", "count", "type", "redop", "root"), ("time", "algbw", "busbw", "#wrong")),
            (("(B)", "(elements)", "", "", ""), ("(us)", "(GB/s)", "(GB/s)", "")),
        ):
            widths = (10, 12, 8, 6, 6, 7, 6, 6, 6, 7, 6, 6, 6)
            cells = zip((*names, *each, *each), widths, strict=True)
            say("# " + "  ".join(f"{cell:>{width}}" for cell, width in cells) + " ")

    def row(self, cycle: int, wrong: int) -> dict[str, Any]:
        """Print a row of the table and return that of the file."""
        count = self.size // TYPES[self.type] // (self.gpus if self.gathers else 1)
        redop = "none" if self.gathers else "sum"
        text = f"{self.size:12}  {count:12}  {self.type:>8}  {redop:>6}  {-1:6}"
        found = {"size": self.size, "count": count, "type": self.type, "redop": redop, "root": "    -1"}
        for place, us in (("out_of_place", 20.5 + cycle), ("in_place", 10.25 + cycle)):
            text += f"  {us:7.2f}  {0.85:6.2f}  {0.85:6.2f}  {wrong:6g}"
            found[place] = {"time": us, "alg_bw": 0.85, "bus_bw": 0.85, "nwrong": float(wrong)}
        say(text)
        return {**found, "actual_iterations": self.iterations, "experiment_name": ""}

    def foot(self, rows: list[dict[str, Any]], wrong: int) -> None:
        """Print the end of the table and write the file."""
        bad = 2 * len(rows) if wrong else 0
        warning = self.asked.get("warns", "")
        say(f"# {'Out of bounds values':20} : {bad} {'FAILED' if bad else 'OK'}")
        say(f"# {'Avg bus bandwidth':20} : 0.85 ")
        say("#")
        say(f"# Collective test concluded: {NAME}")
        say("#")
        say(f"# error: {warning}" if warning else "")
        if self.report:
            device = {"rank": 0, "group": 0, "pid": os.getpid(), "hostname": HOST, "device": 0}
            device |= {"device_hex": "0000:04:00", "device_info": "NVIDIA Stand-in"}
            sizes = {"minimum_bytes": self.size, "maximum_bytes": self.size, "step_bytes": 1048576}
            often = {"warmup_iters": self.warmup, "iterations": self.iterations, "graph": self.replays}
            self.report.end(
                config={"nthreads": 1, "ngpus": self.gpus, **sizes, **often, "validation": 1, "devices": [device]},
                results=rows,
                out_of_bounds={"count": bad, "okay": "false" if bad else "true"},
                average_bus_bandwidth={"bandwidth": 0.85, "okay": "unchecked"},
                errors=[warning],
                end_time="2026-11-29 18:00:05",
            )
        if wrong:
            fail(8)


if __name__ == "__main__":
    Program(json.loads(os.environ.get("STANDIN", "{}"))).run()
