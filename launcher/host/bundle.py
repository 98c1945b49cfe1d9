"""The agent as one program text: sent over standard input to look and to change, installed for the units."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import launcher.agent
from launcher.agent import knowledge
from launcher.catalogue import environment, nccl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: In order of dependence: a module imports only from those before it. The last one starts everything.
_MODULES = (
    *("knowledge", "manifest", "processes", "evidence", "credentials", "ports", "systemd", "journal", "nccl_log"),
    *("guard", "wait", "failure", "library", "own_start", "shown", "adopt_find"),
    *("files", "nccl_conf", "nccl_block", "neighbours", "needs", "facts", "expect"),
    *("obstacle", "as_user", "model_files", "model_place", "preflight_draft", "preflight_host", "preflight"),
    *("comm_process", "comm_ranks", "comm", "nccl_tests", "nccl_tests_process", "nccl_tests_size", "nccl_tests_run"),
    *("lease", "bench", "readings", "client", "cpu", "load"),
    *("findings", "env_file", "unit_files", "record", "observe"),
    *("failed", "staging", "leftovers", "serving", "keep", "origin", "generations"),
    *("stray_record", "again", "stray", "takeover", "way_back", "marker", "adopt_versions", "adopt_read", "adopt"),
    *("drift_files", "drift_loaded", "drift_processes", "drift_inputs", "drift_host", "check"),
    *("metrics", "watch_memory", "watch"),
    *("probe", "transaction", "change", "restored", "session", "past", "uninstall", "fix", "main"),
)

#: What a task without systemd needs of them; `launcher.agent.task` comes last.
_OF_TASKS = (
    *("knowledge", "manifest", "processes", "evidence", "credentials", "ports", "systemd", "journal"),
    *("guard", "wait", "nccl_conf", "task_server", "task"),
)

_LOADER = '''\
"""The agent of launch: guard and waiter of the units in /etc/systemd/system/launch-*.service."""
import sys
from importlib.machinery import ModuleSpec

PACKAGE = "launch_agent"
SOURCES = {sources}
KNOWLEDGE = {knowledge}


class Modules:
    """Makes the modules without a file each, when they are first imported: most verbs need few of them."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == PACKAGE:
            return ModuleSpec(name, Modules, is_package=True)
        package, _, module = name.partition(".")
        return ModuleSpec(name, Modules) if package == PACKAGE and module in SOURCES else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__.partition(".")[2]
        if not name:
            return
        exec(compile(SOURCES[name], "<launch_agent/" + name + ".py>", "exec"), module.__dict__)
        if name == "knowledge":
            module.SETTINGS = frozenset(KNOWLEDGE["settings"])
            module.PREFIXES = tuple(KNOWLEDGE["prefixes"])
            module.ADDITIONS = KNOWLEDGE["additions"]
            module.EVIDENCE = KNOWLEDGE["evidence"]


def load():
    """Return the module that starts everything."""
    if Modules not in sys.meta_path:
        sys.meta_path.insert(0, Modules)
    __import__(PACKAGE + ".{first}")
    return sys.modules[PACKAGE + ".{first}"]
'''

_MAIN = """

if __name__ == "__main__":
    sys.exit(load().main(sys.argv[1:]))
"""

_TASK = """

MANIFEST = {manifest}
sys.exit(load().task(sys.argv[1:], MANIFEST, "{place}"))
"""


@cache
def _knowledge() -> dict[str, Any]:
    return {
        "settings": sorted(environment.settings()),
        "prefixes": sorted(environment.watched_prefixes()),
        "evidence": {v.name: v.log_evidence for v in nccl.variables().values() if v.is_setting},
        "additions": {
            engine: {n: sorted(v) if v is not None else None for n, v in environment.additions(engine).items()}
            for engine in ("sglang", "vllm")
        },
    }


@cache
def program() -> str:
    """Return the agent's program text; the same installation gives the same bytes."""
    return _loader(_MODULES) + _MAIN


def task_program(manifest: str, place: str = "slurm") -> str:
    """Return the program of a batch job, an exported script or a container: checks, starts and proves one server.

    ASCII, and no line of it is a single word.
    """
    return _loader(_OF_TASKS) + _TASK.replace("{place}", place).replace("{manifest}", ascii(manifest))


def _loader(modules: tuple[str, ...]) -> str:
    folder = Path(launcher.agent.__file__).parent
    sources = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in modules}
    lines = "".join(f"{name!r}: {source!a},\n" for name, source in sources.items())
    loader = _LOADER.replace("{sources}", f"{{\n{lines}}}").replace("{knowledge}", ascii(_knowledge()))
    return loader.replace("{first}", modules[-1])


@contextlib.contextmanager
def informed() -> Iterator[None]:
    """Let the agent's modules know in this process what they know on a host."""
    names = ("SETTINGS", "PREFIXES", "ADDITIONS", "EVIDENCE")
    before = {name: getattr(knowledge, name) for name in names}
    known = _knowledge()
    knowledge.SETTINGS, knowledge.PREFIXES = frozenset(known["settings"]), tuple(known["prefixes"])
    knowledge.ADDITIONS, knowledge.EVIDENCE = known["additions"], known["evidence"]
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(knowledge, name, value)


def payload(request: Mapping[str, Any]) -> str:
    """Return what a host's ``python3 -I -`` reads from standard input to answer one request."""
    return (
        f"PROGRAM = {program()!a}\n"
        "scope = {'__name__': 'launch_agent_over_ssh'}\n"
        "exec(compile(PROGRAM, '<launch_agent>', 'exec'), scope)\n"
        f"raise SystemExit(scope['load']().serve({json.dumps(request)!a}, PROGRAM))\n"
    )
