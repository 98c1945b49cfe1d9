"""Which variables and flags hold secrets, by their names and by what their values look like."""

from __future__ import annotations

import re

_VARIABLE = re.compile(
    r".*(_|^)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)"
    r"|AWS_ACCESS_KEY_ID|HF_TOKEN.*_VALUE",
    re.IGNORECASE,
)
_FLAG = re.compile(r"--?(.*-)?(token|secret|password|passwd|passphrase|api-?key|secret-key|access-key|private-key)")
#: What a variable of such a name holds when it is a switch or says where the secret is.
_SWITCHES = ("", "0", "1", "true", "false", "yes", "no", "on", "off")
#: Beginnings of tokens by which their issuers make them recognisable, and a password within an address.
_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{20,}|AKIA[A-Z0-9]{16}"
)
_ADDRESS = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable holds a secret."""
    if _VARIABLE.fullmatch(name) and value.lower() not in _SWITCHES:
        return True
    return looks_secret(value)


def is_secret_flag(flag: str, values: tuple[str, ...]) -> bool:
    """Return whether a flag of an engine holds a secret."""
    name = flag.lower().replace("_", "-")
    return bool(values) and (bool(_FLAG.fullmatch(name)) or any(map(looks_secret, values)))


def looks_secret(value: str) -> bool:
    """Return whether a value is a secret whatever its name."""
    return bool(_VALUE.search(value) or _ADDRESS.search(value))
