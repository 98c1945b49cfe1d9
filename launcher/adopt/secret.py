"""A piece of the input as it may be shown: without its secrets."""

from __future__ import annotations

import re

from launcher.adopt.secret_names import is_secret_flag, is_secret_variable, looks_secret

_VALUE = r"""("[^"]*"?|'[^']*'?|[^\s"'&|;<>]+)"""
_VARIABLE = re.compile(rf"\b([A-Za-z_]\w*)(=|:\s+){_VALUE}")
_FLAG = re.compile(rf"(--?[A-Za-z][\w-]*)(=|\s+|['\"],\s*){_VALUE}")
_BEARER = re.compile(r"(\bBearer\s+)[^\s\"']+", re.IGNORECASE)
_LOGIN = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")


def masked(text: str) -> str:
    """Return a piece of the input with everything that looks like a secret shown as ``…``."""
    text = _LOGIN.sub(r"\1…", _BEARER.sub(r"\1…", text))
    text = _VARIABLE.sub(_variable, _FLAG.sub(_flag, text))
    return re.sub(r"[^\s\"'=]+", lambda word: "…" if looks_secret(word.group()) else word.group(), text)


def _variable(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    bare = value.strip("\"'")
    return f"{name}{between}…" if is_secret_variable(name, bare) and not bare.startswith("$") else found.group()


def _flag(found: re.Match[str]) -> str:
    flag, between, value = found.groups()
    bare = value.strip("\"'")
    hide = is_secret_flag(flag, (bare,)) and not bare.startswith(("$", "-"))
    return f"{flag}{between}…" if hide else found.group()
