from __future__ import annotations

import pytest

from launcher.catalogue import engines
from launcher.errors import ConfigError
from launcher.render.command import argv
from tests.composing import compose

SGLANG = ("0.5.6", "0.5.12", "0.5.16", "0.5.17", "0.5.20", "0.5.23")
VLLM = ("0.25.0", "0.28.0", "0.32.0", "0.33.0")


def test_versions() -> None:
    assert engines.versions("sglang") == SGLANG
    assert engines.versions("vllm") == VLLM


@pytest.mark.parametrize(
    ("engine", "name", "aliases", "takes", "since", "until"),
    [
        ("sglang", "--num-continuous-decode-steps", (), "one", "0.5.6", "0.5.23"),
        ("sglang", "--disable-custom-all-reduce", (), "none", "0.5.6", "0.5.23"),
        ("sglang", "--tp-size", ("--tensor-parallel-size",), "one", "0.5.6", "0.5.23"),
        ("sglang", "--model-path", ("--model",), "one", "0.5.6", "0.5.23"),
        ("sglang", "--config", (), "one", "0.5.6", "0.5.23"),
        ("sglang", "--cuda-graph-max-bs", (), "one", "0.5.6", "0.5.17"),
        ("sglang", "--speculative-use-rejection-sampling", (), "none", "0.5.16", "0.5.23"),
        ("vllm", "--tensor-parallel-size", ("-tp",), "one", "0.25.0", "0.33.0"),
        ("vllm", "--disable-custom-all-reduce", ("--no-disable-custom-all-reduce",), "none", "0.25.0", "0.33.0"),
        ("vllm", "--hf-token", (), "optional", "0.25.0", "0.33.0"),
    ],
)
def test_rows(engine: str, name: str, aliases: tuple[str, ...], takes: str, since: str, until: str) -> None:
    flag = engines.flags(engine)[name]
    assert (flag.aliases, flag.takes, flag.since, flag.until) == (aliases, takes, since, until)


@pytest.mark.parametrize("engine", engines.TITLES)
def test_every_row_is_sound(engine: str) -> None:
    read = engines.versions(engine)
    flags = engines.flags(engine)
    assert sum(len(flag.spans) for flag in flags.values()) == len(engines.names(engine))  # no name in two rows
    for name, flag in flags.items():
        assert name.startswith("--"), name
        assert flag.takes in ("none", "one", "optional", "many"), name
        assert flag.source.startswith(f"{engine}/"), name
        for since, until in flag.spans.values():
            assert read.index(since) <= read.index(until), name


def test_no_such_engine() -> None:
    with pytest.raises(ConfigError, match="no engine 'sglan'; did you mean 'sglang'"):
        engines.flags("sglan")


KNOWN = [
    ("sglang", "--tp-size", None),
    ("sglang", "--tensor-parallel-size=8", "0.5.6"),
    ("sglang", "--mem-frac", "0.5.23"),  # argparse takes a beginning that only one flag has
    ("sglang", "--cuda-graph-max-bs", "0.5.17"),
    ("sglang", "--cuda-graph-max-bs", "0.5.18"),  # gone in 0.5.20: what 0.5.18 does was not read
    ("sglang", "--speculative-adaptive", "0.5.9"),
    ("sglang", "--stream-output", None),  # some release has it
    ("vllm", "--tensor_parallel_size", "0.30.0"),
    ("vllm", "--speculative-config.method=mtp", None),
    ("vllm", "--compilation-config.splitting_ops+", None),
    ("vllm", "-O3", "0.32.0+cpu"),
    ("vllm", "-tp", "0.34.0rc1"),
    ("vllm", "--no-enable-prefix-caching", None),
]


@pytest.mark.parametrize(("engine", "flag", "version"), KNOWN)
def test_known(engine: str, flag: str, version: str | None) -> None:
    assert engines.unknown_flag(engine, flag, version) is None


NO = "has no flag"
UNKNOWN = [
    ("sglang", "--foo", None, f"SGLang (0.5.6 to 0.5.23) {NO} --foo."),
    ("sglang", "--tp_size", None, f"SGLang (0.5.6 to 0.5.23) {NO} --tp_size; did you mean '--tp-size'?"),
    ("vllm", "--max-num-sequences", "0.32.0", f"vLLM (0.25.0 to 0.33.0) {NO} --max-num-sequences; did you mean "),
    ("sglang", "--speculative-adaptive", "0.5.6", f"SGLang 0.5.6 {NO} --speculative-adaptive (first seen in 0.5.12); "),
    (
        "sglang",
        "--cuda-graph-max-bs",
        "0.5.20",
        f"SGLang 0.5.20 {NO} --cuda-graph-max-bs (last seen in 0.5.17); use --cuda-graph-max-bs-decode",
    ),
    ("sglang", "--piecewise-cuda-graph-tokens", "0.5.21", f"SGLang 0.5.21 {NO} --piecewise-cuda-graph-tokens ("),
    ("sglang", "--foo", "0.6.0", "unknown version 0.6.0 (read were 0.5.6 to 0.5.23): SGLang (0.5.6 to "),
    ("vllm", "--foo", "0.20.0", "unknown version 0.20.0 (read were 0.25.0 to 0.33.0): vLLM (0.25.0 to "),
    ("sglang", "--speculative-adaptive", "0.5.3", "unknown version 0.5.3 "),
]


@pytest.mark.parametrize(("engine", "flag", "version", "message"), UNKNOWN)
def test_unknown(engine: str, flag: str, version: str | None, message: str) -> None:
    assert (engines.unknown_flag(engine, flag, version) or "").startswith(message)


def test_order_of_versions() -> None:
    words = ["0.5.9", "0.5.12rc1", "0.5.12", "0.5.12.post1", "0.5.13.dev2", "0.5.13"]
    assert sorted(set(words), key=engines.order) == words
    assert engines.order("0.32.0+cpu") == engines.order("0.32.0")


@pytest.mark.parametrize("engine", engines.TITLES)
def test_inert(engine: str) -> None:
    rows = engines.inert(engine)
    assert "--disable-custom-all-reduce" in {row.flag for row in rows}
    for row in rows:
        assert row.condition, row
        assert row.source, row
        for version in engines.versions(engine):
            if engines.order(row.since) <= engines.order(version) <= engines.order(row.until):
                assert engines.unknown_flag(engine, row.flag, version) is None, row
        assert {row.since, row.until} <= set(engines.versions(engine)), row


EXTRA = ["model.trust_remote_code=true", "model.served_name=m", "secrets.args.api_key=file:/k"]
SPECS = [
    ["+spec=off"],
    ["+spec=eagle3_2step", "spec.draft_model_path=/d"],
    ["+spec=ngram"],
    ["+spec=mtp", "model=deepseek_v3"],
]


@pytest.mark.parametrize("engine", engines.TITLES)
@pytest.mark.parametrize("spec", SPECS, ids=lambda words: words[0][6:])
def test_what_we_render_is_there_in_every_release(engine: str, spec: list[str]) -> None:
    words = argv(compose([f"engine={engine}", *spec, *EXTRA]))
    rendered = [word for word in words if word.startswith("--")]
    assert len(rendered) >= 7, words
    for version in engines.versions(engine):
        for flag in rendered:
            found = engines.find(engine, flag, version)
            assert found is not None, (flag, version)
            assert found[0] == flag, (flag, version)  # no abbreviation
            value = words[words.index(flag) + 1] if flag != words[-1] else "--"
            assert (found[1].takes == "none") is value.startswith("--"), (flag, value)
