"""``launch schema KIND``: the JSON Schema of one kind of file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from launcher.cli.prepare import layers
from launcher.errors import ConfigError, nearest

if TYPE_CHECKING:
    from launcher.cli.parser import CommandLine


def schema(line: CommandLine) -> int:
    """Print a schema."""
    from launcher.editor import KINDS, schema_of

    kind, *others = line.names or ("",)
    if kind not in KINDS or others:
        hint = nearest(kind, KINDS) if kind and not others else ""
        raise ConfigError(f"schema takes one kind of file{hint}: {', '.join(KINDS)}")
    print(json.dumps(schema_of(kind, layers(line)), indent=1, ensure_ascii=False))
    return 0
