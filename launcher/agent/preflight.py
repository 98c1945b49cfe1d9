"""Everything that can be known to be missing on a host before the old server is stopped. Reads only.

`needs` asks first: user, programs, folders, other deployments. Here it is what a start would find out minutes later,
with the old server gone: weights, the draft, the engine's package, disks, memory, port and GPUs.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any, Collection, Dict, List, Mapping

from . import preflight_host as host
from .as_user import Unanswered, ask
from .model_files import Subject
from .model_place import look
from .obstacle import Obstacle, refuse, warn
from .preflight_draft import mismatches

_MODEL_SECONDS = 60.0
_ENGINE_SECONDS = 10.0
_DISK_SECONDS = 10.0
#: What the manager takes for no shell, and gives no SHELL for (systemd 247, 252 and 257, tried).
_NO_SHELLS = ("", "nologin", "false", "true")
#: What the command line of an engine runs, `launcher.render.command`.
_MODULES = {"sglang": "sglang.launch_server", "vllm": "vllm.entrypoints.cli.main"}
#: Looks for a module as ``-m`` does, and imports nothing: not even its package, which would load torch.
_FIND = """\
import sys
path, name = None, ""
for part in sys.argv[1].split("."):
    name = name + "." + part if name else part
    finders = [finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec")]
    try:
        spec = next((spec for find in finders for spec in [find(name, path)] if spec), None)
        path = spec and list(spec.submodule_search_locations or [])
    except KeyError:  # a namespace inside a package cannot be looked into without its import
        break
    if spec is None:
        sys.stdout.write(name)
        break
"""


def problems(wanted: Mapping[str, Any], facts: Mapping[str, Any], going: Collection[int] = ()) -> List[Obstacle]:
    """Return what stands in the way of a start; what cannot be known is left out.

    Args:
        wanted: ``user``, ``engine`` ("sglang" or "vllm"), ``python``, ``env`` (of the release, without secrets),
            ``working_directory`` ("" for /), ``model`` and ``draft`` (or None), each with ``path`` and perhaps
            ``load_format``, ``tokenizer`` (False where it comes from elsewhere), ``revision``, ``download_dir``;
            ``port``, ``host``, ``unit``, ``gpus`` (numbers as text; empty for all), ``memory_fraction`` (0 for
            unknown), ``log_file`` ("" for the journal), ``image`` ("" where the engine is in no container).
        facts: of `facts.facts`; ``gpus`` and ``shm`` are used, and may be None.
        going: processes outside the unit that will be gone before the start as well.
    """
    found: List[Obstacle] = []
    own = host.own_pids(wanted["unit"]).union(going)
    weights = {"bytes": 0, "largest": 0}
    try:
        user = pwd.getpwnam(wanted["user"])
    except KeyError:
        pass  # `needs` says so
    else:
        env = environment(wanted["env"], user)
        found += _models(wanted, user, env, weights)
        found += _image(wanted["image"]) if wanted.get("image") else _engine(wanted, user, env)
        found += _cache(user, env)
    found += host.disks(wanted["log_file"])
    found += host.memory(weights, own)
    gpus, indices = facts.get("gpus"), wanted["gpus"]
    found += host.shared_memory(facts.get("shm"), len(indices) or len(gpus or ()), own)
    found += host.port(wanted["port"], wanted["host"], own)
    found += host.gpus(gpus, indices, own)
    return found + host.gpu_memory(gpus, indices, own, wanted["memory_fraction"], wanted["engine"])


def environment(own: Mapping[str, str], user: pwd.struct_passwd) -> Dict[str, str]:
    """Return what the unit's processes get: the manager's own variables, then the release's."""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    if os.path.basename(user.pw_shell) not in _NO_SHELLS:
        names["SHELL"] = user.pw_shell
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LANG": "C.UTF-8", **names, **own}


def _models(
    wanted: Mapping[str, Any], user: pwd.struct_passwd, env: Mapping[str, str], weights: Dict[str, int]
) -> List[Obstacle]:
    """Look at the model and its draft; what they weigh is added to ``weights``."""
    found: List[Obstacle] = []
    configs: List[Any] = []
    for prefix, key in (("model", "model.path"), ("draft", "spec.draft_model_path")):
        model = wanted[prefix]
        if not model:
            continue
        model = model if prefix == "model" else {**model, "tokenizer": False}
        subject, cwd = Subject(prefix, key, model["path"]), wanted.get("working_directory") or "/"

        def question(subject: Subject = subject, model: Mapping[str, Any] = model, cwd: str = cwd) -> Dict[str, Any]:
            return look(subject, model, env, env["HOME"], cwd)

        try:
            seen = ask(user, question, _MODEL_SECONDS)
        except Unanswered as why:
            found.append(warn(f"{prefix}-unknown", f"{key}={model['path']} could not be looked at: {why}"))
            continue
        found += [Obstacle(*row) for row in seen["rows"]]
        configs.append(seen["config"])
        weights.update(bytes=weights["bytes"] + seen["bytes"], largest=max(weights["largest"], seen["largest"]))
    return found + (mismatches(*configs) if len(configs) > 1 else [])


def _cache(user: pwd.struct_passwd, env: Mapping[str, str]) -> List[Obstacle]:
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env["HOME"], ".cache")
    try:
        rows = ask(user, lambda: host.cache_disk(cache), _DISK_SECONDS) if os.path.isabs(cache) else []
    except Unanswered as why:
        return [warn("disk-unknown", f"the disk of {cache} could not be looked at: {why}")]
    return [Obstacle(*row) for row in rows]


def _image(name: str) -> List[Obstacle]:
    """Ask podman whether it has the image; what is in it nobody looks at."""
    try:
        done = subprocess.run(
            ["podman", "image", "exists", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ENGINE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return [warn("image-unknown", f"podman could not be asked for {name}: {why}")]
    if done.returncode == 1:
        text = f"runtime.image={name} is not on this host, and a start does not fetch it: podman pull {name}"
        return [refuse("image-missing", text)]
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        return [warn("image-unknown", f"podman could not be asked for {name}: {said}")]
    return []


def _engine(wanted: Mapping[str, Any], user: pwd.struct_passwd, env: Mapping[str, str]) -> List[Obstacle]:
    """Ask the interpreter whether it finds the engine.

    As the unit runs it, so without -I: PYTHONPATH, the user's own packages and the working directory count there too.
    """
    python, module = wanted["python"], _MODULES[wanted["engine"]]
    cwd = wanted.get("working_directory") or "/"

    def question() -> List[Any]:
        try:
            done = subprocess.run(
                [python, "-c", _FIND, module],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ENGINE_SECONDS,
                env=env,
                cwd=cwd,
                check=False,
            )
        except OSError as why:
            return [127, "", str(why)]
        return [done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")]

    try:
        code, missing, said = ask(user, question, _ENGINE_SECONDS + 2)
    except Unanswered as why:
        return [warn("engine-unknown", f"{python} could not be asked for {wanted['engine']}: {why}")]
    if code:
        last = (said.strip().splitlines() or [f"exit {code}"])[-1]
        return [refuse("engine-python", f"{python} does not run: {last[:300]}; repair it, or set engine.python")]
    if missing:
        text = f"{python} does not find the module {missing}: install {wanted['engine']} for it, or set engine.python"
        return [refuse("engine-missing", text)]
    return []
