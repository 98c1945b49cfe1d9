"""The command line of an engine as flags by their canonical names, read as the engine's own parser would."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.catalogue import engines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NUMBER = re.compile(r"-\d+(\.\d*)?(e[+-]?\d+)?|-\.\d+", re.IGNORECASE)
#: Flags of vLLM that collect what every repetition gives; all others keep the last one.
_COLLECTING = ("--middleware",)


@dataclass(frozen=True)
class Option:
    """One flag as it was given.

    Attributes:
        flag: canonical name with dashes; ``--no-x`` keeps its no.
        written: the name as it was written.
        name: the long name that reaches the engine: as written, where that is one.
        values: none for a bare flag.
        known: whether any release that was read has it.
        takes: none, one, optional or many values; empty where it is not known.
    """

    flag: str
    written: str
    name: str
    values: tuple[str, ...]
    known: bool
    takes: str = ""

    @property
    def key(self) -> str:
        """What ``engine.args`` calls it."""
        return self.name[2:].replace("-", "_")

    @property
    def switch(self) -> str:
        """The same for a switch and its opposite."""
        return f"--{self.flag[5:]}" if self.flag.startswith("--no-") else self.flag


@dataclass(frozen=True)
class Flags:
    """All flags of a command line.

    Attributes:
        options: in the order of the first mention; of a repeated one what the engine keeps.
        words: what belongs to no flag, such as vLLM's model.
        repeated: names of flags that were given more than once, of which the last one counts.
        lost: flags whose repetitions add up, which no configuration can say.
    """

    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    lost: tuple[Option, ...] = ()

    def get(self, flag: str) -> Option | None:
        """Return a flag by its canonical name."""
        return next((option for option in self.options if option.flag == flag), None)

    def without(self, *flags: str) -> Flags:
        """Return all others."""
        return Flags(tuple(o for o in self.options if o.flag not in flags), self.words, self.repeated, self.lost)


def read(engine: str, words: Sequence[str], version: str = "", positional: int = 0) -> Flags:
    """Return the flags of a command line.

    Args:
        engine: sglang or vllm.
        words: all behind the program.
        version: as installed; empty: not known, then a name of any release counts.
        positional: how many words may stand alone.
    """
    found: dict[str, Option] = {}
    repeated: list[str] = []
    lost: list[Option] = []
    alone: list[str] = []
    for item in _items(engine, list(words), version or None, positional):
        if isinstance(item, str):
            alone.append(item)
            continue
        before = found.get(item.switch)
        if before is not None and item.flag in _COLLECTING and engine == "vllm":
            lost.append(before)
        elif before is not None:
            repeated.append(item.written)
        found[item.switch] = item
    options = tuple(_merged(list(found.values()))) if engine == "vllm" else tuple(found.values())
    heads = {flag.partition(".")[0] for flag in found if "." in flag}
    repeated += [option.written for option in found.values() if engine == "vllm" and option.flag in heads]
    return Flags(options, tuple(alone), tuple(dict.fromkeys(repeated)), tuple(lost))


def canonical(engine: str, key: str) -> str:
    """Return the canonical name of what ``engine.args`` calls by this key."""
    word = f"--{key.replace('_', '-')}"
    found = engines.names(engine).get(word)
    return found.name if found else word


def _items(engine: str, words: list[str], version: str | None, positional: int) -> Iterator[Option | str]:
    """Yield flags and words that stand alone, in their order."""
    index, alone = 0, 0
    while index < len(words):
        word = words[index]
        index += 1
        if not is_flag(word):
            alone += 1
            yield word
            continue
        written, sign, value = word.partition("=")
        found = engines.find(engine, word, version) or engines.find(engine, word)
        takes = found[1].takes if found else ""
        values: list[str] = [value] if sign else []
        if engine == "vllm" and re.fullmatch(r"-O\d", written):
            written, values = "-O", [written[2:]]
        elif not sign:
            most = {"none": 0, "one": 1, "optional": 1}.get(takes, len(words))
            while index < len(words) and len(values) < most and not is_flag(words[index]):
                values.append(words[index])
                index += 1
            if not found and alone < positional and values and index == len(words):
                index -= 1  # the last word may be the model as well as a value of a flag that nobody knows
                values.pop()
        yield _option(engine, written, tuple(values), found)


def is_flag(word: str) -> bool:
    """Return whether a parser of flags takes a word for one: a negative number and a sentence are values."""
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word) and " " not in word


def _option(engine: str, written: str, values: tuple[str, ...], found: tuple[str, engines.Flag] | None) -> Option:
    spelled = written.replace("_", "-") if engine == "vllm" and "." not in written else written
    if found is None:
        return Option(spelled.replace("_", "-"), written, _long(spelled), values, known=False)
    name, flag = found
    tail = written.partition(".")[2] if engine == "vllm" else ""
    canonical = name if name.startswith("--no-") and not flag.name.startswith("--no-") else flag.name
    long = name if name.startswith("--") else flag.name
    if tail:
        return Option(f"{flag.name}.{tail}", written, f"{long}.{tail}", values, known=True, takes="one")
    return Option(canonical, written, long, values, known=True, takes=flag.takes)


def _long(name: str) -> str:
    return name if name.startswith("--") else f"-{name}"


def _merged(options: list[Option]) -> Iterator[Option]:
    """Yield ``--flag.key value`` of vLLM as the one JSON value that it makes of them."""
    trees: dict[str, dict[str, object]] = {}
    for option in options:
        head, dot, tail = option.flag.partition(".")
        if dot:
            _put(trees.setdefault(head, {}), tail, option.values[-1] if option.values else "true")
    for option in options:
        head, dot, _ = option.flag.partition(".")
        if not dot and option.flag in trees:
            continue
        if not dot:
            yield option
        elif (tree := trees.pop(head, None)) is not None:
            text = json.dumps(tree, separators=(",", ":"))
            name = option.name.partition(".")[0]
            yield Option(head, option.written, name, (text,), known=option.known, takes="one")


def _put(tree: dict[str, object], path: str, text: str) -> None:
    *parents, last = path.removesuffix("+").split(".")
    for part in parents:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if path.endswith("+"):
        before = tree.get(last, [])
        value = [*(before if isinstance(before, list) else [before]), *(value if isinstance(value, list) else [value])]
    tree[last] = value
