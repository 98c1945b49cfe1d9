"""The scripts in real shells at a terminal: what stands at the prompt after TAB."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PRINT = 'printf "MARK%s%s%sEND\\n" "["'
#: What is read first: the script, and at Ctrl-X p the line is printed and emptied. MARK stands apart from the bracket,
#: so that no echo of this looks like it.
SHELLS = {
    "bash": ("--norc", "--noprofile", "-i"),
    "zsh": ("-f", "-i"),
    "fish": ("--no-config", "-i"),
}
SETUP = {
    "bash": f"""eval "$(launch completion bash)"
bind -x '"\\C-xp": {_PRINT} "$READLINE_LINE" "]"; READLINE_LINE='
""",
    "zsh": f"""eval "$(launch completion zsh)"
show() {{ {_PRINT} "$BUFFER" "]"; BUFFER= }}; zle -N show; bindkey '^Xp' show
""",
    "fish": f"""launch completion fish | source
bind \\cxp '{_PRINT} (commandline) "]"; commandline ""'
""",
}
# What is typed before TAB, and the line after it; fish puts a blank behind a value of a sweep too.
CASES = [
    ("launch roll", "launch rollback "),
    ("launch +hw=rtx6", "launch +hw=rtx6000x8 "),
    ("launch up refe", "launch up reference "),
    ("launch plan unit.nccl", "launch plan unit.nccl_conf="),
    ("launch -m nccl.proto=LL,S", "launch -m nccl.proto=LL,Simple"),
    ("launch 'target.hosts=[a,b]' engine.po", "launch 'target.hosts=[a,b]' engine.port="),
    ("launch 'target.kind=ss", "launch 'target.kind=ssh' "),
    ("launch secrets.env.X=f", "launch secrets.env.X=file:"),
    ("launch render --form", "launch render --format "),
    ("launch render --format sb", "launch render --format sbatch "),
    ("launch adopt a_f", "launch adopt a_file.sh "),
    ("launch status --html=a_f", "launch status --html=a_file.sh "),
    ("launch nccl.nothing=", "launch nccl.nothing="),
    ("true; launch rollb", "true; launch rollback "),
]


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read(self, pattern: str, seconds: float = 60) -> str:
        """Return the last group of what fits into the output, up to the time limit."""
        seen, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self._descriptor], [], [], 0.2)[0]:
                seen += os.read(self._descriptor, 65536).decode(errors="replace")
            if found := re.search(pattern, seen):
                return found[1]
        raise AssertionError(f"the shell did not print {pattern}: {seen!r}")


@contextmanager
def terminal(shell: str, folder: Path) -> Iterator[Terminal]:
    """Start a shell in which `launch` is this tree's, in a folder with a file, and end it."""
    program = folder / "bin" / "launch"
    program.parent.mkdir()
    code = f"import sys\nsys.path[:] = {sys.path!r}\nfrom launcher.cli import main\nsys.exit(main())\n"
    program.write_text(f"#!{sys.executable} -I\n{code}")
    program.chmod(0o755)
    (folder / "a_file.sh").touch()
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    ours, theirs = os.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", shell, *SHELLS[shell]], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = Terminal(ours)
        try:
            shown.send(f"{SETUP[shell]}echo REA''DY\n")
            shown.read("(READY)")
            yield shown
        finally:
            process.kill()
            os.close(ours)


@pytest.mark.parametrize("shell", SHELLS)
def test_what_stands_at_the_prompt_after_tab(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    completed: dict[str, str] = {}
    with terminal(shell, tmp_path) as shown:
        for typed, _ in CASES:
            shown.send(f"{typed}\t\x18p")
            completed[typed] = shown.read(r"MARK\[(.*)\]END")
    blank = " " if shell == "fish" else ""
    assert completed == {typed: line + blank if typed.startswith("launch -m") else line for typed, line in CASES}
