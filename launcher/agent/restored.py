"""What serves on a host when a sweep has put it back: a proven release of ours, or why it is none to be measured."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from . import record, serving, systemd
from .failed import ChangeError
from .manifest import ManifestError, parse
from .neighbours import POINTER
from .processes import read_bytes


def proven(unit: str, back: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Return the manifest of what serves, and the proof that its processes carry it.

    Args:
        unit: that serves.
        back: what came of putting it back: ``outcome`` ``restored`` or ``failed``, ``serves``, and in ``evidence`` what
            the drift check counts.

    Raises:
        ChangeError: it is not back as it was, nothing serves, or it is no release of ours.
        SystemdError: the manager does not answer.
    """
    if back["outcome"] != "restored":
        raise ChangeError(f"production is not back: {back['serves']}")
    if back["evidence"]:
        raise ChangeError(f"production is back, and drifts: {'; '.join(back['evidence'])}", list(back["evidence"]))
    if systemd.properties(unit)["ActiveState"] != "active":
        raise ChangeError("nothing was served here before the sweep")
    text = (read_bytes(f"{record.UNITS}/{unit}") or b"").decode("utf-8", "replace")
    found = POINTER.search(text)
    try:
        manifest = parse((read_bytes(found.group(1) + ".json") or b"").decode("utf-8"), "its manifest") if found else {}
    except (ManifestError, ValueError) as error:
        raise ChangeError(f"what serves cannot be proven: {error}") from error
    if not manifest:
        raise ChangeError("what serves is no release of launch, so nothing says what it should carry")
    return manifest, serving.prove(unit, manifest)
