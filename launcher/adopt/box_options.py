"""What options of a container mean for a server on the host itself: GPUs, ports and folders have to be said."""

from __future__ import annotations

import re

_HOST = "of the container; launch runs the server on the host itself"
_GPUS = re.compile(r"\bdevice(?:_ids)?[=:]\s*\[?((?:\s*[\"']?\d+[\"']?\s*,?)+)")
_PORT = re.compile(r"(?:[\d.]+:)?(\d+):(\d+)(?:/tcp)?")


def why(option: str, values: list[str]) -> str:
    """Return what to tell of an option of ``docker run``, or of a key of a compose service."""
    if option in ("--gpus", "deploy", "device_ids"):
        gpus = [gpu for value in values for found in _GPUS.findall(value) for gpu in re.findall(r"\d+", found)]
        if gpus:
            return f"the container sees these GPUs alone, and the host has more: say 'engine.gpus=[{','.join(gpus)}]'"
    if option in ("-p", "--publish", "ports"):
        ports = [found.groups() for value in values if (found := _PORT.fullmatch(value))]
        moved = [f"{outside}, not {inside}" for outside, inside in ports if outside != inside]
        if moved:
            return f"clients use port {'; '.join(moved)}: nothing maps ports on the host, so say engine.port"
    if option in ("-v", "--volume", "volumes"):
        pairs = [value.split(":") for value in values if value.startswith(("/", "~", "."))]
        moved = [f"{pair[1]} is {pair[0]} on the host" for pair in pairs if len(pair) > 1 and pair[0] != pair[1]]
        if moved:
            return f"{'; '.join(moved)}: say model.path, or whatever else lies there, as the host has it"
    return _HOST
