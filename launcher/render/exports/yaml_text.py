"""YAML that every reader takes the same way: what is text stands in double quotes, whatever it looks like.

Readers of YAML 1.1 and 1.2 differ in what of plain text is a number or a truth (``0o14``, ``1e3``, ``yes``); PyYAML's
own writer leaves some of it plain.
"""

from __future__ import annotations

import re
import sys

import yaml

#: Plain: words that no version of YAML reads as something else.
_PLAIN = re.compile(r"[a-zA-Z][A-Za-z0-9_./-]{2,}")
_WORDS = frozenset({"yes", "off", "true", "false", "null", "nan", "inf"})


class Block(str):
    """Text of many lines, written as it is."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, False)  # noqa: FBT003


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


def _block(dumper: yaml.SafeDumper, value: Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style="|")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Block, _block)


def document(data: object) -> str:
    """Return plain data as one YAML document, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)


def escaped(text: str) -> str:
    """Return text for Compose and Kubernetes, which both put variables in for ``$`` and read ``$$`` as one."""
    return text.replace("$", "$$")
