"""The corpus of real-world starts: read as a real shell, docker compose and systemd start them."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from launcher.adopt.read import read
from tests.adopt import more_recorders, recorder
from tests.adopt.compare import differences
from tests.adopt.corpus import CORPUS, Case, cases, exceptions
from tests.fleet import Fleet

CASES = cases()
README = (CORPUS / "README.md").read_text()


def by_how(*how: str) -> list[object]:
    return [pytest.param(case, id=case.name) for case in CASES if case.how in how]


@pytest.fixture(scope="module")
def sandbox() -> None:
    reason = recorder.obstacle()
    if reason and os.environ.get("LAUNCH_REQUIRE_FLEET") == "1":
        pytest.fail(f"LAUNCH_REQUIRE_FLEET=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("case", by_how("shell"))
def test_shell_does_what_is_stored(case: Case) -> None:
    assert recorder.record_again(case) == case.expected()


@pytest.mark.parametrize("case", by_how("hand"))
def test_hand_is_what_is_stored(case: Case) -> None:
    assert recorder.record_again(case) == case.expected()


@pytest.mark.parametrize("case", by_how("compose"))
def test_compose_does_what_is_stored(case: Case) -> None:
    tool = more_recorders.compose_tool()
    if tool is None:
        pytest.skip("docker-compose is not installed")
    assert more_recorders.record_compose(case, tool) == case.expected()


@pytest.mark.fleet
def test_systemd_does_what_is_stored() -> None:
    wrong = {}
    with Fleet.boot(1) as fleet:
        for case in CASES:
            if case.how == "unit" and (seen := more_recorders.record_unit(case, fleet.hosts[0])) != case.expected():
                wrong[case.name] = seen
    assert wrong == {}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_read(case: Case) -> None:
    wrong = differences(case, read(case.text(), case.input.name, case.folder))
    if case.name in exceptions():
        assert wrong, f"{case.name} is read right: take it out of the table of exceptions in README.md"
    else:
        assert wrong == []


def in_markdown(text: str) -> str:
    """The text as somebody would keep it in notes."""
    return f'# Notes\n\nIt\'s "good":\n\n````bash\n{text.rstrip()}\n````\n\nThen look at the log.\n'


CLOTHES = {
    "crlf": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "no last line end": lambda text: text.rstrip("\n"),
    "other commands around": lambda text: ("" if text.startswith("#!") else "ls -la /srv\n") + text + "\nnvidia-smi\n",
    "markdown": in_markdown,
}


@pytest.mark.parametrize("clothes", CLOTHES)
def test_read_in_other_clothes(clothes: str) -> None:
    wrong = {}
    for case in CASES:
        if case.how == "shell" and case.kind != "markdown" and case.name not in exceptions():
            name = "notes.md" if clothes == "markdown" else case.input.name
            if found := differences(case, read(CLOTHES[clothes](case.text()), name, case.folder)):
                wrong[case.name] = found
    assert wrong == {}


def test_every_head_says_where_it_is_from_and_what_is_by_hand() -> None:
    assert all({"origin", "source", "engine", "file"} <= case.head.keys() for case in CASES)
    by_hand = [case for case in CASES if case.how == "hand" or case.head.keys() & {"split", "inner"}]
    assert [case.name for case in by_hand if "note" not in case.head] == []


def test_no_exception_without_a_case() -> None:
    assert set(exceptions()) <= {case.name for case in CASES}


def test_readme_counts_the_cases() -> None:
    counted = Counter((case.kind, case.head["engine"]) for case in CASES)
    found = re.findall(r"(?m)^\| (\w+) \| (\d+) \| (\d+) \|", README)
    rows = {kind: (int(sglang), int(vllm)) for kind, sglang, vllm in found}
    kinds = {kind for kind, _ in counted}
    assert rows == {kind: (counted[kind, "sglang"], counted[kind, "vllm"]) for kind in kinds}
    right = len(CASES) - len(exceptions())
    assert f"**{right} of {len(CASES)}** are read right" in README
    assert len(CASES) >= 60
