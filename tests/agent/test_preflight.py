"""What is missing on a host before a start: weights, caches, drafts, the engine, disks, memory, port, GPUs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.agent import as_user, model_files, model_place, preflight, preflight_draft, preflight_host
from launcher.agent.model_files import Subject
from launcher.agent.obstacle import Obstacle
from tests.agent.preflight_case import SHARDS, hub, model, tensors, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = pwd.getpwnam("nobody")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
STANDIN = Path(__file__).parent.parent / "standin" / "standin.py"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own is closed to others."""
    folder = Path("/var/tmp") / f"preflight-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def inspect(folder: Path, load_format: str = "", *, tokenizer: bool = True) -> dict[str, Any]:
    return model_files.inspect(
        Subject("model", "model.path", str(folder)), str(folder), load_format, tokenizer=tokenizer
    )


# --- weights ---


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: void((folder / name).write_bytes(content))


def remove(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def cut(name: str, by: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - by)


def void(_: object) -> None:
    """Drop a result."""


def as_bin(folder: Path) -> None:
    """Turn a model into one of PyTorch's own files."""
    remove("model.safetensors.index.json", *SHARDS)(folder)
    shutil.make_archive(str(folder / "w"), "zip", folder, "config.json")
    (folder / "w.zip").rename(folder / "pytorch_model.bin")


def chain(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for step in steps:
            step(folder)

    return change


INDEX = "model.safetensors.index.json"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
#: What is done to a whole model, the load format, and the id with a part of the text for each obstacle.
WEIGHTS: dict[str, tuple[Callable[[Path], None], str, list[tuple[str, str]]]] = {
    "whole": (chain(), "", []),
    "whole, as bin": (as_bin, "", []),
    "whole, one file without an index": (chain(remove(INDEX, *SHARDS), write("model.safetensors", tensors())), "", []),
    "numbered without an index": (remove(INDEX), "", []),
    "other files beside those of the index": (write("consolidated.safetensors", b"x"), "", []),
    "Mistral's form": (
        chain(remove("config.json"), write("params.json", b"{}"), write("consolidated.safetensors", tensors())),
        "mistral",
        [],
    ),
    "weights from elsewhere": (remove(INDEX, *SHARDS), "remote_instance", []),
    "no weights, dummy": (remove(INDEX, *SHARDS), "dummy", []),
    "no weights": (remove(INDEX, *SHARDS), "", [("model-missing", "no weights are there")]),
    "only what lies beside": (
        chain(remove(INDEX, *SHARDS), write("training_args.bin", b"x")),
        "",
        [("model-missing", "no weights are there")],
    ),
    "no config": (remove("config.json"), "", [("model-missing", "config.json is not there")]),
    "no config, dummy": (remove("config.json"), "dummy", [("model-missing", "config.json is not there")]),
    "broken config": (write("config.json", b"{"), "", [("model-config", "config.json is no JSON")]),
    "list for a config": (write("config.json", b"[]"), "", [("model-config", "holds no object")]),
    "pointer for a config": (write("config.json", LFS), "", [("model-config", "git lfs pull")]),
    "broken index": (write(INDEX, b"{}"), "", [("model-index", "is no index")]),
    "pointer for an index": (write(INDEX, LFS), "", [("model-index", "is no index")]),
    "shard missing": (remove(SHARDS[1]), "", [("model-missing", f"{SHARDS[1]} (named in {INDEX}): is not there")]),
    "shards missing": (remove(*SHARDS[:2]), "", [("model-missing", "2 of 3 files, model-00001-of-00003")]),
    "numbered, one missing": (
        chain(remove(INDEX), remove(SHARDS[0])),
        "",
        [("model-missing", f"{SHARDS[0]}: is not there; finish the download")],
    ),
    "dangling link": (
        chain(remove(SHARDS[0]), lambda f: (f / SHARDS[0]).symlink_to("../blobs/x")),
        "",
        [("model-missing", "is not there")],
    ),
    "cut by a byte": (cut(SHARDS[2], 1), "", [("model-damaged", f"{SHARDS[2]} (named in {INDEX}): is cut short")]),
    "cut in the header": (lambda f: os.truncate(f / SHARDS[0], 20), "", [("model-damaged", "cut short (in its")]),
    "a byte too many": (cut(SHARDS[0], -1), "", [("model-damaged", "is longer than its header says")]),
    "empty": (write(SHARDS[0], b""), "", [("model-damaged", "is empty; copy it again")]),
    "pointer": (write(SHARDS[0], LFS), "", [("model-pointer", "is a git-LFS pointer, not the file; run git lfs")]),
    "a page of HTML": (write(SHARDS[0], b"<!doctype html>" * 9), "", [("model-damaged", "is no safetensors file")]),
    "header that is no JSON": (
        write(SHARDS[0], (2).to_bytes(8, "little") + b"{{"),
        "",
        [("model-damaged", "its header cannot be read")],
    ),
    "header of another form": (
        write(SHARDS[0], (8).to_bytes(8, "little") + b'{"a": 1}'),
        "",
        [("model-damaged", "its header cannot be read")],
    ),
    "bin cut": (
        chain(as_bin, cut("pytorch_model.bin", 30)),
        "",
        [("model-damaged", "pytorch_model.bin: is cut short")],
    ),
    "bin in the index": (
        chain(as_bin, write("pytorch_model.bin.index.json", b'{"weight_map": {"a": "pytorch_model-1.bin"}}')),
        "",
        [("model-missing", "pytorch_model-1.bin (named in pytorch_model.bin.index.json)")],
    ),
    "safetensors wanted, bin there": (as_bin, "safetensors", [("model-missing", "no weights are there")]),
    "no tokenizer": (remove("tokenizer.json"), "", [("model-missing", "no tokenizer is there")]),
    "tiktoken's": (chain(remove("tokenizer.json"), write("tiktoken.model", b"x")), "", []),
    "pointer for a tokenizer": (write("tokenizer.json", LFS), "", [("model-pointer", "tokenizer.json: is a git-LFS")]),
    "download under way": (
        chain(
            remove(SHARDS[0]),
            lambda f: (f / ".cache/huggingface/download").mkdir(parents=True),
            write(".cache/huggingface/download/x.incomplete", b""),
        ),
        "",
        [("model-missing", SHARDS[0]), ("model-incomplete", "x.incomplete")],
    ),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(case: str, tmp_path: Path) -> None:
    change, load_format, expected = WEIGHTS[case]
    change(model(tmp_path))
    found = inspect(tmp_path, load_format)
    assert [row.id for row in found["rows"]] == [id_ for id_, _ in expected], found["rows"]
    for row, (_, text) in zip(found["rows"], expected, strict=True):
        assert text in row.text
        assert row.text.startswith(f"model.path={tmp_path}: ")


def test_sizes_and_config(tmp_path: Path) -> None:
    found = inspect(model(tmp_path))
    sizes = [(tmp_path / name).stat().st_size for name in SHARDS]
    assert (found["bytes"], found["largest"]) == (sum(sizes), max(sizes))
    assert found["config"]["hidden_size"] == 64


def test_a_draft_needs_no_tokenizer(tmp_path: Path) -> None:
    remove("tokenizer.json")(model(tmp_path))
    assert inspect(tmp_path, tokenizer=False)["rows"] == []


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    row = inspect(tmp_path / "x")["rows"][0]
    assert row.id == "model-folder"
    assert "the folder is not there; mount or copy it" in row.text


#: Path below the place whose mode is taken away, and what is said.
CLOSED = {
    "shard": (SHARDS[1], 0o600, ("model-unreadable", f"{SHARDS[1]} (named in {INDEX}): may not be read")),
    "config": ("config.json", 0o600, ("model-config", "config.json may not be read")),
    "index": (INDEX, 0o600, ("model-index", "may not be read")),
    "folder": (".", 0o700, ("model-folder", "namei -l")),
    "folder above": ("..", 0o700, ("model-folder", "may not be read by the unit's user")),
}


@ROOT
@pytest.mark.parametrize("case", CLOSED)
def test_rights_of_the_units_user(case: str, place: Path) -> None:
    name, mode, (id_, text) = CLOSED[case]
    folder = place / "model"
    folder.mkdir(mode=0o755)
    model(folder)
    assert as_user.ask(NOBODY, lambda: inspect(folder)["rows"], 20) == []
    (folder / name).chmod(mode)
    assert inspect(folder)["rows"] == []  # root may
    rows = as_user.ask(NOBODY, lambda: inspect(folder)["rows"], 20)
    assert [row[0] for row in rows] == [id_]
    assert text in rows[0][2]


def test_a_child_that_hangs_or_fails() -> None:
    me = pwd.getpwuid(os.geteuid())
    start = time.monotonic()
    with pytest.raises(as_user.Unanswered, match=r"no answer within 0\.2 s"):
        as_user.ask(me, lambda: time.sleep(30), 0.2)
    assert time.monotonic() - start < 5
    with pytest.raises(as_user.Unanswered, match="ZeroDivisionError"):
        as_user.ask(me, lambda: 1 // 0, 10)
    with pytest.raises(as_user.Unanswered, match="the child process died"):
        as_user.ask(me, lambda: os._exit(0), 10)
    assert len(as_user.ask(me, lambda: "x" * 300_000, 10)) == 300_000


# --- where the model is ---

#: Variables, with {p} for a folder, and the cache that they name.
CACHES = {
    "none": ({}, "/home/u/.cache/huggingface/hub"),
    "XDG": ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    "home": ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
    "old name": ({"HUGGINGFACE_HUB_CACHE": "/o", "HF_HOME": "/h"}, "/o"),
    "cache": ({"HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/o", "HF_HOME": "/h"}, "/c"),
    "tilde": ({"HF_HOME": "~/hf"}, "/home/u/hf/hub"),
}


@pytest.mark.parametrize("case", CACHES)
def test_place_of_the_hubs_cache(case: str) -> None:
    env, place = CACHES[case]
    assert model_place.cache(env, "/home/u") == place


def look(path: str, home: Path, env: dict[str, str] | None = None, **more: Any) -> list[Obstacle]:
    found = model_place.look(Subject("model", "model.path", path), {"path": path, **more}, env or {}, str(home), "/")
    rows: list[Obstacle] = found["rows"]
    return rows


OFFLINE = {"HF_HUB_OFFLINE": "1"}


def test_hub_models(tmp_path: Path) -> None:
    snapshot = hub(tmp_path / ".cache/huggingface/hub", "org/name")
    assert look("org/name", tmp_path) == []
    assert look("org/name", tmp_path, OFFLINE) == []
    assert look("org/name", tmp_path, revision=snapshot.name) == []
    assert texts(look("org/name", tmp_path, revision="v2")) == [("model-missing", "warn")]
    assert texts(look("org/other", tmp_path)) == [("model-missing", "warn")]
    assert "will download it at its start" in look("org/other", tmp_path)[0].text
    assert texts(look("org/other", tmp_path, OFFLINE)) == [("model-missing", "refuse")]
    assert texts(look("org/other", tmp_path, {"TRANSFORMERS_OFFLINE": "yes"})) == [("model-missing", "refuse")]
    assert look("org/name", tmp_path / "x", download_dir=str(tmp_path / ".cache/huggingface/hub")) == []


def test_hub_model_half_there(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    snapshot = hub(cache, "org/name")
    env = {"HF_HUB_CACHE": str(cache)}
    partial = snapshot.parent.parent / "blobs/abc.incomplete"
    partial.touch()
    assert look("org/name", tmp_path, env) == []  # of no interest when all is there
    (snapshot / SHARDS[0]).unlink()
    rows = look("org/name", tmp_path, env)
    assert texts(rows) == [("model-missing", "warn"), ("model-incomplete", "warn")]
    assert str(partial) in rows[1].text
    assert texts(look("org/name", tmp_path, {**env, **OFFLINE}))[0] == ("model-missing", "refuse")
    # What is cut short counts as downloaded, so it stays.
    cut(SHARDS[1], 3)(snapshot)
    assert ("model-damaged", "refuse") in texts(look("org/name", tmp_path, env))


@ROOT
def test_hub_cache_of_another_user(place: Path) -> None:
    snapshot = hub(place, "org/name")
    snapshot.parent.chmod(0o700)
    rows = as_user.ask(NOBODY, lambda: look("org/name", place, {"HF_HUB_CACHE": str(place)}), 20)
    assert [row[0] for row in rows] == ["model-unreadable"]


#: Paths of which nothing can be said here, with the variables.
SILENT: dict[str, dict[str, str]] = {
    "s3://bucket/model": {},
    "org/name:Q4_K_M": {},
    "org/name": {"VLLM_USE_MODELSCOPE": "True"},
    "org/other": {"HF_HOME": "$DATA/hf"},
}


@pytest.mark.parametrize("path", SILENT)
def test_places_that_are_unknown(path: str, tmp_path: Path) -> None:
    assert look(path, tmp_path, SILENT[path]) == []


def test_other_paths(tmp_path: Path) -> None:
    assert "neither a folder below / nor a name" in look("./models/x", tmp_path)[0].text
    file = tmp_path / "m.gguf"
    assert "is not there" in look(str(file), tmp_path)[0].text
    file.write_bytes(b"GGUF....")
    assert look(str(file), tmp_path) == []
    assert "the folder is not there" in look(str(tmp_path / "config.json"), tmp_path)[0].text


# --- drafts ---

TARGET = {"hidden_size": 7168, "vocab_size": 163840}
EAGLE = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 163840}
#: Configurations of model and draft, and the obstacle.
DRAFTS: dict[str, tuple[Any, Any, str]] = {
    "fits": (TARGET, {**EAGLE, "hidden_size": 7168}, ""),
    "of a model with pictures": ({"hidden_size": 1, "text_config": TARGET}, {**EAGLE, "hidden_size": 7168}, ""),
    "deeper": ({"thinker_config": {"text_config": TARGET}}, {**EAGLE, "hidden_size": 4096}, "draft-mismatch"),
    "narrow on purpose": (TARGET, {**EAGLE, "hidden_size": 4096, "target_hidden_size": 7168}, ""),
    "narrow": (TARGET, {**EAGLE, "hidden_size": 4096}, "draft-mismatch"),
    "of another model": (TARGET, {**EAGLE, "hidden_size": 7168, "target_hidden_size": 8192}, "draft-mismatch"),
    "speculators": (
        TARGET,
        {"speculators_model_type": "eagle3", "transformer_layer_config": {"hidden_size": 5120}},
        "draft-mismatch",
    ),
    "said as null": (TARGET, {**EAGLE, "hidden_size": 7168, "target_hidden_size": None}, ""),
    "vLLM's name": (TARGET, {"architectures": ["Eagle3LlamaForCausalLM"], "hidden_size": 64}, "draft-mismatch"),
    "no EAGLE-3": (TARGET, {"architectures": ["DeepseekV3ForCausalLMNextN"], "hidden_size": 64}, ""),
    "width not said": (TARGET, EAGLE, ""),
    "model says nothing": ({}, {**EAGLE, "hidden_size": 1}, ""),
    "model unknown": (None, {**EAGLE, "hidden_size": 1}, ""),
    "draft unknown": (TARGET, None, ""),
    "other words": (TARGET, {**EAGLE, "vocab_size": 128256, "hidden_size": 7168}, "draft-vocabulary"),
    "more words": ({"vocab_size": 30000}, {"draft_vocab_size": 32000}, "draft-vocabulary"),
    "odd values": ({"hidden_size": "7168"}, {**EAGLE, "architectures": None, "hidden_size": [1]}, ""),
}


@pytest.mark.parametrize("case", DRAFTS)
def test_drafts(case: str) -> None:
    target, draft, expected = DRAFTS[case]
    rows = preflight_draft.mismatches(target, draft)
    assert [row.id for row in rows] == ([expected] if expected else [])
    assert all(row.severity == ("refuse" if row.id == "draft-mismatch" else "warn") for row in rows)


# --- the engine ---


def interpreter(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def engine(python: str, name: str = "sglang", cwd: str = "", **env: str) -> list[Obstacle]:
    me = pwd.getpwuid(os.geteuid())
    wanted = {"python": python, "engine": name, "env": env, "working_directory": cwd}
    return preflight._engine(wanted, me, preflight.environment(env, me))


def packages(folder: Path) -> str:
    """Packages that nobody may import: the look must not, it would load torch."""
    (folder / "sglang").mkdir()
    (folder / "vllm/entrypoints/cli").mkdir(parents=True)
    for name in ("sglang", "vllm", "vllm/entrypoints", "vllm/entrypoints/cli"):
        (folder / name / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "sglang/launch_server.py").write_text("raise SystemExit('imported')")
    (folder / "vllm/entrypoints/cli/main.py").write_text("raise SystemExit('imported')")
    return str(folder)


def test_engine_that_is_found(tmp_path: Path) -> None:
    path = packages(tmp_path)
    assert engine(sys.executable, PYTHONPATH=path) == []
    assert engine(sys.executable, "vllm", PYTHONPATH=path) == []
    assert engine(sys.executable, cwd=path) == []  # as -m finds it


def test_engine_that_is_missing(tmp_path: Path) -> None:
    (row,) = engine(sys.executable)
    assert row.id == "engine-missing"
    assert "does not find the module sglang:" in row.text
    path = packages(tmp_path)
    (tmp_path / "sglang/launch_server.py").unlink()
    (row,) = engine(sys.executable, PYTHONPATH=path)
    assert "does not find the module sglang.launch_server:" in row.text
    (tmp_path / "vllm/entrypoints/__init__.py").unlink()  # a rest of something
    assert engine(sys.executable, "vllm", PYTHONPATH=path) == []


def test_interpreter_that_fails(tmp_path: Path) -> None:
    (row,) = engine(interpreter(tmp_path, "#!/bin/sh\necho a >&2; echo 'libpython3.so: not found' >&2; exit 127\n"))
    assert (row.id, row.severity) == ("engine-python", "refuse")
    assert "does not run: libpython3.so: not found;" in row.text
    (row,) = engine(str(tmp_path / "none"))
    assert "No such file" in row.text


def test_interpreter_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_ENGINE_SECONDS", 0.3)
    (row,) = engine(interpreter(tmp_path, "#!/bin/sh\nexec sleep 20\n"))
    assert (row.id, row.severity) == ("engine-unknown", "warn")


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_the_stand_in_is_an_engine(name: str, tmp_path: Path) -> None:
    python = interpreter(tmp_path, f"#!{sys.executable} {STANDIN}\n")
    assert engine(python, name) == []
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.argv)", "a"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['-c', 'a']\n"


# --- the host ---


def disk(free_mib: int = 5000, inodes: int = 9999, files: int = 10000, flags: int = 0) -> Any:
    return SimpleNamespace(f_frsize=1 << 20, f_bavail=free_mib, f_favail=inodes, f_files=files, f_flag=flags)


#: The file system, and the ids for a release with a log file and for the cache.
DISKS: dict[str, tuple[Any, list[str], list[str]]] = {
    "room": (disk(), [], []),
    "full": (disk(3), ["disk-full"], ["disk-full"]),
    "none for logs": (disk(50), ["disk-full"], ["disk-full"]),
    "none for caches": (disk(500), [], ["disk-full"]),
    "no inodes": (disk(inodes=3), ["disk-inodes"], ["disk-inodes"]),
    "inodes are not counted": (disk(inodes=0, files=0), [], []),
    "read-only": (disk(flags=os.ST_RDONLY), ["disk-read-only"], ["disk-read-only"]),
}


@pytest.mark.parametrize("case", DISKS)
def test_disks(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, release, cache = DISKS[case]
    monkeypatch.setattr(preflight_host, "_existing", lambda _: "/")
    monkeypatch.setattr(os, "statvfs", lambda _: seen)
    assert texts(preflight_host.disks("/var/log/x.log")) == [(id_, "refuse") for id_ in release]
    assert texts(preflight_host.cache_disk("/home/u/.cache")) == [(id_, "warn") for id_ in cache]


def test_disks_of_this_machine(tmp_path: Path) -> None:
    assert all(row.id.startswith("disk-") for row in preflight_host.disks(str(tmp_path / "a/b/c.log")))


GIB = 1 << 30
#: Available GiB, GiB held by the own server, bytes and largest file; whether it warns.
MEMORY = {
    "enough": (64, 0, 600 * GIB, 5 * GIB, False),
    "little": (9, 0, 600 * GIB, 4 * GIB, True),
    "little, but the server goes": (9, 2, 600 * GIB, 4 * GIB, False),
    "less than twice the largest": (64, 0, 600 * GIB, 40 * GIB, True),
    "a toy": (2, 0, GIB // 2, GIB // 2, False),
    "a toy, and less": (0, 0, GIB // 2, GIB // 2, True),
    "no weights known": (2, 0, 0, 0, False),
}


@pytest.mark.parametrize("case", MEMORY)
def test_memory(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    available, held, total, largest, warns = MEMORY[case]
    values = {"MemAvailable": available << 20, "RssAnon": held << 20}
    monkeypatch.setattr(preflight_host, "_kib", lambda _, name: values[name])
    assert bool(preflight_host.memory({"bytes": total, "largest": largest}, {1})) == warns


def test_memory_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preflight_host._kib("/proc/meminfo", "MemAvailable")
    assert preflight_host._kib(f"/proc/{os.getpid()}/status", "RssAnon")
    assert preflight_host._kib("/nowhere", "MemAvailable") is None
    monkeypatch.setattr(preflight_host, "_kib", lambda *_: None)
    assert preflight_host.memory({"bytes": 900 * GIB, "largest": 900 * GIB}, set()) == []


@pytest.mark.parametrize(
    ("shm", "count", "own", "expected"),
    [
        ({"size_mib": 64, "free_mib": 64}, 8, set(), "64 MiB in /dev/shm, NCCL may want 2048"),
        ({"size_mib": 64, "free_mib": 64}, 8, {1}, "64 MiB in /dev/shm"),
        ({"size_mib": 64, "free_mib": 64}, 1, set(), ""),
        ({"size_mib": 9000, "free_mib": 10}, 2, set(), "10 of 9000 MiB are free"),
        ({"size_mib": 9000, "free_mib": 10}, 2, {1}, ""),
        (None, 8, set(), ""),
    ],
)
def test_shared_memory(shm: Any, count: int, own: set[int], expected: str) -> None:
    rows = preflight_host.shared_memory(shm, count, own)
    assert bool(rows) == bool(expected)
    assert all(expected in row.text and row.severity == "warn" for row in rows)


def test_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        (row,) = preflight_host.port(number, "0.0.0.0", set())
        assert row.text.startswith(f"port {number} is taken by process {os.getpid()} (")
        assert (row.id, row.severity) == ("port", "refuse")
        assert preflight_host.port(number, "0.0.0.0", {os.getpid()}) == []
        assert preflight_host.port(number, "127.0.0.2", set()) == []
    assert preflight_host.port(number, "0.0.0.0", set()) == []


@pytest.fixture
def job() -> Iterator[int]:
    """A process of somebody else."""
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", "--api-key", "hush"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read(1)
        yield process.pid
        process.kill()


def gpu(index: int, *pids: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "pids": list(pids), "memory_mib": 100_000, **more}


def test_gpus(job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [gpu(0, job), gpu(1, job), gpu(2), gpu(3, 2**22 + 1)]
    (row,) = preflight_host.gpus(seen, [], set())
    assert (row.id, row.severity) == ("gpu-busy", "refuse")
    assert row.text.startswith(f"GPU 0, 1: process {job} ({sys.executable}")
    assert "hush" not in row.text
    assert preflight_host.gpus(seen, ["1", "2"], set())[0].text.startswith("GPU 1: ")
    assert preflight_host.gpus(seen, ["2", "3"], set()) == []  # a process that is not there
    assert preflight_host.gpus(seen, [], {job}) == []
    assert preflight_host.gpus(seen, ["GPU-5f0d"], set()) == []
    assert preflight_host.gpus(None, [], set()) == []
    monkeypatch.setattr(preflight_host, "cgroup_of", lambda _: "/launch.slice/launch-other.service")
    assert preflight_host.gpus(seen, [], set()) == []


#: The GPU, the fraction, and whether it warns; 7 is a process of the own server.
GPU_MEMORY: dict[str, tuple[dict[str, Any], float, bool]] = {
    "free": (gpu(0, memory_free_mib=99_000), 0.9, False),
    "held": (gpu(0, memory_free_mib=70_000), 0.9, True),
    "held by the own server": (gpu(0, 7, memory_free_mib=8_000, process_mib={7: 90_000}), 0.9, False),
    "as JSON brings it": (gpu(0, 7, memory_free_mib=8_000, process_mib={"7": 90_000}), 0.9, False),
    "held by both": (gpu(0, 7, memory_free_mib=8_000, process_mib={7: 60_000}), 0.9, True),
    "own part unknown": (gpu(0, 7, memory_free_mib=8_000), 0.9, False),
    "not told": (gpu(0), 0.9, False),
    "total not told": (gpu(0, memory_free_mib=5) | {"memory_mib": None}, 0.9, False),
    "no fraction": (gpu(0, memory_free_mib=5), 0.0, False),
}


@pytest.mark.parametrize("case", GPU_MEMORY)
def test_gpu_memory(case: str) -> None:
    seen, fraction, warns = GPU_MEMORY[case]
    rows = preflight_host.gpu_memory([seen], [], {7}, fraction, "vllm")
    assert texts(rows) == ([("gpu-memory", "warn")] if warns else [])


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("/system.slice/ollama.service", "started by ollama.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "started by hand in login session 3"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", "its user's own manager (x.scope)"),
        ("/system.slice/docker-0123456789abcdef.scope", "started in container 0123456789ab (docker)"),
        ("/kubepods.slice/cri-containerd-0123456789abcdef.scope", "container 0123456789ab (cri-containerd)"),
        ("/docker/0123456789abcdef", "started in container 0123456789ab (docker)"),
        ("", "in control group unknown"),
        ("/", "in control group /"),
    ],
)
def test_how_a_process_was_started(cgroup: str, expected: str) -> None:
    assert expected in preflight_host._started(cgroup)


# --- all of it ---


@pytest.fixture
def wanted(place: Path) -> dict[str, Any]:
    """A release that everything is there for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in ("model", "draft", "packages"):
        (place / name).mkdir()
    draft = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64}
    (model(place / "draft") / "config.json").write_text(json.dumps(draft))
    return {
        "user": "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name,
        "unit": "launch-x.service",
        "engine": "sglang",
        "python": "/usr/bin/python3",
        "working_directory": "",
        "env": {"PYTHONPATH": packages(place / "packages"), "XDG_CACHE_HOME": str(place)},
        "model": {"path": str(model(place / "model")), "load_format": ""},
        "draft": {"path": str(place / "draft")},
        "port": port,
        "host": "0.0.0.0",
        "gpus": [],
        "memory_fraction": 0.9,
        "log_file": "",
    }


FACTS: dict[str, Any] = {"gpus": None, "shm": None}


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks with room, whatever this machine has."""
    monkeypatch.setattr(os, "statvfs", lambda _: disk())


@pytest.mark.usefixtures("roomy")
def test_nothing_in_the_way(wanted: dict[str, Any]) -> None:
    assert preflight.problems(wanted, FACTS) == []
    assert preflight.problems({**wanted, "draft": None}, FACTS) == []
    assert preflight.problems({**wanted, "user": "no-such-user"}, FACTS) == []


@pytest.mark.usefixtures("roomy")
def test_all_at_once(wanted: dict[str, Any], job: int) -> None:
    cut(SHARDS[0], 1)(Path(wanted["model"]["path"]))
    remove(SHARDS[1])(Path(wanted["draft"]["path"]))
    (Path(wanted["draft"]["path"]) / "config.json").write_text('{"draft_vocab_size": 9, "hidden_size": 65}')
    facts = {"gpus": [gpu(0, job, memory_free_mib=1)], "shm": {"size_mib": 1, "free_mib": 1}}
    with socket.create_server(("127.0.0.1", wanted["port"])):
        found = preflight.problems({**wanted, "engine": "vllm", "gpus": ["0", "1"], "env": {}}, facts)
    assert texts(found) == [
        *(("model-damaged", "refuse"), ("draft-missing", "refuse"), ("draft-mismatch", "refuse")),
        *(("engine-missing", "refuse"), ("shm", "warn"), ("port", "refuse")),
        *(("gpu-busy", "refuse"), ("gpu-memory", "warn")),
    ]
    assert all(isinstance(row, Obstacle) and row.text for row in found)


@pytest.mark.usefixtures("roomy")
def test_a_disk_that_hangs(wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_MODEL_SECONDS", 0.3)
    monkeypatch.setattr(preflight, "look", lambda *_: time.sleep(20))
    found = preflight.problems({**wanted, "draft": None}, FACTS)
    assert texts(found) == [("model-unknown", "warn")]
