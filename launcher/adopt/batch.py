"""Schedulers of clusters: Slurm, Ray, MPI and the tools that start one command on many hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.adopt import remote
from launcher.adopt.found import Remark
from launcher.adopt.options import Spec, split
from launcher.adopt.source import NOTHING, Source, Word, joined, part, quote

if TYPE_CHECKING:
    from launcher.adopt.start import Gathered, Start

_SLURM_NODES = re.compile(
    r"^(?:-N|--nodes|-G|--gpus\S*|--gres|-w|--nodelist|-n|--ntasks\S*|-t|--time|-c|--cpus-per-task)"
)

#: srun(1): options that take a value as the next word.
_SRUN = Spec(
    "AbBcCdDeFGiIJLmMnNopqrSttTuwWx".replace("u", "").replace("I", ""),
    frozenset(f"--{name}" for name in (
        "account", "acctg-freq", "bcast", "begin", "cluster-constraint", "clusters", "comment", "constraint",
        "container", "container-id", "container-image", "container-mounts", "container-name", "container-workdir",
        "container-env", "container-writable", "contiguous-nodes", "core-spec", "cores-per-socket", "cpu-bind",
        "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution", "epilog",
        "error", "exclude", "export", "extra-node-info", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
        "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "het-group", "hint", "immediate", "input",
        "job-name", "jobid", "kill-on-bad-exit", "licenses", "mail-type", "mail-user", "mem", "mem-bind",
        "mem-per-cpu", "mem-per-gpu", "mincpus", "mpi", "msg-timeout", "multi-prog", "network", "nice", "nodefile",
        "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket",
        "open-mode", "output", "partition", "power", "priority", "profile", "prolog", "propagate", "qos", "relative",
        "reservation", "signal", "slurmd-debug", "sockets-per-node", "switches", "task-epilog", "task-prolog",
        "thread-spec", "threads-per-core", "threads", "time", "time-min", "tmp", "tree-width", "uid", "wait", "wckey",
        "x11", "chdir", "overlap-with", "preserve-slurm-env"
    ) if name not in ("kill-on-bad-exit", "immediate", "nice", "x11", "multi-prog", "propagate")),
)  # fmt: skip
_MPI = Spec(
    "nHcx",
    frozenset(("--hostfile", "--host", "--map-by", "--bind-to", "--rank-by", "--mca", "--np", "--npernode", "--ppr")),
    single_dash=frozenset(("-np", "-hosts", "-ppn", "-hostfile", "-machinefile", "-npernode", "-genvlist", "-f")),
)
_MANY = {
    "pdsh": Spec("wxlRftug"),
    "clush": Spec("wxglfotuX"),
    "pssh": Spec("hHlptoexO", frozenset(("--hosts", "--host", "--user", "--par", "--timeout"))),
    "parallel-ssh": Spec("hHlptoexO", frozenset(("--hosts", "--host", "--user", "--par", "--timeout"))),
}


def directives(source: Source) -> list[Remark]:
    """Return what the ``#SBATCH`` lines of a script ask for."""
    found: list[Remark] = []
    for match in re.finditer(r"^#SBATCH[ \t]+(.*)$", source.text, re.MULTILINE):
        option = re.sub(r"\s+#.*$", "", match.group(1)).strip()
        why = "asked of Slurm for the whole job"
        if re.match(r"(?:--export|-o\b|-e\b|--output|--error|-D\b|--chdir)", option):
            why = "asked of Slurm: it sets environment, log or folder, which are not taken over from here"
        elif not _SLURM_NODES.match(option):
            why = "asked of Slurm; launch does not need it"
        found.append(Remark(source.where(match.start()), quote(match.group()), why))
    return found


def step(start: Start, into: Gathered, name: str) -> Start | bool | None:
    """Take a scheduler's command off; False: it is none."""
    if name == "srun":
        return _srun(start)
    if name in ("mpirun", "mpiexec", "orterun"):
        return _mpi(start)
    if name in _MANY:
        return _many(start, into, name)
    if name == "sbatch":
        return _sbatch(start, into)
    if name == "ray":
        return _ray(start, into)
    if name == "serve":
        into.remarks.append(start.remark("Ray Serve starts its own engines, which launch does not read"))
        return None
    return False


def _srun(start: Start) -> Start | bool:
    found = split(start.words[1:], _SRUN)
    if not found.rest:
        return True
    own = " ".join(word.text for word in start.words[: len(start.words) - len(found.rest)])
    env = dict(start.env)
    export = found.last("--export")
    if export is not None:
        names = [piece for piece in re.split(r",(?=[A-Za-z_]\w*(?:=|,|$)|ALL\b|NONE\b|NIL\b)", export.text) if piece]
        if "ALL" not in names:
            env = {name: value for name, value in env.items() if name in names}
        for piece in names:
            name, equals, value = piece.partition("=")
            if equals:
                env[name] = Word(value, export.doubts, export.marks)
    why = "Slurm starts it on its nodes; launch starts the server on the hosts that you name"
    image = found.last("--container-image")
    start = replace(start.noted(why, own), env=env, hosts=_hosts(found.last("-w", "--nodelist")) or start.hosts)
    folder, log = found.last("-D", "--chdir", "--container-workdir"), found.last("-o", "--output")
    return replace(
        start.inside(found.rest),
        image=image.text if image is not None else start.image,
        folder=folder if folder is not None else start.folder,
        log=log if log is not None else start.log,
    )


def _hosts(word: Word | None) -> tuple[str, ...]:
    """Return the hosts of a list; a range (``gpu[01-04]``) stays as written."""
    if word is None:
        return ()
    return tuple(host for host in re.split(r",(?![^\[]*\])", word.text) if host)


def _mpi(start: Start) -> Start | bool:
    words, env, own = list(start.words[1:]), dict(start.env), 1
    while words and words[0].text.startswith("-"):
        if words[0].text in ("--mca", "-mca") and len(words) > 2:
            words = words[3:]
        elif words[0].text in ("-x", "-genv") and len(words) > 1:
            name, equals, value = words[1].text.partition("=")
            if words[0].text == "-genv" and len(words) > 2:
                env[name], words = words[2], words[1:]
            elif equals:
                env[name] = Word(value, words[1].doubts, words[1].marks)
            words = words[2:]
        else:
            words = list(split(words[:2], _MPI).rest) + words[2:] if words[0].text != "--" else words[1:]
    own = len(start.words) - len(words)
    if not words:
        return True
    why = "MPI starts it several times; launch starts the server once on each host that you name"
    text = " ".join(word.text for word in start.words[:own])
    return replace(start.noted(why, text).inside(tuple(words)), env=env)


def _many(start: Start, into: Gathered, name: str) -> Start | bool | None:
    found = split(start.words[1:], _MANY[name])
    hosts = [host for word in found.values("-w", "-H", "--host") for host in re.split(r"[,\s]+(?![^\[]*\])", word.text)]
    if not found.rest:
        return True
    own = " ".join(word.text for word in start.words[: len(start.words) - len(found.rest)])
    start = start.noted("it starts the same command on each of these hosts", own)
    inner = replace(start, words=(), env={}, unset=(), folder=NOTHING, python="", hosts=tuple(hosts), user="")
    if not hosts:
        inner = inner.noted("on which hosts it runs is not written here")
    into.shell(joined(found.rest), inner, into)
    return None


def _sbatch(start: Start, into: Gathered) -> Start | bool | None:
    found = split(start.words[1:], _SRUN)
    wrap = found.last("--wrap")
    if wrap is None:
        at = next((w for w in start.words if w.text.startswith("--wrap=")), None)
        wrap = part(at, 7) if at is not None else None
    if wrap is None and start.stdin is not None and not found.rest:
        facts = directives(Source(start.source.name, start.stdin.text, start.stdin.marks))
        inner = replace(start.noted("a job of Slurm"), words=(), stdin=None)
        into.shell(start.stdin, replace(inner, remarks=(*inner.remarks, *facts)), into)
        return None
    script = into.files.source(found.rest[0].text) if wrap is None and found.rest else None
    if script is not None:
        remote.run(replace(start, remarks=(*start.remarks, *directives(script))), script, found.rest, into)
        return None
    if wrap is None:
        into.remarks.append(start.remark("a batch script; name its file to adopt as well"))
        return None
    into.shell(wrap, replace(start.noted("a job of Slurm"), words=(), stdin=None), into)
    return None


def _ray(start: Start, into: Gathered) -> Start | bool | None:
    texts = [word.text for word in start.words]
    if texts[1:3] == ["job", "submit"]:
        rest = start.words[texts.index("--") + 1 :] if "--" in texts else ()
        if rest:
            own = " ".join(texts[: texts.index("--")])
            env, others = dict(start.env), "Ray runs it on its cluster; what its options set is not taken over"
            return replace(start.noted(others, own).inside(tuple(rest)), env=env)
    why = "part of a Ray cluster, which launch does not run"
    remark = start.remark(why)
    into.owed.append(remark)
    into.remarks.append(remark)
    return None
