"""NCCL's own files: what NCCL takes from them, and the block that belongs to a deployment."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.agent.nccl_conf import (
    BlockError,
    block_variables,
    conflicts,
    foreign,
    owner,
    unfit,
    variables,
    with_block,
)

#: Each of these came out of libnccl 2.30.7 like this.
TAKEN: dict[str, tuple[str, dict[str, str]]] = {
    "empty": ("", {}),
    "plain": ("NCCL_ALGO=Ring\nNCCL_PROTO=LL", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}),
    "any name": ("LD_PRELOAD=x\n2=3\n", {"LD_PRELOAD": "x", "2": "3"}),
    "the first counts": ("A=1\nA=2", {"A": "1"}),
    "the first counts even when empty": ("A=\nA=2", {"A": ""}),
    "blanks stay": (" A = b \t\n", {" A ": " b \t"}),
    "a value with signs": ("NCCL_SOCKET_IFNAME==eth0=", {"NCCL_SOCKET_IFNAME": "=eth0="}),
    "quotes stay": ("A='x'\nB=\"y\"", {"A": "'x'", "B": '"y"'}),
    "comments": ("#A=1\n # B=1\nC=1 # x", {" # B": "1", "C": "1 # x"}),
    "no comment": (";A=1", {";A": "1"}),
    "no sign": ("A\n\nB=1", {"B": "1"}),
    "no name": ("=1\nB=1", {"B": "1"}),
    "one CR goes": ("A=1\r\nB=\r\r\nC\r=\rx\r", {"A": "1", "B": "\r", "C\r": "\rx"}),
    "only LF ends a line": ("A=1\u2028B=2\x0b\x0c\x85\rC=3", {"A": "1\u2028B=2\x0b\x0c\x85\rC=3"}),
    "NUL ends a line early": ("A=1\r\x002\nB\0=1", {"A": "1"}),
    "long": (f"A={'x' * 1024}\n{'y' * 1024}=1", {"A": "x" * 1023, "y" * 1023: "1"}),
    "long in bytes": (f"A={'ü' * 600}", {"A": "ü" * 511 + "\udcc3"}),
    "bytes that are no text": ("\udcff=\udcfe", {"\udcff": "\udcfe"}),
    "byte order mark": ("\ufeffA=1", {"\ufeffA": "1"}),
}


@pytest.mark.parametrize(("text", "wanted"), TAKEN.values(), ids=TAKEN.keys())
def test_what_nccl_takes(text: str, wanted: dict[str, str]) -> None:
    assert variables(text) == wanted


ENV = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "LAUNCH_DIGEST": "0", "VLLM_X": "1"}
BEGIN, END = "# launch kimi begin: written by launch, do not edit\n", "# launch kimi end\n"
BLOCK = f"{BEGIN}NCCL_ALGO=Ring\nNCCL_PROTO=LL\n{END}"
PLACES: dict[str, tuple[str, str]] = {
    "alone": (BLOCK, ""),
    "before": (BLOCK + "# mine\nNCCL_DEBUG=WARN", "# mine\nNCCL_DEBUG=WARN"),
    "behind": ("NCCL_DEBUG=WARN\n" + BLOCK, "NCCL_DEBUG=WARN\n"),
    "between": ("A=1\n" + BLOCK + "\n\nB=2\r\n", "A=1\n\n\nB=2\r\n"),
    "no line end": ("A=1\n" + BLOCK[:-1], "A=1\n"),
    "line ends of another system": (BLOCK.replace("\n", "\r\n") + "A=1\r\n", "A=1\r\n"),
}


def test_a_block() -> None:
    assert with_block("", "kimi", ENV) == BLOCK
    assert with_block("A=1", "kimi", ENV) == BLOCK + "A=1"
    assert with_block("A=1", "kimi", {}) == BEGIN + END + "A=1"


@pytest.mark.parametrize(("text", "rest"), PLACES.values(), ids=PLACES.keys())
def test_a_block_is_found(text: str, rest: str) -> None:
    assert owner(text) == "kimi"
    assert block_variables(text) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert foreign(text) == rest
    assert with_block(text, "kimi", ENV) == BLOCK + rest
    assert (
        with_block(text, "other", {})
        == BLOCK.replace("kimi", "other").replace("NCCL_ALGO=Ring\nNCCL_PROTO=LL\n", "") + rest
    )


@pytest.mark.parametrize(
    "text", ["", "A=1\n", "# launch the server\n", " " + BEGIN, "# launch kimi end it\n", "#" + END]
)
def test_no_block(text: str) -> None:
    assert owner(text) == ""
    assert block_variables(text) == {}
    assert foreign(text) == text


def test_our_variables_come_first() -> None:
    text = with_block("NCCL_ALGO=Tree\nNCCL_DEBUG=WARN\n", "kimi", ENV)
    assert variables(text) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_DEBUG": "WARN"}


def test_markers_are_nothing_to_any_nccl() -> None:
    assert "=" not in BEGIN + END  # before 2.26 the lines with a sign in a comment count


DAMAGED: dict[str, tuple[str, str]] = {
    "no end": ("A=1\n" + BEGIN + "NCCL_ALGO=Ring\n", "line 2: a block begins that does not end"),
    "no begin": ("A=1\nNCCL_ALGO=Ring\n" + END, "line 3: a block ends that did not begin"),
    "two": (BLOCK + "\n" + BLOCK, "line 6: a second block begins"),
    "two of two": (BLOCK + BLOCK.replace("kimi", "glm"), r"line 5: a second block begins \(deployment glm\)"),
    "one in the other": (BEGIN + BLOCK + END, "line 2: a second block begins"),
    "end of another": (BEGIN + END.replace("kimi", "glm"), "line 2: a block ends that did not begin"),
    "two ends": (BLOCK + END, "line 5: a block ends that did not begin"),
}


@pytest.mark.parametrize(("text", "words"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage(text: str, words: str) -> None:
    for call in (owner, block_variables, foreign):
        with pytest.raises(BlockError, match=f"^/etc/nccl.conf {words}.*: restore or delete its marker lines"):
            call(text)
    with pytest.raises(BlockError, match=words):
        with_block(text, "kimi", ENV)
    with pytest.raises(BlockError, match=words):
        conflicts(text, "kimi", ENV)


UNFIT = {
    "a\nb": "holds a line end",
    "a\0b": "holds a line end or a NUL byte",
    "a\r": "ends in a CR",
    "x" * 1024: "is longer than 1023 bytes",
    "ü" * 512: "is longer than 1023 bytes",
    "\udcff": "holds bytes that are not UTF-8",
}


@pytest.mark.parametrize(("value", "words"), UNFIT.items(), ids=UNFIT.values())
def test_unfit(value: str, words: str) -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_GRAPH_FILE": value, "OTHER": value}
    (line,) = unfit(env)
    assert line.startswith(f"NCCL_GRAPH_FILE: {words}")
    with pytest.raises(BlockError, match=f"NCCL_GRAPH_FILE: {words}"):
        with_block("", "kimi", env)


@pytest.mark.parametrize("name", ["NCCL_", "NCCL_A=B", "NCCL_A B", "NCCL_A\n", "NCCL_Ä"])
def test_unfit_names(name: str) -> None:
    assert unfit({name: "1"}) == [f"{name}: is no name of a variable, which /etc/nccl.conf cannot carry"]


@pytest.mark.parametrize("value", ["", " a ", "\t", "=x", "#x", "a\rb", "'x'", "x" * 1023, "ü" * 511])
def test_fit(value: str) -> None:
    env = {"NCCL_X": value}
    assert unfit(env) == []
    assert variables(with_block("", "kimi", env)) == env


@pytest.mark.parametrize("name", ["", "Kimi", "a b", "a=b", "a\n", "a-b", "x" * 65])
def test_names_of_deployments(name: str) -> None:
    with pytest.raises(BlockError, match="is no name of a deployment"):
        with_block("", name, ENV)


def conflict(variable: str, key: str) -> str:
    return (
        f"/etc/nccl.conf holds the block of deployment kimi, which sets {variable} here too: set {key} in glm,"
        " or turn off unit.nccl_conf in kimi"
    )


def test_conflicts() -> None:
    text = with_block("NCCL_DEBUG=WARN\n", "kimi", {**ENV, "NCCL_P2P_LEVEL": "SYS"})
    both = [conflict("NCCL_P2P_LEVEL", "nccl.p2p_level"), conflict("NCCL_PROTO", "nccl.proto")]
    assert conflicts(text, "glm", {"NCCL_ALGO": "Tree"}) == both
    assert conflicts(text, "glm", {"NCCL_ALGO": "", "NCCL_P2P_LEVEL": "", "NCCL_PROTO": ""}) == []
    assert conflicts(text, "kimi", {}) == []
    assert conflicts("NCCL_DEBUG=WARN\n", "glm", {}) == []


NAMES = st.from_regex(r"[a-z0-9_.]{1,64}", fullmatch=True)
LINES = st.sampled_from(["NCCL_ALGO=Tree", "#", "# launch", "\r", "", " ", "A=1", "# launch kimi end.", "\u2028"])
TEXTS = st.one_of(st.text(), st.lists(LINES).map("\n".join))
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=300)
ENVS = st.dictionaries(st.from_regex(r"(NCCL_|X_)[A-Z0-9_]{1,9}", fullmatch=True), VALUES)


@given(TEXTS, NAMES, ENVS, NAMES, ENVS)
def test_round_trip(text: str, name: str, env: dict[str, str], other: str, others: dict[str, str]) -> None:
    assume(not unfit(env) and not unfit(others))
    assert owner(text) == ""
    written = with_block(text, name, env)
    assert foreign(written) == text
    assert owner(written) == name
    assert block_variables(written) == {key: value for key, value in env.items() if key.startswith("NCCL_")}
    assert with_block(with_block(text, other, others), name, env) == written
    assert variables(written) == {**variables(text), **block_variables(written)}
