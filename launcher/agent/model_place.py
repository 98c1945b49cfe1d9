"""Where an engine takes a model from: a folder, or the hub's cache of the unit's user.

The cache is laid out as https://huggingface.co/docs/hub/local-cache says; its place follows from the variables in
the order of huggingface_hub's constants.py: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Mapping

from .model_files import Subject, gguf, inspect
from .obstacle import WARN, Obstacle

_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_TRUE = ("1", "ON", "YES", "TRUE")
_MODELSCOPE = ("VLLM_USE_MODELSCOPE", "SGLANG_USE_MODELSCOPE")
_NOTHING: Dict[str, Any] = {"rows": [], "config": None, "bytes": 0, "largest": 0}


def look(subject: Subject, model: Mapping[str, Any], env: Mapping[str, str], home: str, cwd: str) -> Dict[str, Any]:
    """Find a model as the engine will, and look at its files, as the user that this process is.

    Args:
        subject: the model or its draft.
        model: ``load_format``, ``tokenizer`` (whether one must be there), ``revision``, ``download_dir``.
        env: variables that the server will have.
        home: of its user.
        cwd: its working directory.

    Returns:
        As `model_files.inspect`; empty where the model comes from somewhere else, or a form that nobody knows.
    """
    path = subject.path
    local = os.path.join(cwd, path)
    if path.endswith(".gguf") and (os.path.isabs(path) or os.path.exists(local)):
        return {**_NOTHING, "rows": gguf(subject)}
    if os.path.isabs(path) or os.path.isdir(local):
        return _inspect(subject, local, model)
    if ":" in path or any(env.get(name, "").upper() in _TRUE for name in _MODELSCOPE):
        return dict(_NOTHING)
    if not _ID.fullmatch(path):
        text = f"neither a folder below {cwd} nor a name on the hub (ORGANIZATION/MODEL); set an absolute path"
        return {**_NOTHING, "rows": [subject.refuse("folder", text)]}
    return _cached(subject, model, env, home)


def cache(env: Mapping[str, str], home: str) -> str:
    """Return the hub's cache of a user."""
    own = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    places = (env.get("HF_HUB_CACHE"), env.get("HUGGINGFACE_HUB_CACHE"), os.path.join(own, "hub"))
    return re.sub(r"^~(?=/|$)", lambda _: home, next(place for place in places if place))


def _cached(subject: Subject, model: Mapping[str, Any], env: Mapping[str, str], home: str) -> Dict[str, Any]:
    place = str(model.get("download_dir") or "") or cache(env, home)
    if "$" in place:
        return dict(_NOTHING)
    folder = os.path.join(place, "models--" + subject.path.replace("/", "--"))
    if _closed(folder):
        text = f"the hub's cache {folder} may not be read by the unit's user; open it, or set engine.user"
        return {**_NOTHING, "rows": [subject.refuse("unreadable", text)]}
    offline = (env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE
    snapshot = _snapshot(folder, str(model.get("revision") or "main"))
    if snapshot:
        found = _inspect(subject, snapshot, model)
    else:
        row = subject.refuse("missing", f"it is not in the hub's cache {place}")
        found = {**_NOTHING, "rows": [row]}
    found["rows"] = [_advised(row, offline=offline) for row in found["rows"]]
    partial = glob.glob(os.path.join(glob.escape(folder), "blobs", "*.incomplete"))
    if found["rows"] and partial:
        found["rows"].append(subject.broken_off(partial))
    return found


def _inspect(subject: Subject, folder: str, model: Mapping[str, Any]) -> Dict[str, Any]:
    form, tokenizer = str(model.get("load_format") or ""), bool(model.get("tokenizer", True))
    return inspect(subject, folder, form, tokenizer=tokenizer)


def _closed(folder: str) -> bool:
    try:
        os.listdir(os.path.join(folder, "snapshots"))
    except OSError as why:
        return isinstance(why, PermissionError)
    return False


def _snapshot(folder: str, revision: str) -> str:
    """Return the folder of a revision (a branch or a commit) as the hub's library finds it, "" if it does not."""
    try:
        with open(os.path.join(folder, "refs", revision), encoding="ascii") as stream:
            revision = stream.read().strip()
    except (OSError, ValueError):
        pass
    path = os.path.join(folder, "snapshots", revision)
    return path if revision and os.path.isdir(path) else ""


def _advised(row: Obstacle, *, offline: bool) -> Obstacle:
    """Say what becomes of it: what is missing is downloaded; what is damaged counts as there and stays as it is."""
    if row.id.endswith("-missing") and not offline:
        return row._replace(severity=WARN, text=row.text + "; the server will download it at its start, or fail")
    if row.id.endswith("-missing"):
        return row._replace(text=row.text + "; HF_HUB_OFFLINE forbids a download: run hf download as the unit's user")
    return row
