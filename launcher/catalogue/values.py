"""Turn a configured value into the one text that every NCCL release reads the same way.

Nothing here knows a variable: `nccl.canonical` picks a function by the catalogue's kind, names the variable
and adds what NCCL itself would have done. Facts behind the rules:

- Most variables pass a C integer parser with base detection whose end is not checked (src/misc/param.cc, tags
  2.3.5 to 2.30.7), so integers are written in plain decimal, switches as 0 or 1 and sizes in bytes.
- NCCL_ALGO and NCCL_PROTO are read by ``parseList`` (src/graph/tuning.cc, 2.24 and newer; older releases
  know the plain list only): ``[list;]function:list;...``, names without regard to case, one leading ``^``
  inverts a list, an entry without function is accepted in first place only, a later entry of a function
  replaces the earlier one, empty places are skipped, and no blank is trimmed.
- NCCL_DEBUG_SUBSYS takes the same list with the same caret, without functions (src/debug.cc).
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from launcher.errors import nearest

Value = str | int | bool | float

INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
SWITCH = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}
UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
# The functions that an expression may name (ncclFuncStr, strings of 2.27.7 to 2.32.3), spelt as in NVIDIA's
# documentation and as SGLang and vLLM write them.
FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")


class RefusedError(ValueError):
    """A value is refused; the text says why, without the name of the variable.

    `complete` means that nothing about NCCL's own reaction is to be added.
    """

    def __init__(self, reason: str, *, complete: bool = False) -> None:
        super().__init__(reason)
        self.complete = complete


class Range(NamedTuple):
    """One numeric alternative: bounds, both inclusive, and what else must hold."""

    low: int
    high: int
    step: int = 1
    pow2: bool = False

    def holds(self, whole: int) -> bool:
        """Whether the number is inside."""
        fits = self.low <= whole <= self.high and whole % self.step == 0
        return fits and (not self.pow2 or whole.bit_count() == 1)

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        bounds = f"at least {self.low}" if self.high == INT64_MAX else f"{self.low} to {self.high}"
        if self.pow2:
            return f"{bounds} and a power of two"
        return f"{bounds} and a multiple of {self.step}" if self.step > 1 else bounds


class Allowed(NamedTuple):
    """A parsed `allowed` column: words, numeric ranges, and whether a free form is among them."""

    words: tuple[str, ...]
    ranges: tuple[Range, ...]
    free: bool

    def __str__(self) -> str:
        texts = [*self.words, *map(str, self.ranges)]
        if len(texts) > 1 and all(r.low == r.high for r in self.ranges):
            return "one of " + ", ".join(texts)
        return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _range(alternative: str) -> Range | None:
    """Parse one alternative such as ``64``, ``1..32``, ``>=8192 step=8`` or ``>0 pow2``."""
    found = re.fullmatch(r"(>=|>)?(-?\d+)(?:\.\.(-?\d+))?(?: step=(\d+))?( pow2)?", alternative)
    if not found:
        return None
    compare, first, last, step, pow2 = found.groups()
    low = int(first) + (compare == ">")
    high = INT64_MAX if compare else int(last or first)
    return Range(low, high, int(step or 1), bool(pow2))


@functools.cache
def allowed(spec: str) -> Allowed:
    """Parse an `allowed` column; the releases behind ``@`` are dropped, so any release's value counts."""
    words: list[str] = []
    ranges: list[Range] = []
    for alternative in dict.fromkeys(part.partition("@")[0] for part in spec.split("|")):
        parsed = _range(alternative)
        if parsed:
            ranges.append(parsed)
        elif not alternative.startswith("<"):
            words.append(alternative)
    widest = [r for r in ranges if not any(o != r and o.low <= r.low and r.high <= o.high for o in ranges)]
    return Allowed(tuple(words), tuple(widest), free="<" in spec)


def text(value: Value) -> str:
    """Return free text unchanged; a number keeps its digits, but true or 1.10 has lost what was written."""
    if isinstance(value, bool | float):
        message = f"is a {type(value).__name__}, and this variable takes text: put it in quotes"
        raise RefusedError(message)
    if not isinstance(value, str | int):
        message = f"must be one text, not a {type(value).__name__}"
        raise RefusedError(message)
    return str(value)


def number(value: Value, spec: Allowed) -> str:
    """Return a whole number inside the allowed ranges, in plain decimal."""
    if spec.free:
        return text(value)
    if isinstance(value, str) and INTEGER.fullmatch(value):
        value = int(value[:21])  # more digits do not fit into 64 bits either way
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"must be {spec}, in plain decimal"
        raise RefusedError(message)
    if not INT64_MIN <= value <= INT64_MAX:
        raise RefusedError("does not fit into 64 bits", complete=True)
    if not any(r.holds(value) for r in spec.ranges):
        message = f"must be {spec}"
        raise RefusedError(message)
    return str(value)


def _converted(octets: int, spec: Allowed) -> str:
    try:
        return number(octets, spec)
    except RefusedError:
        message = f"is {octets} bytes, and must be {spec}"
        raise RefusedError(message, complete=True) from None


def size(value: Value, spec: Allowed) -> str:
    """Return bytes; text may carry KiB, MiB or GiB, the only units that mean one thing everywhere."""
    if isinstance(value, str):
        found = re.fullmatch(r"(0|[1-9][0-9]{0,17})(kib|mib|gib)", value, re.IGNORECASE | re.ASCII)
        if found:
            return _converted(int(found[1]) * UNITS[found[2].lower()], spec)
        if re.fullmatch(r"[0-9.]+ *([kmgt]i?)?b?", value, re.IGNORECASE | re.ASCII) and not value.isdigit():
            raise RefusedError("write plain bytes, or a whole number of KiB, MiB or GiB such as 16MiB")
    return number(value, spec)


def switch(value: Value, spec: Allowed) -> str:
    """Return 0 or 1, also for true, false, yes, no, on, off."""
    if isinstance(value, bool):
        return number(int(value), spec)
    plain = SWITCH.get(value.lower(), value) if isinstance(value, str) else value
    if isinstance(plain, str) and not INTEGER.fullmatch(plain):
        message = f"must be {spec} (or true, false, yes, no, on, off)"
        raise RefusedError(message)
    return number(plain, spec)


def real(value: Value) -> str:
    """Return a positive decimal number; whole ones lose their point."""
    plain = value if isinstance(value, str) else repr(value)
    parsed = 0.0
    if re.fullmatch(r"[0-9]{1,300}(\.[0-9]{0,300})?(e[+-]?[0-9]{1,4})?", plain, re.IGNORECASE | re.ASCII):
        parsed = float(plain)
    if not math.isfinite(parsed) or parsed <= 0:
        raise RefusedError("must be a decimal number above 0")
    return repr(parsed).removesuffix(".0")


def choice(value: Value, spec: Allowed) -> str:
    """Return one of the words, in the catalogue's case, or one of the numbers."""
    if not spec.words:
        return number(value, spec)
    plain = text(value) if spec.free else str(value)
    for word in spec.words:
        if word.lower() == plain.lower():
            return word
    if spec.free or INTEGER.fullmatch(plain):
        return number(plain, spec)
    message = f"must be {spec}{nearest(plain, spec.words)}"
    raise RefusedError(message, complete=plain.isdecimal())  # 04 is neither a word nor ignored by NCCL


def flags(value: Value, spec: Allowed) -> str:
    """Return one alternative, or several of the words joined by a bar."""
    plain = text(value)
    if "|" not in plain:
        return choice(plain, spec)
    words = Allowed(spec.words, (), free=False)
    return "|".join(dict.fromkeys(choice(word, words) for word in plain.split("|")))


def listing(value: Value, spec: Allowed, what: str = "name that NCCL knows here") -> str:
    """Return a comma list with an optional leading caret, without repetition, in the given order."""
    plain = text(value)
    if any(c.isspace() for c in plain):
        raise RefusedError("must not contain blanks: NCCL takes them as part of the name")
    names = [_known(token, spec.words, what) for token in plain.removeprefix("^").split(",")]
    return "^" * plain.startswith("^") + ",".join(dict.fromkeys(names))


def expression(value: Value, spec: Allowed, what: str) -> str:
    """Return ``[list;]function:list;...`` of algorithms or protocols, function names in lower case."""
    entries: dict[str, str] = {}
    for position, entry in enumerate(text(value).split(";")):
        function, colon, names = entry.rpartition(":")
        function = _known(function, FUNCTIONS, "collective") if colon else ""
        if position and entry and not colon:
            message = f"{entry!r} lacks its function: only the first entry may stand without one"
            raise RefusedError(message)
        if entry and function in entries:
            message = f"names {function} twice, and NCCL would keep only the last entry"
            raise RefusedError(message, complete=True)
        entries[function] = listing(names, spec, what)
    return ";".join(f"{function}:{names}" if function else names for function, names in entries.items())


def _known(token: str, spellings: tuple[str, ...], what: str) -> str:
    """Return the canonical spelling of one name."""
    if not token:
        raise RefusedError("has an empty entry", complete=True)
    for spelling in spellings:
        if spelling.lower() == token.lower():
            return spelling
    caret = " (the caret stands once, before the whole list)" if "^" in token else ""
    meant = nearest(token, spellings) or "."
    message = f"{token!r} is no {what}{caret}{meant} Known: {', '.join(spellings)}"
    raise RefusedError(message)
