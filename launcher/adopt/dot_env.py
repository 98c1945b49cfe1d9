"""Compose's files of variables."""

from __future__ import annotations

import re


def parse(text: str) -> dict[str, str]:
    """Return the variables of a ``.env`` or ``env_file``, as compose reads them: quotes are taken off."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*[=:]\s*(.*?)\s*", line)
        if match is None or line.lstrip().startswith("#"):
            continue
        value = match.group(2)
        quoted = re.match(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"", value)
        if quoted and quoted.group(1) is not None:
            value = quoted.group(1)
        elif quoted:
            value = re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r", "t": "\t"}.get(m[1], m[1]), quoted.group(2))
        else:
            value = re.sub(r"\s+#.*$", "", value)
        found[match.group(1)] = value
    return found
