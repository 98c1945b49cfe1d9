"""What Slurm says of jobs, in squeue's words, and what that means for a sweep. Pure.

squeue and not sacct, which answers only where the cluster keeps accounts: without, submitit knows of no job that ended
by the hand of Slurm (state UNKNOWN for good; tried with 1.5.4 on Slurm 22.05). squeue tells of a job until MinJobAge
(300 s) after its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: For squeue: id, name, state, reason, nodes.
FORMAT = "%i|%j|%T|%r|%N"
#: Of a job that Slurm does not know any more, or never did.
GONE = "GONE"
#: Ends; every other state is one that goes on.
_ENDS = frozenset(
    (
        *("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "CANCELLED", "BOOT_FAIL"),
        *("DEADLINE", "REVOKED", "SPECIAL_EXIT", GONE),
    )
)
#: The machine's fault or another job's: worth one more try; and those where that one goes elsewhere.
AGAIN, ELSEWHERE = frozenset(("NODE_FAIL", "BOOT_FAIL", "PREEMPTED")), frozenset(("NODE_FAIL", "BOOT_FAIL"))
_ADVICE = {
    "TIMEOUT": "the job's time was over: raise slurm.minutes, or let more jobs share the points (slurm.jobs)",
    "DEADLINE": "the job's time was over: look at --deadline in slurm.extra",
    "OUT_OF_MEMORY": "more memory than the job may take: slurm.extra=['--mem=…'], or slurm.cpus=0 for the whole node",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not start",
    "PREEMPTED": "another job took its place",
    "CANCELLED": "somebody ended it",
    "FAILED": "launch itself did not get through there; the log says why",
    GONE: "Slurm does not know it any more, and it did not say how it ended",
}


@dataclass(frozen=True)
class State:
    """A job as Slurm sees it.

    Attributes:
        word: Slurm's own, such as RUNNING.
        reason: why it waits, or ended; empty where Slurm says none.
        node: where it runs or ran.
        name: of the job.
    """

    word: str
    reason: str = ""
    node: str = ""
    name: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.word in _ENDS

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def read(text: str) -> dict[str, State]:
    """Return the states in an answer of squeue, by id."""
    found = {}
    for line in text.splitlines():
        id_, _, rest = line.strip().partition("|")
        # A name may hold the sign; the other three do not.
        name, word, reason, node = rest.rsplit("|", 3) if rest.count("|") >= 3 else ("", "", "", "")
        if word:
            found[id_] = State(word, "" if reason in ("None", "(null)") else reason, node, name)
    return found


def advice(word: str) -> str:
    """Return what an end means, and what to do."""
    return _ADVICE.get(word, "see the log")


def summary(states: Iterable[State]) -> str:
    """Return how many jobs are in which state, and why some wait: "2 RUNNING, 3 PENDING (Priority)"."""
    counts: dict[str, int] = {}
    for state in states:
        text = str(state) if state.word == "PENDING" else state.word
        counts[text] = counts.get(text, 0) + 1
    return ", ".join(f"{count} {text}" for text, count in counts.items())
