"""Whether a draft model belongs to the model that it drafts for, as far as both ``config.json`` tell. Pure.

What an EAGLE-3 draft takes in has to be as wide as the model's hidden states: its ``fc`` layer maps three of them,
``target_hidden_size`` each, or ``hidden_size`` where the former is not said, to the draft's own width (SGLang
srt/models/llama_eagle3.py, vLLM model_executor/models/llama_eagle3.py, EAGLE's own cnets.py). The draft's own
``hidden_size`` may well differ: that of Llama 3.3 70B does (sgl-project/sglang#4716, vllm-project/vllm#17740). Neither
engine compares the two before it loads; the first forward pass fails on the shapes. The tokens are those of the
model; a draft may know fewer of them (``draft_vocab_size``, mapped by d2t), not others.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional

from .obstacle import Obstacle, refuse, warn

_KEY = "spec.draft_model_path"
#: Where a model of several kinds of input keeps what its language model is like.
_NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "transformer_layer_config")

Config = Mapping[str, Any]


def mismatches(model: "Optional[Config]", draft: "Optional[Config]") -> List[Obstacle]:
    """Compare the configurations of a model and its draft; what one of them does not say is left out."""
    return list(_mismatches(model, draft)) if model and draft and _is_eagle3(draft) else []


def _is_eagle3(draft: Config) -> bool:
    words = [draft.get("speculators_model_type"), *(draft.get("architectures") or ())]
    return draft.get("draft_vocab_size") is not None or any("eagle3" in str(word).lower() for word in words)


def _mismatches(model: Config, draft: Config) -> Iterator[Obstacle]:
    width, taken = _size(model, "hidden_size"), _number(draft.get("target_hidden_size"))
    name = "target_hidden_size" if taken else "hidden_size"
    taken = taken or _size(draft, "hidden_size")
    if width and taken and width != taken:
        text = f"the draft was made for a model of hidden size {taken} ({name}), this one has {width}"
        yield refuse("draft-mismatch", f"{_KEY}: {text}; set the draft of this very model")
    tokens, known = _size(model, "vocab_size"), _size(draft, "vocab_size")
    drafted = _number(draft.get("draft_vocab_size"))
    if tokens and known and tokens != known:
        text = f"the draft was made for a vocabulary of {known} tokens, the model has {tokens}"
        yield warn("draft-vocabulary", f"{_KEY}: {text}; unless only padding differs, its drafts will not be accepted")
    elif tokens and drafted and drafted > tokens:
        text = f"the draft proposes {drafted} tokens (draft_vocab_size), the model has {tokens}"
        yield warn("draft-vocabulary", f"{_KEY}: {text}; set the draft of this very model")


def _size(config: Config, name: str) -> int:
    """Return a size of the language model, 0 where it is not said."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict):
            found = _size(inner, name)
            if found:
                return found
    return _number(config.get(name))


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
