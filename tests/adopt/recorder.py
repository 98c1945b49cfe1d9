"""Runs the texts of the corpus by the real shell, with a recorder where the engine would be.

Each text runs twice, in two worlds that differ in everything a text cannot know: the user and the home folder, the
addresses and GPUs of the machine, the date, and the variables that the head calls given. What differs between the
two runs cannot be known from the text.

`python -m tests.adopt.recorder [NAME…]` records anew and stores; the test records again and compares.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path

from markdown_it import MarkdownIt

from tests.adopt.corpus import CORPUS, EXPECTED, UNKNOWN, Case, Started, cases

NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--kill-child")
STANDINS = "/opt/recorder/bin"
#: What a shell sets by itself, and what only serves the stand-ins.
NOISE = re.compile(r"_|SHLVL|PWD|OLDPWD|REC_.*|PATH|VIRTUAL_ENV|CONDA_.*|SLURM_.*")
ENGINE = re.compile(
    r"(\S*python\S* .*)?-m (sglang\.launch_server|vllm\.entrypoints\S*api_server)|\S*(vllm|sglang) serve\b"
    r"|\S*(docker|podman) .*(vllm|sglang)"
)
SHELLS = {"", "bash", "sh", "shell", "console"}


@dataclass(frozen=True)
class World:
    """One machine and its user."""

    name: str
    user: str

    @property
    def home(self) -> str:
        """The user's folder, where the text lies in `serve`."""
        return f"/home/{self.user}"

    def environment(self) -> dict[str, str]:
        """What every process of the user has."""
        path = f"{STANDINS}:/usr/bin:/bin" + (":/usr/games" if self.name == "b" else "")
        return {
            "HOME": self.home, "USER": self.user, "LOGNAME": self.user, "PATH": path,
            "LANG": "C.UTF-8", "SHELL": "/bin/bash",
        }  # fmt: skip

    def given(self, case: Case) -> dict[str, str]:
        """What the head says that the text finds in its environment, such as a batch job's variables."""
        asked = case.head.get("given", {})
        if isinstance(asked, list):
            return {name: f"{name.lower()}-{self.name}" for name in asked}
        which = "ab".index(self.name)
        return {name: value if isinstance(value, str) else value[which] for name, value in asked.items()}


WORLDS = (World("a", "ann"), World("b", "bob"))


class RecordError(Exception):
    """A text did not do what its head says."""


@cache
def obstacle() -> str | None:
    """Say why no text can be run here, None where nothing is in the way."""
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is not installed"
    command = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else None


def record(case: Case) -> list[Started]:
    """Run a text in both worlds; return what its servers were started with, in an order of their own."""
    with ThreadPoolExecutor(len(WORLDS)) as pool:
        first, second = pool.map(partial(_run, case), WORLDS)
    if len(first) != len(second):
        if case.head.get("servers") == "unknown":
            return []
        raise RecordError(f"{case.name}: {len(first)} servers in one world and {len(second)} in the other")
    if not first:
        raise RecordError(f"{case.name}: no server was started")
    return [common(*pair) for pair in zip(first, second, strict=True)]


def _run(case: Case, world: World) -> list[Started]:
    with tempfile.TemporaryDirectory(prefix="launch-corpus-") as name:
        records = Path(name)
        records.chmod(0o755)
        (records / "root").mkdir()
        (records / "world").write_text(world.name)
        base = world.environment()
        (records / "initial.sh").write_text("".join(f"export {k}={shlex.quote(v)}\n" for k, v in base.items()))
        files = records / "case"
        shutil.copytree(case.folder, files)
        command = _command(case, files, world)
        programs = " ".join(case.head.get("programs", ()))
        inside = ["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in (base | world.given(case)).items()), *command]
        sandbox = ["sh", str(CORPUS / "sandbox.sh"), str(CORPUS), name, str(files), world.home, programs, "--", *inside]
        done = subprocess.run(
            [*NAMESPACE, *sandbox], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RecordError(f"{case.name}: {done.stderr[-1500:]}")
        if (records / "status").exists() and not case.head.get("fails"):
            raise RecordError(f"{case.name}: {(records / 'status').read_text()}{done.stderr[-1500:]}")
        seen = [_started(case, world, folder) for folder in records.glob("started.*")]
    return sorted((one for one in seen if one), key=lambda one: json.dumps(asdict(one)))


def _command(case: Case, files: Path, world: World) -> list[str]:
    """Return how a person would run the text, made ready in the copy of its folder."""
    text = files / case.input.name
    if case.kind == "markdown":
        fences = [token for token in MarkdownIt().parse(case.text()) if token.type == "fence"]
        blocks = [token.content for token in fences if _shell(token.info)]
        text = files / "pasted.sh"
        text.write_text("\n".join(re.sub(r"(?m)^\$ ", "", block) for block in blocks))
    elif b"\r\n" in text.read_bytes():
        text.write_bytes(text.read_bytes().replace(b"\r\n", b"\n"))  # as a terminal takes what is pasted
    arguments = case.head.get("args", ([], []))["ab".index(world.name)]
    return ["/bin/bash", f"./{text.name}", *map(str, arguments)]


def _shell(info: str) -> bool:
    return (info.split() or [""])[0] in SHELLS


def _started(case: Case, world: World, folder: Path) -> Started | None:
    argv = (folder / "argv").read_bytes().decode().split("\0")[:-1]
    argv[0] = argv[0].removeprefix(f"{STANDINS}/")
    if not ENGINE.match(" ".join(argv)):
        return None
    env = dict(entry.split("=", 1) for entry in (folder / "environ").read_bytes().decode().split("\0")[:-1])
    before = world.environment() | ({} if env.get("REC_HOST") else world.given(case))
    kept = [name for name in env if name == "PATH" or not NOISE.fullmatch(name)]
    changed: dict[str, str | None] = {name: env[name] for name in kept if before.get(name) != env[name]}
    if not re.search(r"\bPATH=", case.text()):
        changed.pop("PATH", None)
    stdout, cwd = ((folder / kind).read_text().strip() for kind in ("stdout", "cwd"))
    return Started(
        argv=tuple(argv),
        env=changed,
        unset=tuple(sorted(name for name in before if name not in env and not NOISE.fullmatch(name))),
        host=env.get("REC_HOST", ""),
        user=env.get("REC_USER", ""),
        working_directory="" if cwd.startswith(f"{world.home}/serve") or cwd == "/" else cwd,
        log_file=stdout if stdout.startswith("/") and not stdout.startswith("/dev/") else "",
    )


def common(one: Started, other: Started) -> Started:
    """Return what is the same in both worlds, UNKNOWN where they differ."""
    return Started(
        argv=_common_words(one.argv, other.argv),
        env={name: _same(one.env.get(name), other.env.get(name)) for name in sorted(one.env.keys() | other.env.keys())},
        unset=one.unset,
        host=_same(one.host, other.host),
        user=_same(one.user, other.user),
        working_directory=_same(one.working_directory, other.working_directory),
        log_file=_same(one.log_file, other.log_file),
        image=one.image,
    )


def _common_words(one: tuple[str | None, ...], other: tuple[str | None, ...]) -> tuple[str | None, ...]:
    if len(one) == len(other):
        return tuple(_same(*pair) for pair in zip(one, other, strict=True))
    words: list[str | None] = []
    for kind, start, end, _, _ in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        words += one[start:end] if kind == "equal" else [UNKNOWN]
    return tuple(words)


def _same(one: str | None, other: str | None) -> str | None:
    return one if one == other else UNKNOWN


def by_hand(case: Case, recorded: list[Started]) -> list[Started]:
    """Return the servers inside containers: how docker's words split is the head's word, checked against the record."""
    made: list[Started] = []
    for part in case.head["split"]:
        command = tuple(part["argv"])
        image = str(part.get("image", part.get("container")))
        tail = (image, *command[part.get("entrypoint", 0) :])
        outer = next((one for one in recorded if one.argv[len(one.argv) - len(tail) :] == tail), None)
        if outer is None:
            raise RecordError(f"{case.name}: {tail} is the end of none of {[one.argv for one in recorded]}")
        inner = tuple(part.get("inner", command))
        made.append(Started(inner, part.get("env", {}), host=outer.host, image=part.get("image", "")))
    return made


def record_again(case: Case) -> list[Started]:
    """Return what the test compares with what is stored."""
    if case.how == "hand":
        return [Started(**(part | {"argv": tuple(part["argv"])})) for part in case.head["hand"]]
    recorded = record(case)
    return by_hand(case, recorded) if "split" in case.head else recorded


def store(case: Case, servers: list[Started], by: str) -> None:
    """Write down what was seen."""
    kept = [{k: v for k, v in asdict(one).items() if v not in ("", (), {})} for one in servers]
    content = {"recorded_by": by, "on": date.today().isoformat(), "servers": kept}  # noqa: DTZ011 - a day, no moment
    (case.folder / EXPECTED).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main(names: list[str]) -> None:
    """Record the named cases that a shell runs, or all of them."""
    bash = subprocess.run(["bash", "--version"], capture_output=True, text=True, check=True).stdout.split()[3]
    for case in cases():
        if case.how in ("shell", "hand") and (not names or case.name in names):
            try:
                store(case, record_again(case), f"bash {bash}" if case.how == "shell" else "hand")
            except (RecordError, subprocess.TimeoutExpired, StopIteration) as err:
                print(f"{case.name}: {err!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
