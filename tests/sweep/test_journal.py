"""The journal of a sweep: what is written comes back, whatever happens in between."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import ConfigError, LaunchError
from launcher.sweep import journal
from launcher.sweep.plain import UnfitError, from_plain, to_plain
from launcher.sweep.record import Point, Reading, Settings, Sweep, Trial, Verdict
from tests.sweep import cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return journal.create(tmp_path, cases.sweep())


def fill(folder: Path, number: int = 3) -> list[Trial]:
    trials = [cases.trial(cases.BASELINE, n, [cases.reading(cases.DECODE, 20.0 + n)]) for n in range(1, number + 1)]
    for trial in trials:
        journal.append(folder, trial)
    return trials


@pytest.mark.parametrize("case", [cases.usual, cases.only_failures, cases.large])
def test_a_sweep_comes_back(case: Callable[[], tuple[Sweep, Any]], tmp_path: Path) -> None:
    sweep, _ = case()
    folder = journal.create(tmp_path / "new" / "out", replace(sweep, trials=()))
    assert journal.load(folder) == replace(sweep, trials=())
    for trial in sweep.trials:
        journal.append(folder, trial)
    assert journal.load(folder) == sweep
    assert folder == tmp_path / "new" / "out" / sweep.id
    for name in (journal.PLAN, journal.JOURNAL):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o644
    assert not list(folder.glob(".launch-*"))


def test_trials_that_are_there_already_are_kept(tmp_path: Path) -> None:
    sweep, _ = cases.usual()
    assert journal.load(journal.create(tmp_path, sweep)) == sweep


def test_a_folder_that_exists_is_refused(folder: Path) -> None:
    trials = fill(folder)
    with pytest.raises(LaunchError, match=r"exists already.*new id"):
        journal.create(folder.parent, cases.sweep())
    assert journal.load(folder).trials == tuple(trials)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\0b"])
def test_an_id_that_names_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="id"):
        journal.create(tmp_path, cases.sweep(id=name))


def test_every_character_and_number_comes_back(folder: Path) -> None:
    odd = 'two\nlines "\\ \u2028 \0 µ \udcff {"'
    trial = cases.trial(
        cases.BASELINE, 1, [Reading("decode-1", math.inf, -math.inf, 0.1 + 0.2, (odd,), {odd: [odd, None, 1.5, True]})],
        message=odd, evidence=(odd, odd), proof={odd: {odd: odd}}, facts={"a": {"b": 1}},
    )  # fmt: skip
    journal.append(folder, trial)
    assert journal.load(folder).trials == (trial,)
    assert (folder / journal.JOURNAL).read_bytes().count(b"\n") == 1
    for line in (folder / journal.JOURNAL).read_text("ascii").splitlines():
        json.loads(line, parse_constant=pytest.fail)


texts = st.text(st.characters(codec=None), max_size=20)
numbers = st.floats(allow_nan=False)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(texts, anything, max_size=3)
strings = st.lists(texts, max_size=3).map(tuple)


@given(
    st.builds(
        Trial, texts, st.integers(), numbers, numbers,
        st.lists(st.builds(Reading, texts, numbers, numbers, numbers, strings, mappings), max_size=2).map(tuple),
        texts, texts, strings, st.dictionaries(texts, st.dictionaries(texts, texts, max_size=2), max_size=2), mappings,
    )
)  # fmt: skip
def test_any_trial_survives_json(trial: Trial) -> None:
    line = json.dumps(to_plain(trial), allow_nan=False)
    assert "\n" not in line
    assert from_plain(Trial, json.loads(line)) == trial


def test_what_json_lacks_is_not_lost() -> None:
    trial = cases.trial(cases.BASELINE, 1, facts={"path": os, "set": {1}, "pair": (1, math.nan)})
    facts = json.loads(json.dumps(to_plain(trial), allow_nan=False))["facts"]
    assert facts["set"] == "{1}"
    assert facts["pair"] == [1, "nan"]
    assert "module" in facts["path"]


@pytest.mark.parametrize(
    ("cls", "data", "told"),
    [
        (Point, {"label": "x"}, "digest is missing"),
        (Point, [], "it is [], not names with values"),
        (Point, {"digest": 1, "label": "x"}, "digest is 1, not a text"),
        (Point, {"digest": "d", "label": "x", "choices": {"a": 1}}, "choices.a is 1, not a text"),
        (Point, {"digest": "d", "label": "x", "aliases": "abc"}, "aliases is 'abc', not a list"),
        (Point, {"digest": "d", "label": "x", "aliases": ["a", None]}, "aliases[1] is None, not a text"),
        (Settings, {"repeats": True}, "repeats is True, not a whole number"),
        (Settings, {"effect": "much"}, "effect is 'much', not a number"),
        (Verdict, {"point": "p", "workload": "w", "word": "fine"}, "word is 'fine', which is none of 'better'"),
    ],
)
def test_data_that_does_not_fit_is_told(cls: type, data: Any, told: str) -> None:
    with pytest.raises(UnfitError) as caught:
        from_plain(cls, data)
    assert told in str(caught.value)


def test_unknown_keys_are_passed_over_and_new_ones_have_their_defaults() -> None:
    assert from_plain(Settings, {"effect": 1, "from_the_future": {}}) == Settings(effect=1.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "sweep.json: broken JSON"),
        ("[]", "no version"),
        ("{}", "no version"),
        ('{"version": 5}', r"newer launch wrote this \(version 5, this one reads 4\); update"),
        ('{"version": 1}', "sweep.json: name is missing"),
        ('{"version": 1,\n "name": 1,}', "line 2, column"),
        ("\xff", "sweep.json: broken JSON"),
        ("[" * 100000, "sweep.json: broken JSON"),
    ],
)
def test_a_broken_plan_is_told(text: str, told: str, folder: Path) -> None:
    (folder / journal.PLAN).write_text(text, encoding="latin-1")
    with pytest.raises(LaunchError, match=told):
        journal.load(folder)


def test_a_plan_without_points_is_told(folder: Path) -> None:
    plan = json.loads((folder / journal.PLAN).read_text())
    (folder / journal.PLAN).write_text(json.dumps({**plan, "points": []}))
    with pytest.raises(LaunchError, match="points is empty"):
        journal.load(folder)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{broken}", r"journal\.jsonl:2: broken JSON: column 2"),
        (b"", r"journal\.jsonl:2: broken JSON"),
        (b"\xff", r"journal\.jsonl:2: broken JSON"),
        (b'{"point": "b"}', r"journal\.jsonl:2: order is missing"),
        (b'{"point": "other", "order": 1, "at": 1, "seconds": 1}', r":2: point is 'other', which sweep.json does not"),
    ],
)
def test_a_broken_line_is_told_with_its_number(line: bytes, told: str, folder: Path) -> None:
    fill(folder)
    path = folder / journal.JOURNAL
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, line + b"\n", *rest]))
    with pytest.raises(LaunchError, match=told):
        journal.load(folder)


@pytest.mark.parametrize("cut", [1, 40, 200])
@pytest.mark.parametrize("after", [b"", b"\0" * 100000])
def test_a_torn_line_is_told_and_cut_off(cut: int, after: bytes, folder: Path) -> None:
    trials, path = fill(folder), folder / journal.JOURNAL
    content = path.read_bytes()
    torn = content.splitlines()[-1][:cut] + after
    path.write_bytes(content + torn)
    told: list[str] = []
    assert journal.load(folder, told.append).trials == tuple(trials)
    assert path.read_bytes() == content + torn  # reading changes nothing
    journal.append(folder, replace(trials[0], order=4), told.append)
    assert [f"torn ({len(torn)} bytes" in one for one in told] == [True, True]
    assert ["passed over" in told[0], "cut off" in told[1]] == [True, True]
    assert journal.load(folder, told.append).trials == (*trials, replace(trials[0], order=4))
    assert len(told) == 2


def test_a_line_that_lacks_only_its_end_is_kept(folder: Path) -> None:
    trials, path = fill(folder), folder / journal.JOURNAL
    path.write_bytes(path.read_bytes()[:-1])
    assert journal.load(folder, pytest.fail).trials == tuple(trials)
    journal.append(folder, replace(trials[0], order=4), pytest.fail)
    assert [trial.order for trial in journal.load(folder, pytest.fail).trials] == [1, 2, 3, 4]


def _many(folder: Path, begin: int) -> None:
    for n in range(begin, begin + 25):
        journal.append(folder, cases.trial(cases.BASELINE, n, message=f"{n} " * 20000))


def test_several_processes_append_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_many, args=(folder, begin)) for begin in (0, 100, 200)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        for trial in journal.load(folder, pytest.fail).trials:
            assert trial.message == f"{trial.order} " * 20000
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    orders = [trial.order for trial in journal.load(folder).trials]
    assert sorted(orders) == [n for begin in (0, 100, 200) for n in range(begin, begin + 25)]
    for begin in (0, 100, 200):
        assert [n for n in orders if begin <= n < begin + 25] == list(range(begin, begin + 25))


def test_short_writes_make_whole_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    assert journal.load(folder).trials == ()
    trials = fill(folder)
    assert journal.load(folder, pytest.fail).trials == tuple(trials)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_write_loses_nothing(call: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, write = fill(folder), os.write
    written: list[object] = []

    def full(descriptor: int, *data: bytes) -> int:
        if data and not written:
            written.append(data)
            return write(descriptor, data[0][:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(LaunchError, match=r"journal\.jsonl: No space left on device; trial 4 is not recorded"):
            journal.append(folder, replace(trials[0], order=4))
    assert journal.load(folder, pytest.fail).trials == tuple(trials)
    journal.append(folder, replace(trials[0], order=4), pytest.fail)
    assert len(journal.load(folder).trials) == 4


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("may not mount a small file system here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(small: Path) -> None:
    folder = journal.create(small, cases.sweep())
    trials = fill(folder)
    with pytest.raises(LaunchError, match="No space left"):
        journal.append(folder, replace(trials[0], order=4, message="x" * 100000))
    assert journal.load(folder, pytest.fail).trials == tuple(trials)
    journal.append(folder, replace(trials[0], order=4), pytest.fail)
    with pytest.raises(LaunchError, match="No space left"):
        journal.create(small, cases.sweep(id="other", command="x" * 100000))
    assert journal.latest(small) == folder
    assert [path.name for path in small.iterdir()] == [folder.name]


def test_a_folder_that_is_gone_is_not_made_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(LaunchError, match=r"No such file or directory; trial 1 is not recorded"):
        fill(folder)
    with pytest.raises(LaunchError, match=r"sweep\.json: No such file"):
        journal.load(folder)
    assert not folder.exists()


def test_no_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LaunchError, match=r"journal\.jsonl: Permission denied; trial 1 is not recorded"):
        fill(folder)


def test_no_place_for_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match=r"file.*no sweep is begun"):
        journal.create(tmp_path / "file", cases.sweep())


def test_the_latest(tmp_path: Path) -> None:
    assert journal.latest(tmp_path / "none") is None
    assert journal.latest(tmp_path) is None
    for name in ("20261130-021500-b", "20261201-000000-a", "20261130-021500-c"):
        journal.create(tmp_path, cases.sweep(id=name))
    (tmp_path / "20270101-000000-unfinished").mkdir()
    (tmp_path / "20280101-a-file").write_text("")
    assert journal.latest(tmp_path) == tmp_path / "20261201-000000-a"
