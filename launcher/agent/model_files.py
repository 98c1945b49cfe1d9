"""The files of a model's folder: there, readable, whole. Reads headers and sizes, never the weights.

Why before the start: a shard that the index names and that is not there was left out in silence, and the server
answered nonsense, until SGLang (sgl-project/sglang#32279, July 2026) and vLLM (vllm-project/vllm#41811, May 2026; of
quantized models before) looked for it; a file cut short is found minutes after the old server was stopped
("MetadataIncompleteBuffer", later "incomplete metadata, file not fully covered", QwenLM/Qwen3-VL#264).
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import zipfile
from typing import IO, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from .obstacle import Obstacle, refuse, some, warn

_LFS = b"version https://git-lfs"
#: As the safetensors library has it (MAX_HEADER_SIZE).
_MAX_HEADER = 100_000_000
#: What tokenizers are read from: fast and slow ones of transformers, SentencePiece, tiktoken (Kimi), Mistral's own.
_TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model*", "*.tiktoken", "tiktoken.model"),
    *("tekken.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece*.model"),
)
#: Formats that take the weights from files of these patterns, the first that matches anything; a format that is not
#: here brings its weights along in another way, and nothing is said of them.
_ANY = ("*.safetensors", "*.bin", "*.pt")
_PATTERNS = {
    **dict.fromkeys(("", "auto", "hf", "bitsandbytes", "layered", "flash_rl"), _ANY),
    **dict.fromkeys(("safetensors", "fastsafetensors", "instanttensor", "runai_streamer"), _ANY[:1]),
    "pt": _ANY[1:],
    "npcache": _ANY[1:2],
    "mistral": ("consolidated*.safetensors",),
}
_INDICES = {
    "*.safetensors": "model.safetensors.index.json",
    "*.bin": "pytorch_model.bin.index.json",
    "consolidated*.safetensors": "consolidated.safetensors.index.json",
}
#: Lie beside weights and are none (both engines leave them out).
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pt")
_NUMBERED = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.\w+)")


class Subject(NamedTuple):
    """Whose files they are: ``prefix`` of the ids, ``key`` of the configuration, ``path`` as it is set there."""

    prefix: str
    key: str
    path: str

    def refuse(self, id_: str, text: str) -> Obstacle:
        """Return what the server cannot start with, and the remedy for it."""
        return refuse(f"{self.prefix}-{id_}", f"{self.key}={self.path}: {text}")

    def broken_off(self, paths: List[str]) -> Obstacle:
        """Return what explains that files are missing."""
        text = f"{self.key}={self.path}: downloads broken off or still under way: {some(paths, 1)}"
        return warn(f"{self.prefix}-incomplete", text)


def inspect(subject: Subject, folder: str, load_format: str, *, tokenizer: bool) -> Dict[str, Any]:
    """Look at a model's folder as the user that this process is.

    Args:
        subject: the model or its draft.
        folder: where the files are.
        load_format: the engine's, "" where it is not set.
        tokenizer: whether one must be there.

    Returns:
        ``rows`` (obstacles), ``config`` (None when it cannot be read), ``bytes`` of all weights, ``largest`` file.
    """
    found: Dict[str, Any] = {"rows": [], "config": None, "bytes": 0, "largest": 0}
    try:
        names = sorted(os.listdir(folder))
    except OSError as why:
        found["rows"].append(subject.refuse("folder", f"the folder {_cannot(why)}{_for_folder(why)}"))
        return found
    found["config"], wrong = _config(subject, folder, names)
    found["rows"] += wrong
    if tokenizer:
        found["rows"] += _tokenizer(subject, folder)
    patterns = _PATTERNS.get(load_format)
    if patterns:
        rows, sizes = _weights(subject, folder, patterns)
        found.update(rows=found["rows"] + rows, bytes=sum(sizes), largest=max(sizes, default=0))
    if found["rows"]:
        found["rows"] += _broken_off(subject, folder)
    return found


def _broken_off(subject: Subject, folder: str) -> List[Obstacle]:
    """Name downloads that did not end; where nothing is missing they are of no interest."""
    places = ("*.incomplete", "*.aria2", ".cache/huggingface/download/*.incomplete")
    partial = [path for name in places for path in glob.glob(os.path.join(glob.escape(folder), name))]
    return [subject.broken_off(partial)] if partial else []


def gguf(subject: Subject) -> List[Obstacle]:
    """Look at a model that is one file."""
    return _files(subject, os.path.dirname(subject.path), [os.path.basename(subject.path)], "")[0]


def _cannot(why: OSError) -> str:
    if why.errno in (errno.ENOENT, errno.ENOTDIR):
        return "is not there"
    if why.errno in (errno.EACCES, errno.EPERM):
        return "may not be read by the unit's user"
    return f"cannot be read: {os.strerror(why.errno or 0)}"


def _for_folder(why: OSError) -> str:
    if why.errno in (errno.EACCES, errno.EPERM):
        return "; open it and the folders above to that user (namei -l shows them), or set engine.user"
    return "; mount or copy it, or correct the path"


def _config(subject: Subject, folder: str, names: List[str]) -> Tuple[Optional[Dict[str, Any]], List[Obstacle]]:
    """Read ``config.json``; a model in Mistral's own form has ``params.json`` instead."""
    if "config.json" not in names:
        missing = subject.refuse("missing", "config.json is not there; this is no folder of a model, or half of one")
        return None, [] if "params.json" in names else [missing]
    try:
        with open(os.path.join(folder, "config.json"), "rb") as stream:
            text = stream.read()
        if text.startswith(_LFS):
            return None, [subject.refuse("config", "config.json is a git-LFS pointer; run git lfs pull there")]
        config = json.loads(text.decode("utf-8"))
    except OSError as why:
        return None, [subject.refuse("config", f"config.json {_cannot(why)}; chmod a+r, or copy it again")]
    except ValueError as why:
        return None, [subject.refuse("config", f"config.json is no JSON ({why}); copy it again")]
    if not isinstance(config, dict):
        return None, [subject.refuse("config", "config.json holds no object; copy it again")]
    return config, []


def _tokenizer(subject: Subject, folder: str) -> List[Obstacle]:
    paths = {path for name in _TOKENIZERS for path in glob.glob(os.path.join(glob.escape(folder), name))}
    if paths:
        return _files(subject, folder, sorted(map(os.path.basename, paths)), "")[0]
    text = "no tokenizer is there (tokenizer.json, tokenizer.model or the like); copy it, or name another one's folder"
    return [subject.refuse("missing", text)]


def _weights(subject: Subject, folder: str, patterns: Iterable[str]) -> Tuple[List[Obstacle], List[int]]:
    """Check every file that the engine will load: those of the index, else all of the first pattern that matches."""
    for pattern in patterns:
        index = os.path.join(folder, _INDICES.get(pattern, "-"))
        if os.path.lexists(index):
            names, wrong = _of_index(subject, index)
            rows, sizes = _files(subject, folder, names, f" (named in {os.path.basename(index)})")
            return wrong + rows, sizes
        paths = glob.glob(os.path.join(glob.escape(folder), pattern))
        names = sorted(set(map(os.path.basename, paths)) - set(_NO_WEIGHTS))
        if names:
            rows, sizes = _files(subject, folder, sorted({*names, *_unnumbered(names)}), "")
            return rows, sizes
    text = f"no weights are there ({', '.join(patterns)}); copy them, or set engine.args.load_format=dummy for a test"
    return [subject.refuse("missing", text)], []


def _of_index(subject: Subject, path: str) -> Tuple[List[str], List[Obstacle]]:
    name = os.path.basename(path)
    try:
        with open(path, "rb") as stream:
            shards = set(json.loads(stream.read().decode("utf-8"))["weight_map"].values())
        return sorted(map(str, shards)), []
    except OSError as why:
        return [], [subject.refuse("index", f"{name} {_cannot(why)}; chmod a+r, or copy it again")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [], [subject.refuse("index", f"{name} is no index (a git-LFS pointer, or cut short); copy it again")]


def _unnumbered(names: Iterable[str]) -> List[str]:
    """Return the files that are missing in a row ``NAME-00001-of-00005`` where no index names them."""
    rows = {(row[1], row[3], row[4]) for row in map(_NUMBERED.fullmatch, names) if row}
    short = [row for row in rows if int(row[1]) < 10_000]
    return [f"{head}-{number:05d}-of-{of}{end}" for head, of, end in short for number in range(1, int(of) + 1)]


def _files(subject: Subject, folder: str, names: List[str], because: str) -> Tuple[List[Obstacle], List[int]]:
    """Check files, and tell those with one fault in one line."""
    faults: Dict[str, List[str]] = {}
    sizes: List[int] = []
    for name in names:
        fault, size = _look(os.path.join(folder, name))
        sizes.append(size)
        if fault:
            faults.setdefault(fault, []).append(name)
    rows: List[Obstacle] = []
    for fault, bad in faults.items():
        id_, remedy = next(((i, r) for word, i, r in _REMEDIES if word in fault), ("damaged", "copy it again"))
        count = f"{len(bad)} of {len(names)} files, " if len(bad) > 1 else ""
        rows.append(subject.refuse(id_, f"{count}{some(bad)}{because}: {fault}; {remedy}"))
    return rows, sizes


_REMEDIES = (
    ("is not there", "missing", "finish the download or the copy"),
    ("may not be read", "unreadable", "chmod a+r, or set engine.user"),
    ("git-LFS", "pointer", "run git lfs pull there"),
)


def _look(path: str) -> Tuple[str, int]:
    """Return what is wrong with a file, "" if nothing, and its size."""
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(len(_LFS))
            if not head:
                return "is empty", 0
            if head == _LFS:
                return "is a git-LFS pointer, not the file", size
            if path.endswith(".safetensors"):
                return _safetensors(stream, size), size
            cut = head.startswith(b"PK") and path.endswith((".bin", ".pt")) and not zipfile.is_zipfile(stream)
            return "is cut short" if cut else "", size
    except OSError as why:
        return _cannot(why), 0


def _safetensors(stream: IO[bytes], size: int) -> str:
    """Compare a file's length with what its header says: eight bytes of length, JSON, then the tensors without gaps.

    The library refuses a file that is shorter as well as one that is longer.
    """
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > _MAX_HEADER:
        return "is no safetensors file"
    if size < 8 + length:
        return "is cut short (in its header)"
    try:
        header: Mapping[str, Any] = json.loads(stream.read(length).decode("utf-8"))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        should = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "is damaged: its header cannot be read"
    if size == should:
        return ""
    # No sizes: files with one fault share a line.
    return "is cut short (its header promises more)" if size < should else "is longer than its header says"
