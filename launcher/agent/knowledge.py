"""Names that the catalogue knows, filled in when the agent is bundled; empty when run from a checkout."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

#: Environment variables that are known to change a server's behaviour.
SETTINGS: FrozenSet[str] = frozenset()
#: Families of variables that are watched; an unknown name in one of them is worth a warning.
PREFIXES: Tuple[str, ...] = ()
#: What an engine sets in its own processes: values by name by engine, None for any value.
ADDITIONS: Dict[str, Dict[str, Optional[List[str]]]] = {}
#: How NCCL's log shows that it took a variable, by name (catalogue, column log_evidence).
EVIDENCE: Dict[str, str] = {}
#: What images of CUDA say of themselves; neither NCCL nor CUDA reads them.
FACTS = frozenset({"NCCL_VERSION", "CUDA_VERSION"})
#: Loader variables: they change which code runs.
LOADER = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME"})


def watched(name: str) -> bool:
    """Return whether a variable belongs to a family that decides how the server communicates."""
    return name not in FACTS and (name in SETTINGS or name in LOADER or name.startswith(PREFIXES))


def extras(env: Mapping[str, str], manifest: Mapping[str, Any], *, own: bool) -> Tuple[List[str], List[str]]:
    """Split the watched variables that no release set into refused and merely odd ones.

    Args:
        env: of a process.
        manifest: of the release.
        own: whether the engine's own additions are expected here (they are not in the guard).

    Returns:
        Names that the catalogue knows as settings, and names that are only worth a warning.
    """
    known = ADDITIONS.get(manifest["engine"], {}) if own else {}
    refused: List[str] = []
    odd: List[str] = []
    for name in sorted(env):
        if name in manifest["env"] or name in manifest.get("secrets", {}).get("env", []) or not watched(name):
            continue
        allowed = known.get(name, []) if name in known else []
        if name in known and (allowed is None or env[name] in allowed):
            continue
        (refused if name in SETTINGS else odd).append(name)
    return refused, odd
