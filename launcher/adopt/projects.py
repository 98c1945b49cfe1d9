"""Commands that choose an environment or spread processes: uv, poetry, conda, torchrun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt.options import Spec, split
from launcher.adopt.source import Word

if TYPE_CHECKING:
    from launcher.adopt.start import Gathered, Start

_PROFILER = "a profiler; launch starts the server without it"

#: Project tools: ``uv run …``. What they run comes from an environment whose path they do not say.
PROJECTS: dict[str, Spec] = {
    "uv": Spec("pPw", frozenset(
        ("--python", "--with", "--with-requirements", "--with-editable", "--project", "--directory", "--env-file",
         "--extra", "--group", "--no-group", "--only-group", "--package", "--index", "--default-index", "--index-url",
         "--extra-index-url", "--cache-dir", "--config-file", "--no-extra", "--from", "--prerelease", "--resolution",
         "--find-links", "--python-platform", "--index-strategy", "--torch-backend", "--color", "--refresh-package",
         "--reinstall-package", "--upgrade-package", "--no-build-package", "--link-mode", "--exclude-newer"))),
    "poetry": Spec("CP", frozenset(("--directory", "--project"))),
    "pdm": Spec("p", frozenset(("--project",))),
    "pipenv": Spec(),
    "rye": Spec("p", frozenset(("--pyproject",))),
    "hatch": Spec("ep", frozenset(("--env", "--project"))),
    "pixi": Spec("e", frozenset(("--environment", "--manifest-path", "--frozen"))),
    **dict.fromkeys(("conda", "mamba", "micromamba"), Spec("np", frozenset(("--name", "--prefix", "--cwd")))),
}  # fmt: skip

_TORCHRUN = Spec(long=frozenset(
    f"--{name.replace('_', mark)}"
    for mark in "_-"
    for name in ("nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "max_restarts",
                 "monitor_interval", "start_method", "role", "log_dir", "redirects", "tee", "node_rank", "master_addr",
                 "master_port", "local_addr", "logs_specs", "local_ranks_filter", "num_processes", "num_machines",
                 "machine_rank", "main_process_ip", "main_process_port", "mixed_precision", "gpu_ids", "config_file",
                 "num_cpu_threads_per_process", "dynamo_backend", "numa_binding")
), short="rt")  # fmt: skip


def project(start: Start, name: str) -> Start | bool:
    """``uv run …``, ``conda run -n NAME …`` and their like."""
    words = start.words[1:]
    found = split(words, PROJECTS[name])
    words = found.rest
    if not words or words[0].text != "run":
        return words == () or False
    options = split(words[1:], PROJECTS[name])
    rest = options.rest
    if not rest and not options.has("-m", "--module"):
        return True
    prefix = options.last("-p", "--prefix") or found.last("-p", "--prefix")
    python = ""
    if name in ("conda", "mamba", "micromamba") and prefix is not None and prefix.text.startswith("/"):
        python = f"{prefix.text.rstrip('/')}/bin/python"
    else:
        start = start.noted(
            f"{name} chooses the environment, whose path is not said: set engine.python",
            " ".join(word.text for word in start.words[: len(start.words) - len(rest)]),
        )
    if options.has("-m", "--module") and name == "uv":
        rest = (Word("python", marks=rest[0].marks), Word("-m", marks=rest[0].marks), *rest) if rest else rest
        return replace(start, words=rest, wrappers=(*start.wrappers, ("uv", "run")), python=python)
    return replace(start.inside(rest), python=python)


def uvx(start: Start, _into: Gathered) -> Start | bool | None:
    """``uvx vllm …``."""
    found = split(start.words[1:], PROJECTS["uv"])
    if not found.rest:
        return True
    why = "uv makes an environment for each start: install the engine and set engine.python"
    return start.noted(why).inside(found.rest)


def launcher(start: Start) -> Start | bool:
    """``python -m torch.distributed.run …`` runs what follows in processes of its own."""
    texts = [word.text for word in start.words]
    at = texts.index("-m") if "-m" in texts else -1
    if at < 0 or at + 1 >= len(texts):
        return False
    if texts[at + 1] in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"):
        return _spread(start, at + 2, start.words[0].text)
    if texts[at + 1] in ("debugpy", "cProfile", "viztracer", "scalene", "coverage", "memray"):
        inner = next((i for i in range(at + 2, len(texts)) if texts[i] in ("-m", "--module")), -1)
        if inner > 0:
            rest = (start.words[0], *start.words[inner:])
            return replace(start.noted(_PROFILER), words=rest, wrappers=(*start.wrappers, tuple(texts[1:inner])))
    return False


def torchrun(start: Start, _into: Gathered) -> Start | bool | None:
    """``torchrun --nproc-per-node 8 -m MODULE``."""
    return _spread(start, 1, "python3")


def accelerate(start: Start, _into: Gathered) -> Start | bool | None:
    """``accelerate launch -m MODULE``."""
    if len(start.words) < 2 or start.words[1].text != "launch":
        return False
    return _spread(start, 2, "python3")


def _spread(start: Start, at: int, python: str) -> Start | bool:
    found = split(start.words[at:], _TORCHRUN)
    if not found.rest:
        return True
    own = tuple(word.text for word in start.words[: len(start.words) - len(found.rest)])
    why = "the engines start their own processes, and launch starts the server once: nproc and nodes are not taken over"
    words = found.rest
    if found.has("-m", "--module"):
        words = (Word("-m", marks=words[0].marks), *words)
    if not found.has("--no-python", "--no_python"):
        words = (Word(python, marks=words[0].marks), *words)
    own = own[:-1] if own[-1] in ("-m", "--module") else own
    return replace(start.noted(why, " ".join(own)), words=words, wrappers=(*start.wrappers, own))
