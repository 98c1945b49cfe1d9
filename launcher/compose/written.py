"""Values in the form in which they were written, where YAML or Hydra read something else into them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from launcher import schema

if TYPE_CHECKING:
    from launcher.compose.sources import Sources


def _inner_fields(name: str) -> tuple[dataclasses.Field[Any], ...]:
    cls = getattr(schema, name, None)
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


#: Fields of text that are often written as bare numbers.
_TEXT = tuple(
    f"{field.name}.{inner.name}"
    for field in dataclasses.fields(schema.Deployment)
    if isinstance(field.type, str)
    for inner in _inner_fields(field.type)
    if inner.type == "str"
)


def keep_as_written(data: dict[str, Any], sources: Sources) -> None:
    """Give flags and texts back the form in which they were written, and flags one order whatever was typed.

    Hydra and YAML read `1_000`, `1e-5` or `on` as numbers and switches; the engine shall get what stands there.
    """
    for key in _TEXT:
        group, name = key.split(".")
        value = (data.get(group) or {}).get(name) if isinstance(data.get(group), dict) else None
        if isinstance(value, int | float):
            data[group][name] = sources.written(key, value) or str(value)
    args = data.get("engine", {}).get("args") if isinstance(data.get("engine"), dict) else None
    if not isinstance(args, dict):
        return
    for key, value in args.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            args[key] = sources.written(f"engine.args.{key}", value) or value
    in_files = {key for source in sources.files for key in source.names("engine.args")}
    data["engine"]["args"] = dict(sorted(args.items(), key=lambda item: "" if item[0] in in_files else item[0]))
