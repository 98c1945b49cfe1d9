"""What is a secret, by its name and by how it looks, and a piece of the input as it may be shown: without secrets."""

from __future__ import annotations

import re
from functools import partial

_VARIABLE = re.compile(
    r".*(_|^)(TOKEN|SECRET|PASS(WORD|WD|PHRASE)?|API_?KEY|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)"
    r"|.+_PWD|AWS_ACCESS_KEY_ID|HF_TOKEN.*_VALUE",
    re.IGNORECASE,
)
#: Tokens of a language model's vocabulary.
_WORDS = re.compile(
    r"(bos|eos|pad|unk|cls|sep|mask|start|end|stop|image|video|audio|(.*_)?(start|end))_token", re.IGNORECASE
)
_FLAG = re.compile(r"--?(.*-)?(token|secret|password|passwd|passphrase|api-?key|secret-key|access-key|private-key)")
#: What a variable of such a name holds when it is a switch or says where the secret is.
_SWITCHES = ("", "0", "1", "true", "false", "yes", "no", "on", "off", "null", "none")
#: Beginnings of tokens by which their issuers make them recognisable, and a password within an address.
_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{20,}|AKIA[A-Z0-9]{16}"
)
_ADDRESS = re.compile(r"://[^/@\s:]*:[^/@\s]+@")

#: Of a value that is searched for secrets within; a text by hand is shorter.
_LONGEST = 4096
_WORD = r"""("[^"]*"?|'[^']*'?|[^\s"'&|;<>]+)"""
#: ``NAME=value``, ``name: value``, ``"name": "value"``, ``["NAME"] = "value"``.
_ASSIGNED = re.compile(rf"""\b([A-Za-z_][\w-]*)(=|:\s+|["']\s*:\s*|["']\]\s*=\s*){_WORD}""")
_GIVEN = re.compile(rf"(--?[A-Za-z][\w-]*)(=|\s+|['\"],\s*){_WORD}")
_SET = re.compile(rf"\b((?:setenv|set(?:\s+-\w+)+)\s+)([A-Za-z_]\w*)(\s+){_WORD}")
_BEARER = re.compile(r"(\bBearer\s+|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?)[^\s\"',;]+", re.IGNORECASE)
_LOGIN = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
_TYPED = re.compile(
    r"(\bsshpass\s+-p\s*|\bwandb\s+login\s+|\blogin\s[^|;&]{0,200}?-p\s*|\bcurl\s[^|;&]{0,200}?-u\s*)" + _WORD
)


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable is a secret, or holds one among other things."""
    return _is_assigned(name, value) or holds_secret(value)


def is_secret_flag(flag: str, values: tuple[str, ...]) -> bool:
    """Return whether a flag of an engine is a secret, or holds one among other things."""
    return _is_given(flag, values) or any(map(holds_secret, values))


def holds_secret(value: str) -> bool:
    """Return whether a secret can be seen in a value whatever its name: a token, ``--api-key x``, ``password: x``."""
    start = value[:_LONGEST]
    return looks_secret(value) or masked(start) != start


def looks_secret(value: str) -> bool:
    """Return whether a value is a secret by how it begins, or an address with a password."""
    return bool(_VALUE.search(value) or _ADDRESS.search(value))


def masked(text: str) -> str:
    """Return a piece of the input with everything that looks like a secret shown as ``…``."""
    text = _TYPED.sub(r"\1…", _LOGIN.sub(r"\1…", _BEARER.sub(r"\1…", text)))
    text = _ASSIGNED.sub(_assigned, _SET.sub(_set, _GIVEN.sub(_given, text)))
    return re.sub(r"[^\s\"'=]+", lambda word: "…" if looks_secret(word.group()) else word.group(), text)


def _is_assigned(name: str, value: str) -> bool:
    name = name.replace("-", "_")
    named = _VARIABLE.fullmatch(name) and not _WORDS.fullmatch(name)
    return bool(named and value.lower() not in _SWITCHES) or looks_secret(value)


def _is_given(flag: str, values: tuple[str, ...]) -> bool:
    name = flag.lower().replace("_", "-")
    return bool(values) and (bool(_FLAG.fullmatch(name)) or any(map(looks_secret, values)))


def _assigned(found: re.Match[str], *, inner: bool = True) -> str:
    name, between, value = found.groups()
    bare = value.strip("\"'")
    if _is_assigned(name, bare) and not bare.startswith("$"):
        return f"{name}{between}…"
    # HEADERS=api-key=x: once more within the value, and no deeper.
    held = _ASSIGNED.sub(partial(_assigned, inner=False), value) if inner else value
    return f"{name}{between}{held}"


def _given(found: re.Match[str]) -> str:
    flag, between, value = found.groups()
    bare = value.strip("\"'")
    hide = _is_given(flag, (bare,)) and not bare.startswith(("$", "-"))
    return f"{flag}{between}…" if hide else found.group()


def _set(found: re.Match[str]) -> str:
    before, name, blank, value = found.groups()
    return f"{before}{name}{blank}…" if _is_assigned(name, value.strip("\"'")) else found.group()
