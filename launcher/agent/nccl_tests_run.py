"""Measure collectives with NVIDIA's nccl-tests instead of torch: one command a size, one process for all ranks.

Runs where `launcher.agent.comm` runs, and answers in the same form. What differs: the ranks are threads of one process,
which lets NCCL reach a neighbour's memory by its address where an engine's ranks, one process each, need CUDA's IPC or
shared memory; a time is the mean of one cycle, of which there are five; which rank got wrong numbers is not told; and
NCCL is the one that the program finds, not the one in the engine's packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from . import nccl_tests
from .comm_process import Emit, Gone, Smi, answer, code, never, not_started, user
from .nccl_tests_process import MEASURE, Command
from .nccl_tests_size import KEY, Failed, Unfit, Wanted, plan, read, writes_json


class _Hung(Exception):  # noqa: N818 - a state, and no failure of ours
    """The program says nothing any more."""


def run(spec: Mapping[str, Any], emit: Emit, gone: Gone = never) -> Dict[str, Any]:
    """Measure once; see `launcher.agent.comm.run`.

    Args:
        spec: with ``nccl_tests``: folder of the programs, or path of one. ``python`` and ``program`` are not used.
        emit: told what is being measured.
        gone: whether nobody waits for the answer any more; asked several times a second.

    Returns:
        The same, with one process in place of the ranks: ``ranks`` has one entry, ``lines`` one for each command,
        ``us`` one number a cycle, ``wrong_ranks`` none.

    Raises:
        Abandoned: nobody waits for the answer any more; the program is gone too.
    """
    try:
        sizes = plan(spec)
    except ValueError as error:
        return answer("lacking", f"{KEY}={spec['nccl_tests']}: {error}", {})
    measurement = _Measurement(spec, emit, gone)
    try:
        for size in sizes:
            measurement.measure(size)
        return measurement.answer("measured", "")
    except Unfit as unfit:
        return measurement.answer("lacking", str(unfit))
    except Failed as failed:
        return measurement.answer("failed", str(failed))
    except _Hung as hung:
        return measurement.answer("hung", str(hung))
    finally:
        measurement.end()


class _Measurement:
    """What the commands of one measurement have brought so far."""

    def __init__(self, spec: Mapping[str, Any], emit: Emit, gone: Gone) -> None:
        self._spec, self._emit, self._gone = spec, emit, gone
        self._since, self._smi = time.monotonic(), Smi()
        self._phases: List[Tuple[str, float]] = []
        self._lines: List[List[str]] = []
        self._environment: Set[str] = set()
        self._rows: List[Dict[str, Any]] = []
        self._versions: Dict[str, Any] = {"nccl-tests": "of unknown version"}
        self._exit = "not started"
        #: Whether the program writes JSON, as far as is known.
        self._json = True

    def _begins(self, phase: str) -> None:
        if not self._phases or self._phases[-1][0] != phase:
            self._phases.append((phase, round(time.monotonic() - self._since, 2)))
            if phase.startswith(MEASURE):
                self._emit(phase)
                self._smi.begin()

    def answer(self, outcome: str, message: str) -> Dict[str, Any]:
        """Return the answer."""
        if outcome == "measured":
            self._begins("done")
        found = {
            "rows": self._rows if outcome == "measured" else [],
            "ranks": [{"rank": 0, "exit": self._exit, "phase": self._phases[-1][0] if self._phases else ""}],
            "lines": self._lines,
            "environment": sorted(self._environment),
            "gpus": self._smi.lines(),
            "phases": self._phases,
            "versions": self._versions,
        }
        return answer(outcome, message, found)

    def end(self) -> None:
        """End what runs beside."""
        self._smi.end()

    def measure(self, wanted: Wanted) -> None:
        """Measure one size.

        Raises:
            Unfit: the program is none that can measure it.
            Failed: it did not come to its end.
            _Hung: it is silent.
        """
        seen = self._ask(wanted)
        if seen is None:  # a build from before JSON; the others of this measurement will be of the same
            self._json = False
            seen = self._ask(wanted)
        assert seen is not None  # noqa: S101 - None says that JSON is not known
        size = seen["sizes"][0]
        # Every engine's all-gather, and torch's, writes into another place.
        us = size["us_out_of_place"] if wanted.size["collective"] == "all_gather" else size["us"]
        counted = {"us": us, "wrong": size["wrong"], "wrong_ranks": [], "graph": seen["iterations"]}
        self._rows.append({**wanted.size, **counted})
        self._versions.update({name: seen[name] for name in ("nccl", "gpu") if seen[name]})

    def _ask(self, wanted: Wanted) -> Optional[Dict[str, Any]]:
        """Run a command and return what it says; None where it does not know how to write JSON."""
        self._begins(f"start {wanted.name}")
        try:
            folder = tempfile.mkdtemp(prefix="launch-nccl-tests-")
        except OSError as error:
            raise Unfit(f"nothing can be written where temporary files lie: {error}") from error
        try:
            who = user(self._spec["user"])
            if who:
                os.chown(folder, who.pw_uid, who.pw_gid)
            argv = wanted.command(self._spec["nccl_tests"], os.path.join(folder, "answer.json") if self._json else "")
            try:
                started = self._command(wanted, argv, folder).start()
            except (OSError, subprocess.SubprocessError) as error:
                raise Unfit(not_started(self._spec, argv[0], KEY, error)) from error
            with started as command:
                command.listen()
            return self._heard(wanted, argv[0], command)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _command(self, wanted: Wanted, argv: List[str], folder: str) -> Command:
        return Command(self._spec, argv, folder, lambda kind: self._begins(f"{kind} {wanted.name}"), self._gone)

    def _heard(self, wanted: Wanted, program: str, command: Command) -> Optional[Dict[str, Any]]:
        self._lines.append(command.lines.kept)
        self._environment.update(f"{wanted.short}: {text}" for text in command.environment)
        self._exit = "SIGKILL" if command.hung else code(command.process)
        if command.hung:
            raise _Hung(f"{command.hung}: {wanted.short} in: {self._phases[-1][0]}")
        self._versions["nccl-tests"] = nccl_tests.release(command.stdout)
        if not writes_json(program, command.stdout) and self._json:
            return None
        texts = {"stdout": command.stdout, "stderr": command.stderr, "json": command.json}
        try:
            return read(wanted, program, self._exit, texts)
        except Failed as failed:
            why = f": {failed}" if str(failed) else ""
            raise Failed(f"{wanted.short} ended with {self._exit} in: {self._phases[-1][0]}{why}") from failed
