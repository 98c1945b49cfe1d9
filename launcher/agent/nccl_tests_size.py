"""One size measured by nccl-tests: its command, and whether what came out is what was asked for. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from . import nccl_tests

KEY = "bench.nccl_tests"
#: Of the whole measurement of one size; each gives one time.
CYCLES = 5
#: Replays of a graph in a cycle: at least two, since the first one of a new graph takes longer, and at most so many.
_FEWEST, _MOST = 2, 60
#: What a collective takes about, to choose how often it is replayed: microseconds, and bytes in one of those.
_SHORT, _BYTES_PER_US = 20.0, 10_000.0
#: nccl-tests' names of torch's types.
_TYPES = {"bfloat16": "bfloat16", "float16": "half", "float32": "float"}
#: What is said where there are too few GPUs, or no driver.
_NO_GPU = ("Invalid number of GPUs", "no CUDA-capable device", "driver version is insufficient")
_NO_LIBRARY = "error while loading shared libraries"
_GOOD = "exit code 0"


class Unfit(Exception):  # noqa: N818 - said of the program, and no failure of the measurement
    """What was measured is not what was asked for, or nothing was."""


class Failed(Exception):  # noqa: N818 - likewise
    """The measurement failed; the text is the program's, or empty."""


class Wanted(NamedTuple):
    """What one command is to measure."""

    size: Mapping[str, Any]
    gpus: int
    dtype: str
    replays: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.size['collective']} of {self.size['bytes']} bytes"

    @property
    def short(self) -> str:
        """Name of the program."""
        return nccl_tests.PROGRAMS[self.size["collective"]]

    def command(self, program: str, json_path: str) -> List[str]:
        """Return the command.

        Raises:
            ValueError: the program would measure something else.
        """
        collective, bytes_ = self.size["collective"], self.size["bytes"]
        return nccl_tests.command(
            program, self.gpus, collective, bytes_, self.dtype, self.replays, json_path, cycles=CYCLES
        )


def plan(spec: Mapping[str, Any]) -> List[Wanted]:
    """Return what is to be measured, size by size; the commands are checked.

    Raises:
        ValueError: the program cannot measure that.
    """
    rank, found = spec["rank"], []
    for size in rank["sizes"]:
        one = (_SHORT + size["bytes"] / _BYTES_PER_US) * nccl_tests.ITERATIONS / 1e6
        replays = max(_FEWEST, min(_MOST, int(rank["seconds"] / CYCLES / one)))
        found.append(Wanted(size, spec["world"], _TYPES[rank["dtype"]], replays))
        found[-1].command(spec["nccl_tests"], "")
    return found


def writes_json(program: str, stdout: str) -> bool:
    """Return whether a build knows how to write JSON, as far as this output tells.

    Raises:
        Unfit: it does not know other options either.
    """
    unknown = nccl_tests.usage_lacks(stdout, "G", "N", "J")
    if unknown in (None, ["J"]):
        return unknown is None
    options = " and ".join(f"-{letter}" for letter in unknown or () if letter != "J") or "its options"
    raise Unfit(f"{program} is too old, or another program: it does not know {options}; set {KEY}=PATH")


def read(wanted: Wanted, program: str, ended: str, texts: Mapping[str, str]) -> Dict[str, Any]:
    """Return what a command that came to its end has measured, see `launcher.agent.nccl_tests.read`.

    Args:
        wanted: what was asked for.
        program: its path.
        ended: how it ended, "exit code 0" or otherwise.
        texts: ``stdout``, ``stderr`` and ``json``, which is empty when it wrote none.

    Raises:
        Unfit: it is something else, or nothing.
        Failed: it did not come to its end.
    """
    whole = f"{texts['stdout']}\n{texts['stderr']}"
    as_text = _as_text(whole)
    errors = list(as_text["errors"]) if as_text else []
    try:
        seen = nccl_tests.read(texts["json"]) if texts["json"] else as_text
    except nccl_tests.NcclTestsError as error:
        seen = None
        # One that broke off leaves the file as far as it was.
        errors += [str(error)] if ended == _GOOD else []
    if seen and _came_to_its_end(seen) and (ended == _GOOD or seen["sizes"][0]["wrong"]):
        _check(wanted, seen)
        return seen
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    said = next((line for line in lines if any(words in line for words in _NO_GPU)), "")
    if said:
        raise Unfit(
            f"{wanted.gpus} GPUs are needed (engine.tensor_parallel), {wanted.short} says: {said}: measure where they"
            " are (target=ssh, or target=process there), look at nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    library = next((line for line in lines if _NO_LIBRARY in line), "")
    if library:
        raise Unfit(f"{library}: name its folder in env.LD_LIBRARY_PATH, or set {KEY}=PATH")
    if not as_text and "# nThread" not in whole and not ended.startswith("SIG"):
        last = repr(lines[-1]) if lines else "nothing"
        raise Unfit(f"{program} is no program of nccl-tests ({ended}, it says {last}): set {KEY}=PATH")
    raise Failed(errors[0] if errors else "")


def _as_text(whole: str) -> Optional[Dict[str, Any]]:
    try:
        return nccl_tests.read_text(whole)
    except nccl_tests.NcclTestsError:
        return None


def _came_to_its_end(seen: Mapping[str, Any]) -> bool:
    return seen["out_of_bounds"] is not None and len(seen["sizes"]) == 1


def _check(wanted: Wanted, seen: Mapping[str, Any]) -> None:
    """Refuse numbers of something else than what was asked for: a build leaves out what it does not know.

    Raises:
        Unfit: they are.
    """
    size = seen["sizes"][0]
    expected = {
        "type": (seen["dtype"], wanted.dtype),
        "bytes": (size["bytes"], wanted.size["bytes"]),
        "replays of a graph": (seen["graph"], wanted.replays),
        "collectives in a graph": (seen["iterations"], nccl_tests.ITERATIONS),
        "ranks": (seen["ranks"], wanted.gpus),
        "cycles": ((len(size["us"]), len(size["us_out_of_place"])), (CYCLES, CYCLES)),
    }
    other = [f"{name}: {is_}, not {was}" for name, (is_, was) in expected.items() if is_ != was]
    if other:
        raise Unfit(f"this build of {wanted.short} measures something else ({'; '.join(other)}): set {KEY}=PATH")
    if size["wrong"] is None:
        raise Unfit(f"this build of {wanted.short} does not count wrong numbers: set {KEY}=PATH")
