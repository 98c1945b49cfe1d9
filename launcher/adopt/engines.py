"""Which program is started by a list of words: an engine's server, another program of an engine, or neither."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?(?:\.exe)?")
_PYTHON_VALUES = ("-X", "-W", "--check-hash-based-pycs")

#: Modules that are a server which `launch` runs, and the words that have to follow.
_SERVERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sglang.launch_server": ("sglang", ()),
    "sglang.srt.entrypoints.http_server": ("sglang", ()),
    "sglang": ("sglang", ("serve",)),
    "sglang.cli.main": ("sglang", ("serve",)),
    "vllm": ("vllm", ("serve",)),
    "vllm.entrypoints.openai.api_server": ("vllm", ()),
    "vllm.entrypoints.cli.main": ("vllm", ("serve",)),
}
_OTHER_MODULES = re.compile(
    r"(?:sglang|sglang_router|sgl_kernel|vllm|dynamo|lmdeploy|tensorrt_llm|mlc_llm|fastchat|aphrodite|mooncake|lmcache)"
    r"(?:\.|$)"
)
_OTHER_PROGRAMS = {
    "sglang-router": "SGLang's router",
    "sglang_router": "SGLang's router",
    "sgl-router": "SGLang's router",
    "sgl-model-gateway": "SGLang's gateway",
    "smg": "SGLang's gateway",
    "vllm-router": "vLLM's router",
    "mooncake_master": "Mooncake's master",
    "lmcache_server": "LMCache's server",
    "trtllm-serve": "TensorRT-LLM",
    "text-generation-launcher": "TGI",
    "tritonserver": "Triton",
    "lmdeploy": "LMDeploy",
    "ollama": "Ollama",
    "llama-server": "llama.cpp",
    "aphrodite": "Aphrodite",
    "genai-perf": "a benchmark",
    "guidellm": "a benchmark",
    "evalscope": "a benchmark",
    "lm_eval": "a benchmark",
}


@dataclass(frozen=True)
class Engine:
    """What was recognised.

    Attributes:
        name: ``sglang`` or ``vllm``; empty: no server that `launch` runs.
        what: of something else, what it is.
        arguments: how many of the words come before the engine's own arguments.
    """

    name: str = ""
    what: str = ""
    arguments: int = 0


def program(word: str) -> str:
    """Return a program's name without its folder."""
    return word.rsplit("/", 1)[-1]


def is_python(word: str) -> bool:
    """Return whether a word names an interpreter, also one whose name is not known (``$PYTHON``)."""
    return bool(PYTHON.fullmatch(program(word)) or "$" in word)


def recognise(words: Sequence[str]) -> Engine | None:
    """Return what the words start, None for something that has nothing to do with an engine."""
    if not words:
        return None
    name = program(words[0])
    if name in _OTHER_PROGRAMS:
        return Engine(what=_OTHER_PROGRAMS[name])
    if name in ("vllm", "sglang"):
        return _module(name, words, 1)
    if is_python(words[0]):
        return _python(words)
    return None


def _python(words: Sequence[str]) -> Engine | None:
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        word = words[at]
        if word in ("-m", "-c"):
            if word == "-c" or at + 1 >= len(words):
                return None
            return _module(words[at + 1], words, at + 2)
        if word.startswith("-m"):
            return _module(word[2:], words, at + 1)
        if re.fullmatch(r"-[bBdEhiIOPqsSuvVx]+m", word) and at + 1 < len(words):
            return _module(words[at + 1], words, at + 2)
        at += 2 if word in _PYTHON_VALUES else 1
    if at >= len(words):
        return None
    return _script(words[at], words, at + 1)


def _script(path: str, words: Sequence[str], at: int) -> Engine | None:
    """Return what a script is, when it is one of the engines' own files."""
    if program(path) in ("vllm", "sglang"):
        return _module(program(path), words, at)
    dotted = path.removesuffix(".py").replace("/", ".")
    for module in sorted(_SERVERS, key=len, reverse=True):
        if "." in module and (dotted == module or dotted.endswith(f".{module}")):
            return _module(module, words, at)
    return None


def _module(module: str, words: Sequence[str], at: int) -> Engine | None:
    module = module.removesuffix(".__main__")
    if module in _SERVERS:
        engine, needed = _SERVERS[module]
        if tuple(words[at : at + len(needed)]) == needed:
            return Engine(engine, arguments=at + len(needed))
        return Engine(what=f"another command of {_title(engine)}")
    if _OTHER_MODULES.match(module):
        return Engine(what=_what(module))
    return None


def _what(module: str) -> str:
    if "router" in module:
        return "a router"
    if "disaggregation" in module or "mini_lb" in module:
        return "a part of disaggregated serving"
    if "bench" in module:
        return "a benchmark"
    return f"the program {module}"


def _title(engine: str) -> str:
    return {"sglang": "SGLang", "vllm": "vLLM"}[engine]
