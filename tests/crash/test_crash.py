"""Power cuts at every system call of a change: what each one may leave on disk, and what that boots.

See docs/transactions-crash.md. The recordings are made anew by `python -m tests.crash.trace`.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.crash import judge, model, trace
from tests.crash.place import digests, place, sample
from tests.system.tool import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fleet import FleetHost
    from tests.system.tool import Launch

#: Faults that are known and not mended yet, by case: what differs.
LEFT: dict[str, set[tuple[str, ...]]] = {}
FOLDER = '1 mkdir("/etc/launch", 0777) = 0'
NEW = '1 openat(AT_FDCWD</>, "/etc/launch/.t", O_RDWR|O_CREAT|O_EXCL, 0600) = 3</etc/launch/.t>'
WRITE = '1 write(3</etc/launch/.t>, "one\\n", 4) = 4'
SYNC = "1 fsync(3</etc/launch/.t>) = 0"
RENAME = '1 rename("/etc/launch/.t", "/etc/launch/a") = 0'
SYNC_FOLDER = "1 fsync(3</etc/launch>) = 0"
SYNC_ETC = "1 fsync(3</etc>) = 0"


def left(model_name: str, *lines: str) -> set[str]:
    """Return what a cut after these calls may leave of /etc/launch/a."""
    cuts = model.cuts({}, model.parse(lines), model_name)
    found = {cut.tree.get("/etc/launch/a", ("", b"absent"))[1] for cut in cuts if cut.after == len(lines)}
    return {content.decode() for content in found}


@pytest.mark.parametrize("name", model.MODELS)
def test_only_a_synced_file_in_a_synced_folder_is_sure(name: str) -> None:
    assert left(name, FOLDER, SYNC_ETC, NEW, WRITE, SYNC, RENAME) == {"absent", "one\n"}
    assert left(name, FOLDER, SYNC_ETC, NEW, WRITE, SYNC, RENAME, SYNC_FOLDER) == {"one\n"}


@pytest.mark.parametrize("name", model.MODELS)
def test_a_rename_without_a_sync_of_the_file_may_leave_it_empty_or_torn(name: str) -> None:
    assert left(name, FOLDER, SYNC_ETC, NEW, WRITE, RENAME, SYNC_FOLDER) == {"", "on", "one\n"}


def test_a_journal_keeps_what_came_before_a_sync_and_posix_does_not() -> None:
    lines = (FOLDER, NEW, WRITE, SYNC, RENAME, SYNC_FOLDER)
    assert left("journal", *lines) == {"one\n"}
    assert left("folders", *lines) == {"absent", "one\n"}


def test_folders_reach_the_disk_independently_and_names_of_one_in_order() -> None:
    lines = [
        '1 mkdir("/etc/launch", 0777) = 0',
        '1 mkdir("/usr/local/lib/launch", 0777) = 0',
        SYNC_ETC,
        "1 fsync(3</usr/local/lib>) = 0",
        *(f'1 symlink("x", "{folder}/{n}") = 0' for n in (1, 2) for folder in ("/etc/launch", "/usr/local/lib/launch")),
    ]
    counts = {}
    for name in model.MODELS:
        cuts = [cut for cut in model.cuts({}, model.parse(lines), name) if cut.after == len(lines)]
        counts[name] = len({frozenset(cut.tree) for cut in cuts})
    assert counts == {"journal": 5, "folders": 9, "any": 16}


def test_calls_that_another_process_interrupts_are_put_together() -> None:
    lines = [
        '1 mkdir("/etc/launch", 0777) = 0',
        '1 rename("/etc/launch", <unfinished ...>',
        '2 unlink("/etc/launch/gone") = -1 ENOENT (No such file or directory)',
        '1 <... rename resumed>"/etc/launch2") = 0',
        '2 unlinkat(5</etc/launch/x>, "name", 0) = 0',
        '2 mkdir("/var/x", 0777) = 0',
    ]
    ops = [(op.kind, op.path, op.data) for op in model.parse(lines)]
    assert ops == [
        ("mkdir", "/etc/launch", b""),
        ("rename", "/etc/launch", b"/etc/launch2"),
        ("unlink", "/etc/launch/x/name", b""),
    ]


def test_a_call_that_the_model_does_not_know_is_no_silence() -> None:
    with pytest.raises(ValueError, match="does not know"):
        model.parse(['1 pwrite64(3</etc/launch/a>, "x", 1, 0) = 1'])


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    """Return a new empty folder at each call."""
    numbers = itertools.count()

    def new() -> Path:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        return path

    return new


@pytest.mark.parametrize("case", trace.CASES)
@pytest.mark.parametrize("name", model.MODELS)
def test_every_cut_of_a_recorded_change_boots_the_old_or_the_new(
    name: str, case: str, folders: Callable[[], Path]
) -> None:
    about, before, lines = trace.read(case)
    assert re.match(r"recorded \d{4}-\d\d-\d\d; systemd \d+", about)
    ops = model.parse(lines)
    one = judge.Judge(before, model.final(before, ops), folders)
    faults = list(judge.faults(one, ops, model.cuts(before, ops, name)))
    assert {fault.verdict.differs for fault in faults} == LEFT.get(case, set()), faults[:1]
    assert one.distinct > 30


@pytest.mark.parametrize("case", trace.CASES)
def test_a_recovery_that_is_cut_short_is_done_again(case: str, folders: Callable[[], Path]) -> None:
    _, before, lines = trace.read(case)
    ops = model.parse(lines)
    whole = before, model.final(before, ops)
    one, steps = judge.Judge(*whole, folders), 0
    armed = [cut.tree for cut in model.cuts(before, ops, "journal") if judge.MARKER in cut.tree]
    for tree in (armed[-1], armed[len(armed) // 2]):
        for again in judge.interrupted(tree, whole, folders):
            steps += 1
            assert one.judge(again).what == "old", steps
    assert steps > 3


#: Each of these syncs counts (or the first of its kind): without it some cut boots what it must not.
NEEDED = {
    "the marker": (r"fsync\(\d</etc/launch/pending/\.launch.*", "journal", "second"),
    "the unit": (r"fsync\(\d</etc/systemd/system/\.launch.*", "journal", "second"),
    "the folder of the marker": (r"fsync\(\d</etc/launch>.*", "folders", "first"),
    "the agent's folder": (r"fsync\(\d</usr/local/lib>.*", "folders", "first"),
    "the links": (r"fsync\(\d</etc/systemd/system/.*\.wants>.*", "folders", "first"),
    "the environment file": (r"fsync\(\d</etc/launch/kimi_k2_5_int4/\.launch.*", "folders", "second"),
}


@pytest.mark.parametrize(("pattern", "name", "case"), NEEDED.values(), ids=NEEDED.keys())
def test_without_a_sync_the_judge_finds_a_fault(
    pattern: str, name: str, case: str, folders: Callable[[], Path]
) -> None:
    _, before, lines = trace.read(case)
    ops = model.parse(lines)
    found = [op for op in ops if re.search(pattern, op.line)]
    for op in found[:1] if ".launch" in pattern else found:  # unsynced data multiply the states
        ops.remove(op)
    one = judge.Judge(before, model.final(before, ops), folders)
    assert any(judge.faults(one, ops, model.cuts(before, ops, name)))


@pytest.mark.fleet
@pytest.mark.soak
def test_cuts_recorded_anew_boot_the_old_or_the_new(
    launch: Launch, host: FleetHost, folders: Callable[[], Path]
) -> None:
    recordings = list(trace.record_all(host, launch))
    booted = 0
    for case, before, lines in recordings:
        ops = model.parse(lines)
        after = model.final(before, ops)
        one = judge.Judge(before, after, folders)
        faults = list(judge.faults(one, ops, model.cuts(before, ops, "any")))
        assert {fault.verdict.differs for fault in faults} == LEFT.get(case, set()), case
        for tree in sample(before, ops):
            verdict = one.judge(tree)
            if verdict.differs in LEFT.get(case, set()):
                continue
            host.power_cut()
            place(tree, host.root)
            host.boot()
            wanted = digests({"old": before, "nothing": before, "new": after}[verdict.what])
            found = {"unit": host.run(f"cat {judge.UNITS}/{UNIT} || true").stdout, "runs": running(host)}
            assert found == wanted, (case, verdict, json.dumps(found))
            booted += 1
            print(f"{case}: {booted} booted, {verdict.what}")
    assert booted > 10


def running(host: FleetHost) -> str:
    """Return the release that the server's processes carry once its start is over, or their command, or ""."""
    return host.run(RUNNING, timeout=60).stdout.strip()


RUNNING = f"""
unit={UNIT}
for i in $(seq 200); do
    state=$(systemctl show -P ActiveState $unit)
    [ "$state" = activating ] || [ "$(systemctl show -P Job $unit)" -gt 0 ] 2>/dev/null || break
    sleep 0.1
done
cgroup=/sys/fs/cgroup$(systemctl show -P ControlGroup $unit)
[ "$state" = active ] || exit 0
for pid in $(cat "$cgroup/cgroup.procs"); do
    tr '\\0' '\\n' < /proc/$pid/environ | grep '^LAUNCH_DIGEST=' || tr '\\0' ' ' < /proc/$pid/cmdline
done | sort -u
"""
