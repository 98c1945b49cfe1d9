"""Commands as people may see them: a secret in one is not shown."""

from __future__ import annotations

import re
import shlex
from typing import Sequence

_FLAG = re.compile(r"--?[\w-]*(?:key|token|secret|password|passwd|credentials?|auth)$", re.IGNORECASE)
#: Tokens that are known by their form, and a password in an address.
_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|nvapi-|AKIA)[\w-]{8,}|(?<=://)[^/@\s]+(?=@)")
HIDDEN = "***"


def command(words: Sequence[str], longest: int = 0) -> str:
    """Return a command as one would type it, without secrets; cut to a length, where one is given."""
    shown, hides = [], False
    for word in words:
        name, sign, _ = word.partition("=")
        if word.startswith("-"):
            hides = bool(_FLAG.match(name)) and not sign
            shown.append(f"{name}={HIDDEN}" if sign and _FLAG.match(name) else _TOKEN.sub(HIDDEN, word))
        else:
            shown.append(HIDDEN if hides else _TOKEN.sub(HIDDEN, word))
    text = " ".join(word if word.endswith(HIDDEN) else shlex.quote(word) for word in shown)
    return text if not longest or len(text) <= longest else text[: longest - 1] + "…"
