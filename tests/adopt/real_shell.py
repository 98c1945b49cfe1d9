"""What a real bash starts: the engines and a few wrappers are replaced by recorders."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_RECORDED = ("python", "python3", "vllm", "sglang")
_RECORDER = """#!{python} -I
import json, os, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([[os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ), os.getcwd()]) + "\\n")
"""
#: They take their options off and run the rest, as the real ones do.
_WRAPPERS = {
    "numactl": 'while [[ $1 == -* ]]; do case $1 in -N|-m|-C) shift;; esac; shift; done; exec "$@"',
    "taskset": 'while [[ $1 == -* ]]; do shift; done; shift; exec "$@"',
    "ssh": "while [[ $1 == -* ]]; do case $1 in -p|-i|-o|-l|-J) shift;; esac; shift; done; shift\n"
    'cd /; if [ $# = 0 ]; then exec env -i PATH="$PATH" HOME="$HOME" bash; fi\n'
    'exec env -i PATH="$PATH" HOME="$HOME" bash -c "$*\nwait"',
    "tmux": 'while [ $# -gt 1 ]; do shift; done; exec bash -c "$1"',
    "screen": 'while [[ $1 == -* ]]; do case $1 in *S) shift;; esac; shift; done; exec "$@"',
}
_SHELLS = {"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "LC_ALL", "LD_PRELOAD", "_STDBUF_O"}


@dataclass(frozen=True)
class Started:
    """One start of an engine as the operating system saw it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    folder: str


def run(folder: Path, script: str, files: dict[str, str] | None = None) -> list[Started]:
    """Run a script in bash and return what it started, in order."""
    programs, log, work = folder / "bin", folder / "log", folder / "work"
    programs.mkdir(parents=True)
    work.mkdir()
    for name, text in (files or {}).items():
        (work / name).write_text(text)
    for name in _RECORDED:
        _program(programs / name, _RECORDER.format(python=sys.executable, log=str(log)))
    for name, text in _WRAPPERS.items():
        _program(programs / name, f"#!/bin/bash\n{text}\n")
    path = f"{programs}:/usr/bin:/bin"
    # Set here, for the plain `wait` lets background jobs end before the recorders are read.
    subprocess.run(
        ["/bin/bash", "-c", f"{script}\nwait"],
        env={"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    if not log.exists():
        return []
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        Started(tuple(argv), {name: value for name, value in env.items() if name not in _SHELLS}, place)
        for argv, env, place in found
    ]


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
