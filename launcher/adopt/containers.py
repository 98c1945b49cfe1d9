"""``docker run``, podman, and what the images of the engines start by themselves."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from launcher.adopt import box_options
from launcher.adopt.options import Options, Spec, split
from launcher.adopt.source import NOTHING, Word, part, plain

if TYPE_CHECKING:
    from launcher.adopt.start import Gathered, Start

#: docker-run(1) and podman-run(1): options that take a value.
_VALUES = """
add-host annotation arch attach authfile blkio-weight blkio-weight-device cap-add cap-drop cgroup-conf cgroup-parent
cgroupns cgroups chrootdirs cidfile conmon-pidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period
cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems creds decryption-key detach-keys device device-cgroup-rule
device-read-bps device-read-iops device-write-bps device-write-iops dns dns-opt dns-option dns-search domainname
entrypoint env env-file env-merge expose gidmap gpus group-add group-entry health-cmd health-interval
health-log-destination health-max-log-count health-max-log-size health-on-failure health-retries health-start-interval
health-start-period health-startup-cmd health-startup-interval health-startup-retries health-startup-success
health-startup-timeout health-timeout hostname hostuser image-volume init-ctr init-path io-maxbandwidth io-maxiops ip
ip6 ipc isolation kernel-memory label label-file link link-local-ip log-driver log-opt mac-address memory
memory-reservation memory-swap memory-swappiness mount name net net-alias network network-alias oom-score-adj os
passwd-entry personality pid pidfile pids-limit platform pod pod-id-file preserve-fd preserve-fds publish pull
rdt-class requires restart retry retry-delay runtime sdnotify seccomp-policy secret security-opt shm-size
shm-size-systemd stop-signal stop-timeout storage-opt subgidname subuidname sysctl systemd timeout tmpfs tz uidmap
ulimit umask unsetenv user userns uts variant volume volume-driver volumes-from workdir
"""
_FLAGS = """
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hostname no-hosts
oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
tls-verify tty unsetenv-all use-api-socket
"""
_RUN = Spec(
    "acehlmpuvw",
    frozenset(f"--{name}" for name in _VALUES.split()),
    frozenset(f"--{name}" for name in _FLAGS.split()),
)
_EXEC = Spec("euw", frozenset(("--env", "--env-file", "--user", "--workdir", "--detach-keys")))
_GLOBAL = Spec(
    "clH",
    frozenset(("--config", "--context", "--host", "--log-level", "--tlscacert", "--tlscert", "--tlskey", "--connection",
               "--url", "--root", "--runroot", "--namespace", "--address")),
)  # fmt: skip
_MAPPED = ("-e", "--env", "--env-file", "--name", "--entrypoint", "-w", "--workdir", "-u", "--user", "-d", "--detach",
           "-i", "--interactive", "-t", "--tty", "--rm", "--unsetenv")  # fmt: skip


@dataclass(frozen=True)
class Box:
    """A container to be started: what `docker run` and a compose service have in common."""

    image: str
    command: tuple[Word, ...]
    entrypoint: tuple[Word, ...] | None = None


def step(start: Start, into: Gathered) -> Start | bool | None:
    """``docker run …`` and ``docker exec …``."""
    words = list(split(start.words[1:], _GLOBAL).rest)
    if words and words[0].text == "container":
        words = words[1:]
    verb = words[0].text if words else ""
    if verb in ("run", "create"):
        return _run(start, into, split(words[1:], _RUN))
    if verb == "exec":
        return _exec(start, into, split(words[1:], _EXEC))
    if verb == "compose" and any(word.text == "up" for word in words):
        into.remarks.append(start.remark("the services are in a compose file: name it to adopt"))
    elif verb in ("start", "restart"):
        into.remarks.append(start.remark("how the container was made is not written here"))
    return True


def _run(start: Start, into: Gathered, found: Options) -> Start | bool | None:
    if found.unknown:
        why = f"launch does not know the option {found.unknown[0]}, and so not where the container's command begins"
        into.remarks.append(start.remark(why))
        return None
    if not found.rest:
        into.remarks.append(start.remark("no image in it"))
        return None
    env = environment(start, into, found)
    image, command = found.rest[0], found.rest[1:]
    entry, name = found.last("--entrypoint"), found.last("--name")
    own = start.words[: len(start.words) - len(command)]
    inner = replace(
        _placed(start, found), wrappers=(*start.wrappers, tuple(word.text for word in own)), env=env,
        image=image.text, name=name.text if name is not None else "", remarks=(*start.remarks, *image.doubts),
    )  # fmt: skip
    other = [(option, value) for option, value in found.options if option not in _MAPPED]
    for option, value in other:
        text = option if value is None else f"{option} {value.text}"
        inner = inner.noted(box_options.why(option, [value.text] if value is not None else []), text)
    box = Box(image.text, command, _entry(entry))
    return inside(inner, box, into)


def _entry(word: Word | None) -> tuple[Word, ...] | None:
    if word is None:
        return None
    if word.text.startswith("["):  # podman takes a list as JSON
        return tuple(replace(word, text=text) for text in re.findall(r'"([^"]*)"', word.text))
    return (word,) if word.text else ()


def _placed(start: Start, found: Options) -> Start:
    """Return a command with the folder and user that a container's options name."""
    folder, user = found.last("-w", "--workdir"), found.last("-u", "--user")
    folder = folder if folder is not None else NOTHING
    return replace(start, folder=folder, user=user.text if user is not None else "", unset=(), python="")


def environment(start: Start, into: Gathered, found: Options) -> dict[str, Word]:
    """Return the variables that a container gets; a bare name takes its value from the caller."""
    env: dict[str, Word] = {}
    for word in found.values("--env-file"):
        env |= env_file(start, into, word)
    for word in found.values("-e", "--env"):
        name, equals, _ = word.text.partition("=")
        if equals:
            env[name] = part(word, len(name) + 1)
            env[name] = replace(env[name], doubts=word.doubts)
        elif name in start.env:
            env[name] = start.env[name]
        elif name:
            why = "its value comes from whoever starts the container, and is not written here"
            env[name] = Word(f"${name}", (start.remark(why, f"-e {name}"),), word.marks)
    return env


def env_file(start: Start, into: Gathered, word: Word) -> dict[str, Word]:
    """Return the variables of ``--env-file``: raw lines, quotes are part of the value, ``#`` only begins a line."""
    text = into.files.text(word.text)
    if text is None:
        remark = start.remark("it is not here, so what it sets is not known: put it beside the input", word.text)
        return {"": Word("", (remark,))}
    found: dict[str, Word] = {}
    for line in text.splitlines():
        name, equals, value = line.lstrip().partition("=")
        if not name or name.startswith("#"):
            continue
        if equals:
            found[name] = Word(value, marks=word.marks)
        elif name.strip() in start.env:
            found[name.strip()] = start.env[name.strip()]
    return found


def _exec(start: Start, into: Gathered, found: Options) -> Start | bool | None:
    if len(found.rest) < 2:
        return True
    container, command = found.rest[0], found.rest[1:]
    own = start.words[: len(start.words) - len(command)]
    why = "started in a container that is there already: its image and its own variables are not written here"
    return replace(
        _placed(start, found).noted(why, " ".join(word.text for word in own)),
        wrappers=(*start.wrappers, tuple(word.text for word in own)),
        env=environment(start, into, found), unset=(), python="", words=command, name=container.text,
    )  # fmt: skip


def inside(start: Start, box: Box, into: Gathered) -> Start | bool | None:
    """Return the command that runs in a container; ``start`` is what is known of it but for its words."""
    missing = start.env.get("")
    if missing is not None:
        env = {name: value for name, value in start.env.items() if name}
        start = replace(start, env=env, remarks=(*start.remarks, *missing.doubts))
    if box.entrypoint is not None:
        words = (*box.entrypoint, *box.command)
    else:
        words, why = _of_image(box)
        start = start.noted(why, box.image) if why else start
    if not words:
        into.remarks.append(start.remark("what its image starts by itself is not written here"))
        return None
    return replace(start, words=words)


def _of_image(box: Box) -> tuple[tuple[Word, ...], str]:
    """Return what an image runs when it is given these words, and what is to be told of it."""
    line = box.command[0].line if box.command else 1
    name, _, tag = box.image.rpartition("/")[2].partition(":")
    first = box.command[0].text if box.command else ""
    if name.startswith("vllm-openai"):
        release = re.match(r"v?(\d+)\.(\d+)", tag)
        old = release is not None and (int(release.group(1)), int(release.group(2))) < (0, 11)
        own = ["python3", "-m", "vllm.entrypoints.openai.api_server"] if old else ["vllm", "serve"]
        return (*plain(own, line), *box.command), f"this image starts {shlex.join(own)} with these arguments"
    if first.startswith("-"):
        return (), ""
    return box.command, ""


def singularity(start: Start, _into: Gathered) -> Start | bool | None:
    """``singularity exec --nv IMAGE COMMAND``: it hands the caller's environment on."""
    names = ("--bind", "--env", "--env-file", "--home", "--pwd", "--workdir", "--overlay", "--scratch", "--app",
             "--dns", "--hostname", "--network", "--security", "--mount", "--cwd", "--fakeroot-mode")  # fmt: skip
    if len(start.words) < 2 or start.words[1].text not in ("exec", "run", "shell"):
        return True
    found = split(start.words[2:], Spec("BHSWo", frozenset(names)))
    if len(found.rest) < 2:
        return True
    env = dict(start.env)
    for word in found.values("--env"):
        for piece in word.text.split(","):
            name, _, value = piece.partition("=")
            env[name] = Word(value, word.doubts, word.marks)
    image, command = found.rest[0], found.rest[1:]
    own = start.words[: len(start.words) - len(command)]
    return replace(
        start, words=command, env=env, image=image.text, python="",
        wrappers=(*start.wrappers, tuple(word.text for word in own)),
    )  # fmt: skip
