"""Back to an older generation: an ordinary change whose files come from this host."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping

from . import change, generations, origin, record, systemd
from .lease import holder
from .processes import read_process

Emit = Callable[[str], None]


def history(name: str) -> Dict[str, Any]:
    """Return the generations of a deployment on this host.

    Returns:
        ``history`` (the oldest first), ``kept`` (numbers that can be returned to, with their manifests), ``applied``
        (number and digest of the one in force), ``origin`` (whether generation 0 is known) and who ``holds`` the host.
    """
    kept: Dict[str, Any] = {}
    for number in generations.numbers(name):
        try:
            kept[str(number)] = generations.load(name, number)["manifest"]
        except record.RecordError:
            continue
    try:
        applied = record.load(name)["digest"]
    except record.RecordError:
        applied = ""
    zero = origin.read(name) is not None
    return {"history": generations.history(name), "kept": kept, "applied": applied, "origin": zero, "holds": holder()}


def rollback(request: Mapping[str, Any], program: str, emit: Emit) -> Dict[str, Any]:
    """Apply an older generation.

    Args:
        request: as of `transaction.run`, with ``name`` and ``number`` in place of files, commands and needs; the
            secrets stay those that lie on this host.
        program: text of this agent.
        emit: called with lines of progress.
    """
    name, number = request["name"], request["number"]
    try:
        old = generations.load(name, number)
    except record.RecordError as error:
        return {"outcome": "refused", "message": str(error), "evidence": []}
    missing = [path for path in old["secrets"] if not os.path.exists(path)]
    if missing:
        message = f"generation {number} needs secrets that are not here any more"
        return {"outcome": "refused", "message": message, "evidence": missing}
    unit = record.unit_of(name)
    process = read_process(int(systemd.properties(unit).get("MainPID", 0)))
    running = ((process.env if process else None) or {}).get("LAUNCH_DIGEST", "")
    whole = {
        **request,
        **{key: old[key] for key in ("files", "commands", "needs")},
        "unit": unit,
        "secrets": [],
        "kept_secrets": old["secrets"],
        "intent": {**old["intent"], "by": request["by"], "launch": request["launch"]},
        "restart": running != old["digest"],
    }
    return change.begin(whole, program, emit)
