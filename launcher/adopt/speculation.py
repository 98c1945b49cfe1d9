"""Speculative decoding as the flags say it, where keys of ``spec`` say exactly the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from launcher.schema import Speculation

if TYPE_CHECKING:
    from launcher.adopt.flags import Flags

_ALGORITHM, _DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
_STEPS, _TOPK, _TOKENS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"
_METHODS = {"EAGLE3": "eagle3", "EAGLE": "mtp", "NEXTN": "mtp", "NGRAM": "ngram"}


def read(engine: str, flags: Flags) -> tuple[Speculation, Flags]:
    """Return the speculation and the flags that it leaves; what keys cannot say stays among the flags."""
    found = _sglang(flags) if engine == "sglang" else _vllm(flags)
    if found is None:
        return Speculation(), flags
    return found, flags.without(_ALGORITHM, _DRAFT, _STEPS, _TOPK, _TOKENS, "--speculative-config")


def _sglang(flags: Flags) -> Speculation | None:
    method = _METHODS.get(_one(flags, _ALGORITHM).upper(), "")
    draft = _one(flags, _DRAFT)
    steps, topk, tokens = (_count(_one(flags, name)) for name in (_STEPS, _TOPK, _TOKENS))
    if method == "ngram":
        alone = not any(flags.get(name) for name in (_DRAFT, _STEPS, _TOPK))
        return Speculation("ngram", draft_tokens=tokens) if tokens and alone else None
    # SGLang calls by the same name what drafts with the model's own layers and with a draft model of the older kind.
    if not method or (method == "eagle3") != bool(draft) or not steps or not topk:
        return None
    if topk == 1:
        tokens = steps + 1  # what SGLang makes of any other number, and of none
    if not tokens:
        return None
    return Speculation("eagle3" if method == "eagle3" else "mtp", steps, topk, tokens, draft)


def _vllm(flags: Flags) -> Speculation | None:
    try:
        data = json.loads(_one(flags, "--speculative-config"))
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    method, tokens = data.get("method"), data.get("num_speculative_tokens")
    if type(tokens) is not int or tokens < 1:
        return None
    keys = set(data) - {"method", "num_speculative_tokens"}
    longest, draft = data.get("prompt_lookup_max", 0), data.get("model", "")
    if method == "ngram" and keys <= {"prompt_lookup_max"} and type(longest) is int and (longest > 0 or not keys):
        return Speculation("ngram", draft_tokens=tokens, ngram_max=longest)
    if method == "eagle3" and keys == {"model"} and isinstance(draft, str) and draft:
        return Speculation("eagle3", tokens, 1, tokens + 1, draft)
    if method == "mtp" and not keys:
        return Speculation("mtp", tokens, 1, tokens + 1)
    return None


def _one(flags: Flags, name: str) -> str:
    option = flags.get(name)
    return option.values[0] if option and len(option.values) == 1 else ""


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
