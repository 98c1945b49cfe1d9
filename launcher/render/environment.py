"""The environment of the server: what NCCL, speculation and the user set, and what `launch` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalogue import nccl
from launcher.errors import RenderError

if TYPE_CHECKING:
    from launcher.schema import Deployment

#: What `launch` adds unless it is set otherwise.
#:
#: SPT_NOENV: without it the engines' workers rename themselves over their own environment, and
#: /proc/PID/environ no longer tells what they were given (setproctitle; SGLang 0.5.17, vLLM 0.25.0, tried).
#: NCCL_DEBUG, NCCL_DEBUG_SUBSYS: every rank prints the variables that it took, about 190 lines a start.
ADDED = {"SPT_NOENV": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV"}

#: systemd.exec(5), "Environment variables set by the service manager", and what the waiter is called with.
_SYSTEMDS = frozenset(
    (
        *("MAINPID", "MANAGERPID", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"),
        *("RUNTIME_DIRECTORY", "WATCHDOG_PID", "WATCHDOG_USEC", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"),
        "SYSTEMD_EXEC_PID",
    )
)
#: What a variable of such a name holds when it is a switch, as HF_HUB_DISABLE_IMPLICIT_TOKEN.
_SWITCHES = ("", "0", "1", "true", "false", "yes", "no", "on", "off")
_SECRET_ENDS = ("_TOKEN", "_API_KEY", "_PASSWORD", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY")


def environment(deployment: Deployment) -> dict[str, str]:
    """Return the variables of a deployment, without the two that name its release.

    Raises:
        RenderError: a variable is set in two places, or is one of ours.
    """
    from_nccl = {f"NCCL_{key.upper()}": value for key, value in deployment.nccl.items()}
    if "NCCL_ALGO" in from_nccl and "nccl-bare-tree" not in deployment.allow:
        from_nccl["NCCL_ALGO"] = nccl.per_collective(from_nccl["NCCL_ALGO"], deployment.engine.nccl_version)
    from_spec = {"EAGLE3_PROFILE": "1"} if deployment.spec.profile else {}
    from_gpus = {"CUDA_VISIBLE_DEVICES": ",".join(deployment.engine.gpus)} if deployment.engine.gpus else {}
    problems = [
        f"env.{name} contradicts {key}: set it in one place"
        for name, value in deployment.env.items()
        for key, other in (
            (f"nccl.{name[5:].lower()}", from_nccl.get(name)),
            ("spec.profile", from_spec.get(name)),
            ("engine.gpus", from_gpus.get(name)),
        )
        if other is not None and other != value
    ]
    problems += [
        f"env.{name}: names that begin with LAUNCH_ belong to launch itself"
        for name in deployment.env
        if name.startswith("LAUNCH_")
    ]
    problems += [
        f"env.{name}: systemd sets it for its own purposes"
        for name in deployment.env
        if name in _SYSTEMDS or name.startswith("LISTEN_")
    ]
    problems += [
        f"env.{name} looks like a secret: set secrets.env.{name}=file:PATH instead, it would be shown in clear"
        for name, value in deployment.env.items()
        if name.endswith(_SECRET_ENDS) and value.lower() not in _SWITCHES
    ]
    problems += [
        f"secrets.env.{name} is set in clear as well: take it out of there"
        for name in deployment.secrets.env
        if name in {**from_nccl, **from_spec, **from_gpus, **deployment.env}
    ]
    if problems:
        raise RenderError(*problems)
    return {**ADDED, **from_nccl, **from_spec, **from_gpus, **deployment.env}
