"""Measure collectives through torch: let the ranks of one start measure, and judge what they said."""

from __future__ import annotations

import contextlib
import subprocess
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .comm_process import Emit, Gone, answer, code, never, not_started
from .comm_ranks import DONE, FIRST, IMPORT, Rank, Ranks


def run(spec: Mapping[str, Any], emit: Emit, ahead: "Optional[Ranks]" = None, gone: Gone = never) -> Dict[str, Any]:
    """Measure once.

    Args:
        spec: ``python`` (the engine's), ``program`` (text of `comm_rank`), ``env`` (whole), ``cwd``, ``user`` (empty:
            this one), ``world`` (ranks), ``deadline`` (seconds without a sign of life), and ``rank``, what the ranks
            get: ``backend`` ("nccl" or "gloo"), ``dtype`` (torch's name), ``sizes`` (each ``collective``, ``count``
            in a step, ``elements`` a rank, ``bytes``), ``seconds`` for each size, ``fewest_replays``,
            ``most_replays``, ``deadline``.
        emit: told what is being measured.
        ahead: ranks of this specification that were started before.
        gone: whether nobody waits for the answer any more; asked several times a second.

    Returns:
        ``outcome`` ("measured", "failed", "hung" or "lacking"), ``message``, ``rows`` (``us`` per collective, one
        number a replay; ``wrong`` numbers, ``wrong_ranks`` that have some; ``graph``: collectives
        in a replay), ``versions``,
        ``ranks`` (exit code and last phase), ``lines`` by rank, ``environment`` (how that of a rank differs),
        ``phases`` (of the first rank, with the seconds after which each began), and ``gpus`` (a line of nvidia-smi for
        each, read meanwhile).

    Raises:
        Abandoned: nobody waits for the answer any more; the ranks are gone too.
    """
    try:
        with _started(spec, ahead) as ranks:
            spoke = ranks.measure(emit, gone)
            gpus = ranks.gpus()
    except (OSError, subprocess.SubprocessError) as error:
        return answer("lacking", not_started(spec, spec["python"], "engine.python", error), {})
    found: Dict[str, Any] = {
        "ranks": [{"rank": r.number, "exit": code(r.process), "phase": r.phase} for r in ranks.ranks],
        "lines": [r.lines.kept for r in ranks.ranks],
        "environment": [f"rank {r.number}: {text}" for r in ranks.ranks for text in r.environment],
        "gpus": gpus,
        "phases": ranks.ranks[0].phases,
        "versions": next((s["versions"] for r in ranks.ranks for s in r.said if "versions" in s), {}),
    }
    lacking = next((s for r in ranks.ranks for s in r.said if "lacking" in s), None)
    if lacking:
        return answer("lacking", _lacking(spec, lacking), found)
    if not spoke:
        return answer("hung", _hung(spec, ranks.ranks), found)
    failed = [r for r in ranks.ranks if r.failed]
    if failed:
        # Of those that went together the one that a signal ended took the others with it.
        first = min(failed, key=lambda rank: (rank.gone_at or time.monotonic(), _status(rank) >= 0))
        if first.phase in (FIRST, IMPORT):
            said = next((line.strip() for line in reversed(first.lines.kept) if line.strip()), code(first.process))
            return answer("lacking", f"{spec['python']} cannot import torch: {said}; set engine.python=PATH", found)
        return answer("failed", f"rank {first.number} ended with {code(first.process)} in: {first.phase}", found)
    return {**answer("measured", "", found), "rows": _rows(spec["rank"]["sizes"], ranks.ranks)}


@contextlib.contextmanager
def _started(spec: Mapping[str, Any], ahead: "Optional[Ranks]") -> Iterator[Ranks]:
    if ahead is None:
        with Ranks(spec) as ranks:
            yield ranks
        return
    try:
        yield ahead
    finally:
        ahead.stop()


def _lacking(spec: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    return (
        f"{spec['world']} GPUs are needed (engine.tensor_parallel), torch in {spec['python']} sees {said['seen']}:"
        " measure where they are (target=ssh, or target=process there), look at nvidia-smi and CUDA_VISIBLE_DEVICES,"
        " or try the way without GPUs: bench.backend=gloo"
    )


def _hung(spec: Mapping[str, Any], ranks: List[Rank]) -> str:
    """Say which rank is where: one that lags behind the others is the one to look at."""
    phases: Dict[str, List[str]] = {}
    for rank in ranks:
        if rank.phase != DONE:
            phases.setdefault(rank.phase, []).append(str(rank.number))
    told = "; ".join(f"rank {', '.join(numbers)} in: {phase}" for phase, numbers in phases.items())
    return f"no sign of life for {spec['deadline']:g} s: {told}"


def _rows(sizes: List[Dict[str, Any]], ranks: List[Rank]) -> List[Dict[str, Any]]:
    """Join what the ranks measured: a replay took as long as the rank says that began it last.

    The others count their waiting for it as well, some ten microseconds a graph.
    """
    rows = []
    for index, size in enumerate(sizes):
        by_rank = {r.number: s for r in ranks for s in r.said if s.get("measured") == index}
        said = list(by_rank.values())
        us = [min(values) for values in zip(*(s["us"] for s in said))]
        wrong = {number: s["wrong"] for number, s in by_rank.items() if s["wrong"]}
        counted = {"wrong": sum(wrong.values()), "wrong_ranks": list(wrong)}
        rows.append({**size, "us": us, **counted, "graph": said[0]["graph"]})
    return rows


def _status(rank: Rank) -> int:
    code = rank.process.returncode if rank.process else None
    return 0 if code is None else code
